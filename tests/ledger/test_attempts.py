"""A study's attempts are one budget, however many sessions and processes share it."""

from __future__ import annotations

from math import inf, nextafter

import pytest

from hubbub.assurance.ledger.privacy_ledger import Ledger
from hubbub.errors import BudgetError
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
