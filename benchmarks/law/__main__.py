"""``python -m benchmarks.law``: sampled requests give plain decoding's ids, and those its law.

Three parts. The same sampled requests are served alone and with every kind of draft: no id may
differ. Plain draws over many seeds are held against the law written down once more. And each draft
token that a real drafter proposes is priced under three rules: same noise on both sides, the ratio
test, and a draft without a law of its own.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from benchmarks.law.draws import LawTest, law_tests, num_law_tests
from benchmarks.law.matches import Match, MatchAudit, MatchRate, match_rate
from benchmarks.law.recorded import RecordedWalk
from benchmarks.law.requests import sampled_requests
from benchmarks.report import Options, Result, Table, progress, run_benchmark
from benchmarks.rigs.arms import alone
from benchmarks.rigs.draft_arms import full_width_of_first, scripted_arms
from benchmarks.rigs.loaded_arms import loaded_arms
from benchmarks.rigs.planners import reach_of
from benchmarks.rigs.served import LIMITS, Manner, served
from dflash.config import AUTO_DRAFTER, Dtype, EngineConfig, KVCacheConfig, SpeculationConfig
from dflash.load import LoadedModels, load_models
from dflash.request import GenerateRequest

# Of true laws, the smallest of n chances lies under a/n once in 1/a runs (Bonferroni's bound).
_FALSE_ALARMS = 0.001
_BATCH = 8


def measure(options: Options) -> Result:
    """Compare ids over all kinds of drafts, draws with their laws, and three rules by one draft."""
    arguments = options.arguments
    models = load_models(
        EngineConfig(
            dtype=Dtype(arguments.dtype),
            num_threads=arguments.threads,
            kv_cache=KVCacheConfig(memory_gib=0.75),
            speculation=SpeculationConfig(drafter=arguments.drafter),
        )
    )
    max_tokens, copies = (24, 1) if options.quick else (64, 4)
    requests = sampled_requests(models.target.model_folder, max_tokens, copies)
    differ, missing = _ids_that_differ(models, requests)
    matches = _matches(models, requests)
    tests = _law_tests(4_000 if options.quick else 40_000)
    rejected = [test for test in tests if test.p < _FALSE_ALARMS / len(tests)]
    return Result(
        figures={
            "ids_differ": sum(differ.values()),
            "chi_square_p_min": min(test.p for test in tests),
            "laws_rejected": len(rejected),
            "arms_without_their_event": len(missing),
            **_rate_figures(matches),
        },
        must_hold={"ids_differ": 0, "laws_rejected": 0, "arms_without_their_event": 0},
        conditions={"dtype": arguments.dtype, "exactness": models.target.exactness.form},
        detail={"arms": differ, "missing": missing, "laws": [asdict(test) for test in tests]},
        tables=(_ids_table(differ, len(requests)), *_rate_tables(matches)),
        notes=tuple(_notes(tests, matches)),
    )


def _ids_that_differ(
    models: LoadedModels, requests: Sequence[GenerateRequest]
) -> tuple[dict[str, int], list[str]]:
    """Serve the requests in every drafting arm.

    Returns:
        How many were given other ids than alone, by arm; and what arms did not show.
    """
    runner = models.target.runner
    reference = alone(runner, requests).transcript
    arms = [*scripted_arms(runner, requests, reference), *loaded_arms(models)]
    differ: dict[str, int] = {}
    missing: list[str] = []
    with progress(len(arms), "ids") as bar:
        for arm in arms:
            outcome = arm.serve(runner, requests)
            emitted = outcome.transcript.emitted
            differ[arm.name] = sum(emitted[key] != ids for key, ids in reference.emitted.items())
            missing += arm.what_is_missing(outcome)
            bar.update()
    return differ, missing


def _matches(models: LoadedModels, requests: Sequence[GenerateRequest]) -> list[Match]:
    """Draft at full width with each loaded drafter; return their judged drafts."""
    matches: list[Match] = []
    for held in models.drafters:
        drafter = held.present()
        audit = MatchAudit(RecordedWalk(drafter.walk))
        manner = Manner(
            replace(LIMITS, max_num_seqs=_BATCH),
            drafters=[replace(drafter, walk=audit.walk)],
            planner=full_width_of_first(reach_of([held])),
        )
        served(models.target.runner, requests, manner, audit)
        matches += audit.matches
    return matches


def _law_tests(num_draws: int) -> list[LawTest]:
    tests = []
    with progress(num_law_tests(), "laws") as bar:
        for test in law_tests(num_draws):
            tests.append(test)
            bar.update()
    return tests


def _by_temperature(matches: Sequence[Match]) -> dict[str, MatchRate]:
    temperatures = sorted({match.temperature for match in matches})
    parts = {f"{t:g}": [match for match in matches if match.temperature == t] for t in temperatures}
    return {name: match_rate(part) for name, part in {**parts, "all": matches}.items() if part}


def _rate_figures(matches: Sequence[Match]) -> dict[str, float]:
    if not matches:
        return {}
    rate = match_rate(matches)
    return {
        "match_rate": rate.seen,
        "match_rate_expected": rate.expected.shared_noise,
        "ratio_test_rate": rate.expected.ratio_test,
        "point_mass_rate": rate.expected.point_mass,
    }


def _ids_table(differ: dict[str, int], num_requests: int) -> Table:
    return Table(
        f"{num_requests} sampled requests, drafted for, against each alone",
        ("drafts", "ids differ"),
        tuple((name, str(count)) for name, count in differ.items()),
    )


def _rate_tables(matches: Sequence[Match]) -> Iterator[Table]:
    if matches:
        yield Table(
            "Share of judged drafts kept: same noise (seen, and expected with its spread), and "
            "what two other rules would have kept of the same rows",
            ("temperature", "drafts", "seen", "expected", "spread", "ratio test", "point mass"),
            tuple(
                (
                    name,
                    f"{rate.num_rows:,}",
                    *(
                        f"{value:.4f}"
                        for value in (
                            rate.seen,
                            rate.expected.shared_noise,
                            rate.spread,
                            rate.expected.ratio_test,
                            rate.expected.point_mass,
                        )
                    ),
                )
                for name, rate in _by_temperature(matches).items()
            ),
        )


def _notes(tests: Sequence[LawTest], matches: Sequence[Match]) -> Iterator[str]:
    yield (
        f"{len(tests)} laws were tested with {tests[0].num_draws:,} draws each; a true law gives a "
        f"chi_square_p_min under {_FALSE_ALARMS / len(tests):.1e} once in {1 / _FALSE_ALARMS:,.0f} "
        "runs, and one below that is rejected"
    )
    if not matches:
        yield (
            "match_rate, ratio_test_rate and point_mass_rate were not measured: no drafter was "
            "loaded; name one with --drafter"
        )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", default="bfloat16", choices=[dtype.value for dtype in Dtype])
    parser.add_argument("--threads", type=int, default=None, help="all CPUs by default")
    parser.add_argument(
        "--drafter", default=AUTO_DRAFTER, metavar="FOLDER", help="the shipped one by default"
    )


if __name__ == "__main__":
    run_benchmark(
        "law",
        "Sampled ids under every kind of draft, draws against their law, three rules compared.",
        measure,
        _add_arguments,
    )
