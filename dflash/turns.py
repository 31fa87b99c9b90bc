"""A share of a step turned into what the target computes for it."""

from collections.abc import Iterator

from dflash.batch import Run
from dflash.budget import Share
from dflash.grants import Grants
from dflash.kv_cache import PageTable
from dflash.schedule import Turn
from dflash.sequence import Sequence
from dflash.stats import WhyPlain


def turns_of(
    share: Share, table: PageTable, why_plain: WhyPlain | None, grants: Grants
) -> Iterator[Turn]:
    """Yield the turns of a sequence in one step.

    Where a context is behind, its run begins there: the target computes these tokens once more,
    with the same numbers, and hands out their features. One that decodes does not wait for that:
    it has a turn beside, until all that is missing fits in one. A drafter whose own context is
    whole may draft in either.

    Args:
        share: How many tokens it has.
        table: Its pages; they are extended for draft tokens.
        why_plain: Why it cannot have draft tokens, where that is known.
        grants: What bounds them.
    """
    sequence = share.sequence
    start = sequence.num_tokens - share.num_needed
    num_behind = sequence.num_computed - start
    if not sequence.is_decoding:
        run = _run(sequence, table, start, share.num_tokens)
        yield Turn(sequence, run, num_catch_up=min(num_behind, share.num_tokens))
        return
    if share.num_missing:
        if share.num_tokens > 1:
            run = _run(sequence, table, start, share.num_tokens - 1)
            yield Turn(sequence, run, num_catch_up=share.num_tokens - 1)
        start, num_behind = sequence.num_computed, 0
    num_drafts = share.num_drafts and grants.reserve(table, sequence.num_tokens, share.num_drafts)
    if num_drafts:
        why_plain = None
    else:
        why_plain = why_plain or (WhyPlain.PAGES if share.num_drafts else WhyPlain.BUDGET)
    run = _run(sequence, table, start, num_behind + 1)
    yield Turn(sequence, run, num_drafts, why_plain, num_behind, share.drafter)


def _run(sequence: Sequence, table: PageTable, start: int, num_tokens: int) -> Run:
    end = start + num_tokens
    return Run(
        token_ids=tuple(sequence.token_ids[start:end]),
        start=start,
        page_table=tuple(table.pages),
        num_logits=1 if end == sequence.num_tokens else 0,
    )
