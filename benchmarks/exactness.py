"""Are the logits of every committed position those of the request alone, bit for bit?"""

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from benchmarks.prompts import chat_token_ids, questions
from benchmarks.report import Options, Result, Table, progress, run_benchmark
from benchmarks.rigs.arms import (
    alone,
    in_batches,
    verified,
    with_preemption,
    with_prefix_cache,
    with_random_chunks,
)
from benchmarks.rigs.draft_arms import scripted_arms
from benchmarks.rigs.loaded_arms import loaded_arms
from benchmarks.rigs.served import Served
from benchmarks.rigs.transcript import Comparison, Transcript, compared
from dflash.config import Dtype, EngineConfig, Exactness, KVCacheConfig
from dflash.load import LoadedModels, LoadedTarget, load_models
from dflash.request import GenerateRequest, SamplingParams
from dflash.runner import Runner

_BATCH_SIZES = (2, 3, 5, 8, 32)


@dataclass(frozen=True, slots=True)
class _Arm:
    """One way to serve.

    Attributes:
        name: What tables call it.
        events: What it is for, keys of `Served.events`; one in which it never happened has shown
            nothing.
        serve: Serves the requests.
    """

    name: str
    events: tuple[str, ...]
    serve: Callable[[], Served]


def measure(options: Options) -> Result:
    """Serve the same requests in every way and compare with each alone."""
    rows, details = [], {}
    totals = {"positions": 0, "logits": 0, "ids": 0, "argmax": 0, "drafter_faults": 0}
    missing, forms = [], []
    for dtype in options.arguments.dtypes.split(","):
        models = load_models(
            EngineConfig(
                dtype=Dtype(dtype),
                exactness=Exactness(options.arguments.exactness),
                num_threads=options.arguments.threads,
                kv_cache=KVCacheConfig(memory_gib=0.75),
            )
        )
        exactness = models.target.exactness
        forms.append(f"{dtype}: {exactness.mode}, {exactness.form}")
        for arm, outcome, comparison in _arms(models, options.quick):
            rows.append((dtype, arm.name, *(f"{value:,}" for value in asdict(comparison).values())))
            details[f"{dtype}, {arm.name}"] = asdict(comparison)
            totals["positions"] += comparison.positions_compared
            totals["logits"] += comparison.logits_differ
            totals["ids"] += comparison.ids_differ
            totals["argmax"] += comparison.ids_not_argmax
            missing += [f"{dtype}, {arm.name}: {e}" for e in arm.events if not outcome.events[e]]
            totals["drafter_faults"] += outcome.events["drafter_faults"]
    return Result(
        figures={
            "positions_compared": totals["positions"],
            "logits_differ": totals["logits"],
            "ids_differ": totals["ids"],
            "ids_not_argmax": totals["argmax"],
            "arms_without_their_event": len(missing),
            "drafter_faults": totals["drafter_faults"],
        },
        must_hold={
            "logits_differ": 0,
            "ids_differ": 0,
            "ids_not_argmax": 0,
            "arms_without_their_event": 0,
            "drafter_faults": 0,
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


def _arms(models: LoadedModels, quick: bool) -> Iterator[tuple[_Arm, Served, Comparison]]:
    """Run every arm and compare it with the reference."""
    target = models.target
    requests = _requests(target, count=10 if quick else 32, max_tokens=24 if quick else 64)
    greedy = frozenset(r.request_id for r in requests if r.sampling.temperature == 0.0)
    shuffled = random.Random(3).sample(requests, len(requests))
    reference = alone(target.runner, requests).transcript
    arms = [
        _Arm("alone again", (), lambda: alone(target.runner, requests)),
        *_plain_arms(target.runner, shuffled, reference),
        *_draft_arms(models, shuffled, reference),
    ]
    with progress(len(arms), target.exactness.form) as bar:
        for arm in arms:
            outcome = arm.serve()
            yield arm, outcome, compared(reference, outcome.transcript, greedy)
            bar.update()


def _plain_arms(
    runner: Runner, requests: Sequence[GenerateRequest], reference: Transcript
) -> Iterator[_Arm]:
    for size in _BATCH_SIZES:
        yield _Arm(f"batches of {size}", (), lambda size=size: in_batches(runner, requests, size))
    yield _Arm("random chunks", ("chunks",), lambda: with_random_chunks(runner, requests, seed=5))
    yield _Arm("forced preemption", ("preempted",), lambda: with_preemption(runner, requests))
    yield _Arm("cold prefix cache", (), lambda: with_prefix_cache(runner, requests, visits=1))
    yield _Arm(
        "warm prefix cache",
        ("cached_tokens",),
        lambda: with_prefix_cache(runner, requests, visits=2),
    )
    yield _Arm("verify runs", (), lambda: verified(runner, requests, reference, seed=7))


def _draft_arms(
    models: LoadedModels, requests: Sequence[GenerateRequest], reference: Transcript
) -> Iterator[_Arm]:
    target = models.target
    for arm in (*scripted_arms(target.runner, requests, reference), *loaded_arms(models)):
        yield _Arm(arm.name, arm.events, lambda serve=arm.serve: serve(target.runner, requests))


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
