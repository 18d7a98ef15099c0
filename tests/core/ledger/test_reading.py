"""What is stored comes back, hangs together, and shows no secret."""

from __future__ import annotations

import gc
import json
import warnings
from hashlib import sha256

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from hubbub.core.errors import HubbubError, IntegrityError
from hubbub.core.ledger.hash_chain import digest_of
from hubbub.core.ledger.privacy_ledger import Entry, Ledger, LedgerMechanism
from ledger.book import (
    DELTA,
    RELATION,
    ROWS,
    STUDY,
    cap_for,
    digests,
    entry,
    key_of,
    put,
    stored,
    verified,
)


def test_entries_come_back_in_order_and_the_chain_fits(path):
    with Ledger(path) as ledger:
        assert len(ledger) == ledger.verify() == ROWS
        assert list(ledger.entries()) == [entry(number) for number in range(1, ROWS + 1)]


def test_every_field_of_an_entry_comes_back_to_the_last_bit(tmp_path):
    odd = Entry(
        study=bytes(range(32)),
        session=bytes(range(200, 216)),
        round=2**63 - 1,
        attempt=2**53 + 1,
        kind=LedgerMechanism(
            noise_multiplier=1 / 3,
            sample_rate=0.1 + 0.2,
            sampling="poisson",
            records=3,
            known_records=1,
            projection="sign",
            dimension=7,
            factor=1 + 1e-9,
            slack=1 / 3e9,
        ),
    )
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.charge(odd)
        assert list(ledger.entries()) == [odd]


def test_a_row_can_be_read_with_no_more_than_sqlite_and_json(path):
    number, text, _ = stored(path)[3]
    charge = json.loads(text)["charge"]
    assert (number, charge["round"], charge["study"]) == (3, 3, STUDY.hex())


def test_every_row_is_signed_over_a_digest_that_no_other_row_has(path):
    rows, sums = stored(path), digests(path)
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(rows[0][1].split()[-1]))
    assert len(set(sums)) == len(rows) == ROWS + 1
    for row, digest in zip(rows, sums, strict=True):
        key.verify(row[2], digest)
        with pytest.raises(InvalidSignature):
            key.verify(row[2], bytes(32))


def test_a_rows_digest_is_what_ledgers_on_disk_have():
    before = sha256(b"hubbub").digest()
    digest = sha256(before + bytes(7) + b"\x07" + '{"µ": 1}'.encode()).digest()
    assert digest_of(7, '{"µ": 1}', before) == digest


@pytest.mark.parametrize("kind", ["refund", "charges"])
def test_a_row_of_a_kind_that_is_not_known_is_an_error_and_no_charge(path, kind):
    with Ledger(path) as ledger, ledger._chain.writing():
        text = json.dumps({kind: entry(9).to_dict()})
        ledger._chain.append(text, ledger._catch_up())
    with (
        Ledger(path) as ledger,
        pytest.raises(IntegrityError, match="version of hubbub that wrote"),
    ):
        ledger.charge(entry(9))


def test_the_head_depends_on_every_row_before_it(path):
    with Ledger(path) as ledger:
        heads = [ledger.head]
        ledger.charge(entry(9))
        heads.append(ledger.head)
        ledger.set_cap(cap_for(9))
        heads.append(ledger.head)
    assert heads == digests(path)[ROWS:]
    assert len(set(heads)) == 3


def test_two_ledgers_with_the_same_entries_have_different_heads(path, tmp_path):
    with Ledger(tmp_path / "twin.sqlite") as twin, Ledger(path) as ledger:
        for number in range(1, ROWS + 1):
            twin.charge(entry(number))
        assert list(twin.entries()) == list(ledger.entries())
        assert twin.head != ledger.head


def test_an_empty_ledger_has_spent_nothing(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.epsilon(delta=DELTA, relation=RELATION) == 0
        assert (len(ledger), ledger.verify(), list(ledger.entries())) == (0, 0, [])
        assert ledger.cap is None


def test_what_another_process_wrote_is_seen_at_the_next_look(path):
    with Ledger(path) as ledger, Ledger(path) as other:
        assert len(ledger) == ROWS
        other.charge(entry(5))
        other.set_cap(cap_for(9))
        assert (len(ledger), ledger.cap) == (ROWS + 1, cap_for(9))
        ledger.charge(entry(6))
        assert other.verify() == ledger.verify() == ROWS + 2


def test_a_charge_reads_only_what_is_new(path):
    # Signatures of rows that were seen before are not looked at again; `verify` looks at all.
    with Ledger(path) as ledger:
        assert len(ledger) == ROWS
        put(path, "signature", bytes(64), 1)
        ledger.charge(entry(5))
        with pytest.raises(HubbubError, match="row 1 of"):
            ledger.verify()


@pytest.mark.parametrize(("column", "value"), [("signature", bytes(64)), ("text", "{}")])
def test_the_last_row_that_was_seen_is_looked_at_again(path, column, value):
    with Ledger(path) as ledger:
        assert len(ledger) == ROWS
        put(path, column, value, ROWS)
        with pytest.raises(HubbubError, match=f"row {ROWS} of"):
            len(ledger)


def test_a_ledger_is_closed_by_its_block_and_by_a_refusal_to_open(path, tmp_path):
    (tmp_path / "noise").write_bytes(b"no database" * 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with Ledger(path) as ledger:
            pass
        with pytest.raises(HubbubError):
            len(ledger)
        with pytest.raises(HubbubError):
            Ledger(tmp_path / "noise")
        gc.collect()


def test_only_the_owner_reads_the_key_and_it_is_in_nothing_that_is_printed(path):
    secret = key_of(path).read_text()
    assert key_of(path).stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(secret)) == 32
    whole = path.read_bytes()
    assert bytes.fromhex(secret) not in whole
    assert secret.encode() not in whole
    with Ledger(path) as ledger:
        shown = f"{ledger!r} {vars(ledger)!r} {vars(ledger._chain)!r} {list(ledger.entries())!r}"
    assert secret not in shown
    assert verified(path) == ROWS
