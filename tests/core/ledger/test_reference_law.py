"""A cap with a reference law: what it lets in, writes down, and says is not used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hubbub.core.errors import BudgetError, StudyError, UserError
from hubbub.core.ledger.privacy_ledger import Cap, Ledger
from hubbub.core.privacy.remaining_budget import ReferenceLaw
from ledger.book import DELTA, RELATION, entry, stored

RARE = {"noise_multiplier": 0.7, "sample_rate": 0.001, "sampling": "poisson"}
STEPS, STUDIES = 1000, 5
LAW = ReferenceLaw(noise_multiplier=0.7, sample_rate=0.001, steps=STEPS * STUDIES)


def cap_of(epsilon: float, law: ReferenceLaw | None = LAW) -> Cap:
    return Cap(epsilon=epsilon, delta=DELTA, relation=RELATION, studies="adaptive", law=law)


def begin(ledger: Ledger, number: int, steps: int = STEPS, **kind: object) -> None:
    """The first attempt of a study, before which all of it is let in."""
    study = bytes([number]) * 32
    ledger.charge(entry(study=study, **(RARE | kind)), attempts=steps)


def admitted(path: Path) -> list[dict]:
    rows = [json.loads(text) for _, text, _ in stored(path)[1:]]
    return [row["admit"] for row in rows if "admit" in row]


@pytest.fixture
def place(tmp_path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_p24_studies_below_the_law_are_let_in_at_the_price_of_fixed_ones(place):
    """Five of them need 1.34 without a law; six are one too many."""
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(0.99))
        for number in range(STUDIES):
            begin(ledger, number)
        with pytest.raises(BudgetError, match="would need a cap of"):
            begin(ledger, STUDIES)
        assert ledger.filter.unused == 0
        assert ledger.filter.kept_back(ledger.tally) == 0
        assert ledger.filter.epsilon(ledger.tally) == pytest.approx(0.986, rel=0.005)
    left = [row["left"].get("steps", 0) for row in admitted(place)]
    assert left == [4000, 3000, 2000, 1000, 0]


@pytest.mark.slow
def test_p24_without_the_law_the_same_cap_lets_fewer_in(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(0.99, None))
        begin(ledger, 0)
        begin(ledger, 1)
        with pytest.raises(BudgetError):
            begin(ledger, 2)
    assert all("steps" not in row["left"] for row in admitted(place))


def test_p24_more_noise_and_a_smaller_rate_are_below_the_law_and_others_pay(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(1.2))
        begin(ledger, 0, noise_multiplier=1.0, sample_rate=0.0005)
        assert ledger.filter.unused == LAW.steps - STEPS
        begin(ledger, 1, noise_multiplier=40.0, sample_rate=1.0, sampling="full-batch", steps=1)
        assert ledger.filter.unused == LAW.steps - STEPS
        shifts = [row["left"]["shift"] for row in admitted(place)]
        assert shifts[1] ** 2 == pytest.approx(shifts[0] ** 2 - 1 / 40.0**2, rel=1e-4)
        with pytest.raises(BudgetError):
            begin(ledger, 2, noise_multiplier=0.65)
        begin(ledger, 3)
        assert ledger.filter.unused == LAW.steps - 2 * STEPS


@pytest.mark.slow
def test_p24_a_law_that_nobody_uses_is_budget_that_is_kept_back(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(1.2))
        whole = ledger.filter.epsilon(ledger.tally)
        assert whole == pytest.approx(0.986, rel=0.005)
        assert ledger.filter.kept_back(ledger.tally) == pytest.approx(whole)
        begin(ledger, 0)
        assert 0.3 < ledger.filter.kept_back(ledger.tally) < whole - 0.3


def test_p24_another_process_goes_on_from_the_steps_that_are_left(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(0.99))
        begin(ledger, 0)
    with Ledger(place) as ledger:
        assert ledger.cap == cap_of(0.99)
        assert ledger.filter.left.left.steps == ledger.filter.unused == 4000
        begin(ledger, 1)
    assert admitted(place)[1]["left"]["steps"] == 3000


def test_a_law_goes_with_adaptive_studies_alone():
    with pytest.raises(StudyError, match="adaptive studies alone"):
        Cap(epsilon=1.0, delta=DELTA, relation=RELATION, studies="fixed", law=LAW)
    assert "law" not in cap_of(1.0, None).to_dict()
    assert Cap.of(cap_of(1.0).to_dict()) == cap_of(1.0)


@pytest.mark.parametrize(
    "later", [None, ReferenceLaw(noise_multiplier=0.7, sample_rate=0.001, steps=9)]
)
@pytest.mark.parametrize("between", ["nothing", "a cap for fixed studies"])
def test_p24_no_law_is_changed_or_dropped_once_a_study_was_let_in(place, later, between):
    """A cap for fixed studies in between, or a program that sets caps itself, is no way around."""
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(0.9, None))
        ledger.set_cap(cap_of(0.99))  # nothing was seen yet
        begin(ledger, 0)
        if between == "a cap for fixed studies":
            ledger.set_cap(Cap(epsilon=9.0, delta=DELTA, relation=RELATION))
    with Ledger(place) as ledger:
        with pytest.raises(UserError, match="before the first study, got another or none"):
            ledger.set_cap(cap_of(5.0, later))
        assert ledger.cap.epsilon == (9.0 if between == "a cap for fixed studies" else 0.99)
        ledger.set_cap(cap_of(1.5))
        assert ledger.cap == cap_of(1.5)


def test_p24_no_law_is_stated_once_a_study_was_let_in(place):
    with Ledger(place) as ledger:
        ledger.set_cap(cap_of(2.0, None))
        begin(ledger, 0)
        ledger.set_cap(Cap(epsilon=9.0, delta=DELTA, relation=RELATION))
        with pytest.raises(UserError, match="expected no --law"):
            ledger.set_cap(cap_of(5.0))


@pytest.mark.parametrize("studies", ["", "fixed"])
def test_p24_no_law_is_stated_once_anything_was_charged(place, studies):
    """Without an adaptive cap nothing is let in by a row of its own, but there are outputs."""
    with Ledger(place) as ledger:
        if studies:
            ledger.set_cap(Cap(epsilon=9.0, delta=DELTA, relation=RELATION, studies=studies))
        ledger.charge(entry(noise_multiplier=20.0))
    with Ledger(place) as ledger:
        with pytest.raises(UserError, match="expected no --law"):
            ledger.set_cap(cap_of(5.0))
        ledger.set_cap(cap_of(5.0, None))
        begin(ledger, 0)


@pytest.mark.slow
def test_the_command_states_a_law_and_says_what_is_not_used(place, capsys):
    from hubbub.desk.cli.main import main

    def said(*words: str) -> str:
        code = main([*words])
        captured = capsys.readouterr()
        return f"{code} {captured.out}{captured.err}"

    law = ("--law", "0.7", "0.001", "5000")
    setting = ("budget", "set", str(place), "--delta", "1e-5")
    refused = said(*setting, "--epsilon", "0.5", "--new", *law)
    (least,) = re.findall(r"where at least (0\.98\d*) is needed", refused)
    assert not place.exists()
    other = ("budget", "set", f"{place}.other", "--delta", "1e-5", "--new", *law)
    assert said(*other, "--epsilon", f"{float(least) - 0.003:g}").startswith("2 ")
    assert said(*other, "--epsilon", least).startswith("0 ")  # what it names is enough
    words = said(*setting, "--epsilon", "1.2", "--new", *law)
    assert "5000 of its 5000 steps are unused, which reserves epsilon 0.98" in words
    with Ledger(place) as ledger:
        begin(ledger, 0)
    shown = json.loads(said("ledger", "show", str(place), "--json")[2:])
    assert shown["cap"]["law"] == {"noise_multiplier": 0.7, "sample_rate": 0.001, "steps": 5000}
    assert shown["law_unused"] == 4000
    assert 0.3 < shown["law_kept_back"] < 0.7
    late = said(*setting, "--epsilon", "1.2", "--law", "0.7", "0.001", "6000")
    assert "before the first study" in late
    dropped = said(*setting, "--epsilon", "1.2")
    assert "got another or none" in dropped
    assert json.loads(said("ledger", "show", str(place), "--json")[2:]) == shown
    assert "0 cap" not in said(*setting, "--epsilon", "1.2", "--law", "x", "0.001", "5000")
    assert said(*setting, "--epsilon", "1.3", *law).startswith("0 ")
    assert said(*setting, "--epsilon", "1.3", "--fixed-studies").startswith("0 ")


def test_p24_the_command_takes_no_law_once_a_study_was_let_in(place, capsys):
    from hubbub.desk.cli.main import main

    with Ledger(place) as ledger:
        ledger.set_cap(Cap(epsilon=2.0, delta=1e-5, relation="add-remove", studies="adaptive"))
        begin(ledger, 0)
    setting = ("budget", "set", str(place), "--delta", "1e-5", "--epsilon", "3")
    assert main([*setting, "--law", "0.7", "0.001", "5000"]) != 0
    assert "expected no --law, because none was set before" in capsys.readouterr().err
    assert main([*setting]) == 0
