"""Identities and rosters: what is malformed is refused, and every field counts in the digest."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.planning.query import SiloData
from hubbub.core.protocol.agreement.key_agreement import PairSecret, Session
from hubbub.core.protocol.primitives import identity
from hubbub.core.protocol.primitives.identity import (
    Identity,
    Keys,
    Roster,
    identity_of,
    plain_identity,
)
from hubbub.core.protocol.round import additive_shares
from hubbub.core.protocol.token_lists.onion_layers import Peel, Wrap
from hubbub.core.protocol.token_lists.token_list import Owned
from hubbub.core.session.party import Membership
from hubbub.core.session.token_lists import OpenedList
from hubbub.core.study.parties import is_reserved
from hubbub.core.study.sealed_arrays import Seal
from protocol.parties import fixed_keys, sessions_of, world

W = world(nodes=1)
ONE = W.keys[1].identity


@pytest.mark.parametrize("role", ["", "server", "Silo"])
def test_an_unknown_role_is_refused(role: str) -> None:
    with pytest.raises(StudyError, match="expected the role of silo-1 to be one of aggregator"):
        dataclasses.replace(ONE, role=role)


@pytest.mark.parametrize(
    ("part", "says"), [("verifying", "got 31 and 1216"), ("sealing", "got 32 and 1215")]
)
def test_a_key_of_the_wrong_length_is_refused(part: str, says: str) -> None:
    with pytest.raises(StudyError, match=f"expected keys of 32 and 1216 bytes for silo-1, {says}"):
        dataclasses.replace(ONE, **{part: getattr(ONE, part)[1:]})


# Points of small order, by arithmetic on the curve of RFC 8032, section 5.1.4, apart from the
# package's formula: eight times a point of the curve times its large prime order.

FIELD = 2**255 - 19
PRIME = 2**252 + 27742317777372353535851937790883648493
CURVE = -121665 * pow(121666, -1, FIELD) % FIELD
Point = tuple[int, int]


def added(a: Point, b: Point) -> Point:
    product = CURVE * a[0] * b[0] * a[1] * b[1]
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + product, -1, FIELD)
    y = (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, -1, FIELD)
    return x % FIELD, y % FIELD


def times(number: int, point: Point) -> Point:
    total = (0, 1)
    for bit in f"{number:b}":
        total = added(total, total)
        if bit == "1":
            total = added(total, point)
    return total


def on_curve(y: int) -> Point | None:
    """A point with this y, if there is one."""
    square = (y * y - 1) * pow(CURVE * y * y + 1, -1, FIELD) % FIELD
    x = pow(square, (FIELD + 3) // 8, FIELD)
    if (x * x - square) % FIELD:
        x = x * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
    return None if (x * x - square) % FIELD else (x, y)


def torsion() -> set[Point]:
    """The eight points of small order, as multiples of one of order 8."""
    for y in range(2, 50):
        point = on_curve(y)
        root = times(PRIME, point) if point else (0, 1)
        if times(4, root) != (0, 1):
            return {times(number, root) for number in range(1, 9)}
    raise AssertionError("no point of order 8")


def encodings(point: Point) -> list[bytes]:
    """All 32 bytes that stand for y, with either sign: canonical or not."""
    spelled = range(point[1], 2**255, FIELD)
    return [(y | sign << 255).to_bytes(32, "little") for y in spelled for sign in (0, 1)]


SMALL = sorted({data for point in torsion() for data in encodings(point)})


def test_there_are_eight_points_of_small_order_and_fourteen_encodings_with_their_y() -> None:
    assert len(torsion()) == 8
    assert len(SMALL) == 14
    assert (1).to_bytes(32, "little") in SMALL
    assert bytes(32) in SMALL


@pytest.mark.parametrize("key", SMALL, ids=lambda key: key.hex()[:8] + key.hex()[-2:])
def test_a_verifying_key_of_small_order_is_refused(key: bytes) -> None:
    with pytest.raises(StudyError, match="verifying key of silo-1 that only its owner can sign"):
        dataclasses.replace(ONE, verifying=key)


def test_anybody_could_sign_for_a_key_of_small_order() -> None:
    """Why they are refused: this signature was made without any key."""
    nobody = (1).to_bytes(32, "little")
    signature = nobody + bytes(32)
    Ed25519PublicKey.from_public_bytes(nobody).verify(signature, b"whatever")


@pytest.mark.parametrize("near", [2, 3, FIELD - 2, FIELD + 2])
def test_keys_near_those_of_small_order_pass(near: int) -> None:
    dataclasses.replace(ONE, verifying=near.to_bytes(32, "little"))


def test_a_name_twice_in_the_roster_is_refused() -> None:
    again = fixed_keys("silo-1", "silo").identity
    with pytest.raises(StudyError, match="every name in the roster once"):
        Roster(parties=(*W.roster.parties[:5], again))


@pytest.mark.parametrize(
    "order", [(), (1, 2), (1, 0), (0, 5, 1), (0, 0)], ids=["none", "no", "late", "nodes", "two"]
)
def test_a_roster_in_another_order_is_refused(order: tuple[int, ...]) -> None:
    parties = [
        dataclasses.replace(W.roster.parties[index], name=f"party-{place}")
        for place, index in enumerate(order)
    ]
    with pytest.raises(StudyError, match="one aggregator, then the silos, then the compute"):
        Roster(parties=tuple(parties))


def test_a_roster_with_one_key_for_two_parties_is_refused() -> None:
    first, *others = W.roster.parties[1:]
    twin = dataclasses.replace(others[0], verifying=first.verifying)
    with pytest.raises(StudyError, match="every key in the roster once"):
        Roster(parties=(W.roster.parties[0], first, twin, *others[1:]))


@pytest.mark.parametrize("half", ["lattice", "curve", "curve in another spelling"])
def test_a_roster_with_half_a_sealing_key_for_two_parties_is_refused(half: str) -> None:
    """Whoever holds the other half of both reads, with it, what is sealed to the other one."""
    first, second, *others = W.roster.parties[1:]
    lattice, curve = (first if half == one else second for one in ("lattice", "curve"))
    sealing = lattice.sealing[:-32] + curve.sealing[-32:]
    if "spelling" in half:
        end = bytes([first.sealing[-1] ^ 0x80])  # X25519 does not look at the highest bit
        sealing = second.sealing[:-32] + first.sealing[-32:-1] + end
    twin = dataclasses.replace(second, sealing=sealing)
    with pytest.raises(StudyError, match="every half of one"):
        Roster(parties=(W.roster.parties[0], first, twin, *others))


RESERVED = [
    ("relay", "silo"),
    ("relay", "aggregator"),
    ("everybody", "node"),
    ("test", "silo"),
    ("aggregator", "silo"),
    ("aggregator", "node"),
    ("node-1", "silo"),
    ("node-x", "aggregator"),
]


@pytest.mark.parametrize(("name", "role"), RESERVED)
def test_a_name_that_means_somebody_else_is_no_partys(name: str, role: str) -> None:
    """A bit that flips on the way would be blamed on a silo that is called as the relay is."""
    with pytest.raises(StudyError, match="means nobody else"):
        Keys.generate(name, role)


@pytest.mark.parametrize(
    "name", ["", "Ann", "a b", "ann and bob", "..", "a/b", "é", "a" * 65, "a\n"]
)
def test_a_name_that_would_garble_a_sentence_or_a_path_is_no_partys(name: str) -> None:
    with pytest.raises(StudyError, match="letters a-z and digits"):
        Keys.generate(name, "silo")


def test_every_word_that_the_protocol_blames_besides_parties_is_reserved() -> None:
    source = Path(hubbub.__file__).parent
    text = "\n".join(path.read_text() for path in source.rglob("*.py"))
    blamed = set(re.findall(r'culprit="([^"{]+)"', text))
    assert "relay" in blamed
    assert [name for name in blamed if not is_reserved(name)] == []


OTHER = fixed_keys("other", "silo").identity
CHANGES: list[dict[str, Any]] = [
    {"name": "silo-one"},
    {"role": "node"},
    {"verifying": OTHER.verifying},
    {"sealing": OTHER.sealing},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_every_field_counts_in_the_digest(change: dict[str, Any]) -> None:
    parties = list(W.roster.parties[:2])
    parties[1] = dataclasses.replace(parties[1], **change)
    assert Roster(parties=tuple(parties)).digest != Roster(parties=W.roster.parties[:2]).digest


def test_the_order_of_the_silos_counts_in_the_digest() -> None:
    first, *rest = W.roster.parties
    swapped = Roster(parties=(first, rest[1], rest[0], *rest[2:]))
    assert swapped.digest != W.roster.digest


def test_what_is_sealed_opens_for_its_receiver_in_its_context_and_nowhere_else() -> None:
    sealed = ONE.seal(b"a secret", b"here")
    assert len(sealed) == len(b"a secret") + 1088 + 32 + 16  # ML-KEM-768's, X25519's, AES-GCM's
    assert W.keys[1].open(sealed, b"here") == b"a secret"
    for keys, context in ((W.keys[1], b"there"), (W.keys[2], b"here")):
        with pytest.raises(InvalidTag):
            keys.open(sealed, context)


def test_a_key_that_was_put_away_opens_again_and_is_small_meanwhile() -> None:
    sealed, keys = ONE.seal(b"a secret", b"here"), W.keys[1]
    for _ in range(2):
        assert keys.open(sealed, b"here") == b"a secret"
        keys.put_away()
        assert "_opening" not in vars(keys)


def test_nothing_is_sealed_alike_twice() -> None:
    assert ONE.seal(b"a secret", b"here") != ONE.seal(b"a secret", b"here")


def test_a_signature_of_another_party_or_content_does_not_verify() -> None:
    signature = W.keys[1].sign(b"content")
    assert ONE.verifies(signature, b"content")
    assert not ONE.verifies(signature, b"contents")
    assert not OTHER.verifies(signature, b"content")


def test_a_signature_made_here_is_not_verified_again_and_one_bit_off_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one process every party looks at the same frames; what is remembered is all three."""
    signature, content = W.keys[1].sign(b"remembered"), b"remembered"
    for bit in range(8 * len(signature)):
        changed = (int.from_bytes(signature, "little") ^ 1 << bit).to_bytes(64, "little")
        assert not ONE.verifies(changed, content)
    assert not ONE.verifies(signature, b"rememberee")
    assert not OTHER.verifies(signature, content)
    monkeypatch.setattr(identity, "Ed25519PublicKey", None)  # nothing is left to verify with
    assert ONE.verifies(signature, content)


