"""What parties show each other before a study, as TOML: an identity, a roster; and private keys.

A roster is exchanged outside the system, and its digest is compared by people. The private half is
a file that only its owner reads. This file knows texts and keys, no folders.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import tomli_w

from hubbub.disk import toml_table
from hubbub.errors import StudyError
from hubbub.protocol import ROLES, Identity, Keys, Roster

_T = TypeVar("_T")
_PUBLIC = ("name", "role", "verifying", "sealing")


def roster_toml(roster: Roster) -> str:
    """The text of a roster; an identity is a roster's text with one party."""
    return tomli_w.dumps({"party": [_plain(party) for party in roster.parties]})


def identity_toml(identity: Identity) -> str:
    """The text of one party's public half."""
    return tomli_w.dumps({"party": [_plain(identity)]})


def identities(text: str) -> list[Identity]:
    """The parties in the text of an identity or a roster.

    Raises:
        StudyError: it is neither.
    """

    def read(table: Mapping[str, Any]) -> list[Identity]:
        return [_identity(one) for one in table["party"]]

    return _parsed(text, "an identity or a roster", read)


def roster_of(parties: Sequence[Identity]) -> Roster:
    """The roster of these parties: the aggregator, the silos and the nodes, each as they stand."""
    return Roster(parties=tuple(sorted(parties, key=lambda one: ROLES.index(one.role))))


def keys_toml(keys: Keys) -> str:
    """A party's private keys, with its public half."""
    parts = keys.secret_parts()
    secret = {name: b64encode(part).decode() for name, part in parts.items()}
    secret["digest"] = _digest(parts)  # some bits of a private key show in no public one
    return tomli_w.dumps({**_plain(keys.identity), "private": secret})


def keys_of(text: str) -> Keys:
    """The keys that `keys_toml` wrote.

    Raises:
        StudyError: they are not, or the halves do not belong together.
    """

    def read(table: Mapping[str, Any]) -> Keys:
        told = dict(table["private"])
        digest = told.pop("digest")
        parts = {name: b64decode(part, validate=True) for name, part in told.items()}
        if _digest(parts) != digest:
            raise ValueError
        keys = Keys.restored(table["name"], table["role"], **parts)
        if keys.identity != _identity({key: table[key] for key in _PUBLIC}):
            raise ValueError
        return keys

    return _parsed(text, "a file of private keys", read)


def _digest(parts: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256(b"hubbub private keys v1")
    for name, part in sorted(parts.items()):
        whole.update(name.encode() + len(part).to_bytes(4, "little") + part)
    return whole.hexdigest()


def fingerprint(identity: Identity) -> str:
    """A party's keys in a few letters that people can read out to each other."""
    digest = Roster.digest_of([identity]).hex()[:24]
    return "-".join(digest[start : start + 4] for start in range(0, 24, 4))


def _plain(party: Identity) -> dict[str, str]:
    return {
        "name": party.name,
        "role": party.role,
        "verifying": b64encode(party.verifying).decode(),
        "sealing": b64encode(party.sealing).decode(),
    }


def _identity(plain: Mapping[str, str]) -> Identity:
    if set(plain) != set(_PUBLIC) or not all(isinstance(one, str) for one in plain.values()):
        raise ValueError
    return Identity(
        name=plain["name"],
        role=plain["role"],
        verifying=b64decode(plain["verifying"], validate=True),
        sealing=b64decode(plain["sealing"], validate=True),
    )


def _parsed(text: str, what: str, read: Callable[[Mapping[str, Any]], _T]) -> _T:
    """What a reader finds in a text; its own errors might quote secrets, so they are not told."""
    try:
        return read(toml_table(text))
    except StudyError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        found = "something else"
    raise StudyError(f"expected {what} as hubbub writes it, found {found}; ask for it again")
