"""What parties show each other before a study, as TOML: an identity, a roster; and private keys.

A roster is exchanged outside the system, and its digest is compared by people. The private half is
a file that only its owner reads, closed with a passphrase where the owner wants one. This file
knows no folders.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from hubbub.core.disk import json_value, read_text, toml_table, why_of, write_text
from hubbub.core.errors import HubbubError, IntegrityError, StudyError, UserError
from hubbub.core.protocol.agreement import masks
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
    """The roster in a file."""
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
    """The parties in the text of an identity or a roster."""

    def read(table: Mapping[str, Any]) -> list[Identity]:
        return [identity_of(one) for one in table["party"]]

    return _parsed(text, "an identity or a roster", read)


def roster_of(parties: Sequence[Identity]) -> Roster:
    """The roster of these parties: the aggregator, the silos and the nodes, each as they stand."""
    return Roster(parties=tuple(sorted(parties, key=lambda one: ROLES.index(one.role))))


def check_roster(study: Study, roster: Roster) -> None:
    """A study is of exactly one roster, and of the parties in it."""
    if study.parties.roster != roster.digest.hex():
        found = study.parties.roster[:16] or "nothing"
        raise StudyError(
            f'expected parties.roster = "{roster.digest.hex()}", the digest of the roster, got '
            f"{found}; write it into the study, or name the roster that the study is of "
            "(hubbub approve --roster, with --new-roster where it is newer)"
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
    """The keys that `keys_toml` wrote, with their passphrase where they are closed with one.

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

    return _parsed(text, "a file of private keys", read, _KEYS_LOST)


def identity_beside(text: str) -> Identity:
    """The public half in a file of private keys, which nobody need open for it."""

    def read(table: Mapping[str, Any]) -> Identity:
        return identity_of({name: value for name, value in table.items() if name != "private"})

    return _parsed(text, "a file of private keys", read, _KEYS_LOST)


def _closed(secret: Mapping[str, str], passphrase: str) -> dict[str, str]:
    """Private keys that nobody reads without the passphrase."""
    salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
    key = Scrypt(salt=salt, **_SCRYPT).derive(passphrase.encode())
    sealed = AESGCM(key).encrypt(nonce, json.dumps(secret).encode(), b"hubbub private keys v1")
    return {"sealed": b64encode(salt + nonce + sealed).decode()}


def _opened(private: Mapping[str, str], unlock: Unlock | None) -> dict[str, str]:
    """What `_closed` closed."""
    closed = b64decode(private["sealed"], validate=True)
    salt, nonce, sealed = closed[:_SALT], closed[_SALT:][:_NONCE], closed[_SALT + _NONCE :]
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
    digest = hashlib.sha256(b"hubbub private keys v1")
    for name, part in sorted(parts.items()):
        digest.update(name.encode() + len(part).to_bytes(4, "little") + part)
    return digest.hexdigest()


def fingerprint(identity: Identity) -> str:
    """A party's keys in a few letters that people can read out to each other."""
    digest = Roster.digest_of([identity]).hex()[:24]
    return "-".join(digest[start : start + 4] for start in range(0, 24, 4))


_KEYS_LOST = "restore keys.toml from a backup, or make new keys with hubbub keygen"


def _parsed(
    text: str,
    what: str,
    read: Callable[[Mapping[str, Any]], _T],
    remedy: str = "ask for it again",
) -> _T:
    """What a reader finds in a text; its own errors might quote secrets, so they are not told."""
    try:
        return read(toml_table(text))
    except (StudyError, UserError):
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        found = "something else"
    raise StudyError(f"expected {what} as hubbub writes it, found {found}; {remedy}")


# The files that stand for one approved study in a party's folder: the study as it was approved in
# ID.toml, the hashes of its code as it was then in ID.code, and in ID.read where a silo's records
# were read. The study is written last, so that a crash leaves no approval without the rest. ID.over
# is there once a party that keeps nothing of the study was told that it is over.

APPROVED = "approved"


@dataclass(frozen=True)
class ApprovalFiles:
    """They may be there or not."""

    home: Path
    study: bytes

    @property
    def path(self) -> Path:
        """The study's own file."""
        return self.home / APPROVED / f"{self.study.hex()}.toml"

    @property
    def is_there(self) -> bool:
        """Whether the study was approved, whatever became of the file since."""
        return self.path.is_file()

    @property
    def is_read(self) -> bool:
        """Whether the records for it were read, where they are read once."""
        return self._read.is_file()

    @property
    def hashes(self) -> Mapping[str, object]:
        """What was approved of code; nothing if no file says it."""
        try:
            hashes = json_value(text_of(self._code))
        except (UserError, ValueError):
            return {}
        return hashes if isinstance(hashes, Mapping) else {}

    @property
    def read_in(self) -> list[Path]:
        """The folders in which something was read."""
        return [Path(line) for line in text_of(self._read).splitlines()] if self.is_read else []

    def note_read(self, folder: Path) -> None:
        """Keep in which folders something was read, for a withdrawal to sweep all of them."""
        self.path.parent.mkdir(exist_ok=True, mode=0o700)
        write_text(self._read, "\n".join(dict.fromkeys(map(str, [*self.read_in, folder]))))

    @property
    def is_over(self) -> bool:
        """Whether the study is noted to be over."""
        return self._over.is_file()

    def note_end(self) -> None:
        """The study is over."""
        write_text(self._over, "")

    def write(self, study: Study, hashes: Mapping[str, str]) -> None:
        """The study is approved from now on."""
        self.path.parent.mkdir(exist_ok=True, mode=0o700)
        write_text(self._code, json.dumps(hashes))
        write_text(self.path, study.as_toml())

    def remove(self) -> None:
        """The study is approved no more, from the first file on."""
        for path in (self.path, self._code, self._read, self._over):
            path.unlink(missing_ok=True)

    @property
    def _code(self) -> Path:
        return self.path.with_suffix(".code")

    @property
    def _read(self) -> Path:
        return self.path.with_suffix(".read")

    @property
    def _over(self) -> Path:
        return self.path.with_suffix(".over")


