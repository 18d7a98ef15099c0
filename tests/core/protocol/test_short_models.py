"""A model that goes down as bfloat16: rounded to nearest, ties to even, the same for everybody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.protocol.round import round_parameters
from protocol.parties import refused, world

WORLD = world()
BITS = [0x3F80_0000, 0x3F80_8000, 0x3F81_8000, 0x3F80_8001, 0x3F80_7FFF, 0xBF81_8000, 0x0000_8001]


def reference(bits: int) -> int:
    """The upper half of a float32's bits, by what is cut off: under, at or over one half."""
    upper, cut = divmod(bits, 1 << 16)
    return upper + (cut > 1 << 15 or (cut == 1 << 15 and upper % 2 == 1))


@pytest.mark.parametrize("block", [3, 1 << 16])
def test_numbers_are_rounded_to_the_nearest_and_ties_to_even(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(round_parameters, "_BLOCK", block)
    drawn = np.random.default_rng(5).integers(0, 0x7F00_0000, size=200, dtype=np.uint32)
    bits = np.concatenate([np.array(BITS, dtype=np.uint32), drawn])
    numbers = replace(WORLD.round_parameters, short_models=True, parameters=bits.size)
    payload = b"".join(numbers.model_parts(WORLD.roster.silos, bits.view(np.float32)))
    frame = unverified(WORLD.forge(0, Tag.MODEL, payload, round=1))
    active, model = numbers.read_model(frame, "aggregator", frozenset(WORLD.roster.silos))
    wanted = np.array([reference(int(one)) << 16 for one in bits], dtype=np.uint32)
    assert active == {*WORLD.roster.silos}
    assert model.view(np.uint32).tolist() == wanted.tolist()
    assert numbers.sent(bits.view(np.float32)).tobytes() == model.tobytes()


def test_a_long_model_is_two_bytes_a_number_too_long_where_short_ones_are_sent() -> None:
    short = replace(WORLD.round_parameters, short_models=True)
    values = np.ones(WORLD.round_parameters.parameters, dtype=np.float32)
    long, cut = (
        b"".join(one.model_parts([1, 2, 3], values)) for one in (WORLD.round_parameters, short)
    )
    assert len(long) - len(cut) == 2 * values.size
    frame = unverified(WORLD.forge(0, Tag.MODEL, long, round=1))
    with refused("aggregator", "expected a MODEL of"):
        short.read_model(frame, "aggregator", frozenset(WORLD.roster.silos))
