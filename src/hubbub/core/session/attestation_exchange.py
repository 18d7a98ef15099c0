"""Evidence in a set-up: fresh nonces of its silos, evidence bound to them, and everybody's check.

    OPEN       ->  a silo's nonce
    ATTEST     ROLL, all nonces    ->  the evidence of a party whose role the study asks for it
    EVIDENCE   all evidence  ->  nothing: it holds, and the set-up may go on

Evidence is bound by its report data to the study, the session, the party, both of its keys and all
nonces: none made before the nonces were known, by another machine or for other keys, passes. Frames
are signed by the party, so a relay cannot exchange them. All verify at one time, which the
aggregator's offer states and everybody compares with its own clock; so whoever keeps the frames can
verify them again, with the same result. How evidence is made and verified is behind `Attests`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from hubbub.core.errors import AttestationError, ProtocolError
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Channel, ExpectedFrames, Tag, digest_by_party
from hubbub.core.session.offer import RefusedError

NONCE_BYTES = 32
MOST_APART = 600  # seconds between the clocks of two parties
_MOST_EVIDENCE = 1 << 18  # bytes


class Attests(Protocol):
    """Evidence as a study asks for it."""

    @property
    def policy(self) -> bytes:
        """SHA-256 of what the study asks for."""

    def asks(self, role: str) -> bool:
        """Whether parties with a role must show evidence."""

    def now(self) -> int:
        """This machine's clock, seconds since 1970."""

    def make(self, role: str, report_data: bytes, at: int) -> bytes:
        """This machine's evidence over 64 bytes."""

    def check(self, role: str, evidence: bytes, report_data: bytes, at: int) -> tuple[bytes, bytes]:
        """Refuse what is not enough by an AttestationError; SHA-256 of quote and collateral."""


class AttestedHashes(NamedTuple):
    """What a ledger keeps of the evidence in a session: SHA-256 over all parties' parts."""

    quotes: bytes
    collateral: bytes
    policy: bytes


@dataclass(frozen=True, kw_only=True)
class AttestedSession(Channel):
    """What all know of a session in which evidence is shown.

    Args:
        roster, study, session: see `Channel`; evidence is bound to them.
        attests: see `Attests`.
        at: the time of verification, seconds since 1970.
    """

    attests: Attests = field(repr=False)
    at: int

    def attested(self, silos: Set[int]) -> list[int]:
        """Roster indices of those who must show evidence in a session of these silos."""
        roles = enumerate(self.roster.parties)
        absent = {*self.roster.silos} - silos
        return [i for i, party in roles if i not in absent and self.attests.asks(party.role)]

    def nonces_of(self, frames: Sequence[bytes], silos: Set[int]) -> dict[int, bytes]:
        """The nonces of these silos; ProtocolError unless there is exactly one of each."""
        return self._payloads(frames, Tag.NONCE, silos, NONCE_BYTES, NONCE_BYTES)

    def evidence_of(self, keys: Keys, index: int, nonces: bytes) -> list[bytes]:
        """A party's evidence, or nothing where the study asks for none."""
        role = self.roster.parties[index].role
        if not self.attests.asks(role):
            return []
        bound = self.report_data(index, nonces)
        evidence = self.attests.make(role, bound, self.at)
        return [self.frame(Tag.EVIDENCE, index, evidence).sealed(keys)]

    def report_data(self, index: int, nonces: bytes) -> bytes:
        """What the evidence of a party must be bound to: 64 bytes.

        Args:
            nonces: the digest of all nonces, see `digest_of`.
        """
        party = self.roster.parties[index]
        name = f"{index}:{party.role}:{party.name}".encode()
        parts = [self.study, self.session, name, party.verifying, party.sealing, nonces]
        whole = hashlib.sha512(b"hubbub report data v1")
        # With lengths, so that two parties never have the same report data.
        for part in parts:
            whole.update(len(part).to_bytes(4, "little") + part)
        return whole.digest()

    def checked(self, frames: Sequence[bytes], nonces: bytes, silos: Set[int]) -> AttestedHashes:
        """The hashes of all evidence in a session of these silos, all of which is enough.

        Raises:
            RefusedError: naming the party and the rule.
            ProtocolError: there is not one of each who must show some.
        """
        shown = self._payloads(frames, Tag.EVIDENCE, self.attested(silos), 1, _MOST_EVIDENCE)
        evidence = [self._checked(index, shown[index], nonces) for index in sorted(shown)]
        quotes, collateral = zip(*evidence, strict=True)
        return AttestedHashes(
            quotes=hashlib.sha256(b"hubbub quotes v1" + b"".join(quotes)).digest(),
            collateral=hashlib.sha256(b"hubbub collateral v1" + b"".join(collateral)).digest(),
            policy=self.attests.policy,
        )

    def context(self, frames: Sequence[bytes], nonces: bytes, silos: Set[int]) -> bytes:
        """What all must have seen alike; raises as `checked`."""
        return _context(nonces, self.checked(frames, nonces, silos))

    def _checked(self, index: int, evidence: bytes, nonces: bytes) -> tuple[bytes, bytes]:
        party = self.roster.parties[index]
        try:
            bound = self.report_data(index, nonces)
            return self.attests.check(party.role, evidence, bound, self.at)
        except AttestationError as error:
            raise RefusedError(
                f"evidence-{error.rule}",
                f"{party.name}: evidence fails the rule “{error.rule}”: {error}",
                party.name,
            ) from None

    def _payloads(
        self, frames: Sequence[bytes], tag: Tag, senders: Collection[int], least: int, most: int
    ) -> dict[int, bytes]:
        """Payloads by sender, exactly one of everybody who is expected."""
        awaited = ExpectedFrames(self, tag, senders)
        payloads = dict[int, bytes]()
        for frame in map(awaited.take, frames):
            if not least <= len(frame.payload) <= most:
                raise ProtocolError(
                    f"expected a {tag.name} of {least} to {most} bytes, got {len(frame.payload)}",
                    culprit=self.roster.name(frame.sender),
                )
            payloads[frame.sender] = bytes(frame.payload)
        if awaited.missing is not None:  # who has taken it away, nobody can say
            name = self.roster.name(awaited.missing)
            raise ProtocolError(f"expected a {tag.name} of {name}, got none", culprit="relay")
        return payloads


