"""Patterns of classes by components: no longer than one-hot vectors, and with less noise.

P23 (h): lengths and distances of all patterns, the noise of effects against that of one-hot
vectors by draws, and what is told of effects' errors.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation import pattern_regression
from hubbub.estimation.cox import Cox
from hubbub.estimation.logistic_regression import Logistic
from hubbub.estimation.pattern_regression import PatternLayout
from hubbub.estimation.risk_sets import PrefixCode
from hubbub.estimation.stacking import stack

SHAPES = st.lists(st.integers(2, 5), min_size=1, max_size=4)
DIED = Column(name="died", categories=("no", "yes"), complete=True)
SEX = Levels(column=Column(name="sex", categories=("f", "m"), complete=True))
STAGE = Levels(column=Column(name="stage", categories=("I", "II", "III"), complete=True))
ARM = Levels(column=Column(name="arm", categories=("a", "b", "c", "d"), complete=True))
TIME = Column(name="time", low=0, high=12, complete=True)
GRID = tuple(map(float, range(0, 13, 3)))
LOGISTIC = Logistic(outcome=DIED, on=(SEX, STAGE, ARM))
COX = Cox(time=TIME, event=DIED, edges=GRID, on=(SEX, STAGE, ARM))


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, kept=st.sets(st.integers(0, 3), min_size=2))
def test_p23_patterns_are_as_long_as_one_hot_vectors_and_are_read_back(
    shape: list[int], kept: set[int]
) -> None:
    layout = PatternLayout(shape=tuple(shape), kept=frozenset([frozenset(kept)]))
    np.testing.assert_allclose(np.linalg.norm(layout.sent, axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose(layout.counts @ layout.sent, np.eye(math.prod(shape)), atol=1e-11)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(shape=SHAPES)
def test_p23_no_two_patterns_are_further_apart_than_the_widest(shape: list[int]) -> None:
    """With all columns of a code inside, and nothing at all: reached where angles are obtuse."""
    layout, inner = PatternLayout(shape=tuple(shape)), PrefixCode(bins=4, power=0.45)
    columns = inner.matrix.T / inner.sensitivity
    found = np.array([np.kron(one, two) for one in layout.sent.T for two in columns])
    squares = np.sum(found**2, axis=1)
    apart = squares[:, None] + squares - 2 * found @ found.T
    assert apart.max() <= layout.widest * (1 + 1e-9)
    assert max(squares.max(), 1.9) <= layout.widest
    if len(shape) > 1:
        assert apart.max() == pytest.approx(layout.widest)


def test_with_one_covariate_nothing_changes() -> None:
    np.testing.assert_allclose(PatternLayout(shape=(7,)).sent, np.eye(7), atol=1e-12)


@pytest.mark.parametrize("kept", [(), ((0, 1),), ((0, 1), (0, 1, 2))])
def test_interactions_have_so_much_more_noise_as_they_are_shrunk(
    kept: tuple[tuple[int, ...], ...],
) -> None:
    """The noise of each component, over that of an effect: 1, 1 / .3 and 1 / .09."""
    layout = PatternLayout(shape=(2, 2, 2), kept=frozenset(map(frozenset, kept)))
    noise = layout.counts @ layout.counts.T
    signs = np.array([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2)
    for which in itertools.product((0, 1), repeat=3):
        component = np.kron(np.kron(signs[which[0]], signs[which[1]]), signs[which[2]])
        asked = tuple(place for place in range(3) if which[place]) in kept
        expected = 1.0 if asked else 0.3 ** -max(sum(which) - 1, 0)
        effect = np.kron(np.kron(signs[1], signs[0]), signs[0])
        ratio = (component @ noise @ component) / (effect @ noise @ effect)
        assert ratio == pytest.approx(expected)


def released(asked: Logistic | Cox, draws: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(draws, q) effects with noise, the covariance that is said, and that of sampling alone."""
    rng, number = np.random.default_rng(1), 20_000
    cells = {
        "sex": rng.integers(0, 2, number) * 1.0,
        "stage": rng.choice(3, number, p=[0.6, 0.3, 0.1]) * 1.0,
        "arm": rng.integers(0, 4, number) * 1.0,
        "time": rng.exponential(12.0, number),
    }
    risk = cells["sex"] * 0.5 + cells["stage"] * 0.4
    cells["time"] *= np.exp(-risk)
    cells["died"] = (cells["time"] < 12) * 1.0
    sigma = 4.0
    exact = asked.encode(cells).sum(axis=0)
    found = []
    for noise in sigma * rng.standard_normal((draws, len(exact))):
        patterns = asked.by_pattern(exact + noise).reshape(24, -1)
        effects = asked.fitted(patterns, asked.design, sigma)
        assert effects is not None
        found.append(effects.values)
    truth = asked.fitted(asked.by_pattern(exact).reshape(24, -1), asked.design, sigma)
    assert truth is not None
    return np.array(found), truth.covariance, truth.sampling


@pytest.mark.slow
@pytest.mark.parametrize("asked", [LOGISTIC, COX], ids=["logistic", "cox"])
def test_what_is_said_of_noise_is_what_draws_show_and_less_than_that_of_one_hot_vectors(
    asked: Logistic | Cox,
) -> None:
    """600 draws: a deviation is known to 3 %; four errors are allowed, and a third is refused."""
    effects, covariance, sampling = released(asked, 600)
    deviations = effects.std(axis=0)
    said = np.sqrt(np.diag(covariance) - sampling)
    np.testing.assert_allclose(deviations, said, rtol=0.12)
    with patch.object(pattern_regression, "_SHRUNK", 1.0):
        plain, _, _ = released(replace(asked), 200)
    assert (deviations < 0.85 * plain.std(axis=0)).all()


@pytest.mark.parametrize("asked", [LOGISTIC, COX], ids=["logistic", "cox"])
def test_margins_are_those_of_the_numbers_by_pattern(asked: Logistic | Cox) -> None:
    """Without noise: what a question of one column tells, this one does."""
    rng = np.random.default_rng(2)
    cells = {
        "sex": rng.integers(0, 2, 500) * 1.0,
        "stage": rng.integers(0, 3, 500) * 1.0,
        "arm": rng.integers(0, 4, 500) * 1.0,
        "died": rng.integers(0, 2, 500) * 1.0,
        "time": rng.uniform(0, 15, 500),
    }
    other = replace(asked, on=(STAGE,))
    first, second = (one.encode(cells).sum(axis=0) for one in (asked, other))
    shared = set(asked.margins) & set(other.margins)
    assert len(shared) >= 3
    for margin in shared:
        values = [
            float(np.outer(*one.margins[margin]).ravel() @ sums)
            for one, sums in ((asked, first), (other, second))
        ]
        assert values[0] == pytest.approx(values[1], abs=1e-7)


def test_interactions_that_are_asked_have_as_much_noise_as_effects() -> None:
    asked = replace(LOGISTIC, interactions=(("sex", "stage"),), subgroups="arm")
    assert asked.layout.kept == {frozenset({0, 1}), frozenset({0, 2}), frozenset({1, 2})}
    assert stack({"one": asked}).sensitivity <= 1.0
