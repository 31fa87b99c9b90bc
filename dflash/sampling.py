"""The next token of each row of logits."""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from dflash.errors import EngineError
from dflash.grammar.mask import TokenMask
from dflash.kernels.draw import Draw, draw
from dflash.logprobs import token_logprobs
from dflash.noise import NoiseKey
from dflash.penalties import processed_logits
from dflash.request import SamplingParams, TokenLogprobs

# Every JSON client keeps integers of 53 bits; many read them as floats and lose the rest.
_SEED_BITS = 53
_LARGEST = Draw(NoiseKey(0, 0, 0), temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)


class NonFiniteLogitsError(EngineError):
    """No token can be chosen from a row: a logit is NaN or inf, or every token is banned.

    Attributes:
        row: Index of the first such row. The others are not at fault.
    """

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message, row)
        self.row = row

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """One row of logits whose next token must be chosen.

    Attributes:
        params: How.
        seed: 64-bit seed of the request.
        choice: Index among the request's ``n`` choices.
        position: Absolute position of the token to choose.
        prompt_token_ids: The request's prompt.
        output_token_ids: What was emitted before ``position``; in a verify run including the
            draft tokens before it.
        eos_token_ids: The model's end-of-sequence ids.
        mask: The ids that the request's grammar allows, or why it cannot say; None allows all.
    """

    params: SamplingParams
    seed: int
    choice: int
    position: int
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int]
    eos_token_ids: tuple[int, ...]
    mask: TokenMask | Exception | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The token of one row.

    Attributes:
        token_id: The token.
        logprobs: Set where the request asked for them.
    """

    token_id: int
    logprobs: TokenLogprobs | None


def new_seed() -> int:
    """Return a fresh seed, for a request that came without one."""
    return secrets.randbits(_SEED_BITS)


def choose(logits: Tensor, rows: Sequence[ChoiceRow]) -> list[Chosen]:
    """Return the token of each row with its logprobs; shapes and errors are those of `draw_ids`."""
    token_ids = draw_ids(logits, rows)
    return [
        chosen_of(logits, index, token_id, row.params)
        for index, (token_id, row) in enumerate(zip(token_ids, rows, strict=True))
    ]


def draw_ids(logits: Tensor, rows: Sequence[ChoiceRow]) -> list[int]:
    """Return the token id of each row: largest processed score plus keyed noise.

    A row's token is a function of that row: of its logits, its mask, its parameters, its ids and
    its key. The mask comes first, then bias, penalties and bans (`processed_logits`), then
    temperature, top-k, top-p and min-p (`draw`).

    Shapes:
        logits: ``[rows, vocab]`` float32 on the CPU, rows contiguous, not modified.

    Raises:
        NonFiniteLogitsError: A row has nothing to choose from. Its request has to end; the
            others can be chosen by a call without it.
        GrammarFaultError: A row's mask is one; as above.
    """
    raw = logits.unbind(0)
    processed = [
        processed_logits(
            _allowed(own, row.mask),
            row.params,
            row.prompt_token_ids,
            row.output_token_ids,
            row.eos_token_ids,
        )
        for own, row in zip(raw, rows, strict=True)
    ]
    token_ids = []
    for index, token_id in enumerate(draw(processed, [_draw_of(row) for row in rows])):
        if token_id is None:
            raise NonFiniteLogitsError(_why_none(raw[index], processed[index]), index)
        token_ids.append(token_id)
    return token_ids


def chosen_of(logits: Tensor, row: int, token_id: int, params: SamplingParams) -> Chosen:
    """Return a row's token, with its logprobs where they were asked for.

    Shapes:
        logits: ``[rows, vocab]``, as for `draw_ids`.
    """
    if params.num_logprobs is None:
        return Chosen(token_id, None)
    return Chosen(token_id, token_logprobs(logits[row], token_id, params.num_logprobs))


def _allowed(logits: Tensor, mask: TokenMask | Exception | None) -> Tensor:
    if mask is None:
        return logits
    if isinstance(mask, Exception):
        raise mask
    return mask.applied(logits)


def _draw_of(row: ChoiceRow) -> Draw:
    params = row.params
    if params.temperature == 0.0:
        return _LARGEST
    return Draw(
        key=NoiseKey(row.seed, row.choice, row.position),
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
    )


def _why_none(raw: Tensor, processed: Tensor) -> str:
    """Return why no token of a row can be chosen."""
    for values, origin in (
        (raw, "in the model's logits"),
        (processed, "after logit_bias and penalties; use values nearer to 0"),
    ):
        at_fault = (~(values < math.inf)).nonzero()
        if at_fault.numel():
            token_id = int(at_fault[0])
            return f"the logit of token {token_id} is {float(values[token_id])} {origin}"
    if bool((raw == -math.inf).all()):
        return "every logit the model returned is -inf"
    return (
        "no token is left to choose: logit_bias, min_tokens and the grammar together ban every "
        "one; ban fewer ids or lower min_tokens"
    )
