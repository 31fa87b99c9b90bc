"""The interleaved run: every engine serves the same load once a round, ours first and last."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.arms import Arms
from benchmarks.peers.catalogue import OURS, Peer
from benchmarks.peers.environment import PeerAbsentError
from benchmarks.peers.runners.protocol import Generation, Workload
from benchmarks.peers.samples import OURS_AGAIN, Load, Sample, Samples, shared_prefix
from benchmarks.peers.weight_read import WeightRead
from benchmarks.prompts import chat_token_ids, questions
from benchmarks.report import progress

_WARM_UP_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        num_rounds: Visits to each engine; ours gets two a round.
        loads: What each visit serves.
    """

    num_rounds: int
    loads: tuple[Load, ...]


class InterleavedRun:
    """All visits to all engines, in an order that a slow drift of the machine cannot favour."""

    def __init__(self, arms: Arms, model_folder: Path, plan: Plan) -> None:
        self._arms = arms
        self._model_folder = model_folder
        self._plan = plan
        self._weight_read = WeightRead(model_folder)
        self._samples: list[Sample] = []
        self._prompts = self._all_prompts(2 * plan.num_rounds + 1)
        # Enough for an engine that was frozen to find its weights in the cache again.
        self._wake_up = Workload(self._prompts[0][0][:1], 1, _WARM_UP_TOKENS)

    def measure(self) -> Samples:
        """Warm every engine up, run all rounds and return what was seen.

        Raises:
            PeerAbsentError: Our own engine failed: there is nothing to compare.
        """
        engines = self._arms.running
        prompts = self._prompts
        with progress((len(engines) + 1) * self._plan.num_rounds + len(engines), "visits") as bar:
            for peer in engines:
                self._warm_up(peer, prompts[0])
                bar.update()
            for index in range(self._plan.num_rounds):
                first, again = prompts[2 * index + 1], prompts[2 * index + 2]
                ours = self._visit(OURS, OURS.name, index, first)
                bar.update()
                for peer in engines:
                    if peer is not OURS:
                        self._visit(peer, peer.name, index, first, ours)
                        bar.update()
                self._visit(OURS, OURS_AGAIN, index, again)
                bar.update()
        return Samples(self._samples)

    def _all_prompts(self, num_visits: int) -> list[list[list[list[int]]]]:
        """Return, for each visit and each load, prompts that nothing else in the run uses."""
        loads = self._plan.loads
        texts = [
            questions(load.num_requests, visit * len(loads) + place)
            for visit in range(num_visits)
            for place, load in enumerate(loads)
        ]
        ids = iter(chat_token_ids(self._model_folder, [text for part in texts for text in part]))
        parts = iter([[next(ids) for _ in part] for part in texts])
        return [[next(parts) for _ in loads] for _ in range(num_visits)]

    def _warm_up(self, peer: Peer, prompts: Sequence[list[list[int]]]) -> None:
        """Let the engine meet every batch size before it is timed."""
        for load, texts in zip(self._plan.loads, prompts, strict=True):
            some = texts[: load.concurrency]
            self._arms.generate(peer, Workload(some, load.concurrency, _WARM_UP_TOKENS))

    def _visit(
        self,
        peer: Peer,
        arm: str,
        round_index: int,
        prompts: Sequence[list[list[int]]],
        ours: Sequence[Generation] | None = None,
    ) -> list[Generation]:
        """Serve every load once and keep the samples; return what came out."""
        self._arms.generate(peer, self._wake_up)
        generations = []
        for place, load in enumerate(self._plan.loads):
            workload = Workload(prompts[place], load.concurrency, load.new_tokens)
            generation = self._arms.generate(peer, workload)
            if generation is None:
                break
            generations.append(generation)
            shared = shared_prefix(ours[place].token_ids, generation.token_ids) if ours else None
            self._keep(arm, round_index, load, generation, shared)
        if OURS.name in self._arms.absent:
            raise PeerAbsentError(self._arms.absent[OURS.name])
        return generations

    def _keep(
        self, arm: str, round_index: int, load: Load, generation: Generation, shared: float | None
    ) -> None:
        reads_weights = arm in (OURS.name, OURS_AGAIN) and load.concurrency == 1
        self._samples.append(
            Sample(
                round_index=round_index,
                arm=arm,
                concurrency=load.concurrency,
                tok_s=load.num_requests * load.new_tokens / generation.seconds,
                step_s=generation.step_s,
                weight_read_s=self._weight_read.measure_s() if reads_weights else None,
                shared_tokens=shared,
            )
        )
