"""The account of random projections by signs and by layers (docs/privacy.md P8 (5) to (8)).

Nothing here is compared with itself: tails with counted matrices, mixtures with sums written down
anew, compositions with the Laplace inversion of `oracle_values`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import erf, exp, pi, sqrt
from typing import Any, cast
from unittest import mock

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binom, chi

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.planning import exposure
from hubbub.core.planning.accounts import account_of
from hubbub.core.planning.mechanism import (
    CLIP_MARGIN,
    SUM_MARGIN,
    WITHOUT_REPLACEMENT,
    Mechanism,
)
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import certificate_for, largest_batch
from hubbub.core.planning.random_projection import RandomProjection
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.privacy.dominating_pairs import Step
from hubbub.core.privacy.dominating_pairs import release as release_of
from hubbub.core.privacy.laws import Enclosed, ExchangedRecord, Law, Mixture, Removal, Reversed
from hubbub.core.privacy.projected_step import (
    ProjectedRemoval,
    _gathered_radii,
    projection_factor,
    release_by_signs,
    release_projected,
    sign_tail,
)
from hubbub.core.protocol.projection import entries as signs
from hubbub.core.protocol.projection.matrix import Projection
from hubbub.core.study.study import Study
from hubbub.learning.queries.training_query import training_of
from privacy.oracle_values import SIGNS, truth

PAPER: dict[str, Any] = {"sample_rate": 0.008, "steps": 1250, "delta": 1e-5}
Array = np.ndarray

# The tail, P8 (5) ------------------------------------------------------------------------------


@cache
def sign_rows(count: int) -> Array:
    """Rows (count, 40) of a sign matrix from the real keystream, two groups of columns."""
    table = (signs._HIGH[:, :, None] * signs._LOW.swapaxes(0, 1).reshape(20, 1, 256)).reshape(
        20, -1
    )
    groups = []
    for group in range(2):
        words = [part.copy() for _, part in signs._words(bytes(range(16)), group, 0, count)]
        groups.append(table.T[np.concatenate(words)])
    return np.hstack(groups)


def stretches(vector: Array, draws: int, columns: slice | list[int]) -> Array:
    """|P^T a|^2 for many independent matrices."""
    rows = sign_rows(draws * vector.size)[:, columns].reshape(draws, vector.size, -1)
    projected = np.einsum("i,nij->nj", vector, rows)
    return np.asarray((projected**2).mean(axis=1))


def unit(*entries: float) -> Array:
    return np.array(entries) / np.linalg.norm(entries)


ADVERSARIAL = {
    "one hot": unit(1),
    "a pair": unit(1, 1),
    "a pair with opposite signs": unit(1, -1),
    "four": unit(1, 1, 1, 1),
    "all equal": unit(*[1] * 16),
    "halving": unit(*[2.0**-i for i in range(12)]),
    "one large": unit(9, *[1] * 15),
}
ALL, LAST, TEN = slice(0, 40), [16, 17, 18, 19], [0, 2, 4, 6, 8, 10, 12, 14, 16, 19]


def exceeded(squares: Array, dimension: int) -> list[float]:
    """Where more are longer than the bound allows, with false alarm 1e-9 for each of eight x."""
    found = []
    for x in (1.1, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0):
        bound = float(sign_tail(np.array(sqrt(x)), dimension))
        if (squares >= x * (1 - 1e-12)).sum() > binom.isf(1e-9, squares.size, bound):
            found.append(x)
    return found


@pytest.mark.quick_cases(
    "[16, 17, 18, 19]-a pair",
    "[0, 2, 4, 6, 8, 10, 12, 14, 16, 19]-one hot",
    "[3, 19]-a pair with opposite signs",
    "slice(0, 40, None)-a pair with opposite signs",
)
@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.parametrize("columns", [ALL, slice(0, 20), LAST, TEN, [3, 19]], ids=str)
def test_adversarial_vectors_are_not_longer_than_the_bound(
    name: str, columns: slice | list[int]
) -> None:
    squares = stretches(ADVERSARIAL[name], 20_000, columns)
    dimension = len(range(40)[columns]) if isinstance(columns, slice) else len(columns)
    assert exceeded(squares, dimension) == []
    assert abs(squares.mean() - 1) < 6 * sqrt(2 / dimension / squares.size)
    assert squares.var() <= 2 / dimension * (1 + 6 * sqrt(60 / squares.size))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a pair", "all equal"])
def test_columns_that_depend_on_each_other_are_seen_to_be_longer(name: str) -> None:
    """The same test refuses a matrix with one column ten times, and one with longer entries."""
    assert exceeded(stretches(ADVERSARIAL[name], 20_000, [3] * 10), 10)
    assert exceeded(stretches(ADVERSARIAL["all equal"] * 1.35, 20_000, ALL), 40)


def exact_tail(x: mp.mpf, k: int) -> mp.mpf:
    chernoff = (x * mp.e ** (1 - x)) ** (mp.mpf(k) / 2)
    return min(chernoff, 1 / (1 + k * (x - 1) ** 2 / 2))


@pytest.mark.parametrize("k", [1, 2, 17, 400, 2**24, 2**40])
def test_the_tail_in_floats_is_never_below_the_exact_one(k: int) -> None:
    spread = 8 / sqrt(k) if k > 9 else 6
    radii = 1 + spread * np.linspace(1e-9, 1, 50)
    with mp.workdps(50):
        for radius, found in zip(radii, sign_tail(radii, k), strict=True):
            exact = exact_tail(mp.mpf(float(radius)) ** 2, k)
            assert exact <= mp.mpf(float(found)) <= exact * (1 + mp.mpf(10) ** -6)
    assert (sign_tail(np.array([0.0, 0.9, 1.0]), k) == 1).all()


def test_chernoff_alone_would_be_longer_near_one_and_cantelli_further_out() -> None:
    radii = np.array([1.02, 1.5])
    chernoff = (radii**2 * np.exp(1 - radii**2)) ** 50
    cantelli = 1 / (1 + 50 * (radii**2 - 1) ** 2)
    assert cantelli[0] < chernoff[0]
    assert chernoff[1] < cantelli[1]
    assert sign_tail(radii, 100) == pytest.approx(np.minimum(chernoff, cantelli), rel=1e-9, abs=0)


# The mixture, P8 (7) ---------------------------------------------------------------------------


def removal_stick(a: float, rate: float, shift: float) -> float:
    """H_a of (1 - q) N(0) + q N(m) against N(0)."""
    level = (a - 1 + rate) / rate
    if level <= 0:
        return 1 - a
    at = np.log(level) / shift + shift / 2
    return float(rate * (ndtr(shift - at) - level * ndtr(-at)))


def addition_stick(a: float, rate: float, shift: float) -> float:
    return 1 - a + a * removal_stick(1 / a, rate, shift)


def exchange_stick(a: float, rate: float, shift: float) -> float:
    """H_a of (1 - q) N(0) + q N(m) against (1 - q) N(0) + q N(-m)."""
    if a < 1:
        return 1 - a + a * exchange_stick(1 / a, rate, shift)

    def excess(x: float) -> float:
        up, down = (exp(min(s * shift * x - shift**2 / 2, 700.0)) for s in (1, -1))
        return (1 - rate) * (1 - a) + rate * (up - a * down)

    far = shift / 2 + (np.log(a + (a - 1) / rate) + 1) / shift
    at = brentq(excess, -1e-9, far, xtol=1e-13)
    up, middle, down = ndtr(shift - at), ndtr(-at), ndtr(-shift - at)
    return float((1 - rate) * (1 - a) * middle + rate * (up - a * down))


STICKS = [
    ("add-remove", 0, removal_stick, 1.0),
    ("add-remove", 1, addition_stick, 1.0),
    ("substitute", 0, exchange_stick, 2.0),
]
LEVELS = [0.3, 0.9, 0.999, 1.0, 1.001, 1.02, 1.3, 3.0, 30.0]


@pytest.mark.quick_cases(
    "0.01-add-remove-1-addition_stick-1.0",
    "0.3-add-remove-1-addition_stick-1.0",
    "1.0-add-remove-0-removal_stick-1.0",
    "0.01-add-remove-0-removal_stick-1.0",
)
@pytest.mark.parametrize(("relation", "way", "stick", "apart"), STICKS)
@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
def test_every_hockey_stick_is_convex_in_the_distance_between_the_two(
    relation: str, way: int, stick: Callable[[float, float, float], float], apart: float,
    rate: float,
) -> None:  # fmt: skip
    shifts = np.linspace(0.05, 4, 300) / apart
    for width, convex in ((8.0, True), (10.0, False)):
        scale = np.array([erf(m * apart / sqrt(width)) for m in shifts])
        bends = []
        for a in LEVELS:
            slopes = np.diff([stick(a, rate, float(m)) for m in shifts]) / np.diff(scale)
            bends.append(np.diff(slopes).min() / rate)
        assert (min(bends) > -1e-9) == convex


def stick_of(law: Law, stick: Callable[[float, float, float], float], a: float) -> float:
    """H_a of a mixture, anew from its weights."""
    law = getattr(law, "law", law)
    assert isinstance(law, ProjectedRemoval | Mixture)
    total = law.missing
    for weight, (rate, shift) in zip(law.weights, pairs_of(law), strict=True):
        total += weight * stick(a, rate, shift)
    return float(total)


def pairs_of(law: ProjectedRemoval | Mixture) -> list[tuple[float, float]]:
    """Rate and shift of every part."""
    if isinstance(law, ProjectedRemoval):
        return [(law.rate, shift) for shift in law.shifts]
    return [(cast(ExchangedRecord, one).rate, cast(ExchangedRecord, one).shift) for one in law.laws]


@pytest.mark.quick_cases(
    "add-remove-1-addition_stick-1.0-10",
    "add-remove-0-removal_stick-1.0-10",
    "add-remove-0-removal_stick-1.0-400",
    "add-remove-1-addition_stick-1.0-2",
)
@pytest.mark.slow_cases("substitute-0-exchange_stick-2.0-10", "substitute-0-exchange_stick-2.0-400")
@pytest.mark.parametrize("k", [2, 10, 400])
@pytest.mark.parametrize(("relation", "way", "stick", "apart"), STICKS)
def test_the_gathered_mixture_is_above_the_whole_one_by_little(
    relation: str, way: int, stick: Callable[[float, float, float], float], apart: float, k: int
) -> None:
    """Against sums over 2,000 thin cells, rounded down and rounded up."""
    events = 2 if relation == "substitute" else 1
    step = Step(noise_multiplier=1.5, sample_rate=0.05)
    law = release_by_signs(step, relation, dimension=k).laws[way]
    mixture = getattr(law, "law", law)
    assert sum(mixture.weights) + mixture.missing == pytest.approx(1, abs=1e-12)
    assert min(mixture.weights) >= 0
    radii = np.linspace(1, projection_factor(k, 1e-20, "sign"), 2001)
    weights = -np.diff(np.minimum(1, events * sign_tail(radii, k)), append=0.0)
    for a in LEVELS:
        sticks = np.array([stick(a, 0.05, float(r) / 1.5) for r in radii])
        low = float(weights @ sticks)
        high = float(weights[:-1] @ sticks[1:])
        found = stick_of(law, stick, a)
        assert low * (1 - 1e-9) <= found
        # For a < 1 all but the distance to 1 - a is common to both.
        base = max(0.0, 1 - a)
        assert found - base <= 1.06 * (high - base) + 1e-9


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
def test_composed_epsilon_lies_where_an_independent_inversion_puts_it(relation: str) -> None:
    low, high = (truth(one).value for one in SIGNS if one["relation"] == relation)
    step = Step(noise_multiplier=2.0, sample_rate=0.02, count=200)
    found = Composition([release_by_signs(step, relation, dimension=60)]).epsilon(1e-5)
    assert 0.9 * high < low < found.upper < high
    plain = hubbub.epsilon(
        noise_multiplier=2.0, sample_rate=0.02, steps=200, delta=1e-5, relation=relation
    )
    assert found.lower > plain.upper


@pytest.mark.slow_cases("10-2.135", "2-2.0")
@pytest.mark.parametrize(("dimension", "noise"), [(2, 2.0), (10, 2.135), (100, 1.3633)])
def test_signs_are_dearer_than_gaussian_entries_and_cheaper_than_one_bound(
    dimension: int, noise: float
) -> None:
    gaussian, sign = (
        hubbub.projected_epsilon(dimension=dimension, noise_multiplier=noise, kind=kind, **PAPER)
        for kind in ("gaussian", "sign")
    )
    assert gaussian.upper < sign.lower
    for share in (0.01, 0.1):
        factor = hubbub.projection_bound(
            dimension=dimension, delta=share * 1e-5 / 1250, kind="sign"
        )
        bound = hubbub.epsilon(
            noise_multiplier=noise / factor, sample_rate=0.008, steps=1250,
            delta=(1 - share) * 1e-5,
        )  # fmt: skip
        assert sign.upper < bound.lower


@pytest.mark.quick_cases("100-1.057-1.92")
@pytest.mark.parametrize(
    ("dimension", "add_remove", "substitute"),
    [(10, 0.694, 1.438), (100, 1.057, 1.920), (1000, 1.319, 2.213)],
)
def test_the_numbers_of_the_table(dimension: int, add_remove: float, substitute: float) -> None:
    noise = 1.03 * hubbub.projection_bound(dimension=dimension, delta=5e-6)
    step = Step(noise_multiplier=noise, sample_rate=0.008, count=1250)
    for relation, stated in (("add-remove", add_remove), ("substitute", substitute)):
        one = release_by_signs(step, relation, dimension=dimension)
        assert Composition([one]).epsilon(1e-5).upper == pytest.approx(stated, abs=6e-4)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
@pytest.mark.parametrize(
    ("sampling", "rate"), [("poisson", 0.02), ("full-batch", 1.0), ("without-replacement", 0.02)]
)
def test_more_coordinates_are_cheaper_down_to_no_projection(
    relation: str, sampling: str, rate: float
) -> None:
    step = Step(noise_multiplier=4.0, sample_rate=rate, sampling=sampling, count=10)

    def upper(k: int) -> float:
        one = release_by_signs(step, relation, dimension=k)
        return Composition([one]).epsilon(1e-5, gap=3e-3).upper

    found = [upper(k) for k in (5, 20, 400, 2**40)]
    assert all(one > other * (1 + 1e-5) for one, other in pairwise(found))
    whole = hubbub.epsilon(
        noise_multiplier=4.0, sample_rate=rate, sampling=sampling, steps=10, delta=1e-5,
        relation=relation,
    )  # fmt: skip
    assert whole.lower < found[-1] == pytest.approx(whole.upper, rel=5e-3)


def test_where_nothing_is_sampled_an_exchange_is_one_vector_of_twice_the_length() -> None:
    far = Step(noise_multiplier=8.0, sampling="full-batch", count=5)
    near = replace(far, noise_multiplier=4.0)
    two = Composition([release_by_signs(far, "substitute", dimension=9)]).epsilon(1e-5)
    one = Composition([release_by_signs(near, "substitute", dimension=9)]).epsilon(1e-5)
    other = Composition([release_by_signs(near, "add-remove", dimension=9)]).epsilon(1e-5)
    assert two.upper < one.upper
    same = Composition([release_by_signs(far, "add-remove", dimension=9)]).epsilon(1e-5)
    assert other.upper == pytest.approx(two.upper, rel=1e-3)
    assert same.upper < other.upper


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1.0, 0.3, 1e-5])
def test_all_shifts_at_once_have_the_masses_of_one_after_the_other(rate: float) -> None:
    """Cells of every width, at both ends of the losses and far out, relative to themselves."""
    shifts = (*np.geomspace(0.02, 4, 30), *np.linspace(4.1, 9, 40))
    weights = np.exp(-np.linspace(0, 60, 70))
    law = ProjectedRemoval(rate=rate, shifts=shifts, weights=tuple(weights))
    one_by_one = Mixture(
        weights=law.weights, laws=tuple(Removal(rate=rate, shift=m) for m in shifts)
    )
    fine = np.geomspace(1e-4, 400, 1500)
    edges = np.concatenate([[-np.inf], -fine[::-1], [0.0], fine, [np.inf]])
    for way in (lambda one: one, lambda one: Reversed(law=one)):
        for found, known in zip(way(law).masses(edges), way(one_by_one).masses(edges), strict=True):
            assert found == pytest.approx(known, rel=1e-11, abs=1e-290)
    low, *_, high = law.quantiles(1e-12, 50)
    p, _ = one_by_one.masses(np.array([-np.inf, low, high, np.inf]))
    assert max(p[0], p[2]) < 1e-10


@pytest.mark.parametrize("kind", ["layers", "", "Sign", None])
def test_kinds_without_a_mixture_are_refused(kind: Any) -> None:
    with pytest.raises(StudyError, match="kind"):
        hubbub.projected_epsilon(dimension=9, noise_multiplier=2.0, kind=kind, **PAPER)


# Finite precision, P8 (8) ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 3, 30])
@pytest.mark.parametrize(("relation", "way", "stick", "apart"), STICKS[:2])
def test_the_least_radius_costs_nothing_worth_speaking_of(
    relation: str, way: int, stick: Callable[[float, float, float], float], apart: float, k: int
) -> None:
    """Against the integral over chi, in which short vectors are as short as they are."""
    one = release_projected(dimension=k, sample_rate=0.05, noise_multiplier=1.5, count=1)
    law = one.laws[way]
    mixture = getattr(law.above, "law", law.above)
    assert min(mixture.shifts) >= 2.0**-5 / 1.5
    for a in LEVELS:
        edges = chi(k).isf([1 - 1e-12, 0.999, 0.9, 0.5, 0.1, 1e-3, 1e-8, 1e-16])
        truth = sum(
            quad(lambda r: chi(k).pdf(r) * stick(a, 0.05, r / sqrt(k) / 1.5), *ends)[0]  # noqa: B023
            for ends in pairwise(edges)
        )
        found, base = stick_of(mixture, stick, a), max(0.0, 1 - a)
        assert truth * (1 - 1e-7) <= found
        assert found - base <= (truth - base) * 1.001 + 1e-7


@pytest.mark.parametrize("dimension", [2, 3, 400])
def test_p8_no_radius_is_left_out_of_the_law(dimension: int) -> None:
    """Of two coordinates one in a thousand is below the least radius."""
    release = release_projected(dimension=dimension, sample_rate=1.0, noise_multiplier=4.0, count=1)
    law = cast(Enclosed, release.laws[0])
    above, below = (cast(ProjectedRemoval, side) for side in (law.above, law.below))
    # On either side by more than the masses may be wrong as they are computed.
    assert 1 + 5e-13 < sum(above.weights) + above.missing < 1 + 1e-9
    assert 1 - 1e-9 < sum(below.weights) < 1 - 5e-13


@pytest.mark.parametrize(("relation", "way", "stick", "apart"), STICKS)
def test_p8_cells_of_signs_keep_the_mean_in_which_that_relations_hockey_sticks_are_convex(
    relation: str, way: int, stick: object, apart: float
) -> None:
    """An exchange moves twice as far as a record, and its cells are gathered for that distance."""
    k, noise, events = 8, 0.5, 2 if relation == "substitute" else 1
    step = Step(noise_multiplier=noise, sample_rate=0.3)
    law = release_by_signs(step, relation, dimension=k).laws[way]
    mixture = getattr(law, "law", law)
    radii = [shift * noise for _, shift in pairs_of(mixture)]
    scale = apart / noise / sqrt(8)
    gathered = sum(w * erf(r * scale) for w, r in zip(mixture.weights, radii, strict=True))

    def tail(radius: float) -> float:
        slope = 2 / sqrt(pi) * scale * exp(-((radius * scale) ** 2))
        return min(1.0, events * float(sign_tail(np.array(radius), k))) * slope

    ends = (0.0, *radii)
    truth = sum(quad(tail, *cell, epsabs=1e-13)[0] for cell in pairwise(ends))
    assert truth * (1 - 1e-9) <= gathered < truth + 1e-3


@pytest.mark.parametrize("dimension", [3, 400])
def test_p8_cells_of_radii_keep_the_mean_in_which_every_hockey_stick_is_convex(
    dimension: int,
) -> None:
    """From above the mass of a cell goes to its ends, from below to one radius in it."""
    noise = 4.0
    one = release_projected(dimension=dimension, sample_rate=1.0, noise_multiplier=noise, count=1)
    law, length = cast(Enclosed, one.laws[0]), chi(dimension, scale=1 / sqrt(dimension))
    above, below = (
        sum(w * erf(shift / sqrt(8)) for w, shift in zip(side.weights, side.shifts, strict=True))
        for side in (cast(ProjectedRemoval, law.above), cast(ProjectedRemoval, law.below))
    )
    ends = [2.0**-5, *length.isf([0.999, 0.5, 1e-3, 1e-14])]
    truth = length.cdf(ends[0]) * erf(ends[0] / noise / sqrt(8)) + sum(  # a least radius, P8 (8)
        quad(lambda r: length.pdf(r) * erf(r / noise / sqrt(8)), *cell, epsabs=1e-13)[0]
        for cell in pairwise(ends)
    )
    assert below <= truth * (1 + 1e-9)
    assert truth * (1 - 1e-9) <= above < truth * (1 + 1e-6)


def test_p8_a_projected_exchange_costs_what_one_that_is_not_does_where_all_is_sent() -> None:
    """Of so many coordinates the norm hardly varies, so an exchange is twice as long."""
    step = Step(noise_multiplier=8.0, sampling="full-batch")
    projection = RandomProjection(kind="gaussian", dimension=10**6)
    charged = projection.charged("full-batch", "substitute", 1, 1e-5)
    plain = lambda noise: release_of(replace(step, noise_multiplier=noise), "substitute")  # noqa: E731
    found, expected = (
        Composition([one]).epsilon(1e-5).upper
        for one in (charged.release(8.0, step, "substitute", plain), plain(8.0))
    )
    assert found == pytest.approx(expected, rel=0.01)


def test_the_margins_of_finite_precision_add_up() -> None:
    """Float sums, the grid and the results; for Gaussian entries their own error too."""
    grid, results, entries = 2.0**-11, 2.0**-17, 8.7 * 2.0**-20.9
    least = 2.0**-5
    assert SUM_MARGIN + grid + (results + entries) / least <= CLIP_MARGIN
    assert 8.7**2 * exp(1 - 8.7**2) < 2.0**-100  # k = 2, the worst


# The study and its plan ------------------------------------------------------------------------


def study(*, training: dict[str, Any] | None = None, **privacy: Any) -> Study:
    """Small, with a model of 10 parameters."""
    return Study.from_table(
        {
            "study": {"name": "projection"},
            "parties": {"silos": 6, "colluders": 2},
            "data": {"source": "python:none:none", "records": 10_000},
            "model": {"kind": "logistic", "inputs": [9]},
            "training": {"steps": 40, "sample_rate": 0.2, **(training or {})},
            "privacy": {"epsilon": 1.0, "delta": 1e-5, **privacy},
        }
    )


def projected(kind: str, k: int = 8, **more: Any) -> Study:
    relation = more.pop("relation", "add-remove")
    return study(training={"projection": k, "projection_kind": kind, **more}, relation=relation)


@cache
def plan(one: Study, *, dimension: int | None = None) -> Plan:
    """The plan with no coalition but the stated one."""
    with mock.patch.object(exposure, "_curve", lambda parties: [parties.colluders]):
        return hubbub.plan(one, dimension=dimension)


def test_the_kind_is_part_of_the_study_and_survives_a_file() -> None:
    kinds = ("gaussian", "sign", "layers")
    ids = {projected(kind).id for kind in kinds}
    assert len(ids) == 3
    assert study(training={"projection": 8}).id == projected("gaussian").id
    for kind in kinds:
        again = Study.parse(replace(projected(kind), name="another").as_toml())
        assert again.training.projection_kind == kind


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"projection_kind": "sign"}, ["absent", "projection = 0", '"sign"', "remove"]),
        ({"projection": 0, "projection_kind": "gaussian"}, ["absent", '"gaussian"', "remove"]),
        ({"projection": 5, "projection_kind": "hadamard"}, ['"layers"', '"hadamard"', "choose"]),
        ({"projection": 5, "projection_kind": 3}, ['"sign"', "got 3", "choose"]),
        ({"projection": 5, "projection_kin": "sign"}, ["did you mean projection_kind?"]),
    ],
)
def test_a_kind_that_means_nothing_is_refused(training: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(StudyError) as caught:
        study(training=training)
    message = str(caught.value)
    assert "training" in message
    assert [word for word in words if word not in message] == []


@pytest.mark.slow
def test_the_plan_says_how_signs_are_charged() -> None:
    made = plan(projected("sign", 5))
    found = made.to_dict()["projection"]
    assert (found["kind"], found["dimension"]) == ("sign", 5)
    assert found["account"].startswith("mixture over norms no shorter")
    assert not found["exact"]
    assert (found["factor"], found["slack"]) == (1.0, 0.0)
    bound = hubbub.projected_epsilon(
        dimension=5, noise_multiplier=made.stated.noise_multiplier, sample_rate=0.2, steps=40,
        delta=1e-5, kind="sign",
    )  # fmt: skip
    assert bound.upper == pytest.approx(made.stated.epsilon, rel=1e-4)
    assert made.stated.epsilon <= 1.0
    exact = plan(projected("gaussian", 5))
    assert made.noise_multiplier > 1.1 * exact.noise_multiplier
    assert exact.to_dict()["projection"]["account"].startswith("exact")
    assert exact.to_dict()["projection"]["exact"]


@pytest.mark.slow
def test_under_substitution_both_kinds_are_charged_by_the_same_tail() -> None:
    signs = plan(projected("sign", 9, relation="substitute"))
    gaussian = plan(projected("gaussian", 9, relation="substitute"))
    both = [account_of(one.mechanism).projected for one in (signs, gaussian)]
    assert [how and how.slack for how in both] == [0, 0]
    assert signs.noise_multiplier == pytest.approx(gaussian.noise_multiplier, rel=1e-3)
    whole = plan(study(relation="substitute"))
    assert signs.noise_multiplier > 1.1 * whole.noise_multiplier


def test_signs_in_joint_batches_pay_slack_for_their_own_tail() -> None:
    joint: dict[str, Any] = {"sampling": "without-replacement", "sample_rate": 0.02, "steps": 5}
    how = account_of(
        training_of(projected("sign", 9, relation="substitute", **joint)).mechanism
    ).projected
    assert how is not None
    assert how.slack > 0
    assert how.factor == pytest.approx(
        hubbub.projection_bound(dimension=9, delta=how.slack / 3, kind="sign")
    )


@pytest.mark.slow
def test_layers_are_charged_as_if_nothing_were_projected() -> None:
    for relation in ("add-remove", "substitute"):
        made = plan(projected("layers", 8, relation=relation))
        whole = plan(study(relation=relation))
        assert made.noise_multiplier == pytest.approx(whole.noise_multiplier, rel=1e-3)
        found = made.to_dict()["projection"]
        assert found["account"].startswith("as without projection")
        assert found["exact"]
        assert (made.main.numbers_sent, made.certificate.failure) == (8, whole.certificate.failure)
        # All of a record may lie in one coordinate after it was clipped.
        room = 2.0 ** (made.word_bits - 1)
        assert made.main.sum_limit * made.mechanism.clip / made.main.grid_step < room


def certified(one: Study, numbers: int, parameters: int | None = None) -> Certificate:
    """What finite precision adds in the study's training."""
    return certificate_for(training_of(one).mechanism, one.parties, numbers, parameters)


