"""What a simulated run was worth: against the best arm, against plain, against full width."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from policy.arms import Arm
from policy.ticks import Finished, Tick

INTERVAL_S = 5.0
_TOLERANCE = 0.005
# Up to here a load is low, and full-width drafts are what has to be matched.
_LOW_ROWS = 4


@dataclass(frozen=True, slots=True)
class Score:
    """One run.

    Attributes:
        regret: Work lost against the best fixed arm of each interval.
        regret_steps: Work lost against the best arm of each decision.
        over_plain: Work done over that of plain decoding in the same time.
        worst_interval: The least of that over all intervals.
        low_load_loss: Work lost against full-width drafts at few requests; None where load is
            never low.
        switches_per_min: Changes of drafter a minute, trials left out.
        probe_share: Share of decoding time spent in trials.
        tok_s: Tokens a second of the requests that are done.
        latency_s: Mean time from arrival to last token.
        tpot_p99_s: Time per token of the slowest of a hundred requests.
    """

    regret: float
    regret_steps: float
    over_plain: float
    worst_interval: float
    low_load_loss: float | None
    switches_per_min: float
    probe_share: float
    tok_s: float
    latency_s: float
    tpot_p99_s: float


def scored(ticks: Sequence[Tick], finished: Sequence[Finished], widest: Arm) -> Score:
    """Return the score of a run.

    Args:
        ticks: Its decisions; at least one.
        finished: Its requests; at least one.
        widest: Full-width drafts of the heaviest drafter.
    """
    own_s = sum(tick.own_s for tick in ticks)
    decode_s = sum(tick.decode_s for tick in ticks)
    span_s = ticks[-1].at_s + ticks[-1].seconds - ticks[0].at_s
    done = sum(_work(tick) for tick in ticks)
    best = sum(max(tick.worths.values()) * tick.decode_s for tick in ticks)
    slowest = sorted(f.decode_s / max(1, f.num_tokens - 1) for f in finished)
    return Score(
        regret=1.0 - done / sum(map(_best_fixed, _intervals(ticks))),
        regret_steps=1.0 - done / best,
        over_plain=sum(tick.plain_s for tick in ticks) / own_s,
        worst_interval=min(interval_values(ticks)),
        low_load_loss=_low_load_loss(ticks, widest),
        switches_per_min=_num_switches(ticks) / span_s * 60.0,
        probe_share=sum(tick.decode_s for tick in ticks if tick.is_probe) / decode_s,
        tok_s=sum(f.num_tokens for f in finished) / span_s,
        latency_s=sum(f.queue_s + f.decode_s for f in finished) / len(finished),
        tpot_p99_s=slowest[int(0.99 * (len(slowest) - 1))],
    )


def interval_values(ticks: Sequence[Tick]) -> list[float]:
    """Return what each interval was worth by what it emitted."""
    return [
        sum(tick.plain_s for tick in interval) / sum(tick.own_s for tick in interval)
        for interval in _intervals(ticks)
    ]


def not_below_plain(ticks: Sequence[Tick]) -> float:
    """Return the share of intervals not below plain.

    Plain decoding beside itself is exactly 1 in each: what scatters, noise of step times, would
    have hit both and is left out. What drafts happened to bring is not.
    """
    values = interval_values(ticks)
    return sum(value >= 1.0 - _TOLERANCE for value in values) / len(values)


def mean_worth(ticks: Sequence[Tick]) -> float:
    """Return what the arms that ran were truly worth, over time."""
    return sum(map(_work, ticks)) / sum(tick.decode_s for tick in ticks)


def recovery_s(ticks: Sequence[Tick], since_s: float) -> float | None:
    """Return how long after a time the best arm's drafter ran again; None if never."""
    for tick in ticks:
        best = max(tick.worths, key=tick.worths.__getitem__)
        is_used = tick.arm.drafter == best.drafter and not best.is_plain
        if tick.at_s >= since_s and is_used and not tick.is_probe:
            return tick.at_s - since_s
    return None


def waited_s(ticks: Sequence[Tick], healed_s: float, drafter: str) -> float | None:
    """Return how long a healed drafter was the best one before it was used; None if it never was.

    Time in which another one is the best does not count: nobody misses it then.
    """
    waited = 0.0
    for tick in ticks:
        if tick.at_s < healed_s:
            continue
        if tick.arm.drafter == drafter and not tick.is_probe:
            return waited
        if max(tick.worths, key=tick.worths.__getitem__).drafter == drafter:
            waited += tick.seconds
    return None


def _work(tick: Tick) -> float:
    return tick.worth * tick.decode_s


def _best_fixed(interval: Sequence[Tick]) -> float:
    """Return the work that one arm would have done in an interval, the best of them."""
    totals: dict[Arm, float] = defaultdict(float)
    for tick in interval:
        for arm, worth in tick.worths.items():
            totals[arm] += worth * tick.decode_s
    return max(totals.values())


def _intervals(ticks: Sequence[Tick]) -> Iterator[list[Tick]]:
    found: dict[int, list[Tick]] = defaultdict(list)
    for tick in ticks:
        found[int(tick.at_s // INTERVAL_S)].append(tick)
    yield from found.values()


def _low_load_loss(ticks: Sequence[Tick], widest: Arm) -> float | None:
    low = [tick for tick in ticks if tick.num_rows <= _LOW_ROWS]
    if not low:
        return None
    return 1.0 - sum(map(_work, low)) / sum(tick.worths[widest] * tick.decode_s for tick in low)


def _num_switches(ticks: Sequence[Tick]) -> int:
    drafters = [tick.arm.drafter for tick in ticks if not tick.is_probe]
    return sum(before != after for before, after in pairwise(drafters))
