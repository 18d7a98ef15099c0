"""Identities, rosters and key files as texts: what was written is read back, nothing else is."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.core.errors import StudyError
from hubbub.core.protocol.primitives.identity import Identity, Keys, Roster
from hubbub.site.network import folder_files
from hubbub.site.network.folder_files import (
    fingerprint,
    identities,
    identity_toml,
    keys_of,
    keys_toml,
    roster_of,
    roster_toml,
)

ROLES = {"aggregator": "aggregator", "ann": "silo", "bob": "silo", "node-1": "node"}
KEYS = {name: Keys.generate(name, role) for name, role in ROLES.items()}
ROSTER = Roster.of(list(KEYS.values()))


def test_what_was_written_is_read_back() -> None:
    assert tuple(identities(roster_toml(ROSTER))) == ROSTER.parties
    for keys in KEYS.values():
        assert identities(identity_toml(keys.identity)) == [keys.identity]
        again = keys_of(keys_toml(keys))
        assert again.identity == keys.identity
        assert again.secret_parts() == keys.secret_parts()
        assert keys.identity.verifies(again.sign(b"x"), b"x")
        assert again.open(keys.identity.seal(b"x", b"y"), b"y") == b"x"


def test_a_roster_is_sorted_by_role_and_keeps_the_order_of_the_silos() -> None:
    shuffled = [KEYS[name].identity for name in ("node-1", "bob", "aggregator", "ann")]
    assert [one.name for one in roster_of(shuffled).parties] == [
        "aggregator",
        "bob",
        "ann",
        "node-1",
    ]


def mixed(**parts: bytes) -> str:
    """The key file of ann with other halves."""
    secret = KEYS["ann"].secret_parts() | parts
    told = {name: b64encode(part).decode() for name, part in secret.items()}
    told["digest"] = folder_files._digest(secret)
    text = keys_toml(KEYS["ann"])
    return text[: text.index("[private]")] + tomli_w.dumps({"private": told})


@pytest.mark.parametrize("part", ["signing", "lattice", "curve"])
def test_halves_of_different_parties_are_no_keys(part: str) -> None:
    assert keys_of(mixed()).identity == KEYS["ann"].identity
    theirs = KEYS["bob"].secret_parts()[part]
    with pytest.raises(StudyError, match="expected a file of private keys"):
        keys_of(mixed(**{part: theirs}))


@pytest.mark.parametrize("part", ["signing", "lattice", "curve"])
@pytest.mark.parametrize("size", [0, 1, 31, 33, 65])
def test_keys_of_another_length_are_no_keys(part: str, size: int) -> None:
    with pytest.raises(StudyError, match="expected a file of private keys"):
        keys_of(mixed(**{part: bytes(size)}))


def broken(text: str) -> dict[str, str]:
    first = next(line for line in text.splitlines() if line.startswith("verifying"))
    return {
        "empty": "",
        "not TOML": "{{",
        "cut": text[: len(text) // 2],
        "a number in the place of a key": text.replace(first, "verifying = 7"),
        "no base64": text.replace(first, 'verifying = "!!!!"'),
        "a key too short": text.replace(first, 'verifying = "AAAA"'),
        "without a key": text.replace(first, ""),
        "more": text.replace(first, first + '\nmore = "x"'),
        "an unknown role": re.sub(r'role = "\w+"', 'role = "boss"', text),
        "a name that is none": re.sub(r'name = "[\w-]+"', "name = 3", text),
        "a table in the place of a name": re.sub(r'name = "[\w-]+"', "name = {}", text),
    }


IDENTITY = broken(identity_toml(KEYS["ann"].identity))
PRIVATE = {name: text for name, text in broken(keys_toml(KEYS["ann"])).items() if name != "more"}


@pytest.mark.parametrize("text", IDENTITY.values(), ids=IDENTITY)
def test_a_broken_identity_is_told_in_one_sentence(text: str) -> None:
    with pytest.raises(StudyError, match="expected") as told:
        identities(text)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("text", PRIVATE.values(), ids=PRIVATE)
def test_a_broken_key_file_is_told_without_its_secrets(text: str) -> None:
    with pytest.raises(StudyError, match="expected") as told:
        keys_of(text)
    secrets = [b64encode(one).decode() for one in KEYS["ann"].secret_parts().values()]
    assert not any(one in str(told.value) for one in secrets)
    assert told.value.__context__ is None


@pytest.mark.parametrize("text", ["party = 3", "party = [3]", "party = []", "[party]\nname = 'x'"])
def test_texts_that_are_no_roster(text: str) -> None:
    if text == "party = []":
        assert identities(text) == []
        with pytest.raises(StudyError, match="one aggregator"):
            roster_of([])
        return
    with pytest.raises(StudyError, match="expected an identity or a roster"):
        identities(text)


def other(identity: Identity, **changes: Any) -> Identity:
    fields = ("name", "role", "verifying", "sealing")
    return Identity(**({name: getattr(identity, name) for name in fields} | changes))


ANN, BOB = KEYS["ann"].identity, KEYS["bob"].identity
REFUSED = {
    "a party twice": ([KEYS["aggregator"].identity, ANN, ANN], "every name"),
    "a name twice": ([KEYS["aggregator"].identity, ANN, other(BOB, name="ann")], "every name"),
    "a signing key twice": (
        [KEYS["aggregator"].identity, ANN, other(BOB, verifying=ANN.verifying)],
        "every key",
    ),
    "a sealing key twice": (
        [KEYS["aggregator"].identity, ANN, other(BOB, sealing=ANN.sealing)],
        "every key",
    ),
    "no aggregator": ([ANN, BOB], "one aggregator"),
    "two aggregators": (
        [KEYS["aggregator"].identity, other(ANN, role="aggregator"), BOB],
        "one aggregator",
    ),
}


@pytest.mark.parametrize(("parties", "says"), REFUSED.values(), ids=REFUSED)
def test_a_roster_with_somebody_twice_or_nobody_to_add_is_refused(
    parties: list[Identity], says: str
) -> None:
    with pytest.raises(StudyError, match=says):
        roster_of(parties)


def test_rosters_in_another_order_have_another_digest() -> None:
    swapped = roster_of([KEYS[name].identity for name in ("aggregator", "bob", "ann", "node-1")])
    assert swapped.digest != ROSTER.digest


def test_a_fingerprint_tells_keys_names_and_roles_apart() -> None:
    changed = [
        ANN,
        BOB,
        other(ANN, name="amy"),
        other(ANN, role="node"),
        other(ANN, verifying=BOB.verifying),
        other(ANN, sealing=BOB.sealing),
    ]
    found = [fingerprint(one) for one in changed]
    assert len(set(found)) == len(found)
    assert all(re.fullmatch(r"([0-9a-f]{4}-){5}[0-9a-f]{4}", one) for one in found)


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_no_flip_of_a_key_file_is_taken_for_other_keys(place: int, bit: int) -> None:
    """It is refused, or is the same keys; a flip of the name or role has no place in a roster."""
    text = bytearray(keys_toml(KEYS["ann"]).encode())
    text[place % len(text)] ^= 1 << bit
    try:
        found = keys_of(text.decode("utf-8", errors="replace"))
    except StudyError:
        return
    assert found.secret_parts() == KEYS["ann"].secret_parts()
    assert (found.identity.verifying, found.identity.sealing) == (ANN.verifying, ANN.sealing)
