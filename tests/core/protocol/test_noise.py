"""The noise: standard normals from AES-CTR, and a silo's share of it on the grid (P3, P5, P6).

Every test of a law is two-sided, has a false-alarm rate of at most 1e-9 per comparison, and is also
shown to reject a wrong law. Keys are fixed, so a test that passes once always does.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom, chi2, kstest, norm

from hubbub.core.errors import HubbubError
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.noise import (
    _fine_unit,
    _tail,
    add_noise_and_round,
    layers,
    standard_normal,
)
from hubbub.core.protocol.primitives.randomness import SecureSource

Array = NDArray[np.float64]

_SCALE, _INNER, _EDGE, _TAIL_START = layers()
FALSE_ALARM = 1e-9
DEVIATIONS = float(norm.isf(FALSE_ALARM / 2))  # 6.1
DRAWS = 10_000_000
WRONG_SCALES = [2 / 3, 3 / 2]


def source(number: int) -> SecureSource:
    """A source that repeats."""
    return SecureSource(number.to_bytes(16, "big"))


def normals(count: int, number: int = 1) -> Array:
    """Standard normals that repeat."""
    out = np.empty(count)
    standard_normal(source(number), out)
    return out


def fits_scale(sample: Array, sigma: float) -> bool:
    """Whether the sum of squares is one of N(0, sigma^2), by its exact law on either side."""
    squares = float(np.dot(sample, sample)) / sigma**2
    low, high = chi2.ppf(FALSE_ALARM / 2, sample.size), chi2.isf(FALSE_ALARM / 2, sample.size)
    return bool(low <= squares <= high)


def fits_shares(counts: NDArray[np.int64], shares: Array) -> bool:
    """Pearson's test, with too good a fit refused as well."""
    expected = counts.sum() * shares
    assert expected.min() > 5
    statistic = float((np.square(counts - expected) / expected).sum())
    low, high = (f(FALSE_ALARM / 2, counts.size - 1) for f in (chi2.ppf, chi2.isf))
    return bool(low <= statistic <= high)


def fits_count(count: int, draws: int, probability: float) -> bool:
    """Whether a count is a binomial one, exactly."""
    low = binom.ppf(FALSE_ALARM / 2, draws, probability)
    return bool(low <= count <= binom.isf(FALSE_ALARM / 2, draws, probability))


def fits_uniform(values: Array, bins: int) -> bool:
    """Whether values in [0, 1] fill equal bins equally."""
    places = np.minimum((values * bins).astype(np.int64), bins - 1)
    return fits_shares(np.bincount(places, minlength=bins), np.full(bins, 1 / bins))


def uncorrelated(left: Array, right: Array) -> bool:
    """Whether two vectors of independent standard normals are."""
    return bool(abs(np.dot(left, right)) <= DEVIATIONS * sqrt(left.size))


@pytest.fixture(scope="module")
def sample() -> Array:
    """Ten million draws, which all tests of the law share."""
    return normals(DRAWS)


# The standard normal ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("order", range(1, 7))
def test_moments_are_the_normal_ones(sample, order):
    def double_factorial(n: int) -> int:
        return 1 if n <= 0 else n * double_factorial(n - 2)

    mean = 0 if order % 2 else double_factorial(order - 1)
    spread = sqrt(double_factorial(2 * order - 1) - mean**2)
    powers = np.ones_like(sample)
    for _ in range(order):
        powers *= sample
    assert abs(powers.mean() - mean) <= DEVIATIONS * spread / sqrt(DRAWS)


def test_the_scale_is_one_and_no_other(sample):
    assert fits_scale(sample, 1.0)
    for wrong in [*WRONG_SCALES, 1.002, 0.998]:
        assert not fits_scale(sample, wrong)


@pytest.mark.slow
def test_kolmogorov_and_smirnov_accept_the_normal_and_refuse_its_like(sample):
    part = sample[:300_000]
    assert kstest(part, "norm").pvalue > FALSE_ALARM
    for wrong in (*(part * scale for scale in WRONG_SCALES), part + 0.02, np.abs(part)):
        assert kstest(wrong, "norm").pvalue < FALSE_ALARM


