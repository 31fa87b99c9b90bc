"""One engine, asked to serve the same prompts in different ways."""

import time
from collections.abc import Sequence

from benchmarks.rigs.served import StepFailedError
from benchmarks.speculation.arms import Arm
from benchmarks.speculation.visits import Load, Visit, acceptance_of
from dflash.config import EngineLimits
from dflash.drafters.base import Drafter
from dflash.engine import Engine
from dflash.plan import FixedPlanner, Planner
from dflash.request import GenerateRequest, SamplingParams
from dflash.runner import Runner

_MAX_BATCHED_TOKENS = 512


class Server:
    """A target and drafters that serve one load after another, each from empty books."""

    def __init__(self, runner: Runner, drafters: Sequence[Drafter]) -> None:
        self._runner = runner
        self._drafters = drafters

    def visit(
        self,
        prompts: Sequence[Sequence[int]],
        load: Load,
        arm: Arm,
        round_index: int,
        planner: Planner | None = None,
    ) -> Visit:
        """Serve every prompt and return what was seen.

        Where a planner is given it decides, and the arm is only a name. The prefix cache is off: a
        later arm must not find what an earlier one has computed.

        Raises:
            StepFailedError: Target or drafter failed: what is left is no speed of theirs.
        """
        engine = Engine(
            self._runner,
            EngineLimits(max_num_seqs=load.concurrency, max_num_batched_tokens=_MAX_BATCHED_TOKENS),
            prefix_caching=False,
            drafters=self._drafters,
            planner=planner or FixedPlanner(arm.plan),
        )
        requests = [
            GenerateRequest(
                request_id=str(index),
                prompt_token_ids=tuple(prompt),
                max_tokens=load.max_tokens,
                sampling=SamplingParams(temperature=load.temperature),
                seed=index,
            )
            for index, prompt in enumerate(prompts)
        ]
        answers: dict[str, list[int]] = {request.request_id: [] for request in requests}
        steps = []
        started_s = time.perf_counter()
        for request in requests:
            engine.submit(request)
        while engine.has_work:
            result = engine.step()
            fault = result.fault or result.stats.drafter_fault
            if fault is not None:
                raise StepFailedError(fault)
            steps.append(result.stats)
            for output in result.outputs:
                answers[output.request_id].extend(output.token_ids)
        seconds = time.perf_counter() - started_s
        decoding = [step for step in steps if step.num_decoding and not step.num_prefilling]
        return Visit(
            load=load,
            arm=arm.name,
            round_index=round_index,
            seconds=seconds,
            token_ids=tuple(map(tuple, answers.values())),
            acceptance=acceptance_of(steps),
            decode_step_s=tuple(step.step_time_s for step in decoding),
            draft_s=tuple(step.draft_time_s for step in decoding),
        )
