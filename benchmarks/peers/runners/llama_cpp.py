"""llama.cpp's own server over a GGUF file, called in process."""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import Any

import xllamacpp  # pyright: ignore[reportMissingImports]

from benchmarks.peers.runners.protocol import Description, Generation, Workload, serve

_MAX_NUM_SEQS = 32
_MAX_MODEL_LEN = 1024


class LlamaCpp:
    """The server object, asked by as many threads as there are requests in flight."""

    def __init__(self, model: str, threads: int) -> None:
        self._threads = threads
        params = xllamacpp.CommonParams()
        params.model.path = model
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        params.n_parallel = _MAX_NUM_SEQS
        params.n_ctx = _MAX_NUM_SEQS * _MAX_MODEL_LEN
        self._server = xllamacpp.Server(params)

    def describe(self) -> Description:
        """Return what is measured."""
        return Description(
            version=f"{metadata.version('xllamacpp')} (xllamacpp)",
            weights="Q4_1",
            threads=self._threads,
            settings=f"server, continuous batching, {_MAX_NUM_SEQS} slots, prebuilt wheel",
        )

    def generate(self, workload: Workload) -> Generation:
        """Serve the workload and time it."""

        def ask(prompt: list[int]) -> list[int]:
            return self._complete(prompt, workload.new_tokens)

        with ThreadPoolExecutor(workload.concurrency) as clients:
            started = time.perf_counter()
            token_ids = list(clients.map(ask, workload.prompts))
            seconds = time.perf_counter() - started
        return Generation(seconds=seconds, token_ids=token_ids)

    def _complete(self, prompt: list[int], new_tokens: int) -> list[int]:
        answer: dict[str, Any] = self._server.handle_completions(
            {
                "prompt": prompt,
                "n_predict": new_tokens,
                "temperature": 0.0,
                "ignore_eos": True,
                # The ids are in the verbose part of the answer only.
                "return_tokens": True,
                "verbose": True,
            }
        )
        return answer["__verbose"]["tokens"]


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    serve(lambda: LlamaCpp(arguments.model, threads))


if __name__ == "__main__":
    _main()