@pytest.mark.slow
def test_the_density_is_right_in_four_thousand_cells(sample):
    # The edges of the ziggurat's layers, where a wrong wedge would show, lie in different cells.
    heights = ndtr(sample)
    assert fits_uniform(heights, 4096)
    heights += 1e-4 * np.sin(200 * heights)  # two percent, up and down
    assert not fits_uniform(np.clip(heights, 0, 1), 4096)


def test_p6_the_layers_have_equal_areas_the_tail_included_and_close_at_the_top():
    heights = np.exp(-np.square(_EDGE[1:]) / 2)
    areas = _EDGE[1:-1] * np.diff(heights)
    base = _TAIL_START * heights[0] + sqrt(2 * np.pi) * norm.sf(_TAIL_START)
    assert areas == pytest.approx(base, rel=1e-11)
    # Points of the base layer go on as far as makes its area the same.
    assert _EDGE[0] * heights[0] == pytest.approx(base, rel=1e-13)
    assert (_EDGE[-1], heights[-1]) == (0, 1)
    assert np.array_equal(_SCALE * 2.0**53, _EDGE[:-1])
    assert np.array_equal(_INNER, _EDGE[1:])


@pytest.mark.slow_cases("1-3.0")
@pytest.mark.parametrize("beyond", [3.0, 3.5, 4.0, 4.5, 5.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_p6_tails_hold_as_many_draws_as_the_normal(sample, beyond, sign):
    draws = np.count_nonzero(sample > beyond if sign > 0 else sample < -beyond)
    probability = norm.sf(beyond)
    assert fits_count(draws, DRAWS, probability)
    for scale in WRONG_SCALES:
        wrong = np.count_nonzero(sign * sample > beyond / scale)
        # Past 4.5 sigma nothing is expected of the narrow law, and little of the right one.
        assert not fits_count(wrong, DRAWS, probability) or (beyond > 4.5 and scale < 1)


def test_p6_beyond_the_ziggurats_base_the_tail_is_the_normal_one(sample):
    tail = np.abs(sample[np.abs(sample) > _TAIL_START])
    assert fits_count(tail.size, DRAWS, 2 * norm.sf(_TAIL_START))
    assert fits_uniform(ndtr(-tail) / ndtr(-_TAIL_START), 16)


class Words(SecureSource):
    """A source that hands out stated words."""

    def __init__(self, *words: int) -> None:
        super().__init__()
        self._stated = list(words)

    def words(self, count: int) -> NDArray[np.uint64]:
        drawn, self._stated = self._stated[:count], self._stated[count:]
        return np.array(drawn, dtype=np.uint64)


def test_p6_a_small_uniform_has_a_second_word_that_says_where_it_is():
    found = _fine_unit(Words(0, 1 << 63, 3, 0, (1 << 62) - 1), 3)
    assert found.tolist() == [2.0**-128, 0.5, 3.25 * 2.0**-64]


def test_p6_a_small_uniform_of_the_tail_reaches_as_far_out_as_it_should():
    """Sixty-four bits alone would end 10.98 beyond the base."""
    (drawn,) = _tail(Words(*[0] * 6, *[1 << 54] * 6, *[0] * 6, *[16] * 6), 1)
    assert drawn == pytest.approx(_TAIL_START + 74 * np.log(2) / _TAIL_START)


def test_p6_the_tail_sampler_follows_the_normal_tail_and_not_an_exponential_one():
    tail = _tail(source(2), 600_000)
    assert tail.min() > _TAIL_START
    assert fits_uniform(ndtr(-tail) / ndtr(-_TAIL_START), 1000)
    # Far out, where no whole run of the ziggurat would reach: one in 1e5 of the tail.
    far = norm.isf(norm.sf(_TAIL_START) * 1e-5)
    assert fits_count(np.count_nonzero(tail > far), tail.size, 1e-5)
    untested = _TAIL_START - np.log(1 - ndtr(normals(600_000, 3))) / _TAIL_START
    assert not fits_uniform(ndtr(-untested) / ndtr(-_TAIL_START), 1000)


def test_sign_and_size_are_independent(sample):
    part = sample[:1_000_000]
    signs, sizes = np.sign(part), np.abs(part)
    for size in (sizes - sizes.mean(), np.square(part) - 1):
        spread = DEVIATIONS * float(np.sqrt(np.dot(size, size)))
        assert abs(np.dot(signs, size)) <= spread
        assert abs(np.dot(signs, size + 0.04 * part)) > spread


@pytest.mark.parametrize("size", [0, 1, 2, 16_383, 16_384, 16_385, 40_000])
def test_every_place_is_written_whatever_the_length(size):
    out = np.full(size, np.nan)
    standard_normal(source(4), out)
    assert np.isfinite(out).all()
    assert np.unique(out).size == size


# Independence: coordinates, rounds, silos --------------------------------------------------------


@pytest.mark.parametrize("lag", [1, 2, 3, 7, 64, 1024, 16_384, 32_768])
def test_coordinates_are_uncorrelated_at_every_lag_and_so_are_their_sizes(sample, lag):
    part = sample[:1_000_000]
    sizes = (np.square(part) - 1) / sqrt(2)
    assert uncorrelated(part[:-lag], part[lag:])
    assert uncorrelated(sizes[:-lag], sizes[lag:])
    echo = part[lag:] + 0.02 * part[:-lag]
    assert not uncorrelated(part[:-lag], echo)


def test_p3_silos_and_rounds_are_uncorrelated():
    silos, rounds, dimension = 12, 6, 20_000
    sources = [SecureSource() for _ in range(silos)]
    vectors = np.empty((silos * rounds, dimension))
    for row, vector in enumerate(vectors):
        standard_normal(sources[row % silos], vector)
    assert largest_correlation(vectors) <= DEVIATIONS + 1.5  # Bonferroni over the pairs
    vectors[5] = 0.9 * vectors[5] + sqrt(1 - 0.9**2) * vectors[17]
    assert largest_correlation(vectors) > DEVIATIONS + 1.5


def largest_correlation(vectors: Array) -> float:
    """The largest correlation between two rows, in standard deviations."""
    products = vectors @ vectors.T / sqrt(vectors.shape[1])
    np.fill_diagonal(products, 0)
    return float(np.abs(products).max())


def test_no_draw_comes_twice():
    one = source(5)
    drawn = np.empty((2, 1_000_000))
    standard_normal(one, drawn[0])
    standard_normal(one, drawn[1])
    # 53 bits in each layer: a pair that is equal by chance has probability below 1e-2.
    assert np.unique(drawn).size >= drawn.size - 2


# A silo's share on the grid ----------------------------------------------------------------------


def cells(residues: ring.Residues, centre: float, sigma: float) -> tuple[NDArray[np.int64], Array]:
    """Counts of the integers around a centre, and their exact shares; tails lumped."""
    reach = int(3.5 * sigma)
    base = round(centre)
    width = residues.dtype.itemsize * 8
    moved = ring.to_integers(residues - np.array(base % 2**width, dtype=residues.dtype))
    counts = np.bincount(np.clip(moved, -reach, reach) + reach, minlength=2 * reach + 1)
    edges = (np.arange(-reach, reach) + 0.5 - (centre - base)) / sigma
    return counts, np.diff(np.concatenate([[0.0], ndtr(edges), [1.0]]))


@pytest.mark.parametrize(
    ("centre", "bits"), [(0.0, 16), (0.3, 16), (-7.5, 32), (32_767.9, 16), (-(2.0**31), 32)]
)
def test_p5_the_rounded_law_is_exact_in_every_cell_also_across_the_wrap(centre, bits):
    residues = add_noise_and_round(np.full(300_000, centre), 4.0, source(6), bits)
    assert residues.dtype == ring.residue_type(bits)
    assert fits_shares(*cells(residues, centre, 4.0))
    for wrong in (*(4.0 * scale for scale in WRONG_SCALES), 4.08):
        assert not fits_shares(*cells(residues, centre, wrong))
    assert not fits_shares(*cells(residues, centre + 0.1, 4.0))


@pytest.mark.parametrize("sigma", [1.0, 4.0, 16.0])
def test_p5_noise_and_rounding_have_no_bias_and_their_two_variances(sigma):
    vector = np.linspace(-1000.3, 1000.9, 400_000)
    error = ring.to_integers(add_noise_and_round(vector, sigma, source(7), 32)) - vector
    # A box of width 1 adds a twelfth; what the lattice adds is below 1e-7 from sigma 1 on.
    spread = sqrt(sigma**2 + 1 / 12)
    assert abs(error.mean()) <= DEVIATIONS * spread / sqrt(error.size)
    assert fits_variance(error, spread)
    for scale in WRONG_SCALES:
        assert not fits_variance(error, scale * spread)
    if sigma == 1.0:
        assert not fits_variance(error, sigma)  # the twelfth is seen


def fits_variance(error: Array, spread: float) -> bool:
    """As `fits_scale`, from the sample's own fourth moment, since rounded noise is not normal."""
    squares = np.square(error)
    off = abs(float(squares.mean()) - spread**2)
    return bool(off <= DEVIATIONS * float(squares.std()) / sqrt(error.size))


@given(
    st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=50), st.sampled_from(ring.WORD_BITS)
)
@settings(max_examples=60, deadline=None)
def test_p7_without_noise_numbers_on_the_grid_are_kept_modulo_the_word(integers, bits):
    residues = add_noise_and_round(np.array(integers, dtype=np.float64), 0.0, source(8), bits)
    assert residues.tolist() == [value % 2**bits for value in integers]


@given(st.floats(-1e6, 1e6), st.integers(-(2**40), 2**40), st.sampled_from(ring.WORD_BITS))
@settings(max_examples=60, deadline=None)
def test_p6_whole_steps_move_the_answer_exactly_and_do_not_coarsen_the_noise(real, steps, bits):
    fraction = np.full(5, real - np.floor(real))
    if fraction[0] + steps - steps != fraction[0]:  # float64 itself could not hold the sum
        fraction[:] = 0.25
    at_zero = add_noise_and_round(fraction, 4.0, source(9), bits)
    moved = add_noise_and_round(fraction + steps, 4.0, source(9), bits)
    assert ((moved - at_zero) == np.array(steps % 2**bits, dtype=moved.dtype)).all()


def test_the_vector_itself_is_left_alone():
    vector = np.linspace(-5, 5, 50_000)
    before = vector.copy()
    add_noise_and_round(vector, 4.0, source(10), 16, grid_step=0.5)
    assert (vector == before).all()


@given(st.floats(1e-9, 1e9), st.sampled_from(ring.WORD_BITS))
@settings(max_examples=60, deadline=None)
def test_p5_a_sum_is_noised_and_rounded_in_steps_of_the_grid(step, bits):
    vector = np.linspace(-500.0, 500.0, 70_000) * step
    residues = add_noise_and_round(vector, 4.0, source(14), bits, grid_step=step)
    assert (residues == add_noise_and_round(vector / step, 4.0, source(14), bits)).all()
    assert fits_variance(ring.to_integers(residues) - vector / step, sqrt(16 + 1 / 12))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e19, -1e19, 1e300])
@pytest.mark.parametrize("bits", ring.WORD_BITS)
def test_p5_a_number_that_noise_cannot_cover_is_refused_without_naming_it(value, bits):
    for place in (0, 1, 70_000):
        vector = np.ones(70_001)
        vector[place] = value
        with pytest.raises(HubbubError) as refusal:
            add_noise_and_round(vector, 4.0, source(12), bits)
        assert str(value) not in str(refusal.value)
    with pytest.raises(HubbubError):  # within reach as it is, beyond it in steps
        add_noise_and_round(np.array([1.0]), 4.0, source(12), bits, grid_step=1e-19)


@pytest.mark.parametrize("sigma", [-1.0, np.nan, np.inf, 1e300])
def test_p5_a_scale_that_is_no_scale_is_refused(sigma):
    with pytest.raises(HubbubError):
        add_noise_and_round(np.zeros(3), sigma, source(13), 16)
