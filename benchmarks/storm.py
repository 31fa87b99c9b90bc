"""Random requests and drafts on the integer-exact model in a tiny page pool, against serial."""

import logging

from benchmarks.report import Options, Result, progress, run_benchmark
from benchmarks.rigs.storm_run import MUST_HAPPEN, NUM_PAGES, Storm

_NUM_ALONE = 20


def measure(options: Options) -> Result:
    """Run the storm and compare each of its requests with the same request alone."""
    # The drafter fails on purpose, and the engine would log it.
    logging.getLogger("dflash.drafting").setLevel(logging.CRITICAL)
    num_requests = 200 if options.quick else 2000
    storm = Storm(seed=options.arguments.seed)
    with progress(num_requests, "storm") as bar:
        storm.run(num_requests - _NUM_ALONE, on_ended=bar.update)
        storm.run_alone(_NUM_ALONE)
    kv_cache = storm.engine.kv_cache
    num_pages_in_use = NUM_PAGES - kv_cache.num_free
    missing = [name for name in MUST_HAPPEN if not storm.counts[name]]
    return Result(
        figures={
            "requests": storm.counts["requests"],
            "ids_differ": storm.ids_differ,
            "pages_leaked": num_pages_in_use - kv_cache.num_cached,
            "pages_written_astray": storm.pages_written_astray,
            "contexts_wrong": storm.contexts_wrong,
            "kinds_of_events_missing": len(missing),
        },
        must_hold={
            "requests": num_requests,
            "ids_differ": 0,
            "pages_leaked": 0,
            "pages_written_astray": 0,
            "contexts_wrong": 0,
            "kinds_of_events_missing": 0,
        },
        conditions={"seed": options.arguments.seed, "pages": NUM_PAGES},
        detail={"counts": dict(storm.counts), "missing": missing},
        notes=(", ".join(f"{count:,} {name}" for name, count in sorted(storm.counts.items())),),
    )


if __name__ == "__main__":
    run_benchmark(
        "storm",
        "Random requests in a tiny page pool: 0 may differ from serial, no page may leak.",
        measure,
        lambda parser: parser.add_argument("--seed", type=int, default=1),
    )
