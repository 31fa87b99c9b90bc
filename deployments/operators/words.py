"""Decisions in sentences: what each reason means, what to do about it, and why this plan runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policy.arms import PLAIN_ARM, Arm
from policy.governor import MemoryLevel
from policy.log import LogEntry
from policy.reasons import Reason


@dataclass(frozen=True, slots=True)
class ReasonWords:
    """One reason for people.

    Attributes:
        meaning: A sentence: what it says.
        cure: What to do where it stays or comes often.
    """

    meaning: str
    cure: str


_NOTHING = "Nothing."
WORDS: Mapping[Reason, ReasonWords] = {
    Reason.STARTING: ReasonWords(
        "Nothing was measured yet, so it decodes plainly.",
        "Nothing; it ends with the first requests. If it stays under load, look at `num_errors` "
        "and `last_error` under `policy` in `/readyz`.",
    ),
    Reason.IDLE: ReasonWords("No request decodes.", _NOTHING),
    Reason.STEADY: ReasonWords("No other plan is better by enough.", _NOTHING),
    Reason.FASTER: ReasonWords(
        "Another drafter, or plain decoding, brings more tokens a second.", _NOTHING
    ),
    Reason.WIDER: ReasonWords("More draft tokens of the same drafter bring more.", _NOTHING),
    Reason.NARROWER: ReasonWords("Fewer draft tokens of the same drafter bring more.", _NOTHING),
    Reason.SLOWER_THAN_PLAIN: ReasonWords(
        "What ran was slower than plain decoding.",
        "If it comes often, the traffic is not what the drafter was trained for: look at its "
        "acceptance, and train one on your own prompts (docs/training.md).",
    ),
    Reason.LOAD_SPIKE: ReasonWords(
        "So many requests came at once that the change did not wait.",
        "If it comes often, let more replicas start earlier (`autoscaling_config`).",
    ),
    Reason.DWELL: ReasonWords(
        "A better plan waits: the drafter changed too short a time ago.",
        "Nothing; `policy.dwell_s` is how long it waits.",
    ),
    Reason.CONFIRMING: ReasonWords("A better drafter won once and has to win again.", _NOTHING),
    Reason.SWITCH_BUDGET: ReasonWords(
        "A better plan waits: the drafter changed too often this minute.",
        "Load or content changes faster than switching pays. Raise `policy.switches_per_minute`, "
        "or pin the plan that is best on the whole.",
    ),
    Reason.SWITCH_COST: ReasonWords(
        "Catching up with a better drafter would take longer than it brings.",
        "Nothing; new requests lower that cost.",
    ),
    Reason.CONCURRENCY_LIMIT: ReasonWords(
        "More requests decode than the operator allows this drafter.",
        "Compare `policy.max_concurrency` with `break_even` in `/readyz`; raise it, or add "
        "replicas.",
    ),
    Reason.MEMORY_AMBER: ReasonWords(
        "Memory is getting short, so drafts are narrowed.",
        "Look at the memory bar: lower `engine.kv_cache.memory_gib` or `limits.max_num_seqs`, or "
        "move what shares the device.",
    ),
    Reason.MEMORY_RED: ReasonWords(
        "Memory is short, so nothing is drafted.",
        "Find what took it (`other` in `GET /admin/memory`). What was given up comes back by "
        "itself after `policy.memory.restore_s` of calm.",
    ),
    Reason.DRAFTER_UNHEALTHY: ReasonWords(
        "The drafter fails, or even its first draft token is nearly always wrong.",
        "Look in the log for `failed to propose`. Without such a line it was trained for other "
        "text, or for another target.",
    ),
    Reason.DRAFTER_UNAVAILABLE: ReasonWords(
        "The drafter's weights were given back and could not be loaded again.",
        "The log has the reason; make its files readable again, then restart the replica.",
    ),
    Reason.OPTED_OUT: ReasonWords(
        "No request may draft as a better plan would: by its own wish, its length, or the "
        "operator's.",
        "See `speculation` in the requests, `policy.max_draft_length`, and the longest context "
        "that the drafter was trained for.",
    ),
    Reason.PROBE: ReasonWords("A short trial of what is idle, with few requests.", _NOTHING),
    Reason.PROBE_ENDED: ReasonWords("A trial ended and changed nothing.", _NOTHING),
    Reason.PINNED: ReasonWords(
        "An operator pinned this plan.",
        "Its author, its reason and its end stand beside it. Lift it when it is not needed any "
        "more.",
    ),
}


# Where what the plans are worth has decided.
_WEIGHED = (
    Reason.FASTER,
    Reason.WIDER,
    Reason.NARROWER,
    Reason.SLOWER_THAN_PLAIN,
    Reason.LOAD_SPIKE,
)


def sentence_of(entry: LogEntry) -> str:
    """Return why a plan was chosen, in a sentence with its figures, and who does not follow it."""
    return " ".join([_why(entry), *_takeover(entry)])


def _why(entry: LogEntry) -> str:
    count, reason, gain = _count_of(entry.num_decoding), entry.reason, gain_of(entry)
    if entry.author is not None and reason is Reason.PINNED:
        return f"{entry.author} pinned {entry.arm_to.name}."
    if reason in (Reason.IDLE, Reason.STARTING) or not entry.num_decoding:
        return WORDS[reason].meaning
    if reason in _WEIGHED and entry.arm_from != entry.arm_to and gain is not None:
        return f"{count}; {entry.arm_to.name} promises {gain:.2f} times {entry.arm_from.name}."
    meaning = WORDS[reason].meaning
    return f"{count}. {meaning}"


def _takeover(entry: LogEntry) -> Iterator[str]:
    if entry.taking_over is not None:
        others = "plainly" if entry.taking_over.is_plain else f"with {entry.taking_over.name}"
        yield f"It begins with the requests that come; the others go on {others}."


def gain_of(entry: LogEntry) -> float | None:
    """Return how many times better the new arm is believed to be; None where nobody knows."""
    values = {PLAIN_ARM: 1.0} | {worth.arm: worth.value for worth in entry.scores}
    if entry.arm_from not in values or entry.arm_to not in values or not entry.scores:
        return None
    return values[entry.arm_to] / values[entry.arm_from]


def explained(entry: LogEntry) -> list[str]:
    """Return a decision as sentences: first what forbids, then what each plan is worth."""
    return [*_guards(entry), *_scores(entry), *_choice(entry)]


def _guards(entry: LogEntry) -> Iterator[str]:
    given_up = entry.release.name.lower().replace("_", " ")
    if entry.memory is MemoryLevel.GREEN and not entry.release:
        yield "Memory is green, so it forbids nothing."
    else:
        yield f"Memory is {entry.memory}; given up for it: {given_up}."
    for blocked in entry.blocked:
        worth = _worth_of(blocked.arm, entry)
        yield f"{blocked.arm.name}{worth} looked better and was kept back: {blocked.reason}. " + (
            WORDS[blocked.reason].meaning
        )


def _count_of(num_decoding: int) -> str:
    return "1 request decodes" if num_decoding == 1 else f"{num_decoding} requests decode"


def _scores(entry: LogEntry) -> Iterator[str]:
    waiting = f", {entry.num_waiting} wait" if entry.num_waiting else ""
    yield f"{_count_of(entry.num_decoding)}{waiting}."
    for worth in entry.scores:
        if not worth.arm.is_plain:
            yield (
                f"{worth.arm.name} is believed to be worth {worth.value:.2f} times plain decoding, "
                f"and at least {worth.lower:.2f} times."
            )
    for drift in entry.drifts:
        yield (
            f"Steps of {drift.where or 'every kind'} take {drift.ratio:.2f} times what was "
            "measured at the start; these figures are corrected by that."
        )


def _choice(entry: LogEntry) -> Iterator[str]:
    if entry.author is not None:
        yield f"{entry.author} has pinned a plan."
    verb = (
        "stays" if entry.arm_from == entry.arm_to else f"takes the place of {entry.arm_from.name}"
    )
    yield f"{entry.arm_to.name} {verb}: {entry.reason}. {WORDS[entry.reason].meaning}"
    yield from _takeover(entry)


def _worth_of(arm: Arm, entry: LogEntry) -> str:
    values = (worth.value for worth in entry.scores if worth.arm == arm)
    return "".join(f" ({value:.2f} times plain)" for value in values)
