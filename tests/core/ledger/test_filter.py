"""The filter: what it lets in, what it sets aside, and that nothing is charged beside it (P24)."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from math import inf, nextafter
from pathlib import Path

import pytest

import hubbub
from hubbub.core.errors import BudgetError, SpentError, StudyError
from hubbub.core.ledger.entry import Admission
from hubbub.core.ledger.privacy_ledger import Cap, Ledger
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.privacy.dominating_pairs import release
from hubbub.core.privacy.remaining_budget import RemainingBudget
from ledger.book import (
    DELTA,
    OTHER,
    RELATION,
    STUDY,
    assert_noticed,
    assert_one_sentence,
    entry,
    put,
    stored,
)

SAMPLED = {"noise_multiplier": 2.0, "sample_rate": 0.1, "sampling": "poisson"}
STEPS = 6
MODEL = {**SAMPLED, "noise_multiplier": 1.0}


def cap_of(epsilon: float, studies: str = "adaptive") -> Cap:
    """A cap, by default one that holds however studies are chosen."""
    return Cap(epsilon=epsilon, delta=DELTA, relation=RELATION, studies=studies)


def rows(path: Path) -> list[str]:
    """What kinds of rows there are."""
    return [next(iter(json.loads(text))) for _, text, _ in stored(path)[1:]]


def run(ledger: Ledger, study: bytes = STUDY, **kind: object) -> None:
    """All attempts of a study."""
    for number in range(1, STEPS + 1):
        ledger.charge(entry(number, study=study, **(SAMPLED | kind)), attempts=STEPS)


def fixed(*studies: dict) -> float:
    """Epsilon of studies that were fixed beforehand."""
    steps = [hubbub.Step(count=STEPS, **kind) for kind in studies]
    return hubbub.composed_epsilon(steps, delta=DELTA).upper


ONE, BOTH = fixed(SAMPLED), fixed(SAMPLED, SAMPLED)


@pytest.fixture
def place(tmp_path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_p24_a_study_is_let_in_whole_before_its_first_attempt_is_charged(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(2 * BOTH))
        run(ledger)
        run(ledger, OTHER)
        assert ledger.verify() == 2 * STEPS
    assert rows(place) == ["cap", *["admit", *["charge"] * STEPS] * 2]


def test_p24_a_study_that_the_cap_has_no_room_for_is_refused_before_its_first_attempt(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of((ONE + BOTH) / 2))
        run(ledger)
        with pytest.raises(BudgetError, match="would need a cap of") as error:
            ledger.charge(entry(study=OTHER, **SAMPLED), attempts=STEPS)
    assert_one_sentence(str(error.value))
    assert rows(place) == ["cap", "admit", *["charge"] * STEPS]


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
def test_p24_a_study_with_hardly_any_noise_is_refused_after_another(place, relation):
    """Its losses are past all that are looked at: a law of one infinite loss, not of none."""
    with Ledger(place) as ledger:
        ledger.set_cap(replace(cap_of(2 * BOTH), relation=relation))
        run(ledger)
        naked = {"noise_multiplier": 0.031, "sample_rate": 0.5, "sampling": "poisson"}
        with pytest.raises(BudgetError):
            ledger.charge(entry(study=OTHER, **naked), attempts=100_000)
    assert rows(place) == ["cap", "admit", *["charge"] * STEPS]


def test_p24_one_study_alone_costs_what_it_costs(place):
    """What was chosen without outputs has fixed composition: a cap at its epsilon is enough."""
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(ONE * 1.0001))
        run(ledger)
        with pytest.raises(BudgetError):
            ledger.charge(entry(study=OTHER, noise_multiplier=1e5))  # and leaves nothing


@pytest.mark.slow
def test_p24_several_studies_cost_a_little_more_than_if_they_were_fixed(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(10.0))
        assert ledger.filter.epsilon(ledger.tally) == 0
        run(ledger)
        assert ledger.filter.epsilon(ledger.tally) == pytest.approx(ONE, rel=1e-3)
        run(ledger, OTHER)
        needed = ledger.filter.epsilon(ledger.tally)
        assert BOTH < needed < 1.25 * BOTH
    for epsilon, fits in ((1.003 * needed, True), (0.99 * needed, False)):
        with Ledger(place.with_name(f"{epsilon}.sqlite")) as ledger:
            ledger.set_cap(cap_of(epsilon))
            run(ledger)
            if fits:
                run(ledger, OTHER)
                continue
            with pytest.raises(BudgetError, match="need a cap of"):
                run(ledger, OTHER)


def test_p24_what_the_rows_say_is_left_is_true_by_the_accountant(place):
    """The first row keeps one point of the curve; the second one all of it, at many thresholds."""
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(2 * BOTH))
        run(ledger)
        run(ledger, OTHER)
    said = [json.loads(text) for _, text, _ in stored(place)[1:]]
    lefts = [RemainingBudget(**one["admit"]["left"]) for one in said if "admit" in one]

    def with_study(shift: float, epsilon: float) -> float:
        steps = [hubbub.Step(count=STEPS, **SAMPLED), gaussian(shift)]
        return Composition([release(one, RELATION) for one in steps]).delta(epsilon).lower

    def gaussian(shift: float) -> hubbub.Step:
        return hubbub.Step(noise_multiplier=1 / shift, sampling="full-batch")

    assert 0.9 * DELTA < with_study(lefts[0].shift, 2 * BOTH) + lefts[0].delta < DELTA
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0):
        alone = hubbub.delta(
            noise_multiplier=1 / lefts[0].shift, steps=1, epsilon=epsilon, sampling="full-batch"
        )
        allowed = alone.upper + lefts[0].delta - lefts[1].delta
        assert with_study(lefts[1].shift, epsilon) <= allowed * (1 + 1e-9)


def test_p24_an_analyst_cannot_wait_for_the_first_result_to_choose_what_just_fits(tmp_path):
    """Fixed composition lets either second study in, and their choice costs twice the delta.

    `test_residue.py` has the numbers: after a Gaussian study of shift .426 either study keeps
    epsilon 2 at 1e-5, and picking one by the first result has a delta of 1.9e-5.
    """
    first = {"noise_multiplier": 1 / 0.426, "sampling": "full-batch", "sample_rate": 1.0}
    steady = {**first, "noise_multiplier": 1 / 0.264}
    rare = {"noise_multiplier": 1 / 6, "sample_rate": 1.3e-5, "sampling": "poisson"}
    for number, second in enumerate((steady, rare)):
        for studies, fits in (("fixed", True), ("adaptive", False)):
            with Ledger(tmp_path / f"{number}{studies}.sqlite") as ledger:
                ledger.set_cap(cap_of(2.002, studies))
                ledger.charge(entry(**first), attempts=1)
                if fits:
                    ledger.charge(entry(study=OTHER, **second), attempts=1)
                    continue
                with pytest.raises(BudgetError):
                    ledger.charge(entry(study=OTHER, **second), attempts=1)


def test_p24_all_mechanisms_of_a_study_are_let_in_together(place):
    training, evaluation = entry(**SAMPLED), entry(noise_multiplier=30.0)
    whole = {training.kind: STEPS, evaluation.kind: 2}
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(BOTH))
        ledger.charge(evaluation, attempts=2, study_attempts=whole)
        for number in range(1, STEPS + 1):
            ledger.charge(entry(number, **SAMPLED), attempts=STEPS, study_attempts=whole)
        ledger.charge(entry(2, noise_multiplier=30.0), attempts=2, study_attempts=whole)
    assert rows(place) == ["cap", "admit", *["charge"] * (STEPS + 2)]


def test_p24_a_studys_attempts_are_set_aside_though_none_are_said_of_the_entrys_own_kind(place):
    training = entry(**SAMPLED)
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(BOTH))
        ledger.charge(training, study_attempts={training.kind: STEPS})
        assert ledger.filter.admissions[0].counts == ((training.kind, STEPS),)


def test_p24_what_nobody_has_counted_is_let_in_by_pieces(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(3.0))
        for number in range(1, 30):
            ledger.charge(entry(number, noise_multiplier=50.0))
        let_in = sum(n for one in ledger.filter.admissions for _, n in one.counts)
        assert 29 <= let_in <= 40
        with pytest.raises(BudgetError):
            ledger.charge(entry(30, noise_multiplier=0.5))
        assert ledger.epsilon(delta=DELTA, relation=RELATION) <= 3.0


def test_p24_what_was_charged_before_counts_as_fixed_beforehand(path):
    with Ledger(path) as ledger:
        spent = ledger.epsilon(delta=DELTA, relation=RELATION)
        ledger.set_cap(cap_of(spent / 2))
        with pytest.raises(BudgetError):
            ledger.charge(entry(study=OTHER, noise_multiplier=1e5))
        ledger.set_cap(cap_of(2 * spent))
        assert ledger.filter.epsilon(ledger.tally) == pytest.approx(spent, rel=1e-4)
        run(ledger, OTHER)
        ledger.charge(entry(5), attempts=5)  # the old study goes on: the rest of it is let in
    assert rows(path)[4:] == ["cap", "cap", "admit", *["charge"] * STEPS, "admit", "charge"]


FIRST = {"noise_multiplier": 1 / 0.426, "sampling": "full-batch", "sample_rate": 1.0}
RARE = {"noise_multiplier": 1 / 6, "sample_rate": 1.3e-5, "sampling": "poisson"}


def test_p24_a_study_chosen_late_stays_late_under_a_fixed_cap_and_the_adaptive_one_after_it(place):
    """As a part of the first study it keeps 2, and the analyst of P24 realises twice its delta."""
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(2.002))
        ledger.charge(entry(**FIRST), attempts=1)
        ledger.set_cap(cap_of(2.002, "fixed"))
        ledger.charge(entry(study=OTHER, **RARE), attempts=1)
        ledger.set_cap(cap_of(2.1))
        assert ledger.epsilon(delta=DELTA, relation=RELATION) < 2.002
        with pytest.raises(BudgetError):  # though fixed composition leaves room for it
            ledger.charge(entry(study=b"3" * 32, noise_multiplier=1e5), attempts=1)
    with Ledger(place) as ledger:  # another process reads the same in the rows
        assert [len(one.counts) for one in ledger.filter.admissions] == [1, 1]


def test_p24_all_studies_of_a_fixed_cap_stay_late_under_the_adaptive_one_after_it(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(4 * BOTH))
        ledger.charge(entry(**FIRST), attempts=1)
        ledger.set_cap(cap_of(4 * BOTH, "fixed"))
        for study in (OTHER, b"3" * 32, OTHER):
            ledger.charge(entry(study=study, **SAMPLED))
        ledger.set_cap(cap_of(4 * BOTH))
        assert [one.study for one in ledger.filter.admissions] == [STUDY, OTHER, b"3" * 32]


def test_p24_of_two_kinds_that_are_alike_neither_is_lost_under_a_fixed_cap(place):
    """What was set aside for the one covers the other, but not both: one of five is left over."""
    digit = {"noise_multiplier": 2.0 * (1 + 5e-7)}
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(4 * BOTH))
        ledger.charge(entry(1, **SAMPLED), attempts=4)
        ledger.set_cap(cap_of(4 * BOTH, "fixed"))
        for number in (2, 3, 4, 5):
            ledger.charge(entry(number, **SAMPLED | (digit if number > 3 else {})), attempts=6)
        ledger.set_cap(cap_of(4 * BOTH))
        first, *late = (dict(one.counts) for one in ledger.filter.admissions)
        assert sum(first.values()) == 4
        assert sum(count for one in late for count in one.values()) >= 1


def test_p24_a_study_takes_what_its_noise_costs_on_any_machine(place):
    """With 2e-6 less noise, as kinds that it covers may have 1e-6 less."""
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(2.002))
        ledger.charge(entry(**{**FIRST, "noise_multiplier": 4.0}), attempts=1)
        before = ledger.filter.left.left.shift
        ledger.charge(entry(study=OTHER, **{**FIRST, "noise_multiplier": 5.0}), attempts=1)
        taken = before**2 - ledger.filter.left.left.shift**2
        assert 0.2**2 / (1 - 1e-6) ** 2 < taken < 0.2**2 / (1 - 3e-6) ** 2


def test_p24_what_an_older_version_wrote_as_left_after_a_fixed_cap_is_not_believed(place):
    """It took all studies before that cap for the first one, and left too much."""
    third, fourth = (entry(study=name * 32, noise_multiplier=1e5) for name in (b"3", b"4"))
    left = RemainingBudget(shift=0.2, delta=1e-6)
    old = Admission(study=third.study, counts=((third.kind, 1),), left=left)
    with Ledger(place) as ledger:
        for studies, one in (("adaptive", FIRST), ("fixed", {**RARE, "study": OTHER})):
            ledger.set_cap(cap_of(2.002, studies))
            ledger.charge(entry(**one), attempts=1)
        ledger.set_cap(cap_of(2.1))
        with ledger._chain.writing():
            ledger._chain.append(json.dumps({"admit": old.to_dict()}), ledger._catch_up())
    with Ledger(place) as ledger:
        assert ledger.filter.admissions[-1] == old
        with pytest.raises(BudgetError):
            ledger.charge(fourth, attempts=1)


def test_p24_what_was_let_in_is_no_second_study_under_a_fixed_cap_between(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(2 * BOTH))
        ledger.charge(entry(1, **SAMPLED), attempts=STEPS)
        ledger.set_cap(cap_of(2 * BOTH, "fixed"))
        ledger.charge(entry(2, **SAMPLED), attempts=STEPS)
        ledger.set_cap(cap_of(2 * BOTH))
        ledger.charge(entry(3, **SAMPLED), attempts=STEPS)
    assert rows(place) == ["cap", "admit", "charge", "cap", "charge", "cap", "charge"]


def test_p24_a_cap_that_is_lowered_stops_what_was_let_in_and_a_raised_one_lets_it_go_on(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(2 * BOTH))
        ledger.charge(entry(1, **SAMPLED), attempts=STEPS)
        run(ledger, OTHER)
        for epsilon in (ONE / 2, 0.9 * BOTH):
            ledger.set_cap(cap_of(epsilon))
            with pytest.raises(BudgetError, match="exceed it; raise the cap"):
                ledger.charge(entry(2, **SAMPLED), attempts=STEPS)
        ledger.set_cap(cap_of(3 * BOTH))
        ledger.charge(entry(2, **SAMPLED), attempts=STEPS)
    assert rows(place).count("admit") == 2


def test_p24_another_process_goes_on_from_what_the_rows_say(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(2 * BOTH))
        ledger.charge(entry(1, **SAMPLED), attempts=STEPS)
        left = ledger.filter.left
    with Ledger(place) as ledger:
        assert ledger.filter.left == left
        ledger.charge(entry(2, **SAMPLED), attempts=STEPS)
    assert rows(place) == ["cap", "admit", "charge", "charge"]


def test_p24_another_last_digit_is_covered_and_other_noise_is_not(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(4 * BOTH))
        ledger.charge(entry(1, **SAMPLED), attempts=STEPS)
        for digit in (nextafter(2.0, inf), nextafter(2.0, 0.0), 2.0 * (1 - 9e-7)):
            ledger.charge(entry(2, **(SAMPLED | {"noise_multiplier": digit})), attempts=STEPS)
        assert rows(place).count("admit") == 1
        ledger.charge(entry(3, **(SAMPLED | {"noise_multiplier": 1.9})), attempts=STEPS)
        assert rows(place).count("admit") == 2
        kind = entry(**SAMPLED).kind
        assert kind.dearer().noise_multiplier < 2.0 * (1 - 1e-6)


@pytest.mark.parametrize("name", ["sample_rate", "factor", "slack", "diameter"])
def test_p24_what_was_set_aside_covers_other_digits_of_the_noise_alone(name):
    """`dearer` has less noise, and is a bound on no other number's last digits."""
    known = {"sample_rate": 0.1, "factor": 1.5, "slack": 1e-9, "diameter": 1.0}
    kind = entry(**SAMPLED | known).kind
    other = replace(kind, **{name: known[name] * (1 + 1e-8)})
    assert kind.like(other)
    assert not kind.covers(other)
    assert kind.covers(replace(kind, noise_multiplier=2.0 * (1 + 1e-8)))


