"""The compiled loops over noise make what NumPy makes, bit for bit (P5, P6)."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from hubbub.core.errors import DataError
from hubbub.core.protocol.primitives import compiled
from hubbub.core.protocol.primitives.noise import add_noise_and_round, standard_normal
from hubbub.core.protocol.primitives.randomness import SecureSource

SIZE = compiled.WORTH + 12_345  # its last chunk is not full


@pytest.fixture
def vector():
    drawn = np.random.default_rng(7).standard_cauchy(SIZE)
    drawn[:4] = [2.0**59, -(2.0**59), 0.5, -0.0]
    return drawn


def both(monkeypatch, made):
    """By the compiled loops, and by NumPy."""
    assert compiled.loops() is not None, numba.__version__
    fast = made()
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "loops", lambda: None)
        return fast, made()


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_p5_p6_the_same_words_make_the_same_residues(monkeypatch, vector, bits):
    def made():
        return add_noise_and_round(vector, 1e4, SecureSource(bytes(16)), bits, grid_step=0.25)

    fast, slow = both(monkeypatch, made)
    np.testing.assert_array_equal(fast, slow)
    other = add_noise_and_round(vector, 1e4, SecureSource(b"k" * 16), bits, grid_step=0.25)
    assert (other != fast).mean() > 0.99


def test_p6_the_same_words_make_the_same_normals_tails_included(monkeypatch):
    def made():
        out = np.empty(SIZE)
        standard_normal(SecureSource(bytes(16)), out)
        return out

    fast, slow = both(monkeypatch, made)
    np.testing.assert_array_equal(fast.view(np.uint64), slow.view(np.uint64))
    assert np.abs(fast).max() > 4.04  # some are of the tail


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**62, -(2.0**62)])
def test_p5_what_no_integer_holds_is_refused_here_too(vector, value):
    vector[SIZE // 2] = value
    with pytest.raises(DataError, match="below 2\\^62 grid steps"):
        add_noise_and_round(vector, 1.0, SecureSource(), 64)


def test_a_short_vector_is_not_worth_compiling_for(monkeypatch):
    monkeypatch.setattr(compiled, "loops", lambda: pytest.fail("compiled"))
    add_noise_and_round(np.zeros(compiled.WORTH - 1), 1.0, SecureSource(), 32)
