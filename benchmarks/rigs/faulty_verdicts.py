"""An engine that keeps drafts its target did not choose."""

from collections.abc import Iterable
from dataclasses import replace

from benchmarks.rigs.fault import Dice, Fault
from dflash.engine import Engine
from dflash.request import TokenOutput
from dflash.sampling import Chosen
from dflash.schedule import Verdict

OF_VERDICTS = (Fault.COUNT_OF_ANOTHER, Fault.ALL_ACCEPTED)
"""The faults that lie between verdicts and books; all others lie in the target."""


def spoil_verdicts(engine: Engine, fault: Fault, dice: Dice) -> None:
    """Put a fault between an engine's verdicts and its books.

    Args:
        engine: The engine.
        fault: One of `OF_VERDICTS`; nothing is changed for another.
        dice: When it strikes.
    """
    if fault not in OF_VERDICTS:
        return
    commit = engine.scheduler.commit

    def wrong_commit(verdicts: Iterable[Verdict]) -> tuple[TokenOutput, ...]:
        verdicts = list(verdicts)
        most = max((len(verdict.chosen) - 1 for verdict in verdicts), default=0)
        return commit([_spoilt(verdict, fault, most, dice) for verdict in verdicts])

    engine.scheduler.commit = wrong_commit


def _spoilt(verdict: Verdict, fault: Fault, most: int, dice: Dice) -> Verdict:
    """Return a verdict with more drafts kept than are right, where the dice say so.

    Only turns with wrong drafts are diced for: too low a count would make an answer late, not
    wrong.

    Args:
        verdict: The right one.
        fault: What is wrong.
        most: The largest count of accepted drafts in the step.
        dice: When it strikes.
    """
    turn = verdict.turn
    drafts = turn.drafts if fault is Fault.ALL_ACCEPTED else turn.drafts[:most]
    ends = [place for place, token_id in enumerate(drafts) if turn.sequence.stops_at(token_id)]
    # A draft that ends the request is the last.
    drafts = drafts[: ends[0] + 1] if ends else drafts
    right = tuple(choice.token_id for choice in verdict.chosen)
    if verdict.error or len(drafts) < len(right) or drafts == right or not dice.strikes():
        return verdict
    dice.num_struck += 1
    chosen = tuple(Chosen(token_id, None) for token_id in drafts)
    return replace(verdict, chosen=chosen, num_kept=verdict.num_kept + len(drafts) - len(right))
