"""transformers' own ``generate``: static batches, padded on the left."""

import argparse
import os
import time
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from benchmarks.peers.runners.protocol import Description, Generation, Workload, serve


class TransformersGenerate:
    """A causal language model as the library loads it."""

    def __init__(self, model: str, threads: int) -> None:
        torch.set_num_threads(threads)
        # The library's own types do not know that what it loads here can generate.
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.bfloat16, attn_implementation="sdpa"
        )

    def describe(self) -> Description:
        """Return what is measured."""
        return Description(
            version=transformers.__version__,
            weights="bfloat16",
            threads=torch.get_num_threads(),
            settings="generate, static batch, sdpa",
        )

    def generate(self, workload: Workload) -> Generation:
        """Serve the workload in groups of its concurrency and time it."""
        started = time.perf_counter()
        token_ids: list[list[int]] = []
        for first in range(0, len(workload.prompts), workload.concurrency):
            group = workload.prompts[first : first + workload.concurrency]
            token_ids.extend(self._generate_group(group, workload.new_tokens))
        return Generation(seconds=time.perf_counter() - started, token_ids=token_ids)

    def _generate_group(self, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        width = max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,
                min_new_tokens=new_tokens,
                max_new_tokens=new_tokens,
                pad_token_id=0,
            )
        return output[:, width:].tolist()


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    serve(lambda: TransformersGenerate(arguments.model, threads))


if __name__ == "__main__":
    _main()
