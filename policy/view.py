"""What every rule looks at: which arms are allowed, and what each is worth."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.arms import PLAIN, PLAIN_ARM, Arm
from policy.goodput import Load, Prices, Worth, drafting_worth, plain_worth
from policy.guards import Cap, caps, ceilings
from policy.signals import Signals
from policy.state import State
from policy.survival import Outlook
from policy.terms import Terms

# A wider arm of a drafter that was tried is taken for as good where it is worth nearly as much and
# may be worth more: what it verifies shows which it is, while a narrow arm of a drafter without
# free grades never would.
_NEARLY = 0.97


@dataclass(frozen=True, slots=True)
class View:
    """One moment, worked out.

    Attributes:
        held: What is in force beneath a trial.
        caps: How far each drafter may go.
        worths: What every arm is worth now, by arm.
        ahead: The same when those that wait and can start have started.
        outlooks: What each drafter may be expected to bring.
        prices: Step times.
        load: What a step carries now.
        is_first: Whether nobody decodes yet: whatever is chosen, no context is lacking.
    """

    held: Arm
    caps: Mapping[str, Cap]
    worths: Mapping[Arm, Worth]
    ahead: Mapping[Arm, Worth]
    outlooks: Mapping[str, Outlook]
    prices: Prices
    load: Load
    is_first: bool
    _peaks: dict[str, Worth | None] = field(default_factory=dict)

    @classmethod
    def of(cls, held: Arm, state: State, signals: Signals, terms: Terms) -> "View":
        """Return the view of a moment."""
        rows = max(1, signals.num_rows)
        coming = signals.num_coming if signals.num_decoding else 0
        now = Load(rows, signals.num_prefill_tokens, signals.num_context_tokens)
        soon = Load(rows + coming, signals.num_prefill_tokens, signals.num_context_tokens)
        prices = Prices(terms.costs, state.corrections, signals.now_s)
        outlooks = {
            rungs.drafter: state.survival_of(rungs.drafter).outlook(rungs.draft_lengths[-1])
            for rungs in terms.ladder.drafters
        }
        wishes = {
            rungs.drafter: ceilings(rungs, signals, terms.limits.max_draft_length)
            for rungs in terms.ladder.drafters
        }

        def worths(load: Load) -> dict[Arm, Worth]:
            found = {PLAIN_ARM: plain_worth(prices, load)}
            for rungs in terms.ladder.drafters:
                for arm in terms.ladder.arms_of(rungs.drafter, rungs.draft_lengths[-1]):
                    outlook, wish = outlooks[arm.drafter], wishes[arm.drafter]
                    found[arm] = drafting_worth(arm, outlook, wish, prices, load)
            return found

        present = worths(now)
        ahead = worths(soon) if coming else present
        bounds, is_first = caps(state, signals, terms), signals.num_decoding == 0
        return cls(held, bounds, present, ahead, outlooks, prices, now, is_first)

    def is_allowed(self, arm: Arm) -> bool:
        """Return whether nothing forbids an arm."""
        return self.caps[arm.drafter].allows(arm)

    def is_known(self, drafter: str) -> bool:
        """Return whether something is known of what a drafter brings; of plain, all is."""
        return drafter == PLAIN or self.outlooks[drafter].is_tried

    def promise(self, worth: Worth, *, is_lower: bool) -> float:
        """Return what an arm is worth in a comparison that goes by the mean or the lower bound.

        A drafter that nobody tried is begun by the mean where that costs no context, and where it
        does by the lower bound.
        """
        is_lower = is_lower if self.is_known(worth.arm.drafter) else not self.is_first
        return worth.lower if is_lower else worth.value

    def peak(self, drafter: str) -> Worth | None:
        """Return a drafter's best allowed arm; None where it has none.

        Of those that may be the best, the widest.
        """
        if drafter not in self._peaks:
            self._peaks[drafter] = self._peak(drafter)
        return self._peaks[drafter]

    def _peak(self, drafter: str) -> Worth | None:
        if drafter == PLAIN:
            return self.worths[PLAIN_ARM]
        found = [
            worth
            for arm, worth in self.worths.items()
            if arm.drafter == drafter and self.is_allowed(arm)
        ]
        if not found:
            return None
        best = max(found, key=lambda worth: worth.value)
        may_be = [worth for worth in found if self._may_be_better(worth, best)]
        return max((best, *may_be), key=lambda worth: worth.arm.draft_length)

    def _may_be_better(self, worth: Worth, best: Worth) -> bool:
        if not self.is_known(best.arm.drafter):
            return False
        doubt = worth.value - self._lower_beyond(worth, best.arm)
        return _NEARLY * best.value <= worth.value and best.value <= worth.value + doubt

    def peaks(self) -> list[Worth]:
        """Return the best allowed arm of every drafter and plain, the best first."""
        drafters = [PLAIN, *self.outlooks]
        found = [peak for peak in map(self.peak, drafters) if peak is not None]
        return sorted(found, key=lambda worth: -worth.value)

    @property
    def current(self) -> Worth:
        """The best allowed arm of the drafter in force, or that itself where none is allowed."""
        return self.peak(self.held.drafter) or self.worths[self.held]

    def other_peaks(self) -> list[Worth]:
        """Return the best allowed arm of every other drafter, the best first."""
        return [peak for peak in self.peaks() if peak.arm.drafter != self.held.drafter]

    def scores(self) -> tuple[Worth, ...]:
        """Return what every arm is worth, the best first."""
        return tuple(sorted(self.worths.values(), key=lambda worth: (-worth.value, worth.arm)))

    def lower_beyond(self, arm: Arm, held: Arm) -> float:
        """Return what a wider arm of the same drafter is worth at least, load to come.

        Only the places past the narrower one are charged: the others are common to both.
        """
        return self._lower_beyond(self.ahead[arm], held)

    def _lower_beyond(self, worth: Worth, held: Arm) -> float:
        arm = worth.arm
        outlook = self.outlooks[arm.drafter]
        whole = outlook.spread(arm.draft_length)
        if whole == 0.0:
            return worth.value
        share = outlook.spread(arm.draft_length, held.draft_length) / whole
        return worth.value - (worth.value - worth.lower) * share
