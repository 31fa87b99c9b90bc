"""What forbids a drafter, whatever it promises."""

from dataclasses import dataclass

from policy.arms import PLAIN, Arm, Rungs
from policy.governor import Release
from policy.reasons import Reason
from policy.signals import PoolSignal, Signals
from policy.state import State
from policy.terms import Terms


@dataclass(frozen=True, slots=True)
class Cap:
    """How far a drafter may go.

    Attributes:
        max_draft_length: Most draft tokens for a request; 0 forbids it.
        reason: What lowered it; None where nothing did.
    """

    max_draft_length: int
    reason: Reason | None = None

    def allows(self, arm: Arm) -> bool:
        """Return whether an arm of this drafter may run."""
        return arm.draft_length <= self.max_draft_length


def caps(state: State, signals: Signals, terms: Terms) -> dict[str, Cap]:
    """Return the tightest cap of each drafter; plain is always allowed."""
    found = {PLAIN: Cap(0)}
    for rungs in terms.ladder.drafters:
        found[rungs.drafter] = min(
            _caps_of(rungs, state, signals, terms), key=lambda cap: cap.max_draft_length
        )
    return found


def hard_caps(state: State, signals: Signals, terms: Terms) -> dict[str, Cap]:
    """Return the caps that bind pins and probes, too: what would fail, not what would lose."""
    found = {PLAIN: Cap(0)}
    for rungs in terms.ladder.drafters:
        found[rungs.drafter] = min(
            _hard_caps_of(rungs, state, signals, terms), key=lambda cap: cap.max_draft_length
        )
    return found


def ceilings(rungs: Rungs, signals: Signals, max_draft_length: int | None) -> tuple[int, ...]:
    """Return the draft lengths that single requests must not exceed with a drafter."""
    longest = rungs.max_context_tokens
    found = []
    for request in signals.requests:
        if longest is not None and request.num_context_tokens > longest:
            found.append(0)
        elif request.ceiling is not None:
            found.append(request.ceiling)
    if max_draft_length is not None:
        found = [min(ceiling, max_draft_length) for ceiling in found]
    return tuple(found)


def _caps_of(rungs: Rungs, state: State, signals: Signals, terms: Terms) -> list[Cap]:
    found = _hard_caps_of(rungs, state, signals, terms)
    if rungs.drafter in state.barred:
        found.append(Cap(0, Reason.CONCURRENCY_LIMIT))
    if state.breaker_of(rungs.drafter).is_open:
        found.append(Cap(0, Reason.DRAFTER_UNHEALTHY))
    return found


def _hard_caps_of(rungs: Rungs, state: State, signals: Signals, terms: Terms) -> list[Cap]:
    widest = rungs.draft_lengths[-1]
    most = terms.limits.max_draft_length
    found = [Cap(widest)] if most is None or most >= widest else [Cap(most, Reason.OPTED_OUT)]
    if not signals.condition_of(rungs.drafter).is_loaded:
        found.append(Cap(0, Reason.DRAFTER_UNAVAILABLE))
    wishes = ceilings(rungs, signals, most)
    if wishes and len(wishes) >= signals.num_decoding and max(wishes) < widest:
        found.append(Cap(max(wishes), Reason.OPTED_OUT))
    return [*found, *_memory_caps(rungs, state, signals, terms)]


def _memory_caps(rungs: Rungs, state: State, signals: Signals, terms: Terms) -> list[Cap]:
    release = state.governor.release
    if release >= Release.DRAFTING:
        return [Cap(0, Reason.MEMORY_RED)]
    found = []
    if release >= Release.HEAVY_DRAFTER:
        names = terms.ladder.names
        # The only drafter has no lighter one to make room for: it goes to its narrowest rung.
        is_heaviest = rungs.drafter == names[0]
        only = rungs.draft_lengths[0] if len(names) == 1 else 0
        if is_heaviest:
            found.append(Cap(only, Reason.MEMORY_AMBER))
    if release >= Release.NARROWER_DRAFTS:
        found.append(Cap(_lookahead(signals.pool, signals.num_rows), Reason.MEMORY_AMBER))
    return found


def _lookahead(pool: PoolSignal, num_rows: int) -> int:
    """Return the draft length for which every request finds room in the pages that are free."""
    free = max(0, pool.num_pages - pool.num_pages_used) * pool.page_size
    return max(0, free // max(1, num_rows) - 1)
