"""OpenVINO GenAI's continuous batching over a GGUF file, stepped in this process."""

import argparse
import os
import time
from collections.abc import Sequence
from importlib import metadata

import numpy as np
import openvino  # pyright: ignore[reportMissingImports]
import openvino_genai  # pyright: ignore[reportMissingImports]

from benchmarks.peers.runners.protocol import (
    ClosedLoop,
    Description,
    Generation,
    Workload,
    serve,
)

_MAX_NUM_SEQS = 32
_CACHE_GIB = 1


class OpenVino:
    """The continuous-batching pipeline and the handles of its running requests."""

    def __init__(self, model: str, threads: int) -> None:
        self._threads = threads
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_seqs = _MAX_NUM_SEQS
        scheduler.cache_size = _CACHE_GIB
        scheduler.enable_prefix_caching = True
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads}
        )
        self._handles: dict[int, openvino_genai.GenerationHandle] = {}

    def describe(self) -> Description:
        """Return what is measured."""
        return Description(
            version=metadata.version("openvino-genai"),
            weights="Q4_1",
            threads=self._threads,
            settings="continuous batching, prefix cache",
        )

    def generate(self, workload: Workload) -> Generation:
        """Serve the workload and time it."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = workload.new_tokens
        config.ignore_eos = True
        config.do_sample = False
        loop = ClosedLoop(
            submit=lambda index, prompt: self._submit(index, prompt, config), step=self._step
        )
        started = time.perf_counter()
        token_ids = loop.run(workload)
        return Generation(seconds=time.perf_counter() - started, token_ids=token_ids)

    def _submit(
        self, index: int, prompt: Sequence[int], config: openvino_genai.GenerationConfig
    ) -> None:
        ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
        self._handles[index] = self._pipeline.add_request(index, ids, config)

    def _step(self) -> list[tuple[int, list[int]]]:
        self._pipeline.step()
        running = openvino_genai.GenerationStatus.RUNNING
        done = [i for i, handle in self._handles.items() if handle.get_status() != running]
        return [(i, list(self._handles.pop(i).read_all()[0].generated_ids)) for i in done]


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    serve(lambda: OpenVino(arguments.model, threads))


if __name__ == "__main__":
    _main()