def test_keys_under_another_partys_name_sign_for_nobody_but_themselves() -> None:
    """What is remembered of a signature goes by the key that made it, not by the name on it."""
    false = dataclasses.replace(W.keys[2], identity=ONE)
    signature = false.sign(b"content of another")
    assert not ONE.verifies(signature, b"content of another")
    assert W.keys[2].identity.verifies(signature, b"content of another")


def test_few_signatures_are_remembered_and_none_of_long_contents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(identity, "_MOST_KNOWN", 3)
    known = identity.TrueSignatures()
    for number in range(5):
        known.add(bytes(32), bytes(64), bytes([number]))
    known.add(bytes(32), bytes(64), bytes(513))
    assert known._known == {
        identity._hash_of(bytes(32), bytes(64), bytes([number])) for number in (3, 4)
    }


def test_a_remembered_signature_is_none_of_the_same_bytes_cut_elsewhere() -> None:
    signature = W.keys[1].sign(b"content")
    assert ONE.verifies(signature, b"content")
    assert not ONE.verifies(signature[:-1], signature[-1:] + b"content")
    assert not ONE.verifies(signature + b"c", b"ontent")


def test_fresh_keys_are_fresh_and_never_shown() -> None:
    one, two = Keys.generate("a", "silo"), Keys.generate("a", "silo")
    assert one.identity != two.identity
    assert repr(one) == "Keys(identity=Identity(name='a', role='silo'))"


