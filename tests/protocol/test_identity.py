"""Identities and rosters: what is malformed is refused, and every field counts in the digest."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag

from hubbub.errors import StudyError
from hubbub.identity import SEAL_OVERHEAD, Identity, Keys, Roster
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
    assert len(sealed) == len(b"a secret") + SEAL_OVERHEAD
    assert W.keys[1].open(sealed, b"here") == b"a secret"
    for keys, context in ((W.keys[1], b"there"), (W.keys[2], b"here")):
        with pytest.raises(InvalidTag):
            keys.open(sealed, context)


def test_nothing_is_sealed_alike_twice() -> None:
    assert ONE.seal(b"a secret", b"here") != ONE.seal(b"a secret", b"here")


def test_a_signature_of_another_party_or_content_does_not_verify() -> None:
    signature = W.keys[1].sign(b"content")
    assert ONE.verifies(signature, b"content")
    assert not ONE.verifies(signature, b"contents")
    assert not OTHER.verifies(signature, b"content")


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
