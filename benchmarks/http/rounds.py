"""The interleaved run: the same load through HTTP and in process, load by load."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.http.client import AnswerError, ChatClient, Visit
from benchmarks.http.processes import ClusterProcesses
from benchmarks.peers.arms import Arms
from benchmarks.peers.catalogue import OURS
from benchmarks.peers.environment import PeerAbsentError
from benchmarks.peers.runners.protocol import Workload
from benchmarks.peers.samples import Load
from benchmarks.prompts import chat_token_ids, questions
from benchmarks.report import progress

_WARM_UP_TOKENS = 4
# Enough for a side that was frozen to find its weights in the cache again.
_WAKE_UP = Load(concurrency=1, num_requests=1, new_tokens=4)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One load, served in process, through HTTP, and in process again.

    Attributes:
        concurrency: Requests in flight.
        in_process_tok_s: Output throughput before and after.
        http_tok_s: Output throughput through HTTP.
        ttft_s: Of every request through HTTP.
        client_cpu_share: CPU the client used while it waited for HTTP, 1 is one core.
    """

    concurrency: int
    in_process_tok_s: tuple[float, float]
    http_tok_s: float
    ttft_s: tuple[float, ...]
    client_cpu_share: float

    @property
    def rate_over_in_process(self) -> float:
        """Output throughput through HTTP over that in process."""
        return self.http_tok_s / statistics.mean(self.in_process_tok_s)


class HttpRun:
    """Rounds of one server beside one engine in process."""

    def __init__(
        self, client: ChatClient, processes: ClusterProcesses, arms: Arms, model_folder: Path
    ) -> None:
        self._client = client
        self._processes = processes
        self._arms = arms
        self._model_folder = model_folder
        self._num_visits = 0
        self._wake_up = Workload(
            chat_token_ids(model_folder, questions(_WAKE_UP.num_requests, 0)),
            _WAKE_UP.concurrency,
            _WAKE_UP.new_tokens,
        )

    def measure(self, loads: Sequence[Load], num_rounds: int, what: str) -> list[Comparison]:
        """Warm both sides up, then compare them on every load, round after round.

        Raises:
            AnswerError: The server failed a request.
            PeerAbsentError: The engine in process failed.
        """
        for load in loads:
            warm_up = Load(load.concurrency, load.concurrency, _WARM_UP_TOKENS)
            self._through_http(warm_up)
            self._in_process(warm_up)
        comparisons = []
        with progress(num_rounds * len(loads), what) as bar:
            for _ in range(num_rounds):
                for load in loads:
                    comparisons.append(self._compare(load))
                    bar.update()
        return comparisons

    def _compare(self, load: Load) -> Comparison:
        before_tok_s = self._in_process(load)
        self._through_http(_WAKE_UP)
        http = self._through_http(load)
        after_tok_s = self._in_process(load)
        return Comparison(
            concurrency=load.concurrency,
            in_process_tok_s=(before_tok_s, after_tok_s),
            http_tok_s=http.tok_s,
            ttft_s=tuple(answer.ttft_s for answer in http.answers),
            client_cpu_share=http.client_cpu_s / http.seconds,
        )

    def _through_http(self, load: Load) -> Visit:
        visit = self._client.visit(self._questions(load), load.concurrency, load.new_tokens)
        for answer in visit.answers:
            if answer.num_tokens != load.new_tokens:
                raise AnswerError(
                    f"an answer has {answer.num_tokens} tokens, {load.new_tokens} were asked for"
                )
        return visit

    def _in_process(self, load: Load) -> float:
        """Return output throughput while the whole cluster is held still."""
        prompts = chat_token_ids(self._model_folder, self._questions(load))
        workload = Workload(prompts, load.concurrency, load.new_tokens)
        with self._processes.frozen():
            self._arms.generate(OURS, self._wake_up)
            generation = self._arms.generate(OURS, workload)
        if generation is None:
            raise PeerAbsentError(self._arms.absent[OURS.name])
        return load.num_requests * load.new_tokens / generation.seconds

    def _questions(self, load: Load) -> list[str]:
        """Return questions that neither side has seen: no answer comes from a warm cache."""
        self._num_visits += 1
        return questions(load.num_requests, self._num_visits)


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the smallest value that at least this fraction of all values does not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(fraction * len(ranked)) - 1)]