def test_p24_other_last_digits_on_both_sides_do_not_spend_twice(place):
    """Two kinds are covered by what was let in for a third, and are not as near to each other."""
    above, below = ({**SAMPLED, "noise_multiplier": 2.0 * (1 + d)} for d in (9e-7, -9e-7))
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(2 * BOTH))
        ledger.charge(entry(1, **SAMPLED), attempts=STEPS)
        for number in range(2, STEPS + 1):
            ledger.charge(entry(number, **above), attempts=STEPS)
        with pytest.raises(SpentError):
            ledger.charge(entry(STEPS + 1, **below), attempts=STEPS)


def test_p24_certificates_have_to_fit_what_is_kept_for_them(place):
    small, large = Certificate(epsilon=1e-6, failure=1e-12), Certificate(failure=1e-6)
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(2 * BOTH))
        ledger.charge(entry(1, **SAMPLED, certificate=small), attempts=STEPS)
        ledger.charge(entry(1, study=OTHER, **SAMPLED, certificate=small), attempts=STEPS)
        again = entry(2, session=b"f" * 16, **SAMPLED, certificate=large)
        with pytest.raises(BudgetError, match="their sessions exceed it"):
            ledger.charge(again, attempts=STEPS)
        ledger.charge(entry(2, session=b"g" * 16, **SAMPLED, certificate=small), attempts=STEPS)


