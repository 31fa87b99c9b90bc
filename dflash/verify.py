"""Which draft tokens stay: those the target chooses itself, up to the first it does not.

The target alone chooses every token, from its own logits and the noise of its place. So the ids
are those of plain decoding, whatever was drafted; a draft only says which rows to compute at once.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor

from dflash.errors import EngineError
from dflash.sampling import ChoiceRow, chosen_of, draw_ids
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
        drawn = draw_ids(logits, rows)
    except Exception:
        _logger.debug("a row of %d has no choice; each is chosen alone", len(rows), exc_info=True)
        drawn = None
    verdicts, first = [], 0
    for turn in turns:
        end = first + turn.run.num_logits
        token_ids = _drawn_alone(logits, rows, first, end) if drawn is None else drawn[first:end]
        verdicts.append(_verdict(turn, logits, first, token_ids))
        first = end
    return verdicts


def _rows(turn: Turn) -> Iterator[ChoiceRow]:
    """Yield what decides each token of a turn, as if the draft tokens before it were emitted."""
    if turn.run.num_logits:
        drafts = turn.drafts
        for count, mask in enumerate(turn.masks or (None,) * (len(drafts) + 1)):
            yield turn.sequence.choice_row(drafts[:count], mask)


def _drawn_alone(logits: Tensor, rows: Sequence[ChoiceRow], first: int, end: int) -> Iterator[int]:
    """Yield token ids row by row, drawn only where they are asked for."""
    for row in range(first, end):
        yield draw_ids(logits[row : row + 1], [rows[row]])[0]


def _verdict(turn: Turn, logits: Tensor, first: int, token_ids: Iterable[int]) -> Verdict:
    """Keep ids up to the first that is not the draft token, or that ends the request."""
    num_tokens = len(turn.run.token_ids)
    if not turn.run.num_logits:
        return Verdict(turn, num_kept=num_tokens)
    params, chosen = turn.sequence.request.sampling, []
    error, error_field = None, None
    try:
        for token_id, draft in zip(token_ids, (*turn.drafts, None), strict=False):
            chosen.append(chosen_of(logits, first + len(chosen), token_id, params))
            if token_id != draft or turn.sequence.stops_at(token_id):
                break
    except EngineError as fault:
        error, error_field = str(fault), getattr(fault, "field", None)
    except Exception:
        _logger.exception("a row could not be chosen")
        error = STEP_FAILED
    num_kept = num_tokens - turn.num_drafts - 1 + len(chosen)
    return Verdict(turn, tuple(chosen), num_kept, error, error_field)
