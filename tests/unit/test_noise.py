"""Known answers and the shape of the noise."""

import math
from decimal import Decimal

import numpy as np
import pytest

from dflash.noise import NoiseKey, gumbel, gumbel_noise, noise_words, philox
from dflash.portable_math import exponential, natural_log

ALL_ONES = 0xFFFFFFFF
KEY = NoiseKey(seed=0x0123456789ABCDEF, choice=3, position=77)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (
            [ALL_ONES] * 4,
            (ALL_ONES, ALL_ONES),
            [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        ),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_known_answers_of_random123(
    counter: list[int], key: tuple[int, int], expected: list[int]
):
    words = philox(np.array([counter], dtype=np.uint32), key)

    assert words.tolist() == [expected]


def test_four_neighbouring_ids_share_one_philox_call_keyed_by_seed_position_and_choice():
    block = philox(np.array([[5, 77, 3, 0]], dtype=np.uint32), (0x89ABCDEF, 0x01234567))

    assert noise_words(KEY, np.array([20, 21, 22, 23])).tolist() == block[0].tolist()


def test_the_noise_of_an_id_does_not_depend_on_which_ids_are_asked_for():
    everything = gumbel_noise(KEY, np.arange(1000))
    some = np.array([999, 3, 3, 500, 2, 17])

    assert gumbel_noise(KEY, some).tobytes() == everything[some].tobytes()


def test_the_bits_of_the_noise_are_pinned_so_that_a_saved_seed_keeps_its_text():
    noise = gumbel_noise(NoiseKey(seed=7, choice=0, position=5), np.arange(4))

    assert [value.hex() for value in noise.tolist()] == [
        "-0x1.1c086535a61c5p+0",
        "-0x1.083d0c38ff6d4p+0",
        "-0x1.7779e8dc8ad6ap+0",
        "-0x1.d162c24cbf8c7p-4",
    ]


def test_the_extreme_words_give_finite_noise_within_the_documented_span():
    lowest, highest = gumbel(np.array([0, ALL_ONES], dtype=np.uint32))

    assert lowest == pytest.approx(-math.log(33 * math.log(2)), rel=1e-15)
    assert highest == pytest.approx(33 * math.log(2), rel=1e-10)


def test_gumbel_is_minus_log_minus_log_of_the_middle_of_the_words_cell():
    words = np.random.default_rng(0).integers(0, 2**32, 5000, dtype=np.uint32)
    expected = [-math.log(-math.log((word + 0.5) / 2**32)) for word in words.tolist()]

    np.testing.assert_allclose(gumbel(words), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(
    ("low", "high"), [(1e-300, 1e-10), (0.4, 0.999), (0.999999, 1.000001), (1.001, 30), (1e9, 1e19)]
)
def test_natural_log_is_under_two_units_in_the_last_place_off(low: float, high: float):
    values = np.random.default_rng(1).uniform(low, high, 300)

    for value, ours in zip(values.tolist(), natural_log(values).tolist(), strict=True):
        assert abs(Decimal(ours) - Decimal(value).ln()) < 2 * Decimal(math.ulp(ours))


def test_natural_log_of_one_is_zero_so_that_min_p_one_keeps_only_the_largest():
    assert natural_log(np.array([1.0])).tolist() == [0.0]


@pytest.mark.parametrize(("low", "high"), [(-690, -30), (-30, -0.5), (-0.5, 0.5), (0.5, 4)])
def test_exponential_is_under_two_units_in_the_last_place_off(low: float, high: float):
    values = np.random.default_rng(2).uniform(low, high, 300)

    for value, ours in zip(values.tolist(), exponential(values).tolist(), strict=True):
        assert abs(Decimal(ours) - Decimal(value).exp()) < 2 * Decimal(math.ulp(ours))


def test_exponential_of_minus_infinity_is_no_number_that_a_mass_could_see():
    assert 0.0 < exponential(np.array([-math.inf]))[0] < 1e-300


def test_noise_has_the_mean_and_variance_of_the_gumbel_law():
    noise = gumbel_noise(KEY, np.arange(200_000))

    assert abs(noise.mean() - np.euler_gamma) < 5 * math.sqrt(math.pi**2 / 6 / noise.size)
    assert noise.var() == pytest.approx(math.pi**2 / 6, rel=0.03)


@pytest.mark.parametrize(
    "other",
    [
        NoiseKey(KEY.seed + 1, KEY.choice, KEY.position),
        NoiseKey(KEY.seed ^ (1 << 63), KEY.choice, KEY.position),
        NoiseKey(KEY.seed, KEY.choice + 1, KEY.position),
        NoiseKey(KEY.seed, KEY.choice, KEY.position + 1),
        NoiseKey(KEY.seed, KEY.position, KEY.choice),
    ],
)
def test_noise_of_another_seed_choice_or_position_is_uncorrelated(other: NoiseKey):
    ids = np.arange(50_000)
    correlation = np.corrcoef(gumbel_noise(KEY, ids), gumbel_noise(other, ids))[0, 1]

    assert abs(correlation) < 5 / math.sqrt(ids.size)


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 256])
def test_noise_of_neighbouring_ids_is_uncorrelated(distance: int):
    noise = gumbel_noise(KEY, np.arange(50_000))
    correlation = np.corrcoef(noise[:-distance], noise[distance:])[0, 1]

    assert abs(correlation) < 5 / math.sqrt(noise.size)
