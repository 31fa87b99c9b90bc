"""Looking ahead over any draft tokens leaves a matcher where the output alone has brought it."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.spelling import ANY_OBJECT, RECORD, compiler_of, spelling_tokenizer
from dflash.grammar.mask import TokenMask
from tests.rigs.drafted import VOCAB

GRAMMARS = compiler_of(spelling_tokenizer(), HashLM().facts)
END = 0


def allowed(mask: TokenMask) -> list[int]:
    return [token_id for token_id in range(VOCAB) if mask.allows(token_id)]


@given(
    seed=st.integers(0, 1 << 20),
    grammar=st.sampled_from([RECORD, ANY_OBJECT]),
    drafts=st.lists(
        st.lists(st.integers(0, VOCAB - 1) | st.none(), max_size=8), min_size=1, max_size=25
    ),
)
@settings(max_examples=60)
def test_any_drafts_leave_the_state_of_the_output(seed: int, grammar, drafts: list[list]):
    draw = random.Random(seed)
    matcher, plain = GRAMMARS.matcher(grammar), GRAMMARS.matcher(grammar)
    output: list[int] = []
    for draft in drafts:
        # None stands for an id that the grammar allows at that place.
        proposed, ahead = [], GRAMMARS.matcher(grammar)
        for place in draft:
            known = ahead.masks([*output, *proposed])[-1]
            proposed.append(place if place is not None else draw.choice(allowed(known)))
            if proposed[-1] == END or not known.allows(proposed[-1]):
                proposed += [id_ for id_ in draft[len(proposed) :] if id_ is not None]
                break
        masks = matcher.masks(output, proposed)
        assert masks[0] == plain.masks(output)[0]
        for count, mask in enumerate(masks):
            assert mask == GRAMMARS.matcher(grammar).masks([*output, *proposed[:count]])[0]
            is_last = count == len(masks) - 1
            if not is_last:
                assert mask.allows(proposed[count])
            elif count < len(proposed):
                assert proposed[count] == END or not mask.allows(proposed[count])
        ids = [token_id for token_id in allowed(masks[0]) if token_id != END]
        if not ids:
            break
        output.append(draw.choice(ids))
