"""An engine on `HashLM`, stepped by hand with its books proved after each step."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.script_drafter import SCRIPTED, Script, ScriptDrafter, right_of
from benchmarks.rigs.serial import Answer, full_ids, serial_answer
from dflash.config import EngineLimits
from dflash.engine import Engine, StepResult
from dflash.grammar.compiler import GrammarCompiler
from dflash.plan import Planner
from dflash.request import FinishReason, GenerateRequest, TokenLogprobs, TokenOutput


class Drive:
    """Steps an engine and collects what each request is given.

    Attributes:
        model: The target.
        drafters: One for each script, under its name. Requests that live together need seeds of
            their own where there are any.
        engine: The engine.
        results: What each step brought.
        outputs: Every message of every request, in order.
        max_context: Longest context that the drafter drafts from.
    """

    max_context = 1 << 20

    def __init__(  # noqa: PLR0913 - all have a default and a name
        self,
        limits: EngineLimits | None = None,
        *,
        num_pages: int = 64,
        prefix_caching: bool = True,
        model: HashLM | None = None,
        script: Script | Mapping[str, Script] = MappingProxyType({}),
        planner: Planner | None = None,
        grammars: GrammarCompiler | None = None,
    ) -> None:
        """Start an engine.

        Args:
            limits: Bounds of its steps.
            num_pages: Of a new model.
            prefix_caching: Whether pages are shared.
            model: The target, where it is not a new one.
            script: Of the drafter ``script``, or of any number of drafters by their names.
            planner: Who drafts how far.
            grammars: Of the model's vocabulary.
        """
        self.model = model or HashLM(num_pages=num_pages)
        self._known: dict[tuple[int, int], tuple[int, ...]] = {}
        scripts = script if isinstance(script, Mapping) else {SCRIPTED.name: script}
        self.drafters = {
            name: ScriptDrafter(
                self.model.facts,
                right_of(self._known),
                each,
                model=self.model,
                facts=replace(SCRIPTED, name=name, max_context=self.max_context),
            )
            for name, each in scripts.items()
        }
        self.engine = Engine(
            self.model,
            limits or EngineLimits(),
            drafters=self.drafters.values(),
            planner=planner,
            prefix_caching=prefix_caching,
            grammars=grammars,
        )
        self.results: list[StepResult] = []
        self.outputs: dict[str, list[TokenOutput]] = {}

    @property
    def drafter(self) -> ScriptDrafter:
        """The drafter whose script came without a name."""
        return self.drafters[SCRIPTED.name]

    def submit(self, *requests: GenerateRequest) -> None:
        """Submit requests in this order."""
        for request in requests:
            if self.drafters:
                answer = serial_answer(self.model, request, self.engine.grammars)
                self._known[request.seed, request.choice] = full_ids(request, answer)
            self.engine.submit(request)
            self.outputs[request.request_id] = []

    def step(self, count: int = 1) -> None:
        """Step, prove the books, and make free pages unreadable."""
        for _ in range(count):
            result = self.engine.step()
            self.results.append(result)
            for output in result.outputs:
                self.outputs[output.request_id].append(output)
            self.engine.check()
            self.model.poison(self.engine.kv_cache.free_pages)

    def step_until(self, is_reached: Callable[[], bool], most: int = 2000) -> int:
        """Step until this holds; return the number of steps.

        Raises:
            RuntimeError: It does not hold after ``most`` steps.
        """
        for count in range(most):
            if is_reached():
                return count
            self.step()
        raise RuntimeError(f"not reached in {most} steps")

    def finish(self) -> None:
        """Step until nothing is live."""
        self.step_until(lambda: not self.engine.has_work)

    def abort(self, request_id: str) -> None:
        """Abort a request and collect its last message."""
        last = self.engine.abort(request_id)
        if last is not None:
            self.outputs[request_id].append(last)
        self.engine.check()
        self.model.poison(self.engine.kv_cache.free_pages)

    def answer(self, request_id: str) -> Answer:
        """Return all that a request was given so far."""
        outputs = self.outputs[request_id]
        token_ids: list[int] = []
        logprobs: list[TokenLogprobs] = []
        finish_reason: FinishReason | None = None
        stop_token_id: int | None = None
        for output in outputs:
            token_ids.extend(output.token_ids)
            logprobs.extend(output.logprobs or ())
            finish_reason, stop_token_id = output.finish_reason, output.stop_token_id
        return Answer(tuple(token_ids), tuple(logprobs), finish_reason, stop_token_id)

    def has_begun(self, request_id: str) -> bool:
        """Whether a request has been given a token."""
        return bool(self.answer(request_id).token_ids)
