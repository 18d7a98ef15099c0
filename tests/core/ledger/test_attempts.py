"""A study's attempts are one budget, however many sessions and processes share it."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf, nextafter
from types import SimpleNamespace

import pytest

import hubbub
from hubbub.core.errors import BudgetError, IntegrityError
from hubbub.core.ledger.privacy_ledger import Entry, Ledger
from hubbub.core.ledger.tally import kind_of
from hubbub.core.protocol.round.silo import Charge
from hubbub.core.runs import local_backend
from hubbub.core.runs.federated import SessionPlan
from hubbub.core.runs.local_backend import LocalBackend
from hubbub.core.session.offer import round_parameters_of
from ledger.book import OTHER, ROWS, STUDY, assert_one_sentence, cap_for, charges, entry

EVALUATION = {"noise_multiplier": 9.0}


def test_p15_a_study_gets_exactly_its_attempts_and_nothing_after(tmp_path):
    place = tmp_path / "ledger.sqlite"
    with Ledger(place) as ledger:
        for number in range(1, 4):
            ledger.charge(entry(number), attempts=3)
        for number in (3, 4):
            with pytest.raises(BudgetError, match="at most 3 attempts") as error:
                ledger.charge(entry(number), attempts=3)
    assert charges(place) == 3
    assert_one_sentence(str(error.value))
    assert all(part in str(error.value) for part in ("resume", "another name", str(place)))


def test_p15_a_second_session_gets_only_what_the_first_left(path):
    again = {"session": b"f" * 16}
    with Ledger(path) as ledger:
        ledger.charge(entry(1, **again), attempts=ROWS + 1)
    with Ledger(path) as ledger, pytest.raises(BudgetError):
        ledger.charge(entry(2, **again), attempts=ROWS + 1)
    assert charges(path) == ROWS + 1


def test_p15_what_another_process_charged_counts_at_once(path):
    with Ledger(path) as one, Ledger(path) as other:
        assert one.spent_on(STUDY) == ROWS
        other.charge(entry(5), attempts=ROWS + 1)
        with pytest.raises(BudgetError):
            one.charge(entry(5, session=b"f" * 16), attempts=ROWS + 1)


def test_p15_other_studies_and_other_mechanisms_have_attempts_of_their_own(path):
    with Ledger(path) as ledger:
        ledger.charge(entry(1, study=OTHER), attempts=1)
        ledger.charge(entry(1, **EVALUATION), attempts=1)
        for spent in (entry(2, study=OTHER), entry(2, **EVALUATION), entry(5)):
            with pytest.raises(BudgetError, match="attempts"):
                ledger.charge(spent, attempts=1)
        ledger.charge(entry(5))  # who does not ask is not limited


@pytest.mark.parametrize("has_plan", [True, False])
def test_p15_what_a_run_made_with_noise_of_other_digits_is_not_there_once_more(
    tmp_path, monkeypatch, has_plan
):
    """As far apart as two calibrations that are both like a third: one run's, and its resuming."""
    study = hubbub.Study.from_table(
        {
            "study": {"name": "p"},
            "parties": {"silos": 3, "colluders": 0},
            "data": {"source": "in-memory", "records": 90},
            "model": {"kind": "logistic", "inputs": [3]},
            "training": {"steps": 3, "sample_rate": 0.2},
            "privacy": {"epsilon": 2.0, "delta": 1e-5},
        }
    )
    plan, seen = hubbub.plan(study), {}
    kind = kind_of(plan.main)
    ours = replace(kind, noise_multiplier=kind.noise_multiplier * (1 + 1.5e-6))
    federation = SimpleNamespace(rounds=None)
    monkeypatch.setattr(
        local_backend, "federate", lambda *_, **named: seen.update(named) or federation
    )

    def row(number, kind):
        return Entry(study=study.id, session=b"e" * 16, round=number, attempt=0, kind=kind)

    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.charge(row(1, kind))  # by a run before
        head = ledger.head
        for number in (1, 2):
            ledger.charge(row(number, ours))
        assert [ledger.before(head).attempts(study.id), len(ledger.before(None))] == [1, 0]
        backend = LocalBackend(
            study=study,
            keys=(),
            ledgers={1: ledger},
            folder=SimpleNamespace(head=lambda _: head),
            plan=plan if has_plan else None,
        )
        wanted = SessionPlan(
            plan=plan,
            planned=plan.main,
            round_parameters=round_parameters_of(plan.main),
            tasks=(),
        )
        backend.set_up(wanted)
        session = SimpleNamespace(study=study.id, id=b"f" * 16, attested=())
        seen["record"](1, session, Charge(round=3, attempt=0))
        with pytest.raises(BudgetError, match="at most 4 attempts"):
            seen["record"](1, session, Charge(round=3, attempt=1))