def test_only_gaussian_entries_are_charged_for_their_finite_precision() -> None:
    one = projected("gaussian", 401)
    found = certified(one, 401, 900_000).failure
    assert found == pytest.approx(40 * (900_000 * 201 * 2.0**-71 + 2.0**-100), rel=1e-12, abs=0)
    assert certified(one, 401).failure > found  # a size that is not known is taken large
    for kind in ("sign", "layers"):
        assert certified(projected(kind, 401), 401, 900_000).failure == 0


def test_p8_every_attempt_that_a_row_pays_for_may_have_a_matrix_that_is_far_off() -> None:
    """A row of a kept list pays for four attempts, and each draws a matrix."""
    kept = Mechanism(
        purpose="training",
        relation="substitute",
        delta=1e-5,
        steps=10,
        records=100,
        sampling=WITHOUT_REPLACEMENT,
        sample_rate=0.25,
        tokens="per-epoch",
        projection=RandomProjection(kind="gaussian", dimension=401),
    )
    found = certificate_for(kept, study().parties, 401, 900_000).failure
    assert found == pytest.approx(12 * (900_000 * 201 * 2.0**-71 + 2.0**-100), rel=1e-12, abs=0)


def test_the_matrices_of_a_plan_fit_its_batches_and_its_margin() -> None:
    signs_of = training_of(projected("sign", 8)).mechanism
    assert signs_of.projection is not None
    rows = largest_batch(signs_of)
    made = Projection(kind="sign", parameters=900_000, dimension=8, clip=1.0, records=rows)
    assert 2000 < made.records < 3000  # of 10,000 records a fifth
    assert made.allowance < CLIP_MARGIN - SUM_MARGIN
    assert training_of(study()).mechanism.projection is None


