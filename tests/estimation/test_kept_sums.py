"""What goes down to silos between sums: what is kept of them, and what a silo takes for that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from estimation.made_up import AGE, DIED, TIME
from hubbub.core.errors import DataError, IntegrityError
from hubbub.core.planning.query import SiloData
from hubbub.core.verification.evidence.evidence_file import judged
from hubbub.estimation.cox import cox
from hubbub.estimation.queries.statistics_query import StatisticsQuery
from hubbub.estimation.queries.sum_layout import Parameters, SumLayout
from hubbub.estimation.queries.sums_query import (
    SumsQuery,
    _answered,
    kept_numbers,
    kept_text,
    promise_of,
)
from hubbub.estimation.stacking import _STEP, stack

ROUNDS = 3
STACKED = stack({"cox": cox(TIME, DIED, tuple(map(float, range(0, 25, 6))), (AGE,))})
LAYOUT = SumLayout(stacked=STACKED, unit=4.0, diameter=2.0, rounds=ROUNDS)
TOTAL = np.full(LAYOUT.numbers, 8.0)


def kept(sums: int) -> Parameters:
    """After so many sums, each of which differs from the others."""
    now = LAYOUT.start
    for number in range(sums):
        now = LAYOUT.after(now, TOTAL + number, 0.1)
    return now


def test_sums_are_kept_one_beside_another_in_units_of_a_records_vector() -> None:
    for sums in range(ROUNDS + 1):
        assert LAYOUT.made(kept(sums)) == sums
        expected = [LAYOUT.unit * (TOTAL + number) for number in range(sums)]
        assert LAYOUT.sums(kept(sums)).tolist() == [one.tolist() for one in expected]
    assert LAYOUT.start.tobytes() == kept(0).tobytes()


def test_a_step_is_taken_by_sums_and_noise_in_one_unit() -> None:
    """A sum of a unit's length 1, its noise too, are put in the units of the stack."""
    seen: list[tuple[float, float]] = []

    class Told:
        size, start, least_rounds = 1, np.zeros(1, np.float32), 1

        def update(self, noisy: list[Any], sigma: float, parameters: Parameters) -> Parameters:
            seen.append((float(noisy[-1][0]), sigma))
            return parameters

    layout = SumLayout(stacked=cast(Any, Told()), unit=4.0, diameter=2.0, rounds=2)
    layout.after(layout.start, np.ones(1), 0.5)
    assert seen == [(4.0, 2.0)]


def test_a_sums_noise_is_that_of_all_silos_and_not_a_share_of_it() -> None:
    planned: Any = SimpleNamespace(total_sigma=0.5, share_sigma=0.25)
    stepper: Any = SumsQuery.stepper(cast(Any, SimpleNamespace(layout=LAYOUT)), planned)
    assert stepper.step(LAYOUT.start, 4 * TOTAL, 4.0).tobytes() == (
        LAYOUT.after(LAYOUT.start, TOTAL, 0.5).tobytes()
    )
    assert stepper._sigma == 0.5


def test_answers_state_the_epsilon_of_their_own_query() -> None:
    privacy = SimpleNamespace(epsilon=8.0, delta=1e-5, relation="add-remove")
    study = SimpleNamespace(
        name="made up", id=b"1", privacy=privacy, data=SimpleNamespace(unit="patient")
    )
    plan: Any = SimpleNamespace(study=study, stated=SimpleNamespace(adversary="aggregator"))
    assert promise_of(plan, cast(Any, SimpleNamespace(epsilon=2.0))) == {
        "study": "made up",
        "study_id": "31",
        "epsilon": 2.0,
        "delta": 1e-5,
        "relation": "add-remove",
        "adversary": "aggregator",
        "unit": "patient",
    }


@pytest.mark.parametrize("sums", range(ROUNDS + 1))
def test_p23_a_silo_takes_what_can_be_after_the_sums_it_was_asked_for(sums: int) -> None:
    assert not LAYOUT.misfit(kept(sums), LAYOUT.start, sums)
    assert not LAYOUT.misfit(kept(sums), None, ROUNDS)


def test_p23_a_silo_refuses_more_sums_than_it_was_asked_for() -> None:
    """Else a sum could be taken that its ledger does not hold."""
    for sums in range(1, ROUNDS + 1):
        assert "at most" in LAYOUT.misfit(kept(sums), LAYOUT.start, sums - 1)


@pytest.mark.parametrize("count", [-1.0, 0.5, 1.5, float(ROUNDS + 1)])
def test_p23_a_silo_refuses_a_number_of_sums_that_is_none(count: float) -> None:
    sent = kept(1)
    sent[0] = count
    assert LAYOUT.misfit(sent, LAYOUT.start, ROUNDS + 1)


