"""What parties show each other before a study, as TOML: an identity, a roster; and private keys.

A roster is exchanged outside the system, and its digest is compared by people. The private half is
a file that only its owner reads, closed with a passphrase where the owner wants one. This file
knows no folders.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from hubbub.core.disk import read_text, toml_table, why_of, write_text
from hubbub.core.errors import StudyError, UserError
from hubbub.core.protocol.primitives.identity import (
    ROLES,
    Identity,
    Keys,
    Roster,
    identity_of,
    plain_identity,
)
from hubbub.core.study.study import Study

_T = TypeVar("_T")
_SALT, _NONCE = 16, 12  # bytes
_SCRYPT = {"length": 32, "n": 1 << 17, "r": 8, "p": 1}  # as OWASP advises: 128 MB, half a second

# Asks for a passphrase; only called where there is one.
Unlock = Callable[[], str]


def write_roster(path: Path, roster: Roster) -> None:
    """Write a roster's file, all at once."""
    write_text(path, roster_toml(roster))


def read_roster(path: Path) -> Roster:
    """The roster in a file.

    Raises:
        UserError: it cannot be read.
        StudyError: it is no roster.
    """
    return roster_in(text_of(path))


def roster_in(text: str) -> Roster:
    """The roster in a text; StudyError if it is none."""
    return Roster(parties=tuple(identities(text)))


def read_identity(path: Path) -> Identity:
    """The one identity in a file."""
    listed = identities(text_of(path))
    if len(listed) != 1:
        raise StudyError(f"expected one identity in {path}, found {len(listed)}; ask for it again")
    return listed[0]


def text_of(path: Path) -> str:
    """A small text file."""
    try:
        return read_text(path)
    except OSError as error:
        raise UserError(
            f"expected a readable file, got {path}: {why_of(error)}; check the path"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"expected a text file, got {path}; check the path") from None


def roster_toml(roster: Roster) -> str:
    """The text of a roster; an identity is a roster's text with one party."""
    return tomli_w.dumps({"party": [plain_identity(party) for party in roster.parties]})


def identity_toml(identity: Identity) -> str:
    """The text of one party's public half."""
    return tomli_w.dumps({"party": [plain_identity(identity)]})


def identities(text: str) -> list[Identity]:
    """The parties in the text of an identity or a roster.

    Raises:
        StudyError: it is neither.
    """

    def read(table: Mapping[str, Any]) -> list[Identity]:
        return [identity_of(one) for one in table["party"]]

    return _parsed(text, "an identity or a roster", read)


def roster_of(parties: Sequence[Identity]) -> Roster:
    """The roster of these parties: the aggregator, the silos and the nodes, each as they stand."""
    return Roster(parties=tuple(sorted(parties, key=lambda one: ROLES.index(one.role))))


def check_roster(study: Study, roster: Roster) -> None:
    """A study is of exactly one roster, and of the parties in it.

    Raises:
        StudyError: it names another, or other parties.
    """
    if study.parties.roster != roster.digest.hex():
        found = study.parties.roster[:16] or "nothing"
        raise StudyError(
            f'expected parties.roster = "{roster.digest.hex()}", the digest of the roster, got '
            f"{found}; write it into the study, so that nobody's key can be exchanged"
        )
    silos = tuple(roster.name(index) for index in roster.silos)
    if silos != study.parties.names:
        raise StudyError(
            f"expected the roster to list the silos {', '.join(study.parties.names)}, in this "
            f"order, got {', '.join(silos) or 'none'}; sort one of the two"
        )
    if len(roster.nodes) != study.parties.compute_nodes:
        raise StudyError(
            f"expected {study.parties.compute_nodes} compute nodes in the roster, got "
            f"{len(roster.nodes)}; fix parties.compute_nodes or the roster"
        )


def keys_toml(keys: Keys, passphrase: str = "") -> str:
    """A party's private keys, with its public half; closed with a passphrase if there is one."""
    parts = keys.secret_parts()
    secret = {name: b64encode(part).decode() for name, part in parts.items()}
    secret["digest"] = _digest(parts)  # some bits of a private key show in no public one
    if passphrase:
        secret = _closed(secret, passphrase)
    return tomli_w.dumps({**plain_identity(keys.identity), "private": secret})


def keys_of(text: str, unlock: Unlock | None = None) -> Keys:
    """The keys that `keys_toml` wrote.

    Args:
        text: of the file.
        unlock: asks for the passphrase, where they are closed with one.

    Raises:
        StudyError: they are not, or the halves do not belong together.
        UserError: they are closed, and the passphrase is missing or another.
    """

    def read(table: Mapping[str, Any]) -> Keys:
        public = dict(table)
        private = dict(public.pop("private"))
        if "sealed" in private:
            private = _opened(private, unlock)
        digest = private.pop("digest")
        parts = {name: b64decode(part, validate=True) for name, part in private.items()}
        if _digest(parts) != digest:
            raise ValueError
        keys, identity = Keys.restored(table["name"], table["role"], **parts), identity_of(public)
        keys = keys.naming(identity.relay, identity.relay_key)
        if keys.identity != identity:
            raise ValueError
        return keys

    return _parsed(text, "a file of private keys", read)


def identity_beside(text: str) -> Identity:
    """The public half in a file of private keys, which nobody need open for it.

    Raises:
        StudyError: it is no such file.
    """

    def read(table: Mapping[str, Any]) -> Identity:
        return identity_of({name: value for name, value in table.items() if name != "private"})

    return _parsed(text, "a file of private keys", read)


def _closed(secret: Mapping[str, str], passphrase: str) -> dict[str, str]:
    """Private keys that nobody reads without the passphrase."""
    salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
    key = Scrypt(salt=salt, **_SCRYPT).derive(passphrase.encode())
    sealed = AESGCM(key).encrypt(nonce, json.dumps(secret).encode(), b"hubbub private keys v1")
    return {"sealed": b64encode(salt + nonce + sealed).decode()}


def _opened(private: Mapping[str, str], unlock: Unlock | None) -> dict[str, str]:
    """What `_closed` closed."""
    whole = b64decode(private["sealed"], validate=True)
    salt, nonce, sealed = whole[:_SALT], whole[_SALT:][:_NONCE], whole[_SALT + _NONCE :]
    if unlock is None:
        raise UserError(
            "expected the passphrase of this party's keys, got none; name --passphrase-fd, or run "
            "it where somebody can be asked"
        )
    key = Scrypt(salt=salt, **_SCRYPT).derive(unlock().encode())
    try:
        opened = AESGCM(key).decrypt(nonce, sealed, b"hubbub private keys v1")
    except InvalidTag:
        raise UserError("expected the passphrase of these keys, got another; try again") from None
    return dict(json.loads(opened))


def _digest(parts: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256(b"hubbub private keys v1")
    for name, part in sorted(parts.items()):
        whole.update(name.encode() + len(part).to_bytes(4, "little") + part)
    return whole.hexdigest()


def fingerprint(identity: Identity) -> str:
    """A party's keys in a few letters that people can read out to each other."""
    digest = Roster.digest_of([identity]).hex()[:24]
    return "-".join(digest[start : start + 4] for start in range(0, 24, 4))


def _parsed(text: str, what: str, read: Callable[[Mapping[str, Any]], _T]) -> _T:
    """What a reader finds in a text; its own errors might quote secrets, so they are not told."""
    try:
        return read(toml_table(text))
    except (StudyError, UserError):
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        found = "something else"
    raise StudyError(f"expected {what} as hubbub writes it, found {found}; ask for it again")
