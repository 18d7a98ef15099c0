"""The cap lets exactly what it allows be written, and only the ledger's key moves it."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import replace
from math import exp

import pytest

import hubbub
from hubbub.core.errors import BudgetError, IntegrityError, StudyError, UserError
from hubbub.core.ledger.hash_chain import Chain
from hubbub.core.ledger.privacy_ledger import Cap, Ledger
from hubbub.core.privacy.certificate import Certificate
from ledger.book import (
    DELTA,
    FULL_BATCH,
    OTHER,
    RELATION,
    ROWS,
    STUDY,
    assert_noticed,
    assert_one_sentence,
    behind_its_back,
    cap_for,
    charges,
    entry,
    epsilon_of,
    insert,
    key_of,
    put,
    stored,
)


def test_p15_what_another_process_certified_counts_under_the_cap_at_once(tmp_path):
    """Three rows fit, and were looked at; with what its session certifies only two do."""
    cap = cap_for(3)
    large = Certificate(epsilon=0.999 * (cap.epsilon - epsilon_of(2)))
    place = tmp_path / "ledger.sqlite"
    with Ledger(place) as ledger, Ledger(place) as other:
        ledger.set_cap(cap)
        ledger.charge(entry(1), attempts=3)
        other.charge(entry(1, study=OTHER, session=b"f" * 16, certificate=large), attempts=1)
        with pytest.raises(BudgetError):
            ledger.charge(entry(2), attempts=3)
        assert len(ledger) == 2


@pytest.mark.parametrize("count", [1, 3, 9, 11])  # 9 and 11 are off the ledger's grid
def test_p15_exactly_what_the_cap_allows_is_written_and_nothing_after(tmp_path, count):
    place = tmp_path / "ledger.sqlite"
    with Ledger(place) as ledger:
        ledger.set_cap(cap_for(count))
        for number in range(1, count + 1):
            ledger.charge(entry(number))
        for _ in range(2):
            with pytest.raises(BudgetError, match=r"at most epsilon .*raise the cap .*or stop"):
                ledger.charge(entry(count + 1))
        assert len(ledger) == ledger.verify() == count
        spent = ledger.epsilon(delta=DELTA, relation=RELATION)
    assert spent <= cap_for(count).epsilon
    assert charges(place) == count


@pytest.mark.parametrize(("share", "written"), [(1.0, 3), (1 - 1e-6, 2)])
def test_p15_a_cap_is_kept_to_its_last_digits(tmp_path, share, written):
    cap = Cap(epsilon=share * epsilon_of(3), delta=DELTA, relation=RELATION)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_cap(cap)
        with suppress(BudgetError):
            for number in range(1, 5):
                ledger.charge(entry(number))
        assert len(ledger) == written


def test_p15_a_cap_that_is_lowered_counts_at_once(tmp_path):
    """Also where the one before was seen to allow all attempts."""
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_cap(cap_for(9))
        ledger.charge(entry(1), attempts=9)
        ledger.set_cap(cap_for(2))
        ledger.charge(entry(2), attempts=9)
        with pytest.raises(BudgetError, match="at most epsilon"):
            ledger.charge(entry(3), attempts=9)


@pytest.mark.parametrize("changed", [{"delta": 1e-9}, {"relation": "substitute"}])
def test_p15_a_cap_that_is_lower_in_another_number_counts_at_once(tmp_path, changed):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_cap(cap_for(3))
        ledger.charge(entry(1), attempts=3)
        ledger.set_cap(replace(cap_for(3), **changed))
        with pytest.raises(BudgetError, match="at most epsilon"):
            ledger.charge(entry(2), attempts=3)


def test_p15_the_certificate_of_a_new_session_counts_under_the_cap_at_once(tmp_path):
    """The cap was seen to allow all attempts with what the sessions before it certified."""
    large = Certificate(epsilon=1.01 * (cap_for(3).epsilon - epsilon_of(2)))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_cap(cap_for(3))
        ledger.charge(entry(1), attempts=3)
        with pytest.raises(BudgetError, match="at most epsilon"):
            ledger.charge(entry(2, session=b"f" * 16, certificate=large), attempts=3)
        ledger.charge(entry(2, session=b"g" * 16), attempts=3)


def test_a_refused_step_does_not_block_a_cheaper_one(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_cap(cap_for(1))
        ledger.charge(entry(1))
        with pytest.raises(BudgetError):
            ledger.charge(entry(2))
        ledger.charge(entry(2, noise_multiplier=1000.0))
        assert ledger.verify() == 2


def test_a_cap_outlives_the_process_and_a_newer_one_takes_its_place(path):
    with Ledger(path) as ledger:
        assert ledger.cap is None
        ledger.set_cap(cap_for(ROWS))
    with Ledger(path) as ledger:
        assert ledger.cap == cap_for(ROWS)
        with pytest.raises(BudgetError):
            ledger.charge(entry(5))
        ledger.set_cap(cap_for(ROWS + 1))
        ledger.charge(entry(5))
        assert ledger.verify() == ROWS + 1
    with Ledger(path) as ledger:
        assert ledger.cap == cap_for(ROWS + 1)


def test_a_cap_can_be_lowered_below_what_is_spent_and_then_refuses_everything(path):
    with Ledger(path) as ledger:
        ledger.set_cap(cap_for(1))
        with pytest.raises(BudgetError):
            ledger.charge(entry(5, noise_multiplier=1e5))


def test_every_cap_that_was_ever_set_can_be_read_in_the_file(path):
    with Ledger(path) as ledger:
        for count in (3, 9, 5):
            ledger.set_cap(cap_for(count))
    said = [json.loads(text)["cap"] for _, text, _ in stored(path)[ROWS + 1 :]]
    assert [Cap(**cap) for cap in said] == [cap_for(3), cap_for(9), cap_for(5)]


@pytest.fixture
def capped(path):
    """A ledger whose cap is reached: row 5 is a generous cap, row 6 the one that counts."""
    with Ledger(path) as ledger:
        ledger.set_cap(cap_for(90))
        ledger.set_cap(cap_for(ROWS))
    return path


def test_p15_a_cap_that_was_raised_in_the_file_is_noticed_and_buys_nothing(capped):
    put(capped, "text", json.dumps({"cap": cap_for(90).to_dict()}), 6)
    assert_noticed(capped)
    with Ledger(capped) as ledger, pytest.raises(IntegrityError, match="row 6 of"):
        ledger.charge(entry(5))


def test_p15_an_older_cap_written_again_is_noticed_and_buys_nothing(capped):
    insert(capped, 7, *stored(capped)[5][1:])
    assert_noticed(capped)
    with Ledger(capped) as ledger, pytest.raises(IntegrityError, match="row 7 of"):
        ledger.charge(entry(5))


def test_p15_a_cap_taken_out_from_under_an_entry_is_noticed(capped):
    with Ledger(capped) as ledger:
        ledger.set_cap(cap_for(ROWS + 1))
        ledger.charge(entry(5))
    behind_its_back(capped, "DELETE FROM rows WHERE number = 7")
    behind_its_back(capped, "UPDATE rows SET number = 7 WHERE number = 8")
    assert_noticed(capped)


def test_p15_a_table_of_caps_beside_the_chain_is_refused(capped):
    behind_its_back(capped, "CREATE TABLE cap (id, epsilon, delta, relation)")
    behind_its_back(capped, "INSERT INTO cap VALUES (1, 50.0, 1e-5, 'add-remove')")
    with pytest.raises(IntegrityError, match="nothing else"):
        Ledger(capped)


def test_p15_without_the_key_a_ledger_can_be_read_but_neither_charged_nor_capped(capped):
    key_of(capped).unlink()
    with Ledger(capped) as ledger:
        assert (ledger.verify(), ledger.cap) == (ROWS, cap_for(ROWS))
        for write in (
            lambda: ledger.charge(entry(5, noise_multiplier=1e6)),
            lambda: ledger.set_cap(cap_for(90)),
        ):
            with pytest.raises(IntegrityError, match="restore the key") as error:
                write()
            assert_one_sentence(str(error.value))
        assert len(ledger) == ROWS


@pytest.mark.parametrize("spoilt", ["", "not a key", "ab" * 31, "ab" * 33])
def test_a_key_that_is_none_is_refused_and_not_shown(path, spoilt):
    key_of(path).write_text(spoilt)
    with pytest.raises(IntegrityError, match="64 hexadecimal digits") as error:
        Ledger(path)
    assert_one_sentence(str(error.value))
    assert not spoilt or spoilt not in str(error.value)


def test_p15_two_studies_compose_as_one_list_and_share_the_cap(tmp_path):
    mechanisms = [(1.5, 0.1, "poisson", 30), (3.0, 1.0, "full-batch", 2)]
    steps = [
        hubbub.Step(noise_multiplier=noise, sample_rate=rate, sampling=sampling, count=count)
        for noise, rate, sampling, count in mechanisms
    ]
    wanted = hubbub.composed_epsilon(steps, delta=DELTA, relation=RELATION)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        for study, (noise, rate, sampling, count) in zip((STUDY, OTHER), mechanisms, strict=True):
            kind = {"noise_multiplier": noise, "sample_rate": rate, "sampling": sampling}
            for number in range(1, count + 1):
                ledger.charge(entry(number, study=study, **kind))
        spent = ledger.epsilon(delta=DELTA, relation=RELATION)
        assert wanted.lower <= spent == pytest.approx(wanted.upper, rel=2e-3)
        alone = hubbub.composed_epsilon(steps[1:], delta=DELTA, relation=RELATION)
        assert spent > alone.upper * 1.02
        # A third study is refused because of what the first two spent.
        ledger.set_cap(Cap(epsilon=spent + 1e-3, delta=DELTA, relation=RELATION))
        with pytest.raises(BudgetError):
            ledger.charge(entry(1, study=b"t" * 32))


@pytest.mark.parametrize(
    "changed",
    [
        {"noise_multiplier": 0.0},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": float("inf")},
        {"sample_rate": 2.0},
        {"sampling": "some"},
        {"round": -1},
        {"round": 2**63},
    ],
    ids=repr,
)
def test_an_entry_that_cannot_be_accounted_for_is_refused_before_it_is_written(path, changed):
    with Ledger(path) as ledger:
        with pytest.raises(UserError):
            ledger.charge(entry(**changed))
        assert ledger.verify() == ROWS
        assert ledger.epsilon(delta=DELTA, relation=RELATION) > 0


@pytest.mark.parametrize(
    "changed", [{"epsilon": float("nan")}, {"epsilon": -1.0}, {"delta": 0.0}, {"relation": "x"}]
)
def test_a_cap_that_caps_nothing_is_refused_before_it_is_written(path, changed):
    good = {"epsilon": 1.0, "delta": DELTA, "relation": RELATION}
    with Ledger(path) as ledger:
        with pytest.raises(UserError):
            ledger.set_cap(Cap(**(good | changed)))
        assert ledger.cap is None


def test_a_certificate_is_counted_once_for_each_session(tmp_path):
    added = Certificate(epsilon=0.25, slack=1e-9, failure=1e-6, delta_factor=1.01)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        for number in (1, 2, 3):
            ledger.charge(entry(number, certificate=added))
        spent = ledger.epsilon(delta=DELTA, relation=RELATION)
        left = added.ideal_delta(DELTA, spent)
        ideal = hubbub.epsilon(steps=3, delta=left, relation=RELATION, **FULL_BATCH).upper
        # A little more is charged, since what is claimed has to cover its own slack.
        assert ideal + 0.25 <= spent <= (ideal + 0.25) * 1.01
        ledger.charge(entry(4, session=b"f" * 16, certificate=added))
        assert ledger.epsilon(delta=DELTA, relation=RELATION) > spent + 0.25


def test_the_cap_counts_the_certificate(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_cap(cap_for(1))
        with pytest.raises(BudgetError):
            ledger.charge(entry(certificate=Certificate(epsilon=5.0)))
        ledger.charge(entry())


@pytest.mark.parametrize(
    "wrong", [{"epsilon": -1.0}, {"slack": -1e-9}, {"failure": 2.0}, {"delta_factor": 0.5}]
)
def test_a_certificate_that_takes_away_is_refused(wrong):
    with pytest.raises(StudyError, match=next(iter(wrong))):
        entry(certificate=Certificate(**wrong))


def test_what_is_claimed_covers_the_slack_of_all_sessions(tmp_path):
    """P6 adds (1 + exp(epsilon)) slack at the epsilon that is claimed, not at a study's own."""
    added = Certificate(slack=1e-9)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        for number in range(1, 30):
            ledger.charge(entry(number, session=bytes([number]) * 16, certificate=added))
        spent = ledger.epsilon(delta=DELTA, relation=RELATION)
    assert spent == float("inf") or (1 + exp(spent)) * 29e-9 < DELTA


