"""The ledger knows what each study protects: records, or patients with all of theirs (P21)."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations

import pytest

from hubbub.core.errors import BudgetError
from hubbub.core.ledger.privacy_ledger import Cap, Entry, Ledger
from hubbub.core.ledger.tally import Tally, kind_of
from hubbub.core.planning.mechanism import INDEPENDENT
from hubbub.core.planning.noise_correlation import Correlation
from hubbub.core.planning.study_plan import plan
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.dominating_pairs import Step, release
from hubbub.core.protocol.primitives.correlated_noise import UNIT
from hubbub.core.study.study import Study
from hubbub.desk.cli.main import main
from ledger.book import DELTA, OTHER, RELATION, entry, simplest

STEP = {"noise_multiplier": 4.0, "sample_rate": 0.1, "sampling": "poisson"}
OF_PATIENTS = {"unit": "patient", "most_per_patient": 5}


def tally(*entries: Entry) -> Tally:
    found = Tally()
    for one in entries:
        found.add(one)
    return found


def epsilon(found: Tally, relation: str = RELATION) -> float:
    return found.epsilon(delta=DELTA, relation=relation)


def record_rows(count: int, **more: object) -> list[Entry]:
    return [entry(number, **STEP, **more) for number in range(1, count + 1)]


def patient_rows(count: int) -> list[Entry]:
    rows = range(1, count + 1)
    return [entry(number, study=OTHER, **STEP, **OF_PATIENTS) for number in rows]


def test_a_row_of_records_is_written_as_ever_and_read_as_ever() -> None:
    plain = entry(1).to_dict()
    assert not {"unit", "most_per_patient"} & set(plain)
    assert Entry.of(json.loads(json.dumps(plain))) == entry(1)
    for kind in (OF_PATIENTS, {"most_per_patient": 3}, {"unit": "patient"}):
        one = entry(1, **kind)
        assert Entry.of(json.loads(json.dumps(one.to_dict()))) == one
    with pytest.raises(Exception, match="unit"):
        entry(1, unit="visit")


def test_a_studys_rows_say_what_its_unit_is() -> None:
    made = Study.from_table(
        {
            "study": {"name": "p"},
            "parties": {"silos": 3, "colluders": 0},
            "data": {"source": "in-memory", "patient": "pid", "most_per_patient": 4, "records": 90},
            "model": {"kind": "logistic", "inputs": [3]},
            "training": {"steps": 3, "sample_rate": 0.2, "evaluate": {"every": 1, "epsilon": 0.2}},
            "privacy": {"epsilon": 2.0, "delta": 1e-5},
        }
    )
    whole = plan(made)
    for one in whole.queries:
        assert (kind_of(one).unit, kind_of(one).most_per_patient) == ("patient", 4)
    alone = replace(made, toml="", data=replace(made.data, patient=""))
    assert (kind_of(plan(alone).main).unit, kind_of(plan(alone).main).most_per_patient) == (
        "record",
        4,
    )


def test_p20_records_of_a_patient_that_take_turns_are_in_several_steps_of_one_row() -> None:
    """With correlated noise each record is in one step of an epoch, and a patient in many of them.

    So no number of records says what a patient loses by such a row.
    """
    query = simplest(relation="substitute")
    turns = Correlation(coefficients=(UNIT - 1, -1), steps=3, error=1.0)
    for unit, noise, stated in (
        ("record", INDEPENDENT, 3),
        ("record", turns, 0),
        ("patient", turns, 3),
    ):
        mechanism = replace(query.mechanism, unit=unit, noise=noise, most_per_patient=3)
        assert kind_of(replace(query, mechanism=mechanism)).most_per_patient == stated


@pytest.mark.parametrize("diameter", [2.0, 1.25])
def test_p23_a_studys_rows_say_how_far_a_record_can_be_moved(diameter: float) -> None:
    """Two records of a sum that are near to each other cost less than twice the length of one."""
    query = simplest(relation="substitute")
    near = replace(query.mechanism, diameter=diameter)
    assert kind_of(replace(query, mechanism=near)).diameter == diameter


def test_studies_of_one_unit_cost_what_they_ever_did() -> None:
    records, patients = tally(*record_rows(20)), tally(*patient_rows(20))
    assert epsilon(records) == epsilon(patients)
    assert (records.unit, patients.unit) == ("record", "patient")
    capped = tally(*record_rows(20, most_per_patient=5))  # no patient is promised anything here
    assert epsilon(capped) == epsilon(records)


def test_records_count_for_a_patient_as_often_as_a_patient_has_some() -> None:
    """Beside a study of patients, 20 steps on records are 20 steps on units of up to 3 (P20)."""
    found = tally(*record_rows(20, most_per_patient=3), *patient_rows(10))
    whole = [
        release(Step(**STEP, count=20, records_per_unit=3), RELATION),
        release(Step(**STEP, count=10), RELATION),
    ]
    exact = Composition(whole).epsilon(DELTA)
    assert exact.lower <= epsilon(found) <= exact.upper * (1 + 1e-9)
    assert epsilon(found) > 1.5 * epsilon(tally(*record_rows(30)))
    single = tally(*record_rows(20, most_per_patient=1), *patient_rows(10))
    assert epsilon(single) == pytest.approx(epsilon(tally(*patient_rows(30))), rel=1e-3)


@pytest.mark.parametrize(
    ("more", "relation"),
    [
        ({}, RELATION),
        ({"most_per_patient": 3}, "substitute"),
        ({"most_per_patient": 3, "projection": "gaussian", "dimension": 9}, RELATION),
        ({"most_per_patient": 3, "sampling": "without-replacement", "records": 99}, "substitute"),
    ],
)
def test_nothing_is_promised_to_patients_where_there_is_no_account(
    more: dict[str, object], relation: str
) -> None:
    kind = STEP | more
    found = tally(entry(1, **kind), *patient_rows(1))
    assert epsilon(found, relation) == float("inf")
    assert epsilon(tally(*patient_rows(1)), relation) < 50


def test_a_cap_refuses_to_mix_units_that_cannot_be_compared(tmp_path) -> None:
    """Whichever study comes first; nothing is written."""
    for number, (first, second) in enumerate(permutations((*record_rows(1), *patient_rows(1)))):
        with Ledger(tmp_path / f"{number}.sqlite") as ledger:
            ledger.set_cap(Cap(epsilon=20.0, delta=DELTA, relation=RELATION))
            ledger.charge(first)
            with pytest.raises(BudgetError, match=r"to state data\.most_per_patient"):
                ledger.charge(second)
            assert len(ledger) == 1
    with Ledger(tmp_path / "stated.sqlite") as ledger:
        ledger.set_cap(Cap(epsilon=20.0, delta=DELTA, relation=RELATION))
        for one in (*record_rows(1, most_per_patient=3), *patient_rows(1)):
            ledger.charge(one)
        assert len(ledger) == 2


def test_the_commands_say_whose_epsilon_it_is(tmp_path, capsys, monkeypatch) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.charge(patient_rows(1)[0])
    assert main(["ledger", "show", str(path)]) == 0
    assert "this is per patient" in capsys.readouterr().out
    with Ledger(path) as ledger:
        with pytest.raises(BudgetError, match="what patients have lost"):
            ledger.charge(record_rows(1)[0])
        monkeypatch.setattr(Tally, "check_units", lambda *_: None)  # as ledgers once were written
        ledger.charge(record_rows(1)[0])
    assert main(["ledger", "show", str(path)]) == 0
    assert "nothing is guaranteed to patients" in capsys.readouterr().out
    assert main(["ledger", "show", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["unit"], found["epsilon"]) == ("patient", None)