@pytest.mark.parametrize("kind", ["gaussian", "sign"])
def test_sums_too_long_for_the_grid_are_refused_by_the_plan(kind: str) -> None:
    many = replace(projected(kind, 8), data=replace(study().data, records=10**9))
    with pytest.raises(StudyError, match="lower one of them"):
        plan(many)
    mechanism = training_of(many).mechanism
    assert mechanism.projection is not None
    mechanism.projection.check(10, mechanism.clip, 1000)


@pytest.mark.parametrize("distance", [1.0, 20.0, 60.0])
def test_p8_a_level_of_the_tail_is_no_less_than_its_mean_however_far_records_are_apart(
    distance: float,
) -> None:
    ends, weights, missing = _gathered_radii(2, 1, distance)
    levels = missing + np.cumsum(weights[::-1])[::-1][1:]
    for first, last, level in zip(ends[:-1], ends[1:], levels, strict=True):
        radii = np.linspace(first, last, 4001)
        slopes = np.exp(-(radii**2 - first**2) * distance**2 / 8)
        mean = np.trapezoid(slopes * sign_tail(radii, 2), radii) / np.trapezoid(slopes, radii)
        assert level >= (1 - 1e-5) * mean  # which a trapezium is above
    assert missing == sign_tail(ends[-1:], 2)[0]