def digest_of(nonces: dict[int, bytes]) -> bytes:
    """SHA-256 over the silos' nonces in the order of the roster."""
    return digest_by_party(b"hubbub nonces v1", nonces)


class AttestationExchange:
    """One party's part in a set-up with evidence."""

    def __init__(
        self, session: AttestedSession, keys: Keys, index: int, source: SecureSource
    ) -> None:
        self._session, self._keys, self._index = session, keys, index
        self._nonce = source.bytes(NONCE_BYTES) if index in session.roster.silos else b""
        self._nonces, self._silos = b"", frozenset[int]()
        self.hashes: AttestedHashes | None = None

    def check_time(self) -> None:
        """Refuse a time of verification that is far from this machine's clock.

        Raises:
            RefusedError: by the rule "time".
        """
        apart = abs(self._session.attests.now() - self._session.at)
        if apart > MOST_APART:
            raise RefusedError(
                "evidence-time",
                f"expected a session opened within {MOST_APART} s of the time here, got {apart} s; "
                "set the clocks",
            )

    def nonce(self) -> list[bytes]:
        """A silo's fresh nonce; nothing of a compute node, which has none."""
        if not self._nonce:
            return []
        return [self._session.frame(Tag.NONCE, self._index, self._nonce).sealed(self._keys)]

    def attest(self, nonces: Sequence[bytes], silos: frozenset[int]) -> list[bytes]:
        """This party's evidence, bound to the nonces of these silos, its own among them.

        Raises:
            ProtocolError: they are not that.
        """
        # P29: once in a session, as the ROLL that leads the call is taken once.
        shown_nonces = self._session.nonces_of(nonces, silos)
        # Only evidence over my own nonce is known to me to have been made in this session.
        if self._nonce and shown_nonces[self._index] != self._nonce:
            raise ProtocolError("expected my own nonce back, got another", culprit="relay")
        self._nonces, self._silos = digest_of(shown_nonces), silos
        return self._session.evidence_of(self._keys, self._index, self._nonces)

    def check(self, evidence: Sequence[bytes]) -> None:
        """Believe it or refuse; see `AttestedSession.checked`."""
        if not self._nonces or self.hashes is not None:
            raise ProtocolError("expected nonces, then evidence once, got another", culprit="relay")
        self.hashes = self._session.checked(evidence, self._nonces, self._silos)

    @property
    def context(self) -> bytes:
        """What all must have seen alike before they agree on secrets.

        Raises:
            ProtocolError: nothing was checked yet.
        """
        if self.hashes is None:
            raise ProtocolError(
                "expected evidence before anything else in this study, got none", culprit="relay"
            )
        return _context(self._nonces, self.hashes)


def _context(nonces: bytes, hashes: AttestedHashes) -> bytes:
    return hashlib.sha256(b"hubbub attested v1" + nonces + b"".join(hashes)).digest()
