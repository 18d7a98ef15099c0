"""Every alteration of what was written is noticed, a row of somebody else included."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hubbub.core.errors import BudgetError, IntegrityError
from hubbub.core.ledger.hash_chain import Chain, Row
from hubbub.core.ledger.privacy_ledger import Ledger
from ledger.book import (
    OTHER,
    ROWS,
    assert_noticed,
    assert_one_sentence,
    behind_its_back,
    cap_for,
    charges,
    digests,
    entry,
    insert,
    key_of,
    note_of,
    put,
    signed_by,
    stored,
    verified,
)

STRANGER = Ed25519PrivateKey.generate()


@pytest.mark.slow_cases("text-1-1", "text-1-4", "signature-2-0", "signature-2-2")
@pytest.mark.parametrize("number", [0, 1, 2, ROWS])
@pytest.mark.parametrize(("column", "place"), [("text", 1), ("signature", 2)])
def test_p15_a_flip_of_any_byte_of_a_row_is_noticed(path, column, place, number):
    value = stored(path)[number][place]
    whole = value if isinstance(value, bytes) else value.encode()
    with Ledger(path) as ledger:
        for position in range(len(whole)):
            altered = bytearray(whole)
            altered[position] ^= 1 << position % 7
            put(path, column, altered.decode() if place == 1 else bytes(altered), number)
            with pytest.raises(IntegrityError, match=f"row {number} of .*altered.*restore"):
                ledger.verify()
        put(path, column, value, number)
        assert ledger.verify() == ROWS


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("round", 3),
        ("round", 2.0),
        ("attempt", 1),
        ("noise_multiplier", 2.0000000000000004),
        ("noise_multiplier", 1e6),
        ("sample_rate", 0.9999999999999999),
        ("sampling", "poisson"),
        ("study", OTHER.hex()),
        ("more", 1),
    ],
)
def test_p15_any_other_value_in_an_entry_is_noticed(path, key, value):
    text = json.loads(stored(path)[2][1])
    text["charge"][key] = value
    put(path, "text", json.dumps(text))
    assert_noticed(path)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("number", 9),
        ("number", -1),
        ("text", ""),
        ("text", " "),
        ("text", 5),
        ("text", b"bytes"),
        ("signature", b""),
        ("signature", None),
        ("signature", "text"),
        ("signature", 5),
        ("signature", bytes(64)),
    ],
)
def test_p15_a_value_of_another_kind_is_noticed_as_an_alteration(path, column, value):
    put(path, column, value)
    assert_noticed(path)


def test_p15_text_that_is_none_is_noticed(path):
    behind_its_back(path, "UPDATE rows SET text = CAST(x'fffe' AS TEXT) WHERE number = 2")
    assert_noticed(path)


@pytest.mark.slow
def test_p15_a_flip_of_any_byte_of_the_stored_rows_is_noticed_or_changes_nothing(path):
    whole = path.read_bytes()
    rows = stored(path)
    places = [whole.find(part) for row in rows for part in (row[1].encode(), row[2])]
    assert min(places) > 0
    noticed = 0
    # A row ahead of the first text begins with its header; rows lie side by side.
    for position in range(min(places) - 16, max(places) + 64, 5):
        altered = bytearray(whole)
        altered[position] ^= 0x55
        path.write_bytes(altered)
        found = what_is_found(path)
        noticed += str(path) in str(found)
        assert found == rows or isinstance(found, IntegrityError)
        for leftover in path.parent.glob("*-wal"):
            leftover.unlink()
    assert noticed > 200


def what_is_found(path):
    """The rows of a ledger that verifies, or why it does not."""
    try:
        assert verified(path) == ROWS
    except IntegrityError as error:
        return error
    return stored(path)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_p15_a_row_taken_out_of_the_middle_is_noticed(path, number):
    behind_its_back(path, "DELETE FROM rows WHERE number = ?", number)
    assert_noticed(path)
    behind_its_back(path, "UPDATE rows SET number = number - 1 WHERE number > ?", number)
    assert_noticed(path)


def test_p15_rows_that_changed_places_are_noticed(path):
    for before, after in ((2, 99), (3, 2), (99, 3)):
        behind_its_back(path, "UPDATE rows SET number = ? WHERE number = ?", after, before)
    assert_noticed(path)


def test_p15_a_row_put_in_twice_is_noticed(path):
    insert(path, ROWS + 1, *stored(path)[ROWS][1:])
    assert_noticed(path)


def test_p15_a_row_of_another_ledger_is_noticed(path, tmp_path):
    with Ledger(tmp_path / "other.sqlite") as other:
        for number in range(1, ROWS + 2):
            other.charge(entry(number, study=OTHER))
    insert(path, *stored(tmp_path / "other.sqlite")[ROWS + 1])
    assert_noticed(path)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"charge": entry(5).to_dict()}),
        json.dumps({"cap": cap_for(90).to_dict()}),
    ],
    ids=["charge", "cap"],
)
def test_p15_a_row_that_a_stranger_signed_is_noticed(path, text):
    insert(path, ROWS + 1, text, signed_by(STRANGER, path, ROWS + 1, text))
    assert_noticed(path)
    with Ledger(path) as ledger:
        with pytest.raises(IntegrityError, match=f"row {ROWS + 1} of"):
            ledger.charge(entry(6))
        with pytest.raises(IntegrityError, match=f"row {ROWS + 1} of"):
            _ = ledger.cap


def test_p15_a_ledger_that_a_stranger_wrote_anew_is_noticed_beside_the_key(path, tmp_path):
    with Ledger(tmp_path / "cheap.sqlite") as cheap:
        cheap.charge(entry(1, noise_multiplier=1000.0))
    shutil.copy(tmp_path / "cheap.sqlite", path)
    with pytest.raises(IntegrityError, match=r"signed by .*\.key, another key signed it") as error:
        Ledger(path)
    assert_one_sentence(str(error.value))


def test_p15_an_altered_ledger_pays_for_nothing(path):
    with Ledger(path) as ledger:
        ledger.set_cap(cap_for(ROWS))
    for number in range(1, ROWS + 1):
        text = stored(path)[number][1].replace("2.0", "1000.0")
        put(path, "text", text, number)
    with Ledger(path) as ledger, pytest.raises(IntegrityError, match="row 1 of"):
        ledger.charge(entry(5))


def test_p15_rows_altered_while_the_ledger_is_open_buy_nothing(path):
    with Ledger(path) as ledger:
        ledger.set_cap(cap_for(ROWS + 1))
        for number in range(1, ROWS):
            put(path, "text", stored(path)[number][1].replace("2.0", "1000.0"), number)
        ledger.charge(entry(5))
        with pytest.raises(BudgetError):
            ledger.charge(entry(6))
    assert_noticed(path)


def test_p15_a_last_row_that_vanishes_while_the_ledger_is_open_is_noticed(path):
    with Ledger(path) as ledger:
        assert len(ledger) == ROWS
        behind_its_back(path, "DELETE FROM rows WHERE number = ?", ROWS)
        with pytest.raises(IntegrityError, match=f"row {ROWS} of .*restore"):
            ledger.charge(entry(5))


def test_p15_a_missing_end_is_noticed_by_the_note_beside_the_file(path):
    behind_its_back(path, "DELETE FROM rows WHERE number = ?", ROWS)
    assert_noticed(path)
    with Ledger(path) as ledger, pytest.raises(IntegrityError, match=r"\.head notes"):
        ledger.charge(entry(5))


def test_p15_another_row_in_place_of_the_last_is_noticed_even_with_the_key(path, tmp_path):
    # The key is stolen and the note is not: row 4 is rewritten and signed anew.
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key_of(path).read_text()))
    text = json.dumps({"charge": entry(4, noise_multiplier=1000.0).to_dict()})
    signature = signed_by(key, path, ROWS, text)
    put(path, "text", text, ROWS)
    put(path, "signature", signature, ROWS)
    assert_noticed(path)
    note_of(path).unlink()
    assert verified(path) == ROWS  # the limit: who has key and note writes any history


@pytest.mark.parametrize("position", range(86))
def test_p15_a_flip_of_any_byte_of_the_note_is_noticed(path, position):
    altered = bytearray(note_of(path).read_bytes())
    assert len(altered) == 86
    altered[position] ^= 1
    note_of(path).write_bytes(altered)
    with pytest.raises(IntegrityError, match=r"ledger\.sqlite\.head.*restore") as error:
        verified(path)
    assert_one_sentence(str(error.value))


def test_a_note_that_a_power_cut_took_is_made_again(path):
    note_of(path).write_bytes(b"")
    with Ledger(path) as ledger:
        ledger.charge(entry(5))
    assert note_of(path).read_bytes() == f"{5:020d} {digests(path)[-1].hex()}\n".encode()
    note_of(path).unlink()
    assert verified(path) == ROWS + 1


def test_p15_an_older_copy_is_noticed_by_who_noted_the_head(path):
    with Ledger(path) as ledger:
        earlier = ledger.head
        ledger.charge(entry(5))
        noted = ledger.head
        assert ledger.verify(head=earlier) == ledger.verify(head=noted) == ROWS + 1
    behind_its_back(path, "DELETE FROM rows WHERE number = 5")
    note_of(path).unlink()
    with Ledger(path) as ledger:
        assert ledger.verify(head=earlier) == ROWS
        with pytest.raises(IntegrityError, match=r"older copy.*restore") as error:
            ledger.verify(head=noted)
    assert_one_sentence(str(error.value))


def test_an_older_copy_of_all_files_shows_only_against_a_head_noted_elsewhere(path):
    # The limit that the ledger states: alone, files cannot prove that they are the newest.
    copy = path.with_name("backup.sqlite")
    for of in (lambda place: place, key_of, note_of):
        shutil.copy(of(path), of(copy))
    with Ledger(path) as ledger:
        ledger.charge(entry(5))
        noted, count = ledger.head, len(ledger)
    assert noted == digests(path)[-1]
    with Ledger(copy) as ledger:
        assert (ledger.verify(), count) == (ROWS, ROWS + 1)
        assert ledger.head != noted


def _file(path: Path) -> None:
    _copied_over(path)


def _log(path: Path) -> None:
    _copied_over(path.with_name(path.name + "-wal"))


def _index_of_the_log(path: Path) -> None:
    _copied_over(path.with_name(path.name + "-shm"))


def _all_files(path: Path) -> None:
    for one in filter(Path.is_file, list(path.parent.iterdir())):
        _copied_over(one)


def _folder(path: Path) -> None:
    aside = path.parent.with_name(path.parent.name + "-aside")
    path.parent.rename(aside)
    shutil.copytree(aside, path.parent, symlinks=True)


def _removed(path: Path) -> None:
    path.unlink()


def _copied_over(path: Path) -> None:
    """A current copy takes the place of a file, as `rsync` and most backups put it there."""
    copy = path.with_name(path.name + ".copy")
    shutil.copy2(path, copy)
    copy.replace(path)


@pytest.mark.parametrize("replace", [_file, _log, _index_of_the_log, _all_files, _folder, _removed])
@pytest.mark.parametrize("linked", [False, True])
def test_p15_no_row_goes_into_a_file_that_another_has_replaced(path, tmp_path, replace, linked):
    seen = path
    if linked:
        seen = tmp_path / "elsewhere" / "linked.sqlite"
        seen.parent.mkdir()
        seen.symlink_to(path)
        for one in (key_of, note_of):
            shutil.copy2(one(path), one(seen))
    with Ledger(seen) as ledger:
        ledger.charge(entry(ROWS + 1))
        replace(path)
        for _ in range(2):
            with pytest.raises(
                IntegrityError, match=r"another in its place|No such file"
            ) as raised:
                ledger.charge(entry(ROWS + 2))
            assert_one_sentence(str(raised.value))
        with pytest.raises(IntegrityError):
            ledger.check_writable()
        with pytest.raises(IntegrityError):
            ledger.close_study(OTHER)


def test_p15_no_row_goes_where_a_link_has_led(path, tmp_path):
    (tmp_path / "other").mkdir()
    seen, other = tmp_path / "other" / "seen.sqlite", tmp_path / "other" / "copy.sqlite"
    seen.symlink_to(path)
    for one in (key_of, note_of):
        shutil.copy2(one(path), one(seen))
    with Ledger(seen) as ledger:
        ledger.charge(entry(ROWS + 1))
        shutil.copy2(path, other)
        seen.unlink()
        seen.symlink_to(other)
        with pytest.raises(IntegrityError, match="another in its place"):
            ledger.charge(entry(ROWS + 2))


def test_p15_a_file_that_is_replaced_while_a_row_is_written_pays_for_nothing(path, monkeypatch):
    insert = Chain._insert

    def replaced(self: Chain, row: Row) -> None:
        insert(self, row)
        _file(path)

    monkeypatch.setattr(Chain, "_insert", replaced)
    with Ledger(path) as ledger, pytest.raises(IntegrityError, match="another in its place"):
        ledger.charge(entry(ROWS + 1))


def test_p15_a_row_that_is_not_read_back_as_it_was_written_pays_for_nothing(path, monkeypatch):
    """As where a trigger, or a database that others have opened, makes something else of it."""
    monkeypatch.setattr(Chain, "_insert", lambda *_: None)
    with Ledger(path) as ledger, pytest.raises(IntegrityError, match="to fit the chain"):
        ledger.charge(entry(ROWS + 1))
    monkeypatch.undo()
    assert verified(path) == ROWS


@pytest.mark.slow
def test_p15_readers_that_come_and_go_replace_nothing(path):
    with Ledger(path) as ledger:
        for number in range(ROWS + 1, ROWS + 3):
            ledger.charge(entry(number))
            assert verified(path) == number
            assert len(stored(path)) == number + 1
        subprocess.run([sys.executable, "-m", "hubbub", "ledger", "show", str(path)], check=True)
        ledger.charge(entry(ROWS + 3))


def test_p15_a_note_of_the_head_that_was_put_back_is_written_again(path):
    with Ledger(path) as ledger:
        _copied_over(note_of(path))
        ledger.charge(entry(ROWS + 1))
    assert note_of(path).read_text().startswith(f"{ROWS + 1:020d} ")


def test_p15_a_log_that_another_process_takes_away_as_this_one_opens_is_no_replacement(
    path, monkeypatch
):
    before, opens = Ledger(path), Chain._open
    before.charge(entry(ROWS + 1))

    def late(self: Chain) -> None:
        before.close()  # the last to leave takes its log along
        assert not path.with_name(path.name + "-wal").exists()
        opens(self)

    monkeypatch.setattr(Chain, "_open", late)
    with Ledger(path) as ledger:
        ledger.charge(entry(ROWS + 2))
    assert verified(path) == ROWS + 2


def test_p15_a_process_without_a_free_descriptor_charges_nothing(path, monkeypatch):
    """A row whose answer is refused costs all the same, at every try."""
    opens = os.open

    def none_is_left(name: object, *given: int) -> int:
        if name == note_of(path):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opens(name, *given)

    with Ledger(path) as ledger, monkeypatch.context() as patch:
        patch.setattr(os, "open", none_is_left)
        with pytest.raises(IntegrityError, match=r"expected to read .*, got: Too many open files"):
            ledger.verify()
    with Ledger(path) as ledger:
        ledger.charge(entry(ROWS + 1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", none_is_left)
            for _ in range(2):
                with pytest.raises(IntegrityError, match="Too many open files"):
                    ledger.charge(entry(ROWS + 2))
            assert charges(path) == ROWS + 1
        ledger.charge(entry(ROWS + 2))
    assert note_of(path).read_text().startswith(f"{ROWS + 2:020d} ")
