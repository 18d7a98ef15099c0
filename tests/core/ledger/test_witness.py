"""What others signed of a ledger's head shows an older copy, whoever holds the ledger's key."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hubbub.core.errors import IntegrityError
from hubbub.core.ledger.hash_chain import Head, is_signed
from hubbub.core.ledger.head_statement import HeadStatement, Witness, Witnessed
from hubbub.core.ledger.privacy_ledger import Ledger
from ledger.book import ROWS, assert_noticed, assert_one_sentence, entry, key_of, note_of, put

NOON = "2030-01-01T12:00:00+00:00"
BOB = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
BOBS = BOB.public_key().public_bytes_raw()


def stated(path: Path, time: str = NOON) -> HeadStatement:
    """What a ledger says now."""
    with Ledger(path) as ledger:
        return ledger.statement(time)


def charged(path: Path, number: int, **changed: object) -> HeadStatement:
    """What it says after one more entry."""
    with Ledger(path) as ledger:
        ledger.charge(entry(number, **changed))
        return ledger.statement(NOON)


def copied(path: Path, name: str) -> Path:
    """A backup of all files of a ledger."""
    place = path.with_name(name)
    for of in (lambda one: one, key_of, note_of):
        shutil.copy(of(path), of(place))
    return place


def verified_against(path: Path, *witnessed: HeadStatement) -> int:
    with Ledger(path) as ledger:
        return ledger.verify(witnessed=witnessed)


@pytest.fixture
def witness(tmp_path):
    with Witness(tmp_path / "bob") as one:
        yield one


def test_a_statement_tells_what_the_ledger_holds(path):
    statement = stated(path)
    with Ledger(path) as ledger:
        assert (statement.rows, statement.head, statement.time) == (ROWS + 1, ledger.head, NOON)
    assert HeadStatement.of(json.loads(json.dumps(statement.to_dict()))) == statement
    assert verified_against(path, statement, stated(path, "another time")) == ROWS


def test_a_ledger_that_grew_still_holds_every_head_that_was_witnessed(path, witness):
    witnessed = [witness.sign(stated(path))]
    witnessed += [witness.sign(charged(path, number)) for number in (5, 6, 7)]
    for one in witnessed:
        assert one.witness == witness.public
        assert Witnessed.of(json.loads(json.dumps(one.to_dict()))) == one
    assert verified_against(path, *(one.statement for one in witnessed)) == ROWS + 3
    assert witness.known == {witnessed[0].statement.ledger: witnessed[-1].statement}


# Older copies ------------------------------------------------------------------------------------


def test_p15_an_older_copy_put_back_is_proven_by_what_was_witnessed(path):
    older = copied(path, "older.sqlite")
    later = charged(path, 5)
    assert verified_against(older) == ROWS  # by itself it is a good ledger
    with pytest.raises(IntegrityError, match=r"older\.sqlite.*older copy.*restore") as error:
        verified_against(older, later)
    assert_one_sentence(str(error.value))


def test_p15_an_older_copy_that_grew_past_the_witnessed_row_is_proven(path):
    older, later = copied(path, "older.sqlite"), charged(path, 5)
    for number in range(5, 9):
        charged(older, number, noise_multiplier=9.0)
    assert verified_against(older) == ROWS + 4
    with pytest.raises(IntegrityError, match="older copy"):
        verified_against(older, later)


def test_p15_a_ledger_that_was_begun_anew_is_proven(path):
    before = stated(path)
    for of in (lambda one: one, key_of, note_of):
        of(path).unlink()
    charged(path, 1)
    with pytest.raises(IntegrityError, match=r"begun anew.*restore") as error:
        verified_against(path, before)
    assert_one_sentence(str(error.value))


def test_p15_a_witness_refuses_a_ledger_with_fewer_rows(path, witness):
    older = copied(path, "older.sqlite")
    witness.sign(charged(path, 5))
    with pytest.raises(IntegrityError, match=r"fewer rows.*set back.*proof") as error:
        witness.sign(stated(older))
    assert_one_sentence(str(error.value))


def test_p15_a_witness_refuses_two_histories_of_one_length(path, witness):
    fork = copied(path, "fork.sqlite")
    witness.sign(charged(path, 5))
    with pytest.raises(IntegrityError, match="another head"):
        witness.sign(charged(fork, 5, noise_multiplier=9.0))
    witness.sign(stated(path, "the same head at another time"))


def test_p15_two_histories_shown_to_two_witnesses_do_not_both_verify(path, witness, tmp_path):
    fork = copied(path, "fork.sqlite")
    one, other = charged(path, 5), charged(fork, 5, noise_multiplier=9.0)
    with Witness(tmp_path / "carol") as carol:
        witness.sign(one)
        carol.sign(other)
        # Nobody saw both; whoever holds both statements has the proof, whichever file is shown.
        for place in (path, fork):
            with pytest.raises(IntegrityError, match="older copy"):
                verified_against(place, one, other)
        with pytest.raises(IntegrityError, match="another head"):
            carol.sign(one)


def test_p15_a_refused_statement_leaves_the_witness_as_it_was(path, witness):
    older, latest = copied(path, "older.sqlite"), charged(path, 5)
    witness.sign(latest)
    for _ in range(2):
        with pytest.raises(IntegrityError):
            witness.sign(stated(older))
    assert list(witness.known.values()) == [latest]
    witness.sign(charged(path, 6))


def test_p15_a_witness_remembers_over_a_restart_and_across_processes(path, tmp_path):
    older = copied(path, "older.sqlite")
    with Witness(tmp_path / "bob") as one, Witness(tmp_path / "bob") as other:
        assert one.known == other.known == {}
        one.sign(charged(path, 5))
        with pytest.raises(IntegrityError, match="fewer rows"):
            other.sign(stated(older))
    with Witness(tmp_path / "bob") as again, pytest.raises(IntegrityError, match="fewer rows"):
        again.sign(stated(older))


def test_p15_a_witness_whose_list_was_lost_or_altered_signs_nothing(path, tmp_path):
    place = tmp_path / "bob"
    with Witness(place) as one:
        one.sign(stated(path))
        one.sign(charged(path, 5))
    put(place, "text", json.dumps(stated(path).to_dict()), 1)
    with Witness(place) as altered, pytest.raises(IntegrityError, match=r"row 1 of .*bob"):
        altered.sign(charged(path, 6))
    place.unlink()
    with pytest.raises(IntegrityError, match="found none; restore the witness"):
        Witness(place)


def test_the_same_statement_twice_is_one_row(path, witness, tmp_path):
    assert witness.sign(stated(path)) == witness.sign(stated(path))
    with Witness(tmp_path / "bob") as again:
        assert again._chain.after(None)[-1].number == 1


def test_a_ledger_is_no_list_of_a_witness_and_a_list_is_no_ledger(path, witness, tmp_path):
    with pytest.raises(IntegrityError, match="expected a witness at"):
        Witness(path)
    with pytest.raises(IntegrityError, match="expected a ledger at"):
        Ledger(tmp_path / "bob")


# Statements that nobody made ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows", ROWS + 2),
        ("rows", 0),
        ("rows", 5.0),
        ("rows", True),
        ("rows", 2**70),
        ("head", "00" * 32),
        ("head", "00"),
        ("head", None),
        ("time", "2031-01-01T12:00:00+00:00"),
        ("time", "x" * 65),
        ("time", "a\nb"),
        ("time", 5),
        ("ledger", BOBS.hex()),
        ("ledger", "zz"),
        ("signature", "00" * 64),
        ("signature", ""),
        ("more", 1),
    ],
)
def test_p15_an_altered_statement_is_refused(path, key, value):
    plain = {**stated(path).to_dict(), key: value}
    with pytest.raises(IntegrityError) as error:
        HeadStatement.of(plain)
    assert_one_sentence(str(error.value))


@pytest.mark.parametrize("plain", [None, [], "text", 5, {}, {"statement": {}}, {"rows": 1}])
def test_other_json_is_refused_in_a_sentence(plain):
    for kind in (HeadStatement, Witnessed):
        with pytest.raises(IntegrityError) as error:
            kind.of(plain)
        assert_one_sentence(str(error.value))


def test_p15_a_statement_by_a_forged_key_says_nothing_of_the_ledger(path):
    real = stated(path)
    forged = HeadStatement.made(BOBS, Head(99, bytes(32)), NOON, BOB.sign)
    with pytest.raises(IntegrityError, match="of another one"):
        verified_against(path, forged)
    with pytest.raises(IntegrityError, match="altered or made up"):
        HeadStatement.made(real.ledger, Head(99, bytes(32)), NOON, BOB.sign)


@pytest.mark.parametrize(("number", "time"), [(-1, NOON), (2**63 - 1, NOON), (5, "x" * 65)])
def test_p15_what_no_ledger_states_is_refused_though_it_is_signed(number, time):
    """A ledger has its genesis at least; and a number that no row can have is none."""
    with pytest.raises(IntegrityError, match="altered or made up"):
        HeadStatement.made(BOBS, Head(number, bytes(32)), time, BOB.sign)
    assert HeadStatement.made(BOBS, Head(0, bytes(32)), NOON, BOB.sign).rows == 1


def test_p15_a_signature_of_another_witness_or_of_another_statement_is_refused(path, witness):
    good, other = witness.sign(stated(path)), witness.sign(charged(path, 5))
    for changed in ({"witness": BOBS.hex()}, {"signature": other.to_dict()["signature"]}):
        with pytest.raises(IntegrityError, match="ask the witness"):
            Witnessed.of({**good.to_dict(), **changed})
    with pytest.raises(IntegrityError, match="ask the witness"):
        Witnessed.of({**good.to_dict(), "statement": other.to_dict()["statement"]})


def test_p15_no_statement_can_be_made_into_a_row_of_the_chain(path):
    with Ledger(path) as ledger, pytest.raises(ValueError, match="purpose"):
        ledger._chain.sign(bytes(32))
    statement = stated(path)
    put(path, "signature", statement.signature, ROWS)
    assert_noticed(path)


def test_p15_a_witness_signs_in_a_context_of_its_own(path, witness):
    """No ledger signs these bytes, so whoever has one key for both vouches for nobody unseen."""
    signed = witness.sign(stated(path))
    content = signed.statement.signature + signed.statement.content
    assert is_signed(witness.public, signed.signature, b"hubbub ledger witness v1" + content)
    assert signed.statement.content.startswith(b"hubbub ledger statement v1")


def test_p15_nothing_depends_on_the_time_that_a_statement_tells(path, witness):
    with Ledger(path) as ledger:
        late = ledger.statement("2999-01-01T00:00:00+00:00")
        witness.sign(late)
        ledger.charge(entry(5))
        early = ledger.statement("1970-01-01T00:00:00+00:00")
    witness.sign(early)
    assert verified_against(path, late, early) == ROWS + 1
