"""The drafters of an engine side by side: each drafts for its own turns, the warm ones follow."""

from collections.abc import Collection, Iterable, Mapping

from torch import Tensor

from dflash.drafters.base import Drafter
from dflash.drafting import Drafted, Drafting
from dflash.grants import Grants
from dflash.plan import DraftPlan, Release
from dflash.schedule import Effort, Schedule, Verdict


class Ladder:
    """Any number of drafters; a fault of one is nothing to the others."""

    def __init__(self, drafters: Iterable[Drafter], grants: Grants, vocab_size: int) -> None:
        """Take drafters whose contexts are empty.

        Args:
            drafters: Each with a name of its own.
            grants: Made of their facts.
            vocab_size: Ids of the target.
        """
        self._drafters = {
            drafter.facts.name: Drafting(drafter, grants.rungs[drafter.facts.name], vocab_size)
            for drafter in drafters
        }

    @property
    def num_places(self) -> dict[str, int]:
        """Most draft tokens of one pass, by drafter."""
        return {name: each.facts.max_draft_length for name, each in self._drafters.items()}

    @property
    def absent(self) -> frozenset[str]:
        """Drafters whose weights were to come back and could not be loaded."""
        return frozenset(name for name, each in self._drafters.items() if each.is_absent)

    def hold(self, released: Mapping[str, Release]) -> list[str]:
        """Give memory back, or take it again; return whose contexts are lost by it."""
        return [name for name, each in self._drafters.items() if each.hold(released.get(name))]

    def propose(self, schedule: Schedule, num_graded: int) -> Drafted:
        """Return the schedule with the draft tokens of every drafter that is asked for some."""
        efforts: dict[str, Effort] = {}
        for name in {turn.drafter: None for turn in schedule.turns if turn.num_drafts}:
            schedule, efforts[name] = self._drafters[name].propose(schedule, num_graded)
        return Drafted(schedule, efforts)

    def taps(self, names: Collection[str]) -> tuple[int, ...]:
        """Return the target's layers that these drafters read, each once."""
        taps = (tap for name in names for tap in self._drafters[name].facts.taps)
        return tuple(dict.fromkeys(taps))

    def feed(
        self, plan: DraftPlan, verdicts: Iterable[Verdict], hidden: Mapping[int, Tensor]
    ) -> dict[str, Effort]:
        """Extend the contexts of a plan's warm drafters by what each turn kept.

        Shapes:
            hidden: For each of their taps ``[num_tokens, hidden]``, the step's rows.
        """
        verdicts = list(verdicts)
        return {
            name: self._drafters[name].feed(verdicts, hidden, begins=name != plan.leaving)
            for name in sorted(plan.warm)
        }
