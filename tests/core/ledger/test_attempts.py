"""A study's attempts are one budget, however many sessions and processes share it."""

from __future__ import annotations

import json
from math import inf, nextafter

import pytest

from hubbub.core.errors import BudgetError, IntegrityError
from hubbub.core.ledger.privacy_ledger import Ledger
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


def test_p15_another_last_digit_of_the_noise_is_no_new_budget(path):
    moved = {"noise_multiplier": float(nextafter(entry(1).kind.noise_multiplier, inf))}
    with Ledger(path) as ledger:
        assert ledger.spent_on(STUDY, entry(1, **moved).kind) == ROWS
        with pytest.raises(BudgetError, match="attempts"):
            ledger.charge(entry(5, **moved), attempts=ROWS)
        ledger.charge(entry(5, **moved), attempts=ROWS + 1)
        with pytest.raises(BudgetError, match="attempts"):
            ledger.charge(entry(6), attempts=ROWS + 1)


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
