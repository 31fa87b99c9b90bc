"""A row's token is a function of that row, and a row without one is named."""

import math
import pickle
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dflash.errors import KernelError
from dflash.kernels import draw as draw_module
from dflash.kernels import mass as mass_module
from dflash.request import SamplingParams
from dflash.sampling import ChoiceRow, Chosen, NonFiniteLogitsError, choose, new_seed

VOCAB = 1000
PLAIN = ChoiceRow(SamplingParams(), 42, 0, 7, (1, 2, 3), (4,), (2,))
MATES = (
    SamplingParams(top_k=5),
    SamplingParams(temperature=0.0),
    SamplingParams(top_p=0.5, min_p=0.1, temperature=2.0),
    SamplingParams(repetition_penalty=1.3, logit_bias=((1, 3.0),), num_logprobs=2),
)


def random_logits(num_rows: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def with_params(params: SamplingParams, seed: int = 42) -> ChoiceRow:
    return replace(PLAIN, params=params, seed=seed)


@pytest.mark.parametrize("size", [7, 8, 64])
@pytest.mark.parametrize("params", [SamplingParams(num_logprobs=3), *MATES])
def test_a_seeded_row_chooses_alone_what_it_chooses_in_any_company(
    size: int, params: SamplingParams
):
    own = random_logits(1, seed=1)
    alone = choose(own, [with_params(params)])

    for place in (0, size // 2, size - 1):
        logits = random_logits(size, seed=2)
        logits[place] = own[0]
        rows = [with_params(MATES[i % len(MATES)], seed=i) for i in range(size)]
        rows[place] = with_params(params)
        assert choose(logits, rows)[place] == alone[0]


def test_three_ids_tied_at_rank_k_leave_the_same_set_at_every_batch_size():
    logits = torch.zeros(VOCAB)
    logits[[900, 500, 10]] = 5.0
    logits[700] = 6.0
    for size in (1, 7, 8, 64):
        rows = [with_params(SamplingParams(top_k=3), seed) for seed in range(640)]
        batch = logits.expand(size, -1).contiguous()
        seen = {
            chosen.token_id
            for start in range(0, 640 - size + 1, size)
            for chosen in choose(batch, rows[start : start + size])
        }
        assert seen == {700, 10, 500}


def test_choosing_does_not_modify_the_logits():
    logits = random_logits(len(MATES))
    before = logits.clone()

    choose(logits, [with_params(params) for params in MATES])

    assert torch.equal(logits, before)


def test_the_same_seed_repeats_and_another_seed_choice_or_position_differs():
    logits = random_logits(1).expand(200, -1).contiguous()
    rows = [replace(PLAIN, position=position) for position in range(200)]
    ids = [chosen.token_id for chosen in choose(logits, rows)]

    assert [chosen.token_id for chosen in choose(logits, rows)] == ids
    assert len(set(ids)) > 20
    for change in ({"seed": 43}, {"choice": 1}):
        others = choose(logits, [replace(row, **change) for row in rows])
        assert [chosen.token_id for chosen in others] != ids


def test_fifty_unseeded_requests_differ():
    logits = random_logits(1).expand(20, -1).contiguous()
    texts = {
        tuple(
            chosen.token_id
            for chosen in choose(
                logits, [replace(PLAIN, seed=seed, position=position) for position in range(20)]
            )
        )
        for seed in (new_seed() for _ in range(50))
    }

    assert len(texts) >= 45


def test_a_drawn_seed_survives_a_client_that_reads_numbers_as_floats():
    seeds = [new_seed() for _ in range(200)]

    assert all(int(float(seed)) == seed for seed in seeds)
    assert max(seeds) > 2**50


def test_the_numpy_forms_choose_the_same_tokens_and_logprobs(monkeypatch: pytest.MonkeyPatch):
    logits = random_logits(40)
    rows = [
        with_params(replace(MATES[i % len(MATES)], num_logprobs=i % 6), seed=i) for i in range(40)
    ]
    compiled = choose(logits, rows)

    monkeypatch.setattr(draw_module, "draw_library", lambda: None)
    monkeypatch.setattr(mass_module, "draw_library", lambda: None)

    assert choose(logits, rows) == compiled


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf])
def test_a_row_that_is_not_finite_is_named_and_the_others_can_be_chosen(
    value: float, temperature: float, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
):
    if not is_compiled:
        monkeypatch.setattr(draw_module, "draw_library", lambda: None)
    logits = random_logits(3)
    rows = [with_params(SamplingParams(temperature=temperature), seed) for seed in range(3)]
    expected = choose(logits, rows)
    logits[1, 300] = value

    with pytest.raises(NonFiniteLogitsError, match=r"token 300 is (nan|inf) in the model") as info:
        choose(logits, rows)

    assert info.value.row == 1
    assert choose(logits[[0, 2]], [rows[0], rows[2]]) == [expected[0], expected[2]]


def test_a_ban_does_not_hide_a_logit_that_is_not_finite():
    logits = random_logits(1)
    logits[0, 2] = math.nan

    with pytest.raises(NonFiniteLogitsError, match="token 2 is nan"):
        choose(logits, [with_params(SamplingParams(min_tokens=5))])


def test_a_penalty_that_overflows_is_said_to_be_the_penalty():
    params = SamplingParams(repetition_penalty=0.01)
    logits = torch.full((1, VOCAB), 1e37)

    with pytest.raises(NonFiniteLogitsError, match="token 1 is inf after logit_bias and penalties"):
        choose(logits, [with_params(params)])


def test_minus_infinity_bans_an_id_without_an_error():
    logits = torch.full((1, VOCAB), -math.inf)
    logits[0, 17] = -5.0

    assert choose(logits, [PLAIN]) == [Chosen(17, None)]


def test_a_row_with_every_id_banned_says_what_banned_them():
    logits = torch.full((1, VOCAB), -math.inf)
    with pytest.raises(NonFiniteLogitsError, match="every logit the model returned is -inf"):
        choose(logits, [PLAIN])

    logits[0, 2] = 1.0
    with pytest.raises(NonFiniteLogitsError, match="ban fewer ids or lower min_tokens"):
        choose(logits, [with_params(SamplingParams(min_tokens=5))])


def test_the_error_crosses_processes_whole():
    error = pickle.loads(pickle.dumps(NonFiniteLogitsError("the logit of token 3 is nan", 5)))

    assert (str(error), error.row) == ("the logit of token 3 is nan", 5)


def test_rows_of_another_type_are_refused_instead_of_read_as_floats():
    with pytest.raises(KernelError, match="float64"):
        choose(random_logits(1).double(), [PLAIN])


def test_no_rows_are_no_tokens():
    assert choose(torch.empty(0, VOCAB), []) == []