def test_p23_a_silo_refuses_numbers_that_no_sum_is() -> None:
    for place in (-1, -LAYOUT.numbers):
        sent = kept(ROUNDS - 1)
        sent[place] = 1.0
        assert "no sum was made yet" in LAYOUT.misfit(sent, LAYOUT.start, ROUNDS)
    for wrong in (np.nan, np.inf):
        sent = kept(1)
        sent[1] = wrong
        assert "numbers that are none" in LAYOUT.misfit(sent, LAYOUT.start, ROUNDS)
    for sent in (kept(1)[:-1], np.append(kept(1), np.float32(0))):
        assert "another size" in LAYOUT.misfit(sent, LAYOUT.start, ROUNDS)


def test_p23_the_first_sum_is_taken_where_all_know_that_it_is() -> None:
    sent = kept(0)
    sent[1] += 1.0
    assert "taken elsewhere" in LAYOUT.misfit(sent, LAYOUT.start, ROUNDS)
    assert not LAYOUT.misfit(sent, None, ROUNDS)
    after = kept(1)
    after[1] += 1.0  # who makes the sum says where the next is taken
    assert not LAYOUT.misfit(after, LAYOUT.start, ROUNDS)


@pytest.mark.parametrize(
    "said",
    [
        '{"kept": ["1.0", 0.5]}',
        '{"kept": [true, 0.5]}',
        '{"kept": [1, 0.5]}',
        '{"kept": [1.0, 0.5000000001]}',
        '{"kept": [[1.0, 0.5]]}',
        '{"kept": [1.0, 0.5], "more": 1}',
        '{"kept": [1.0, 0.5]} ',
        '{"kept": [1.0]}',
        '{"kept": []}',
        '{"kept": [1e39, 0.5]}',
        '{"kept": [NaN, 0.5]}',
        '{"kept": null}',
        "[]",
    ],
)
def test_sums_that_are_not_to_the_last_letter_as_they_were_written_are_none(
    tmp_path: Path, said: str
) -> None:
    path, shape = tmp_path / "sums.json", (2,)
    path.write_text(kept_text("kept", np.array([1.0, 0.5], np.float32)))
    assert kept_numbers(path, "kept", shape, np.float32).tolist() == [1.0, 0.5]
    path.write_text(said)
    with pytest.raises(IntegrityError, match="as this version writes it"):
        kept_numbers(path, "kept", shape, np.float32)


def test_rows_of_sums_may_be_any_number_even_none(tmp_path: Path) -> None:
    path = tmp_path / "sums.json"
    for rows in range(3):
        path.write_text(kept_text("sums", np.ones((rows, 4))))
        assert kept_numbers(path, "sums", (-1, 4), np.float64).shape == (rows, 4)


def test_an_answer_that_cannot_be_read_is_itself_named(tmp_path: Path) -> None:
    course: Any = SimpleNamespace(judged=judged)
    path = tmp_path / "synthetic.json"
    for said in ('{"a": NaN}', '{"a": 1.0, "a": 1.0}', '{"a": 1e400}', ""):
        path.write_text(said)
        found = _answered(path, '{"a": 1.0}', course)
        assert (found.claim, found.holds) == (f"{path} says what the sums say", False)
    path.write_text('{ "a": 1.0000000001 }')
    assert _answered(path, '{"a": 1.0}', course).holds


@pytest.mark.parametrize("made", ["age\n1.5\n", b"PAR1"])
def test_a_copy_that_cannot_be_read_is_itself_named(tmp_path: Path, made: str | bytes) -> None:
    course: Any = SimpleNamespace(judged=judged)
    path = tmp_path / "ages.csv"
    path.mkdir()
    found = [_answered(path, made, course)]
    path.rmdir()
    path.write_bytes(b"\xff")
    found.append(_answered(path, "age\n1.5\n", course))
    assert [one.claim for one in found if not one.holds] == [f"{path} says what the sums say"] * 2


def test_a_table_of_other_rows_is_told_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "ages.csv"
    path.write_text("age\n" + "1.5\n" * 10_000)
    course: Any = SimpleNamespace(judged=judged)
    found = _answered(path, "age\n1.5\n", course)
    assert not found.holds
    assert len(found.verdict) < 400


@pytest.mark.parametrize(
    ("said", "same"),
    [("45757392,2.5", True), ("45757392,2.5000000001", True), ("45757393,2.5", False)],
)
def test_the_code_of_a_group_has_no_last_digits(tmp_path: Path, said: str, same: bool) -> None:
    path, course = tmp_path / "groups.csv", cast("Any", SimpleNamespace(judged=judged))
    path.write_text(f"name,value\n{said}\n")
    assert _answered(path, "name,value\n45757392,2.5\n", course).holds is same


def test_p23_as_many_units_as_are_taken_are_added_up_as_whole_numbers() -> None:
    """A unit adds 2^36 steps and half a one at most to each number; int64 wraps at 2^63."""
    query = StatisticsQuery(cast("Any", None), cast("Any", None), cast("Any", None))
    assert query.most_units * (1 / _STEP + 0.5) < 2**63
    too_many = cast("Any", range(query.most_units + 1))
    with pytest.raises(DataError, match="67,108,864 units of a silo"):
        query.task(SiloData(cells=too_many))