def test_a_session_and_a_pair_show_no_secret() -> None:
    session = sessions_of(W)[1]
    for pair in session.secrets.values():
        for shown in (repr(session), repr(pair), str(pair)):
            assert pair._value.hex() not in shown
            assert repr(pair._value)[2:-1] not in shown


def test_the_index_of_nobody_has_a_name_for_messages() -> None:
    assert W.roster.name(99) == "party 99"
    assert isinstance(W.roster.parties[0], Identity)


# Transport keys --------------------------------------------------------------------------------


def networked(**changes: bytes) -> list[Identity]:
    """A roster whose parties have transport keys."""
    roles = {"aggregator": "aggregator", "ann": "silo", "bob": "silo"}
    keys = [Keys.generate(name, role).networked() for name, role in roles.items()]
    found = [one.identity for one in keys]
    return [*found[:2], dataclasses.replace(found[2], **changes)]


def test_a_transport_key_and_the_relay_count_in_the_digest() -> None:
    parties = networked()
    digest = Roster(parties=tuple(parties)).digest
    for changes in ({"transport": bytes([9]) * 32}, {"transport": b""}):
        other = dataclasses.replace(parties[2], **changes)
        assert Roster(parties=(*parties[:2], other)).digest != digest
    for told in ({"relay": "tls://hub:4222"}, {"relay_key": bytes(32)}):
        named = dataclasses.replace(parties[0], **told)
        assert Roster(parties=(named, *parties[1:])).digest != digest


