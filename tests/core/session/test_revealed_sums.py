"""A revealed sum is decoded where it is read: the same numbers, and no vector of float64."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.round.aggregator import RevealedSum
from hubbub.core.protocol.round.round_parameters import decoded
from hubbub.learning import Optimizer, stepped
from protocol.parties import world

SIZE, BITS = 300_000, [16, 32, 64]
NUMBERS = world().round_parameters


def residues(bits: int) -> ring.Residues:
    most = 1 << (bits - 1)
    drawn = np.random.default_rng(1).integers(-most, most - 1, SIZE, endpoint=True)
    return ring.to_residues(drawn, bits)


@pytest.mark.parametrize("bits", BITS)
def test_it_has_the_bits_of_the_whole_vector(bits: int) -> None:
    total = ring.to_integers(residues(bits))
    revealed, whole = RevealedSum(NUMBERS, total), decoded(NUMBERS, total.astype(np.int64))
    assert (revealed.shape, revealed.size, whole.dtype) == (whole.shape, whole.size, np.float64)
    assert np.asarray(revealed).tobytes() == whole.tobytes()
    assert revealed[1000:2500].tobytes() == whole[1000:2500].tobytes()


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("bits", BITS)
def test_a_step_along_it_is_one_along_the_whole_vector(kind: str, bits: int) -> None:
    total, start = ring.to_integers(residues(bits)), np.ones(SIZE, dtype=np.float32)
    ends = [
        stepped(Optimizer(kind, lr=0.1), start, gradient, 7.0)
        for gradient in (RevealedSum(NUMBERS, total), decoded(NUMBERS, total))
    ]
    assert ends[0].tobytes() == ends[1].tobytes()


def test_a_step_takes_the_memory_of_its_model_and_no_more() -> None:
    """The state is written over, and of the sum there is never more than a block."""
    optimizer, parameters = Optimizer("adam", lr=0.1), np.ones(SIZE, dtype=np.float32)
    revealed = RevealedSum(NUMBERS, ring.to_integers(residues(16)))
    parameters = stepped(optimizer, parameters, revealed, 7.0)  # which makes the state
    tracemalloc.start()
    try:
        stepped(optimizer, parameters, revealed, 7.0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert parameters.nbytes <= peak < 2 * parameters.nbytes
