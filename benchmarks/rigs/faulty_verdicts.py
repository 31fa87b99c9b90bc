"""An engine that keeps drafts its target did not choose."""

from collections.abc import Iterable
from dataclasses import replace

from benchmarks.rigs.fault import Dice, Fault
from dflash.engine import Engine
from dflash.request import TokenOutput
from dflash.sampling import Chosen
from dflash.schedule import Verdict


def spoil_verdicts(engine: Engine, fault: Fault, dice: Dice) -> None:
    """Put a fault between an engine's verdicts and its books.

    Args:
        engine: The engine.
        fault: ``count_of_another`` or ``all_accepted``.
        dice: When it strikes.
    """
    commit = engine.scheduler.commit

    def wrong_commit(verdicts: Iterable[Verdict]) -> tuple[TokenOutput, ...]:
        verdicts = list(verdicts)
        accepted = [len(verdict.chosen) - 1 for verdict in verdicts if _drafted(verdict)]
        return commit(
            [
                _with_accepted(verdict, _count(verdict, fault, accepted, dice), dice)
                if _drafted(verdict) and dice.strikes()
                else verdict
                for verdict in verdicts
            ]
        )

    engine.scheduler.commit = wrong_commit


def _drafted(verdict: Verdict) -> bool:
    return verdict.turn.num_drafts > 0 and verdict.error is None


def _count(verdict: Verdict, fault: Fault, accepted: list[int], dice: Dice) -> int:
    """Return how many drafts the turn is made to keep."""
    most = verdict.turn.num_drafts
    return most if fault is Fault.ALL_ACCEPTED else min(dice.random.choice(accepted), most)


def _with_accepted(verdict: Verdict, count: int, dice: Dice) -> Verdict:
    """Return the verdict with this many drafts kept, and no token of the target's after them.

    A count under the right one would make the answer late, not wrong: it stays as it is.
    """
    missing = count - len(verdict.chosen)
    if missing < 0:
        return verdict
    dice.num_struck += 1
    chosen = tuple(Chosen(token_id, None) for token_id in verdict.turn.drafts[:count])
    return replace(verdict, chosen=chosen, num_kept=verdict.num_kept + missing)
