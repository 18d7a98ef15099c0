"""The root finder takes the steps of SciPy's, so that no number of a plan has moved."""

from __future__ import annotations

from math import copysign, exp, nan

import numpy as np
import pytest
from scipy.fft import next_fast_len
from scipy.optimize import brentq

from hubbub.core.privacy.roots import root
from hubbub.core.privacy.transform import fast_size

SHAPES = [
    lambda x, slope: float(np.arctan(slope * x)),
    lambda x, slope: slope * x**3 + x,
    lambda x, _: exp(min(700.0, x)) - 1,
    lambda x, slope: copysign(abs(x) ** (1 / (1 + slope)), x),
]
TOLERANCES = [{}, {"xtol": 1e-3}, {"xtol": 1e-14, "rtol": 1e-14}]


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
@pytest.mark.parametrize("tolerance", TOLERANCES, ids=str)
def test_the_root_is_scipys_to_the_last_bit(shape, tolerance):
    draw = np.random.default_rng(1)
    for _ in range(100):
        zero, slope = draw.normal() * 10 ** draw.uniform(-3, 3), 10 ** draw.uniform(-2, 2)
        low, high = zero - draw.uniform(0.1, 50), zero + draw.uniform(0.1, 50)

        def function(x, zero=zero, slope=slope):
            return shape(x - zero, slope)

        assert root(function, low, high, **tolerance) == brentq(function, low, high, **tolerance)


def test_a_root_at_an_end_is_found():
    assert root(lambda x: x, 0.0, 1.0) == 0.0
    assert root(lambda x: x - 1, 0.0, 1.0) == 1.0


@pytest.mark.parametrize("value", [1.0, -1.0, nan])
def test_a_function_of_one_sign_has_no_root_here(value):
    with pytest.raises(ValueError, match="two signs"):
        root(lambda _: value, 0.0, 1.0)


def test_sizes_are_quick_ones_and_the_least():
    draw = np.random.default_rng(2)
    for least in [*range(1, 400), *draw.integers(1, 2**28, 200).tolist()]:
        assert fast_size(least) == next_fast_len(least, real=True)