@pytest.mark.parametrize(("cap", "others"), [(1.001 * ONE, 0), (2 * BOTH, 1)])
def test_p24_no_study_is_let_in_whose_own_certificates_are_refused_later(place, cap, others):
    first, later = Certificate(epsilon=1e-9), Certificate(failure=5e-6)
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(cap))
        for _ in range(others):
            ledger.charge(entry(study=OTHER, noise_multiplier=1e4), attempts=1)
        one = entry(1, **SAMPLED, certificate=first)
        with pytest.raises(BudgetError):
            ledger.charge(one, attempts=STEPS, study_certificate=first.after(later))
        ledger.charge(one, attempts=STEPS, study_certificate=first.after(first))


def test_p24_certificates_beside_a_study_that_leaves_nothing_are_held_against_the_cap(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(1.001 * ONE))
        ledger.charge(entry(1, **SAMPLED), attempts=STEPS)
        for share, fits in ((1e-4, True), (0.002, False)):
            again = entry(
                2, session=b"f" * 16, **SAMPLED, certificate=Certificate(epsilon=share * ONE)
            )
            with nullcontext() if fits else pytest.raises(BudgetError, match="exceed it"):
                ledger.charge(again, attempts=STEPS)


def test_p24_a_row_of_the_filter_that_was_changed_is_noticed(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(2 * BOTH))
        run(ledger)
    said = json.loads(stored(place)[2][1])
    said["admit"]["left"]["shift"] *= 2
    put(place, "text", json.dumps(said))
    assert_noticed(place)


