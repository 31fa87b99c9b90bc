"""Samples of a run turned into figures and tables."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks.peers.catalogue import MUST_RUN, OURS, OURS_FREE, Peer
from benchmarks.peers.runners.protocol import Description
from benchmarks.peers.samples import Load, Samples
from benchmarks.report import Result, Table


def result_from_samples(
    samples: Samples,
    loads: Sequence[Load],
    peers: Sequence[Peer],
    descriptions: Mapping[str, Description],
    absent: Mapping[str, str],
) -> Result:
    """Return what the run found.

    Args:
        samples: Of all rounds.
        loads: What each visit served.
        peers: The engines asked for, ours first.
        descriptions: Of the engines that ran.
        absent: Why each other one did not.
    """
    ours = descriptions[OURS.name]
    return Result(
        figures={
            **_figures(samples, loads, [peer for peer in peers if peer.name not in absent]),
            "required_peers_absent": len(MUST_RUN & absent.keys()),
        },
        must_hold={"required_peers_absent": 0},
        conditions={"dtype": ours.weights, "threads": ours.threads, "exactness": ours.settings},
        detail={
            "engines": {name: asdict(description) for name, description in descriptions.items()},
            "absent": dict(absent),
            "loads": [asdict(load) for load in loads],
            "samples": [asdict(sample) for sample in samples.all],
        },
        tables=(
            _speed_table(samples, loads, peers, descriptions, absent),
            _ratio_table(samples, loads, peers),
        ),
        notes=tuple(f"{name} is absent: {reason}" for name, reason in absent.items()),
    )


def _figures(samples: Samples, loads: Sequence[Load], peers: Sequence[Peer]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for load in loads:
        c = load.concurrency
        figures[f"tok_s_ours_at_{c}"] = statistics.median(samples.tok_s(OURS.name, c))
        figures[f"ours_again_over_ours_at_{c}"] = statistics.median(samples.again_over_first(c))
        for peer in peers:
            ratios = samples.ours_over(peer.name, c)
            if ratios and peer is not OURS:
                figures[_ratio_name(peer, c)] = statistics.median(ratios)
    steps = samples.step_over_weight_read()
    if steps:
        figures["step_over_weight_read_at_1"] = statistics.median(steps)
    return figures


def _ratio_name(peer: Peer, concurrency: int) -> str:
    if peer is OURS_FREE:
        return f"exact_over_free_at_{concurrency}"
    return f"tok_s_ratio_to_{peer.figure}_at_{concurrency}"


def _speed_table(
    samples: Samples,
    loads: Sequence[Load],
    peers: Sequence[Peer],
    descriptions: Mapping[str, Description],
    absent: Mapping[str, str],
) -> Table:
    rows = []
    for peer in peers:
        if peer.name in absent:
            rows.append((peer.name, "absent", *["-"] * (len(loads) + 4)))
            continue
        about = descriptions[peer.name]
        weights = f"{about.weights} (quantised)" if peer.reads_gguf else about.weights
        rows.append(
            (
                peer.name,
                about.version,
                weights,
                str(about.threads),
                *(_spread(samples.tok_s(peer.name, load.concurrency), ".0f") for load in loads),
                _shared(samples, peer),
                about.settings,
            )
        )
    return Table(
        title="Output tokens/s by requests in flight: median of the rounds (least to most)",
        columns=(
            "engine",
            "version",
            "weights",
            "threads",
            *(str(load.concurrency) for load in loads),
            "leading tokens as ours",
            "settings",
        ),
        rows=tuple(rows),
    )


def _ratio_table(samples: Samples, loads: Sequence[Load], peers: Sequence[Peer]) -> Table:
    concurrencies = [load.concurrency for load in loads]
    again = (_spread(samples.again_over_first(c), ".3f") for c in concurrencies)
    rows = [("ours, second visit over first", *again)]
    for peer in peers:
        if peer is not OURS:
            ratios = (_spread(samples.ours_over(peer.name, c), ".3f") for c in concurrencies)
            rows.append((f"ours over {peer.name}", *ratios))
    return Table(
        title="Ratios within a round, by requests in flight: median (least to most)",
        columns=("ratio", *map(str, concurrencies)),
        rows=tuple(rows),
    )


def _shared(samples: Samples, peer: Peer) -> str:
    shared = [
        sample.shared_tokens
        for sample in samples.all
        if sample.arm == peer.name and sample.shared_tokens is not None
    ]
    return f"{statistics.mean(shared):.1f}" if shared else "-"


def _spread(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    middle = statistics.median(values)
    return f"{middle:{form}} ({min(values):{form}} to {max(values):{form}})"
