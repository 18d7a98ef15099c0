"""`hubbub.statistics`: queries of a notebook, composed exactly, charged once, found again."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.core.ledger.test_sums_budget import gaussian_delta
from tests.estimation.asking.made_up import COLUMNS, KINDS, SILOS, patients

import hubbub
from hubbub.core.disk import locked
from hubbub.core.errors import (
    BudgetError,
    DataError,
    SpentError,
    StudyError,
    UncountedWarning,
    UserError,
)
from hubbub.learning.runs import run_study, statistics_context, uncounted

TABLES = {name: patients(seed) for seed, name in enumerate(SILOS)}


@pytest.fixture(autouse=True)
def _a_program_that_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was asked before."""
    begin(monkeypatch)


def begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the program had been started anew."""
    for module, name in (
        (statistics_context, "_charged"),
        (statistics_context, "_answers"),
        (uncounted, "_ledgers_of"),
    ):
        monkeypatch.setattr(module, name, {})


def asked(epsilon: float = 8.0, silos: Any = None, **more: Any) -> Any:
    """Three silos of a notebook."""
    return hubbub.statistics(silos or TABLES, columns=COLUMNS, epsilon=epsilon, **more)


def test_a_notebooks_queries_spend_one_epsilon() -> None:
    context = asked(questions=[KINDS["table"], KINDS["histogram"], KINDS["histogram"]])
    query = context.query(epsilon=6.0)
    assert list(query.expected) == ["table", "histogram", "histogram 2"]
    found = query.release()
    left = context.remaining()
    assert 2.0 < left < 6.0  # more than what epsilons that are added up would leave
    assert found.epsilon <= 6.0
    assert all(one.refusal == "" for one in found.statistics.values())
    with pytest.raises(StudyError, match="what is left"):
        context.query([KINDS["table"]], epsilon=left + 0.01)
    with pytest.raises(StudyError, match="stand out"):
        context.query([KINDS["cox on numbers"]], epsilon=0.1).release()
    assert context.remaining() == left
    named = context.query({"ages": KINDS["histogram"]}, epsilon=left)
    assert named.release().statistics["ages"].rows
    assert context.remaining() < 0.1 * left
    with pytest.raises(StudyError, match="what is left"):
        context.query([KINDS["histogram"]], epsilon=0.5)


def test_a_query_wants_its_epsilon() -> None:
    with pytest.raises(TypeError, match="epsilon"):
        asked(questions=[KINDS["table"]]).query()


@pytest.mark.parametrize(("relation", "queries"), [("add-remove", 4), ("substitute", 3)])
def test_p22_several_queries_together_are_what_is_promised_and_hardly_less(
    relation: str, queries: int
) -> None:
    """By the noise that was drawn and how far a record moves a sum, which is 1 or a diameter."""
    context = asked(2.0, relation=relation)
    square = 0.0
    for left in range(queries, 0, -1):
        epsilon = context.remaining(left)
        query = context.query([{**KINDS["histogram"], "bins": 4 + left}], epsilon=epsilon)
        mechanism = query.plan.main.mechanism
        moved = mechanism.diameter if relation == "substitute" else 1.0
        square += mechanism.steps * (moved / query.plan.noise_multiplier) ** 2
        query.release()
    assert gaussian_delta(square**0.5, 2.0) <= 1e-5
    assert gaussian_delta(1.01 * square**0.5, 2.0) > 1e-5
    assert context.remaining() < 0.05


def test_two_queries_that_were_made_before_either_was_released_do_not_both_fit() -> None:
    context = asked(2.0)
    one = context.query([KINDS["histogram"]], epsilon=1.6)
    other = context.query([KINDS["crosstab"]], epsilon=1.6)
    one.release()
    with pytest.raises(BudgetError, match="to be left"):
        other.release()


@pytest.mark.slow
def test_a_query_without_room_is_told_of_the_total_and_which_would_do() -> None:
    context = asked(2.0)
    context.query([KINDS["histogram"]], epsilon=2.0).release()
    words = r"2 is the total for everything asked.* state a larger total.* here ([\d.]+)"
    with pytest.raises(StudyError, match=words) as refused:
        context.query([KINDS["crosstab"]], epsilon=1.0)
    total = float(re.findall(words, str(refused.value))[0])
    wider = asked(total)
    assert wider.query([KINDS["crosstab"]], epsilon=1.0).release().epsilon <= 1.0
    with pytest.raises(BudgetError, match="synthesize: total"):
        hubbub.synthesize(TABLES, columns=COLUMNS, epsilon=1.0, total=total)
    made = hubbub.synthesize(TABLES, columns=COLUMNS, epsilon=1.0, total=2 * total)
    assert made.draw(10)


@pytest.mark.slow
def test_what_is_spent_and_what_is_left_are_parts_of_one_whole() -> None:
    """By P22's rule: a query of half of all squares leaves half to one more, and then nothing."""
    context = asked(4.0)
    half = context.remaining(2)
    context.query([KINDS["histogram"]], epsilon=half).release()
    told = re.findall(r"([\d.]+) % spent and ([\d.]+) % left, epsilon ([\d.]+)", repr(context))
    spent, left, epsilon = map(float, told[0])
    assert spent + left == 100
    assert left == pytest.approx(50, abs=0.5)
    assert epsilon == pytest.approx(half, rel=0.01)
    with pytest.raises(StudyError, match=f"{spent:g} % spent and {left:g} % left"):
        context.query([KINDS["crosstab"]], epsilon=4.0)