@pytest.mark.parametrize(
    "trigger",
    [
        "AFTER INSERT ON rows BEGIN DELETE FROM rows WHERE number = NEW.number; END",
        "AFTER INSERT ON rows BEGIN UPDATE rows SET text = 'x' WHERE number = NEW.number; END",
    ],
)
def test_a_row_that_does_not_stay_is_noticed_before_anything_is_sent(
    tmp_path, trigger, monkeypatch
):
    """Whatever takes it away: here a trigger, which a ledger would not be opened with."""
    place = tmp_path / "ledger.sqlite"
    with Ledger(place) as ledger:
        ledger.set_cap(cap_for(1))
    behind_its_back(place, f"CREATE TRIGGER forget {trigger}")
    with pytest.raises(IntegrityError, match="nothing else"):
        Ledger(place)
    monkeypatch.setattr(Chain, "_is_blank", lambda _: False)
    with Ledger(place) as ledger:
        if sys.version_info >= (3, 12):  # there SQLite is told to run no trigger: the row stays
            ledger.charge(entry())
            assert [one.round for one in ledger.entries()] == [entry().round]
        else:
            with pytest.raises(IntegrityError):
                ledger.charge(entry())


def test_a_row_taken_away_under_an_open_ledger_is_noticed(tmp_path):
    place = tmp_path / "ledger.sqlite"
    with Ledger(place) as ledger:
        ledger.charge(entry(1))
        behind_its_back(place, "DELETE FROM rows WHERE number = 1")
        with pytest.raises(IntegrityError):
            ledger.charge(entry(2))