def test_p15_another_last_digit_of_the_noise_is_no_new_budget(path):
    moved = {"noise_multiplier": float(nextafter(entry(1).kind.noise_multiplier, inf))}
    with Ledger(path) as ledger:
        assert ledger.spent_on(STUDY, entry(1, **moved).kind) == ROWS
        with pytest.raises(BudgetError, match="attempts"):
            ledger.charge(entry(5, **moved), attempts=ROWS)
        ledger.charge(entry(5, **moved), attempts=ROWS + 1)
        with pytest.raises(BudgetError, match="attempts"):
            ledger.charge(entry(6), attempts=ROWS + 1)


def test_p15_a_row_that_does_not_say_its_purpose_counts_for_every_purpose(path):
    """Else a study that was charged before rows said it could be asked once more."""
    with Ledger(path) as ledger:
        for purpose in ("training", "statistics"):
            with pytest.raises(BudgetError, match="at most 4 attempts"):
                ledger.charge(entry(5, purpose=purpose), attempts=ROWS)
        ledger.charge(entry(5, purpose="training"), attempts=ROWS + 1)
        ledger.charge(entry(5, purpose="statistics"), attempts=ROWS + 1)


def test_what_was_spent_is_told_by_study_and_by_mechanism(path):
    with Ledger(path) as ledger:
        ledger.charge(entry(5, **EVALUATION))
        ledger.charge(entry(1, study=OTHER))
        assert [ledger.spent_on(one) for one in (STUDY, OTHER, b"t" * 32)] == [ROWS + 1, 1, 0]
        assert ledger.spent_on(STUDY, entry(1).kind) == ROWS
        assert ledger.spent_on(STUDY, entry(1, **EVALUATION).kind) == 1
        assert ledger.spent_on(OTHER, entry(1, **EVALUATION).kind) == 0
        assert len(ledger) == ROWS + 2


def test_attempts_do_not_lift_the_cap(path):
    with Ledger(path) as ledger:
        ledger.set_cap(cap_for(ROWS))
        with pytest.raises(BudgetError, match="raise the cap"):
            ledger.charge(entry(5), attempts=100)


# The end of a study -----------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, EVALUATION, {"session": b"f" * 16}], ids=str)
def test_p15_a_study_that_was_closed_is_charged_no_more(path, more):
    """Whatever the mechanism and the session, and after the file was opened anew."""
    with Ledger(path) as ledger:
        ledger.close_study(STUDY)
        with pytest.raises(BudgetError, match="holds the end of study"):
            ledger.charge(entry(ROWS + 1, **more))
    with Ledger(path) as ledger:
        with pytest.raises(BudgetError, match="another name") as error:
            ledger.charge(entry(ROWS + 1, **more), attempts=99)
        ledger.charge(entry(1, study=OTHER))
        assert ledger.spent_on(STUDY) == ROWS
        assert ledger.verify() == ROWS + 1
    assert_one_sentence(str(error.value))


def test_p15_a_study_is_closed_by_one_row_for_everybody(path):
    with Ledger(path) as one, Ledger(path) as other:
        other.close_study(STUDY)
        head, rows = other.head, other.rows
        one.close_study(STUDY)
        with pytest.raises(BudgetError):
            one.charge(entry(ROWS + 1))
        assert (one.head, one.rows) == (head, rows) == (other.head, ROWS + 2)


def test_p15_a_study_may_be_closed_before_its_first_attempt(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.close_study(STUDY)
        with pytest.raises(BudgetError):
            ledger.charge(entry(1))
        assert (len(ledger), ledger.rows) == (0, 2)


@pytest.mark.parametrize(
    "plain", [{}, {"study": "73"}, {"study": 5}, {"study": "73" * 32, "x": ""}]
)
def test_a_closing_of_no_study_is_not_understood(path, plain):
    """A row of another version: nothing is charged beside what is not known."""
    with Ledger(path) as ledger, ledger._chain.writing():
        ledger._chain.append(json.dumps({"close": plain}), ledger._catch_up())
    with Ledger(path) as ledger, pytest.raises(IntegrityError, match="a study let in or closed"):
        ledger.charge(entry(1, study=OTHER))