@pytest.mark.slow
def test_patients_beside_rows_of_the_same_tables_are_refused(tmp_path: Path) -> None:
    context = asked(4.0, out=tmp_path)
    context.query([KINDS["histogram"]], epsilon=1.0).release()
    keys = {name: list(range(len(next(iter(one.values()))))) for name, one in TABLES.items()}
    of_patients = asked(4.0, out=tmp_path, patients=keys, most_per_patient=2)
    with pytest.raises(BudgetError, match="what patients have lost"):
        of_patients.query([KINDS["histogram"]], epsilon=0.5).release()


def test_the_same_query_twice_is_one_release_and_gives_the_same_answer() -> None:
    context = asked(questions=[KINDS["table"]])
    query = context.query(epsilon=8.0)
    first = query.release().statistics
    assert query.release().statistics == first
    assert context.query(epsilon=8.0).release().statistics == first
    assert context.remaining() == 0.0
    assert "100 % spent and 0 % left, epsilon 0 for one more" in repr(context)
    assert "0 % left" in context._repr_html_()


@pytest.mark.slow
def test_a_cell_that_is_run_twice_finds_its_ledger() -> None:
    def cell(epsilon: float = 8.0) -> Any:
        again = {name: patients(seed) for seed, name in enumerate(SILOS)}
        context = asked(epsilon, again, questions=[KINDS["table"]])
        return context, context.query(epsilon=4.0).release()

    first, answer = cell()
    second, same = cell()
    assert same.statistics == answer.statistics
    assert second.remaining() == first.remaining() < 8.0
    edited, _ = cell(10.0)
    assert edited.remaining() > first.remaining()
    fewer = asked(8.0, {name: TABLES[name] for name in SILOS[:2]}, colluders=0)
    assert fewer.remaining() == first.remaining()  # each silo has a ledger of its own


def test_a_silo_whose_table_is_another_is_counted_apart_and_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncountedWarning)
        context = asked(questions=[KINDS["table"]])
        found = [context.query(epsilon=e).release() for e in (4.0, 3.0)]  # of one budget
    assert "did not state it: the number of records (1200)" in repr(found[1])
    other = asked(silos={**TABLES, "north": patients(9)}, questions=[KINDS["table"]], records=1200)
    with pytest.warns(UncountedWarning, match="from north, found"):
        again = other.query(epsilon=0.5).release()
    assert again.made_public == ()


def test_the_same_query_beside_another_table_of_a_silo_says_that_it_is_another() -> None:
    query = asked().query([KINDS["table"]], epsilon=2.0)
    query.release()
    others = TABLES | {SILOS[1]: patients(7)}
    with pytest.raises(SpentError, match=f"got others of {SILOS[1]}: .*another epsilon"):
        asked(silos=others).query([KINDS["table"]], epsilon=2.0).release()


def test_a_query_shows_what_to_do_with_it() -> None:
    query = asked().query([KINDS["table"]], epsilon=2.0)
    assert re.search(r"epsilon 2, not released.*release\(\)", repr(query))


def test_what_is_below_the_noise_costs_a_notebook_nothing() -> None:
    context = asked(epsilon=0.005)
    with pytest.raises(StudyError, match="stand out"):
        context.query([KINDS["table"]], epsilon=0.005).release()
    assert context.remaining() == 0.005


def test_a_folder_keeps_ledgers_and_answers_for_a_program_that_is_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "asked"
    context = asked(2.0, questions=[KINDS["histogram"]], out=home)
    first = context.query(epsilon=1.0).release()
    left = context.remaining()
    begin(monkeypatch)
    later = asked(2.0, questions=[KINDS["histogram"]], out=home)
    assert later.remaining() == left < 2.0
    same = later.query(epsilon=1.0).release()
    assert {name: one.to_dict() for name, one in same.statistics.items()} == {
        name: one.to_dict() for name, one in first.statistics.items()
    }
    assert (same.epsilon <= 1.0, same.folder) == (True, first.folder)
    assert "histogram: Distribution" in repr(same)
    assert len(list(home.glob("statistics-*"))) == 1
    assert {path.stem for path in (home / "ledgers").glob("*.sqlite")} == set(SILOS)