def test_without_transport_keys_a_roster_is_what_it_always_was() -> None:
    whole = hashlib.sha256(b"hubbub roster v1")
    for party in W.roster.parties:
        for part in (party.name.encode(), party.role.encode(), party.verifying, party.sealing):
            whole.update(len(part).to_bytes(4, "little") + part)
    assert W.roster.digest == whole.digest()
    assert set(plain_identity(W.roster.parties[1])) == {"name", "role", "verifying", "sealing"}


def test_two_parties_with_one_transport_key_are_refused() -> None:
    parties = networked()
    twin = dataclasses.replace(parties[2], transport=parties[1].transport)
    with pytest.raises(StudyError, match="every transport key in the roster once"):
        Roster(parties=(*parties[:2], twin))


@pytest.mark.parametrize("whose", [1, 2])
def test_a_transport_key_that_signs_is_refused(whose: int) -> None:
    parties = networked()
    both = dataclasses.replace(parties[2], transport=parties[whose].verifying)
    with pytest.raises(StudyError, match="none that signs"):
        Roster(parties=(*parties[:2], both))


def test_a_transport_key_that_anybody_can_sign_for_is_refused() -> None:
    with pytest.raises(StudyError, match="transport key of bob that only its owner"):
        networked(transport=bytes(32))


def test_an_identity_in_plain_words_is_read_back() -> None:
    for party in (*networked(), *W.roster.parties):
        assert identity_of(plain_identity(party)) == party
    named = dataclasses.replace(networked()[0], relay="tls://hub:4222", relay_key=bytes(32))
    assert identity_of(plain_identity(named)) == named


def test_keys_with_a_transport_key_are_restored_and_never_shown() -> None:
    keys = Keys.generate("a", "silo").networked().naming("tls://hub:4222", bytes(32))
    again = Keys.restored("a", "silo", **keys.secret_parts()).naming("tls://hub:4222", bytes(32))
    assert again.identity == keys.identity
    assert keys.secret_parts()["transport"] != keys.secret_parts()["signing"]
    assert repr(keys) == "Keys(identity=Identity(name='a', role='silo'))"


@pytest.mark.parametrize(
    ("one", "secret"),
    [
        (Peel, "private"),
        (Wrap, "tokens"),
        (Owned, "positions"),
        (OpenedList, "keys"),
        (additive_shares._Held, "sealed"),
        (PairSecret, "_value"),
        (Session, "secrets"),
        (Keys, "_lattice"),
        (SiloData, "records"),
        (SiloData, "held_back"),
        (SiloData, "cells"),
        (SiloData, "vector"),
        (Seal, "key"),
        (Membership, "keys"),
        (Membership, "source"),
    ],
    ids=lambda it: it if isinstance(it, str) else it.__name__,
)
def test_what_a_silo_tells_nobody_is_in_no_repr(one: type, secret: str) -> None:
    assert {field.name: field.repr for field in dataclasses.fields(one)}[secret] is False
