"""Which draft tokens stay: those the target chooses itself, up to the first it does not.

The target alone chooses every token, from its own logits and the noise of its place. So the ids
are those of plain decoding, whatever was drafted; a draft only says which rows to compute at once.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor

from dflash.errors import EngineError
from dflash.sampling import ChoiceRow, Chosen, choose
from dflash.schedule import Turn, Verdict

_logger = logging.getLogger(__name__)
STEP_FAILED = "the engine failed while computing this request; retry it"
"""What a client is told of a fault of ours."""


def verify(turns: Sequence[Turn], logits: Tensor) -> list[Verdict]:
    """Return what each turn came to.

    A row that cannot choose ends its own request, after the tokens chosen before it, and only
    where plain decoding would have come to that row.

    Shapes:
        logits: ``[rows, vocab]`` float32 on the CPU, ``run.num_logits`` rows a turn, in order.
    """
    rows = [row for turn in turns for row in _rows(turn)]
    try:
        chosen = choose(logits, rows)
    except Exception:
        _logger.debug("a row of %d has no choice; each is chosen alone", len(rows), exc_info=True)
        return _verify_alone(turns, logits, rows)
    verdicts, first = [], 0
    for turn in turns:
        end = first + turn.run.num_logits
        verdicts.append(_verdict(turn, tuple(_chain(turn, chosen[first:end]))))
        first = end
    return verdicts


def _rows(turn: Turn) -> Iterator[ChoiceRow]:
    """Yield what decides each token of a turn, as if the draft tokens before it were emitted."""
    if turn.run.num_logits:
        for count in range(turn.num_drafts + 1):
            yield turn.sequence.choice_row(turn.drafts[:count])


def _chain(turn: Turn, choices: Iterable[Chosen]) -> Iterator[Chosen]:
    """Yield choices up to the first that is not the draft token, or that ends the request."""
    for choice, draft in zip(choices, (*turn.drafts, None), strict=False):
        yield choice
        if choice.token_id != draft or turn.sequence.stops_at(choice.token_id):
            return


def _verdict(turn: Turn, chosen: tuple[Chosen, ...], error: str | None = None) -> Verdict:
    num_rejected = turn.num_drafts + 1 - len(chosen) if turn.run.num_logits else 0
    return Verdict(turn, chosen, len(turn.run.token_ids) - num_rejected, error)


def _verify_alone(
    turns: Sequence[Turn], logits: Tensor, rows: Sequence[ChoiceRow]
) -> list[Verdict]:
    """Choose row by row, no further than needed: a row's choice does not depend on neighbours."""
    verdicts, first = [], 0
    for turn in turns:
        own = range(first, first + turn.run.num_logits)
        chosen: list[Chosen] = []
        error = None
        try:
            choices = (choose(logits[row : row + 1], [rows[row]])[0] for row in own)
            chosen.extend(_chain(turn, choices))
        except EngineError as fault:
            error = str(fault)
        except Exception:
            _logger.exception("a row could not be chosen")
            error = STEP_FAILED
        verdicts.append(_verdict(turn, tuple(chosen), error))
        first = own.stop
    return verdicts
