"""Pieces of a batch: one shape whatever a silo holds; nothing where a model fails.

P19. What a piece is worked on with is looked at here, and no model is needed for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hubbub.core.errors import DataError
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.batches import EMPTY
from hubbub.core.tabular.records import Records
from hubbub.learning import batches
from hubbub.learning.batches import PaddedBatches

CPU = torch.device("cpu")
NULL = np.array([100.0, 0.5], np.float32)
RECORDS = Records(
    inputs=np.stack([np.arange(9), np.full(9, 0.25)], axis=1).astype(np.float32),
    targets=np.arange(9, dtype=np.float64),
)
OF_PATIENTS = Records(
    inputs=RECORDS.inputs, targets=RECORDS.targets, patients=np.array([0, 1, 0, 2, 2, 2, 2, 1, 3])
)
ALL = np.arange(9)
PLACES = ["in memory", "on the device"]


class Work:
    """Adds up the first features of held rows; raises where some of them are among these."""

    def __init__(self, *at: float, raised: type[BaseException] = ValueError) -> None:
        self.at, self.raised = at, raised
        self.seen: list[tuple[list[float], list[bool]]] = []
        self.drawn: list[float] = []

    def __call__(self, xs: torch.Tensor, ys: Any, held: torch.Tensor) -> np.ndarray:
        self.seen.append((xs[:, 0].tolist(), held.tolist()))
        self.drawn.append(float(torch.rand(())))
        if set(self.at) & set(xs[:, 0].tolist()):
            raise self.raised("a record's own words")
        return np.array([float(xs[:, 0][held].sum()), float(ys[held].sum())])


@pytest.fixture(params=PLACES)
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PaddedBatches:
    """The records in pieces of four rows at most, the last of which is empty."""
    monkeypatch.setattr(batches, "has_room", lambda *_: request.param == PLACES[1])
    return PaddedBatches(RECORDS, NULL, most=4, device=CPU, source=SecureSource(bytes(16)))


def test_p19_every_piece_has_one_length_and_ends_with_the_null_record(rows: PaddedBatches) -> None:
    for numbers in (ALL, ALL[:7], np.array([3, EMPTY, EMPTY, EMPTY, EMPTY, 8, EMPTY])):
        work = Work()
        total = rows.total(numbers, 2, work)
        here = numbers[numbers != EMPTY]
        assert total.tolist() == [here.sum(), here.sum()]
        assert {len(xs) for xs, _ in work.seen} == {4}
        shown = [x for xs, held in work.seen for x, mine in zip(xs, held, strict=True) if mine]
        assert sorted(shown) == here.tolist()
        for xs, held in work.seen:
            assert not held[-1]
            assert [x for x, mine in zip(xs, held, strict=True) if not mine] == [
                float(NULL[0])
            ] * held.count(False)


def test_p19_the_null_record_has_a_public_target(rows: PaddedBatches) -> None:
    told = []
    rows.total(ALL[:4], 1, lambda xs, ys, held: told.append(ys[~held].tolist()) or np.zeros(1))
    assert [y for one in told for y in one] == [0.0] * sum(map(len, told))


@pytest.mark.parametrize("raised", [ValueError, RuntimeError, SystemExit])
@pytest.mark.parametrize("at", [(4,), (0, 8), (3, 4, 5), tuple(range(9))])
def test_p19_a_record_at_which_a_model_raises_adds_nothing_and_takes_nothing_from_others(
    rows: PaddedBatches, at: tuple[int, ...], raised: type[BaseException]
) -> None:
    rest = sum(set(range(9)) - set(at))
    for _ in range(2):  # and so it does the next time
        assert rows.total(ALL, 2, Work(*at, raised=raised)).tolist() == [rest, rest]
    work = Work(*at, raised=raised)
    rows.total(ALL, 2, work)
    assert len(work.seen) == 3  # nobody is looked for once more
    assert not set(at) & {x for xs, _ in work.seen for x in xs}


def test_p19_a_piece_is_nothing_where_the_null_record_raises(rows: PaddedBatches) -> None:
    """However many of its rows hold records, and which: else one record would move all others."""
    for numbers in (ALL, ALL[:3], np.array([2, EMPTY, EMPTY]), np.full(3, EMPTY)):
        work = Work(float(NULL[0]))
        assert rows.total(numbers, 2, work).tolist() == [0.0, 0.0]
    assert rows.total(ALL, 2, Work()).tolist() == [36.0, 36.0]  # none of them was at fault


def test_p19_a_record_alone_in_its_piece_needs_no_other() -> None:
    alone = PaddedBatches(RECORDS, NULL, most=2, device=CPU)
    assert alone.total(ALL, 2, Work(4, float(NULL[0]))).tolist() == [32.0, 32.0]


def test_p19_a_piece_is_tried_again_in_the_same_shape_with_the_same_randomness(
    rows: PaddedBatches,
) -> None:
    """And another piece with other: its seed is drawn before anybody knows what raises."""
    work = Work(1)
    rows.total(ALL[:3], 2, work)
    assert len(work.seen) > 3
    assert {len(xs) for xs, _ in work.seen} == {4}
    assert len(set(work.drawn)) == 1
    others = Work()
    rows.total(ALL, 2, others)
    assert len(set(others.drawn)) == 3
    assert not set(others.drawn) & set(work.drawn)


def test_who_stops_the_machine_stops_it(rows: PaddedBatches) -> None:
    with pytest.raises(KeyboardInterrupt):
        rows.total(ALL, 2, Work(1, raised=KeyboardInterrupt))


@pytest.mark.parametrize("place", PLACES)
def test_p21_a_patients_records_stand_in_one_row_with_their_shares(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that holds nobody has the null unit, with equal shares whoever is there."""
    monkeypatch.setattr(batches, "has_room", lambda *_: place == PLACES[1])
    null = np.stack([NULL, NULL + 1])
    rows = PaddedBatches(OF_PATIENTS, null, most=9, device=CPU, places=2)
    seen = {}

    def work(xs: torch.Tensor, ys: Any, held: torch.Tensor) -> np.ndarray:
        targets, weights = ys
        for x, y, weight, mine in zip(xs, targets, weights, held, strict=True):
            key = "null" if not mine else int(x[0, 0])
            seen[key] = (x[:, 0].tolist(), y.tolist(), weight.tolist())
        return np.array([float((xs[..., 0] * weights).sum(1)[held].sum())])

    total = rows.total(np.array([0, 3, 2, 1, EMPTY]), 1, work)
    assert seen.pop("null") == ([100.0, 101.0], [0.0, 0.0], [0.5, 0.5])
    for first, second in ((0, 2), (1, 7), (3, 4)):
        assert seen.pop(first) == ([first, second], [first, second], [0.5, 0.5])
    (x, y, weight) = seen.pop(8)
    assert (x[0], y[0], weight) == (8.0, 8.0, [1.0, 0.0])
    assert not seen
    assert total.tolist() == [1.0 + 4.0 + 3.5 + 8.0]


@pytest.mark.parametrize(("records", "places"), [(RECORDS, 2), (OF_PATIENTS, 0)])
def test_p21_units_and_a_model_of_something_else_are_refused(records: Records, places: int) -> None:
    with pytest.raises(DataError, match="model on units"):
        PaddedBatches(records, NULL, most=4, device=CPU, places=places)
