"""Are the logits of every committed position those of the request alone, bit for bit?"""

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from benchmarks.prompts import chat_token_ids, questions
from benchmarks.report import Options, Result, Table, progress, run_benchmark
from benchmarks.rigs.arms import (
    Served,
    alone,
    in_batches,
    verified,
    with_preemption,
    with_prefix_cache,
    with_random_chunks,
)
from benchmarks.rigs.transcript import Comparison, Transcript, compared
from dflash.config import Dtype, EngineConfig, Exactness, KVCacheConfig
from dflash.load import LoadedTarget, load_target
from dflash.request import GenerateRequest, SamplingParams

_BATCH_SIZES = (2, 3, 5, 8, 32)
# What an arm is for; one in which it never happened has shown nothing.
_MUST_HAPPEN = {
    "random chunks": "num_chunks",
    "forced preemption": "num_preempted",
    "warm prefix cache": "num_cached_tokens",
}


def measure(options: Options) -> Result:
    """Serve the same requests in every way and compare with each alone."""
    rows, details, totals = [], {}, {"positions": 0, "logits": 0, "ids": 0, "argmax": 0}
    missing, forms = [], []
    for dtype in options.arguments.dtypes.split(","):
        target = load_target(
            EngineConfig(
                dtype=Dtype(dtype),
                exactness=Exactness(options.arguments.exactness),
                num_threads=options.arguments.threads,
                kv_cache=KVCacheConfig(memory_gib=0.75),
            )
        )
        forms.append(f"{dtype}: {target.exactness.mode}, {target.exactness.form}")
        for arm, outcome, comparison in _arms(target, options.quick):
            rows.append((dtype, arm, *(f"{value:,}" for value in asdict(comparison).values())))
            details[f"{dtype}, {arm}"] = asdict(comparison)
            totals["positions"] += comparison.positions_compared
            totals["logits"] += comparison.logits_differ
            totals["ids"] += comparison.ids_differ
            totals["argmax"] += comparison.ids_not_argmax
            if arm in _MUST_HAPPEN and not getattr(outcome, _MUST_HAPPEN[arm]):
                missing.append(f"{dtype}, {arm}")
    return Result(
        figures={
            "positions_compared": totals["positions"],
            "logits_differ": totals["logits"],
            "ids_differ": totals["ids"],
            "ids_not_argmax": totals["argmax"],
            "arms_without_their_event": len(missing),
        },
        must_hold={
            "logits_differ": 0,
            "ids_differ": 0,
            "ids_not_argmax": 0,
            "arms_without_their_event": 0,
        },
        detail={"arms": details, "missing": missing},
        tables=(
            Table(
                "Each request served otherwise, against the same request alone",
                ("dtype", "arm", "positions", "logits differ", "ids differ", "not argmax"),
                tuple(rows),
            ),
        ),
        notes=tuple(forms),
    )


def _arms(target: LoadedTarget, quick: bool) -> Iterator[tuple[str, Served, Comparison]]:
    """Run every arm and compare it with the reference."""
    runner = target.runner
    requests = _requests(target, count=10 if quick else 32, max_tokens=24 if quick else 64)
    greedy = frozenset(r.request_id for r in requests if r.sampling.temperature == 0.0)
    shuffled = random.Random(3).sample(requests, len(requests))
    arms: list[tuple[str, Callable[[Transcript], Served]]] = [
        ("alone again", lambda _: alone(runner, requests)),
        *(
            (f"batches of {size}", lambda _, size=size: in_batches(runner, shuffled, size))
            for size in _BATCH_SIZES
        ),
        ("random chunks", lambda _: with_random_chunks(runner, shuffled, seed=5)),
        ("forced preemption", lambda _: with_preemption(runner, shuffled)),
        ("cold prefix cache", lambda _: with_prefix_cache(runner, shuffled, visits=1)),
        ("warm prefix cache", lambda _: with_prefix_cache(runner, shuffled, visits=2)),
        ("verify runs", lambda reference: verified(runner, shuffled, reference, seed=7)),
    ]
    with progress(len(arms) + 1, target.exactness.form) as bar:
        reference = alone(runner, requests).transcript
        bar.update()
        for name, serve in arms:
            outcome = serve(reference)
            yield name, outcome, compared(reference, outcome.transcript, greedy)
            bar.update()


def _requests(target: LoadedTarget, count: int, max_tokens: int) -> Sequence[GenerateRequest]:
    """Return requests that differ in everything: length, budget, sampling, stops, seeds."""
    draw = random.Random(11)
    texts = questions(count, visit=0)
    # A few prompts span many pages and several chunks.
    texts[1::5] = [" ".join(questions(6, visit=i + 1)) for i in range(len(texts[1::5]))]
    prompts = chat_token_ids(target.model_folder, texts)
    return [
        GenerateRequest(
            request_id=f"request-{index}",
            prompt_token_ids=tuple(prompt),
            max_tokens=draw.choice((1, 2, max_tokens // 2, max_tokens, max_tokens)),
            sampling=_sampling(draw),
            seed=draw.getrandbits(53),
        )
        for index, prompt in enumerate(prompts)
    ]


def _sampling(draw: random.Random) -> SamplingParams:
    if draw.random() < 0.6:
        return SamplingParams(temperature=0.0, ignore_eos=draw.random() < 0.5)
    return SamplingParams(
        temperature=draw.choice((0.5, 1.0, 1.5)),
        top_k=draw.choice((0, 20)),
        top_p=draw.choice((1.0, 0.9)),
        presence_penalty=draw.choice((0.0, 0.5)),
        min_tokens=draw.choice((0, 4)),
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dtypes", default="bfloat16,float32", help="comma-separated; both by default"
    )
    parser.add_argument(
        "--exactness",
        default="bitwise",
        choices=[mode.value for mode in Exactness],
        help="relaxed shows what this benchmark sees where nothing is promised",
    )
    parser.add_argument("--threads", type=int, default=None, help="all CPUs by default")


if __name__ == "__main__":
    run_benchmark(
        "exactness",
        "Logits of every committed position against the request alone: 0 bytes may differ.",
        measure,
        _add_arguments,
    )
