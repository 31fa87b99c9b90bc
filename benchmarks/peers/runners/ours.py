"""Our engine in process: no HTTP, no Ray."""

import argparse
import os
import statistics
import threading
import time
from itertools import pairwise

from benchmarks.peers.runners.protocol import Description, Generation, Workload, serve
from dflash.config import EngineConfig, Exactness
from dflash.load import load_engine
from dflash.loop import EngineLoop
from dflash.request import FinishReason, GenerateRequest, SamplingParams, TokenOutput


class Ours:
    """The engine and its loop, fed by this thread and drained by the loop's."""

    def __init__(self, model: str, exactness: Exactness, threads: int) -> None:
        self._threads = threads
        self._engine = load_engine(
            EngineConfig(model=model, exactness=exactness, num_threads=threads)
        )
        self._loop = EngineLoop(self._engine, self._collect)
        self._loop.start()
        self._changed = threading.Condition()
        self._token_ids: dict[str, list[int]] = {}
        self._arrivals_s: dict[str, list[float]] = {}
        self._num_finished = 0
        self._failure: str | None = None
        self._visit = 0

    def describe(self) -> Description:
        """Return what is measured."""
        report = self._engine.exactness
        return Description(
            version="this checkout",
            weights="bfloat16",
            threads=self._threads,
            settings=f"{report.mode}, {report.form}" if report else "no promise",
        )

    def generate(self, workload: Workload) -> Generation:
        """Serve the workload and time it."""
        self._visit += 1
        names = [f"{self._visit}-{index}" for index in range(len(workload.prompts))]
        with self._changed:
            self._token_ids = {name: [] for name in names}
            self._arrivals_s = {name: [] for name in names}
            self._num_finished = 0
        started = time.perf_counter()
        for index, (name, prompt) in enumerate(zip(names, workload.prompts, strict=True)):
            self._wait_for(index - workload.concurrency + 1)
            self._loop.submit(_request(name, prompt, workload.new_tokens))
        self._wait_for(len(names))
        seconds = time.perf_counter() - started
        gaps = [
            later - earlier
            for arrivals in self._arrivals_s.values()
            for earlier, later in pairwise(arrivals)
        ]
        return Generation(
            seconds=seconds,
            token_ids=[self._token_ids[name] for name in names],
            step_s=statistics.median(gaps) if gaps else None,
        )

    def _wait_for(self, num_finished: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._num_finished >= num_finished)
            if self._failure:
                raise RuntimeError(self._failure)

    def _collect(self, outputs: tuple[TokenOutput, ...]) -> None:
        now = time.perf_counter()
        with self._changed:
            for output in outputs:
                self._token_ids[output.request_id].extend(output.token_ids)
                self._arrivals_s[output.request_id].append(now)
                self._num_finished += output.finish_reason is not None
                if output.finish_reason == FinishReason.ERROR:
                    self._failure = output.error or "the request failed without a message"
            self._changed.notify_all()


def _request(name: str, prompt: list[int], new_tokens: int) -> GenerateRequest:
    return GenerateRequest(
        request_id=name,
        prompt_token_ids=tuple(prompt),
        max_tokens=new_tokens,
        sampling=SamplingParams(temperature=0.0, ignore_eos=True),
    )


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--exactness", type=Exactness, default=Exactness.BITWISE)
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    serve(lambda: Ours(arguments.model, arguments.exactness, threads))


if __name__ == "__main__":
    _main()