@pytest.mark.slow
def test_a_folder_gives_no_answer_of_other_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who corrects a table and asks again would be told what was true before."""
    home, corrected = tmp_path / "asked", {**TABLES, "north": patients(9)}
    asked(2.0, out=home).query([KINDS["histogram"]], epsilon=1.0).release()
    begin(monkeypatch)
    context = asked(2.0, corrected, out=home)
    with pytest.raises(SpentError, match=r"earlier queries in [^,]*, got others"):
        context.query([KINDS["histogram"]], epsilon=1.0).release()
    left = context.remaining()
    assert left < 2.0  # one ledger for both
    assert context.query([KINDS["histogram"]], epsilon=0.9).release().statistics
    assert asked(2.0, out=home).query([KINDS["histogram"]], epsilon=1.0).release().statistics
    kept = [path for path in (home / "ledgers").iterdir() if "tables" in path.name]
    assert len(kept) == 3  # a key and two queries
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)


@pytest.mark.slow
def test_two_programs_do_not_ask_out_of_one_folder_at_once(tmp_path: Path) -> None:
    """Each would find enough left, and both together would spend too much."""
    context = asked(2.0, out=tmp_path / "asked")
    query = context.query([KINDS["histogram"]], epsilon=2.0)
    (tmp_path / "asked").mkdir()
    with (
        locked(tmp_path / "asked" / "lock"),
        pytest.raises(UserError, match="another one does; wait"),
    ):
        query.release()
    assert context.remaining() == 2.0
    assert query.release().statistics
    nowhere = asked(2.0, out="/dev/null/asked").query([KINDS["histogram"]], epsilon=2.0)
    with pytest.raises(UserError, match="a folder that can be written"):
        nowhere.release()


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_query_that_was_stopped_is_charged_and_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_disk: bool
) -> None:
    context = asked(2.0, out=tmp_path / "asked" if on_disk else None)
    query = context.query([KINDS["histogram"]], epsilon=1.0)
    with monkeypatch.context() as broken:

        def stop(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        broken.setattr(run_study, "conclude", stop)
        with pytest.raises(KeyboardInterrupt):
            query.release()
    assert context.remaining() < 2.0
    with pytest.raises(SpentError, match="interrupted before its answers"):
        query.release()


def test_patients_are_units_by_a_column_or_by_keys() -> None:
    rows = {name: len(table["age"]) for name, table in TABLES.items()}
    whose = {name: [f"p{k // 2}" for k in range(number)] for name, number in rows.items()}
    named = {name: {**table, "who": whose[name]} for name, table in TABLES.items()}
    for silos, given in ((TABLES, whose), (named, "who")):
        context = asked(
            4.0, silos, questions=[KINDS["histogram"]], patients=given, most_per_patient=2
        )
        query = context.query(epsilon=4.0)
        assert (query.study.data.unit, query.study.data.records) == ("patient", 600)
        found = query.release()
        assert found.made_public == ("the number of patients (600)",)
        counted = sum(row.value for row in found.statistics["histogram"].rows if row.value > 1)
        assert counted == pytest.approx(600, rel=0.1)


@pytest.mark.parametrize(
    ("patients_", "most", "error", "words"),
    [
        ("who", 2, DataError, "a column 'who' with the patient of each row of north"),
        ({"north": ["a"] * 400}, 2, DataError, "the patients of south"),
        ({name: ["a"] * 3 for name in SILOS}, 2, DataError, "a patient for every row of north"),
        ({name: ["a"] * 400 for name in SILOS}, None, StudyError, "most_per_patient beside"),
        (
            {name: [None, *["a"] * 399] for name in SILOS},
            2,
            DataError,
            "expected a patient for every record",
        ),
    ],
)
def test_patients_that_are_missing_are_named(
    patients_: Any, most: int | None, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        asked(patients=patients_, most_per_patient=most)


def test_patients_may_be_numbers_of_an_array() -> None:
    whose = {name: np.arange(400) // 2 for name in SILOS}
    context = asked(patients=whose, most_per_patient=2)
    assert len(context.cells["north"]) == 200


def test_a_notebook_refuses_tables_and_questions_that_are_none() -> None:
    with pytest.raises(DataError, match="at least two silos"):
        hubbub.statistics({"north": patients(0)}, columns=COLUMNS, epsilon=1.0)
    with pytest.raises(DataError, match="something else") as refused:
        asked(silos=TABLES | {"south": patients(1) | {"sex": ["<b>"] * 400}})
    assert "<b>" not in str(refused.value)
    with pytest.raises(StudyError, match="one of the columns"):
        asked(questions=[{"kind": "quantiles", "column": "bmi"}])
    with pytest.raises(StudyError, match="questions such as"):
        asked(questions=["table"])
    with pytest.raises(StudyError, match="1 to 1000 queries"):
        asked().remaining(0)
