"""Where one request is in its grammar, and what may come there and behind draft tokens."""

from collections.abc import Sequence

from llguidance import LLMatcher

from dflash.errors import RequestError
from dflash.grammar.mask import TokenMask

DEAD_END = (
    "the grammar allows no token of this model here; loosen the schema, or leave out logit_bias"
)


# How the library says that its parser knows no way on.
NOTHING_FOLLOWS = "NoExtension"


class GrammarFaultError(RequestError):
    """A grammar came to where nothing can follow, or over the bounds of its library."""


class Matcher:
    """The grammar of one request and how far its output has come in it.

    It follows the request's output and nothing else: draft tokens are looked at on a copy, so
    no rejected one can be left in it.
    """

    def __init__(self, start: LLMatcher, eos_token_ids: tuple[int, ...], field: str) -> None:
        """Begin before the first token.

        Args:
            start: The compiled grammar; it is copied.
            eos_token_ids: The model's end-of-sequence ids.
            field: What the client calls the grammar.
        """
        self._state = start.deep_copy()
        self._eos_token_ids = eos_token_ids
        self._field = field
        self._num_followed = 0

    def masks(self, output: Sequence[int], drafts: Sequence[int] = ()) -> list[TokenMask]:
        """Return what may follow the output, and then each draft token that may come there.

        So there is one mask more than draft tokens to verify: those up to the first that the
        grammar forbids, or that would end the output, behind which nothing is ever chosen.

        Args:
            output: All that was emitted; what was before in an earlier call.
            drafts: Draft tokens behind it.

        Raises:
            GrammarFaultError: Nothing can follow the output.
        """
        self._follow(output)
        masks = [self._mask_of(self._state)]
        ahead = self._state.deep_copy() if drafts else self._state
        for draft in drafts:
            if draft in self._eos_token_ids or not masks[-1].allows(draft):
                break
            try:
                self._advance(ahead, [draft])
                masks.append(self._mask_of(ahead))
            except GrammarFaultError:
                # If the draft token is right, the next step comes to this place by itself.
                break
        return masks

    def _follow(self, output: Sequence[int]) -> None:
        new = list(output[self._num_followed :])
        if new:
            self._advance(self._state, new)
            self._num_followed = len(output)

    def _advance(self, state: LLMatcher, token_ids: list[int]) -> None:
        if not state.consume_tokens(token_ids):
            raise self._fault(state)

    def _mask_of(self, state: LLMatcher) -> TokenMask:
        bits = state.compute_bitmask()
        if state.is_error():
            raise self._fault(state)
        return TokenMask(bits)

    def _fault(self, state: LLMatcher) -> GrammarFaultError:
        reason = reason_of(state)
        if reason.startswith(NOTHING_FOLLOWS):
            return GrammarFaultError(f"{self._field}: {DEAD_END}", self._field)
        return GrammarFaultError(
            f"{self._field}: output cannot be matched further ({reason}); simplify its patterns",
            self._field,
        )


def reason_of(state: LLMatcher) -> str:
    """Return why a matcher has failed, in the library's words; nothing where it has not."""
    # Only the first line is a sentence.
    return state.get_error().partition("\n")[0]
