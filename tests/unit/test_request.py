"""A request that was made is complete: what no step could compute is refused when it is made."""

import math

import pytest

from dflash.errors import RequestError
from dflash.request import GenerateRequest, SamplingParams


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"prompt_token_ids": ()}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": math.nan}, "max_tokens"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"choice": -1}, "n"),
        ({"choice": 2**32}, "n"),
    ],
)
def test_a_request_that_cannot_be_computed_is_refused_by_field(changes, field):
    with pytest.raises(RequestError) as caught:
        GenerateRequest(
            **({"request_id": "a", "prompt_token_ids": (1,), "max_tokens": 4} | changes)
        )

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"temperature": None}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"repetition_penalty": 5e-324}, "repetition_penalty"),
        ({"num_logprobs": 21}, "top_logprobs"),
        ({"stop_token_ids": (2.5,)}, "stop_token_ids"),
        ({"stop_token_ids": tuple(range(65))}, "stop_token_ids"),
        ({"logit_bias": ((7, math.nan),)}, "logit_bias"),
        ({"logit_bias": ((7, math.inf),)}, "logit_bias"),
        ({"logit_bias": ((7.5, 1.0),)}, "logit_bias"),
    ],
)
def test_sampling_that_cannot_be_computed_is_refused_by_field(changes, field):
    with pytest.raises(RequestError) as caught:
        SamplingParams(**changes)

    assert caught.value.field == field


def test_errors_survive_pickling_with_their_field():
    import pickle

    error = pickle.loads(pickle.dumps(RequestError("max_tokens is 0", "max_tokens")))

    assert (str(error), error.field) == ("max_tokens is 0", "max_tokens")