# What no restart may forget, in files to which lines are added: the sessions that were opened; the
# mask graphs that were drawn of each study, when it was approved, and used in an answer; the digest
# of the one RESULT that was shown of it; and at an aggregator, the most attempts, by purpose, that
# each silo has said to have paid for.

SESSIONS, GRAPHS, PAID, RESULTS = "sessions", "graphs", "paid", "results"
MOST_GRAPHS = masks.MOST_GRAPHS  # of a study; the plan pays for all of them (P4)
MOST_FRUITLESS = 16  # graphs beyond twice those that served an answer, for each approval
_APPROVAL, _ANSWER = ":approved", ":answered"  # what a line of `graphs` ends with


class FruitlessError(HubbubError):
    """As many mask graphs of a study were drawn in vain as may be; people should look."""


@dataclass(frozen=True)
class SessionNotes:
    """The notes in a party's folder; IntegrityError where the disk does not take one."""

    home: Path

    def open_session(self, session: bytes) -> bool:
        """Note a session on disk, before anything is said in it; False if it was opened before.

        A party that was restarted remembers no key of an old session. What it would say there now
        would stand beside what it has said, and two true signatures for one place blame it.
        """
        return self._note(SESSIONS, session.hex().encode(), lambda _: 1)

    def take_result(self, study: bytes, digest: bytes) -> bool:
        """Note on disk which RESULT of a study is about to be believed; False if another was."""
        if self.result(study) is None:
            self._note(RESULTS, f"{study.hex()}:{digest.hex()}".encode(), lambda _: 1)
        return self.result(study) == digest

    def result(self, study: bytes) -> bytes | None:
        """The digest of the RESULT of a study that was shown first; None if none was."""
        with suppress(FileNotFoundError):
            for line in (self.home / RESULTS).read_bytes().split():
                if signed := re.fullmatch(rb"%s:([0-9a-f]{64})" % study.hex().encode(), line):
                    return bytes.fromhex(signed[1].decode())
        return None

    def draw_graph(self, study: bytes) -> bool:
        """Note on disk that a mask graph is about to be drawn; False if there were too many.

        Whoever sets sessions up again and again sees a new graph each time, and may wait for one
        that comes apart.

        Raises:
            FruitlessError: too many of them came to nothing.
        """

        def most(lines: Counter[bytes]) -> int:
            approved, used = (lines[_mark(study, word)] for word in (_APPROVAL, _ANSWER))
            if lines[_mark(study)] >= MOST_FRUITLESS * max(1, approved) + 2 * used:
                raise FruitlessError(
                    f"expected at most {MOST_FRUITLESS} mask graphs more than were used, got one "
                    "more; find out who does not do their part, then approve the study again"
                )
            return MOST_GRAPHS

        return self._note(GRAPHS, _mark(study), most)

    def use_graph(self, study: bytes) -> None:
        """Note that an attempt was answered with a graph; what is not noted counts as not used."""
        with suppress(IntegrityError):
            self._note(GRAPHS, _mark(study, _ANSWER), lambda _: MOST_GRAPHS)

    def approve_graphs(self, study: bytes) -> None:
        """Note that the party's people have approved a study: it may draw in vain anew."""
        self._note(GRAPHS, _mark(study, _APPROVAL), lambda _: MOST_GRAPHS)

    def most_paid(self, study: bytes, purpose: str, said: Mapping[int, int]) -> dict[int, int]:
        """The most attempts that each silo has ever said to have paid for, these among them.

        Silos that have paid may be away when a run is gone on with.
        """
        start, most = f"{study.hex()}:{purpose}:".encode(), Counter[int]()
        with suppress(FileNotFoundError):
            for line in (self.home / PAID).read_bytes().split():
                if paid := re.fullmatch(re.escape(start) + rb"(\d+):(\d+)", line):
                    silo, attempts = map(int, paid.groups())
                    most[silo] = max(most[silo], attempts)
        for silo, attempts in said.items():
            if attempts > most[silo]:
                most[silo] = attempts
                self._note(PAID, start + f"{silo}:{attempts}".encode(), lambda _: 1)
        return most

    def _note(self, name: str, line: bytes, most: Callable[[Counter[bytes]], int]) -> bool:
        """Add a line to a file and have it on disk, unless it is there so many times already.

        The file is locked meanwhile: nobody keeps a party's people, or who hands in jobs, from
        starting it twice.
        """
        try:
            with (self.home / name).open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                lines = Counter(file.read().split())
                if lines[line] >= most(lines):
                    return False
                file.write(b"\n%s\n" % line)  # past whatever a crash has torn
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise IntegrityError(
                f"expected to write a line to {self.home / name}, the disk says: "
                f"{why_of(error)}; make room, or check who may write there"
            ) from None
        return True


def _mark(study: bytes, word: str = "") -> bytes:
    """A line of `graphs`."""
    return f"{study.hex()}{word}".encode()
