"""How many records a silo may hold is public, and no silo holds more (docs/privacy.md P19)."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub import Study
from hubbub.core.errors import DataError, StudyError
from hubbub.core.planning.planned_query import capacity_of
from hubbub.core.tabular.records import Standardisation

NAMES = ["a", "b", "c", "d"]


def study(**data: object) -> Study:
    return Study.from_table(
        {
            "study": {"name": "capacities"},
            "parties": {"names": NAMES, "colluders": 1},
            "data": {"source": "hubbub.datasets:heart", **data},
            "model": {"kind": "logistic", "inputs": [26]},
            "training": {"steps": 4, "sample_rate": 0.2},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
        }
    )


def test_a_stated_capacity_is_each_silos_or_everybodys() -> None:
    each = study(capacity=[10, 20, 30, 40])
    assert [capacity_of(each, name, 5) for name in NAMES] == [10, 20, 30, 40]
    assert capacity_of(study(capacity=25), "c", 5) == 25


def test_a_silo_with_more_than_is_stated_is_refused_and_never_cut_off() -> None:
    assert capacity_of(study(capacity=25), "c", 25) == 25
    with pytest.raises(
        DataError, match=r"at most 25 records of c, as data\.capacity says, got more"
    ):
        capacity_of(study(capacity=25), "c", 26)
    with pytest.raises(DataError, match=r"at most 100 records of c, as data\.records says"):
        capacity_of(study(records=100), "c", 101)


def test_without_it_neighbours_have_one_capacity_but_at_the_steps_of_a_public_ladder() -> None:
    for one in (study(records=400), study()):
        found = [capacity_of(one, "a", records) for records in range(1, 401)]
        assert all(c >= records for records, c in enumerate(found, 1))
        assert sorted(found) == found
        assert len(set(found)) <= 8
    equal = study(records=400)
    assert {capacity_of(equal, "a", records) for records in (0, 1, 99, 100, 101, 110)} == {110}
    assert capacity_of(equal, "a", 400) == 400


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"capacity": [10, 20]}, "one number or 4, one for each silo, got 2"),
        ({"capacity": 0}, "data.capacity"),
        ({"capacity": [10, 0, 3, 4]}, "data.capacity"),
        ({"capacity": "many"}, "data.capacity"),
    ],
)
def test_a_capacity_that_is_none_is_refused(data: dict[str, object], said: str) -> None:
    with pytest.raises(StudyError, match=said):
        study(**data)


@pytest.mark.parametrize(
    ("shift", "scale", "within"),
    [
        (0.0, 1.0, True),
        (5.0, 5.0, True),
        (-5.0, 0.005, True),
        (1e38, 1.0, False),
        (5.001, 1.0, False),
        (0.0, 5.001, False),
        (0.0, 0.00499, False),
        (0.0, 1e-38, False),
    ],
)
def test_an_aggregators_shift_and_scale_are_within_the_studys_bound(shift, scale, within) -> None:
    """A shift of 1e38 made all records alike, and with them the work that they are."""
    sent = Standardisation(shift=np.float32([0, shift]), scale=np.float32([1, scale]))
    assert sent.is_within(5.0) is within
