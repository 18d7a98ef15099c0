"""A silo whose machine was set back to an image of itself: what two copies of one state tell.

Both copies have the same keys, session and source. An adversary who carries the messages may show
them what it likes, and looks at what they sum before it is masked.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from hubbub.core.protocol.primitives import randomness, ring
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES
from hubbub.core.protocol.round import additive_shares
from hubbub.core.protocol.round.additive_shares import Sharing
from hubbub.core.protocol.round.masking import Attempt, Masking
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.round.silo import Silo
from protocol.parties import World, sessions_of, world
from protocol.test_full_shares import FULL

ALL = (1, 2, 3, 4)
STATE = bytes(range(16))
RECORDS = 400
WORLDS = pytest.mark.parametrize(
    "w", [world(), world(nodes=2), FULL], ids=["pairwise", "nodes", "full shares"]
)


class Records:
    """Records that each add a unit; which were chosen is kept."""

    count = capacity = RECORDS

    def __init__(self) -> None:
        self.chosen: list[bytes] = []

    def clipped_sum(self, parameters: Any, chosen: np.ndarray) -> np.ndarray:
        self.chosen.append(chosen.tobytes())
        return np.zeros(5)


class Seen(Masking):
    """Residues as they are before they are masked."""

    def masked(self, attempt: Attempt, residues: ring.Residues) -> bytes:
        self.seen = residues.tobytes()
        return super().masked(attempt, residues)


class SeenSharing(Seen, Sharing):
    """The same before they are divided."""


class Restored:
    """A copy of a silo, whose source was read from an image."""

    def __init__(self, w: World) -> None:
        round_parameters = RoundParameters(
            **{**vars(w.round_parameters), "sigma_grid": 1000.0, "sample_rate": 0.5}
        )
        self.source, self.task = SecureSource(), Records()
        session = sessions_of(w)[1]
        is_full = round_parameters.full_shares
        seen_of = partial(SeenSharing, source=self.source) if is_full else Seen
        self.masking = seen_of(
            keys=w.keys[1],
            roster=w.roster,
            round_parameters=round_parameters,
            session=session,
            mask_stream=w.masking(session)._mask_stream,
        )
        self.silo = Silo(
            round_parameters=round_parameters,
            task=self.task,
            masking=self.masking,
            source=self.source,
        )

    def answer(self, model: bytes) -> tuple[bytes, bytes, list[bytes]]:
        """The residues, the batch, and all that leaves."""
        self.silo.accept(model)
        masked = self.silo.contribute()
        frames = [masked, *self.silo.shares().values()]
        return self.masking.seen, self.task.chosen[-1], frames


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every source begins in the state of the image; what is drawn later is fresh."""
    fresh = randomness.os.urandom

    def urandom(count: int) -> bytes:
        return STATE if count == 16 else fresh(count)

    monkeypatch.setattr(randomness.os, "urandom", urandom)


@WORLDS
@pytest.mark.parametrize("turn", [(1, 1), (2, 0)], ids=str)
def test_p3_a_restored_silo_repeats_neither_noise_nor_batch_in_another_attempt(
    w: World, turn: tuple[int, int], image: None
) -> None:
    noise, batch, _ = Restored(w).answer(w.model(ALL))
    again, other, _ = Restored(w).answer(w.model(ALL, *turn))
    assert noise != again
    assert batch != other


@WORLDS
def test_p3_nor_in_the_same_attempt_with_another_model(w: World, image: None) -> None:
    """And no mask serves both: what is sent has nothing in common."""
    noise, batch, sent = Restored(w).answer(w.model(ALL))
    again, other, more = Restored(w).answer(w.model(ALL, value=1.0))
    assert noise != again
    assert batch != other
    hidden = zip(vectors(w, sent), vectors(w, more), strict=True)
    residues = (np.frombuffer(noise, "<u4"), np.frombuffer(again, "<u4"))
    for one, two in hidden:
        assert not np.array_equal(one - two, residues[0] - residues[1])
        assert (one != two).all()


def test_p3_copies_divide_what_they_answer_two_models_with_by_other_shares(
    image: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With equal shares the last node would see the difference of two noisy sums."""
    divide, first = additive_shares.divided, list[bytes]()

    def divided(*given: Any) -> list[ring.Residues]:
        shares = divide(*given)
        first.append(shares[0].tobytes())
        return shares

    monkeypatch.setattr(additive_shares, "divided", divided)
    for value in (0.0, 1.0):
        Restored(FULL).answer(FULL.model(ALL, value=value))
    assert first[0] != first[1]


@WORLDS
def test_p3_the_same_model_again_is_answered_with_the_same_bytes(w: World, image: None) -> None:
    """Other noise under the same masks would tell the difference of two vectors of one silo."""
    first, second = Restored(w), Restored(w)
    assert first.answer(w.model(ALL)) == second.answer(w.model(ALL))


@WORLDS
def test_p3_from_the_second_attempt_on_nothing_follows_from_the_image(
    w: World, image: None
) -> None:
    first, second = Restored(w), Restored(w)
    first.answer(w.model(ALL))
    second.answer(w.model(ALL))
    later = w.model(ALL, 2)
    noise, batch, _ = first.answer(later)
    again, other, _ = second.answer(later)
    assert noise != again
    assert batch != other


def vectors(w: World, frames: list[bytes]) -> list[np.ndarray]:
    """The words that leave: of the masked vector, or of the sealed shares."""
    sizes = slice(HEADER_BYTES, HEADER_BYTES + 4 * w.round_parameters.dimension)
    whole = frames[1:] if w.round_parameters.full_shares else frames[:1]
    assert all(len(one) >= sizes.stop + SIGNATURE_BYTES for one in whole)
    return [np.frombuffer(one[sizes], "<u4") for one in whole]