def test_rows_of_older_ledgers_are_caps_on_studies_that_were_fixed():
    assert Cap(epsilon=1.0, delta=DELTA, relation=RELATION).studies == "fixed"
    with pytest.raises(StudyError, match="studies"):
        cap_of(1.0, "some")


def test_an_admission_outlives_its_row():
    for left in (None, RemainingBudget(shift=0.5, delta=1e-7)):
        one = Admission(study=STUDY, counts=((entry(**MODEL).kind, 3),), left=left)
        assert Admission.of(json.loads(json.dumps(one.to_dict()))) == one


def test_p24_the_promise_is_to_whom_it_was_at_first(place):
    """Patients for all studies, or records for all: a path may not change whom it is to (P21)."""
    of_patients = {**SAMPLED, "unit": "patient", "most_per_patient": 3}
    stated = {**SAMPLED, "most_per_patient": 3}
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(20.0))
        ledger.charge(entry(1, **stated), attempts=STEPS)
        with pytest.raises(BudgetError, match="one that protects patients") as error:
            ledger.charge(entry(1, study=OTHER, **of_patients), attempts=STEPS)
        assert_one_sentence(str(error.value))
    with Ledger(place.with_name("patients.sqlite")) as ledger:
        ledger.set_cap(cap_of(20.0))
        ledger.charge(entry(1, **of_patients), attempts=STEPS)
        with pytest.raises(BudgetError):  # nothing says how many records a patient has
            ledger.charge(entry(1, study=OTHER, **SAMPLED), attempts=STEPS)
        before = ledger.filter.epsilon(ledger.tally)
        ledger.charge(entry(1, study=OTHER, **stated), attempts=STEPS)
        # Up to three records of a patient at once: dearer than a second study of patients.
        assert ledger.filter.epsilon(ledger.tally) > 2 * before
