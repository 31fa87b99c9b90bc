"""The turns of a step under their grammars: what may be chosen in each row of logits."""

import logging
from dataclasses import replace

from dflash.batch import Run
from dflash.errors import EngineError
from dflash.grammar.mask import TokenMask
from dflash.grammar.matcher import Matcher
from dflash.schedule import Schedule, Turn
from dflash.stats import WhyPlain

_logger = logging.getLogger(__name__)


def under_grammars(schedule: Schedule) -> Schedule:
    """Return the schedule with the masks of its turns, and no draft token that one forbids.

    What follows a forbidden draft token would never be chosen from, so it is not computed.
    """
    if all(turn.sequence.matcher is None for turn in schedule.turns):
        return schedule
    return replace(schedule, turns=tuple(_masked(turn) for turn in schedule.turns))


def _masked(turn: Turn) -> Turn:
    matcher = turn.sequence.matcher
    if matcher is None or not turn.run.num_logits:
        return turn
    masks = _masks(matcher, turn)
    return replace(_cut(turn, len(masks) - 1), masks=masks)


def _masks(matcher: Matcher, turn: Turn) -> tuple[TokenMask | Exception, ...]:
    """Return the masks of a turn; where there are none, the fault that ends its request."""
    try:
        return tuple(matcher.masks(turn.sequence.output_token_ids, turn.drafts))
    except Exception as error:
        if not isinstance(error, EngineError):
            _logger.exception("a grammar's library failed")
        return (error,)


def _cut(turn: Turn, num_drafts: int) -> Turn:
    """Return the turn with its first draft tokens only; the others are graded, not computed."""
    if num_drafts == turn.num_drafts:
        return turn
    num_cut = turn.num_drafts - num_drafts
    run = turn.run
    return replace(
        turn,
        run=Run(run.token_ids[:-num_cut], run.start, run.page_table, 1 + num_drafts),
        num_drafts=num_drafts,
        why_plain=None if num_drafts else WhyPlain.GRAMMAR,
        tail=(*turn.drafts[num_drafts:], *turn.tail),
    )
