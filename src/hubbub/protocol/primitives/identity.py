"""Who the parties are: long-term keys, and the roster that lists everybody's public halves.

The roster is exchanged outside the system; no key is ever taken from the aggregator or a relay.
Signatures are Ed25519; sealing is HPKE with the hybrid X25519 + ML-KEM-768, so that recorded
traffic stays closed to a later quantum computer. All cryptography is the `cryptography` library's.
This file knows no messages and no studies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.mlkem import (
    MLKEM768PrivateKey,
    MLKEM768PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from hubbub.errors import StudyError
from hubbub.names import check_name

ROLES = ("aggregator", "silo", "node")
# The field and the curve of Ed25519 (RFC 8032, section 5.1): -x² + y² = 1 + d x² y² modulo p.
_FIELD = 2**255 - 19
_CURVE = -121665 * pow(121666, -1, _FIELD) % _FIELD
_MLKEM_BYTES = 1184
_SEALING_BYTES = _MLKEM_BYTES + 32
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def _of_small_order(verifying: bytes) -> bool:
    """Whether eight times this point is nothing, so that anybody can sign for it.

    Orders 1 and 2 are y = 1 and y = -1; order 4 is y = 0. A point of order 8 doubles to y = 0,
    hence x² = -y², and the curve's equation becomes d y⁴ + 2 y² = 1. The sign of x, which is the
    highest bit, does not matter, and modulo p neither does whether y is canonical.
    """
    y = int.from_bytes(verifying, "little") & (2**255 - 1)
    return y * (y * y - 1) * (_CURVE * y**4 + 2 * y * y - 1) % _FIELD == 0


def _point_of(curve: bytes) -> int:
    """The point of an X25519 key, of which a few have two spellings (RFC 7748, section 5)."""
    return (int.from_bytes(curve, "little") & (2**255 - 1)) % _FIELD


# What is broadcast is verified by every party of a process: once is enough, the answer is the same.
@lru_cache(maxsize=1 << 15)
def _is_signed(verifying: bytes, signature: bytes, content: bytes) -> bool:
    """Whether the owner of a key signed the content."""
    try:
        Ed25519PublicKey.from_public_bytes(verifying).verify(signature, content)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The public half of a party: name, role, and its two public keys as raw bytes."""

    name: str
    role: str
    verifying: bytes = field(repr=False)
    sealing: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise StudyError(
                f"expected the role of {self.name} to be one of {', '.join(ROLES)}, "
                f"got {self.role!r}; fix the roster"
            )
        check_name(self.name, self.role)
        if len(self.verifying) != 32 or len(self.sealing) != _SEALING_BYTES:
            raise StudyError(
                f"expected keys of 32 and {_SEALING_BYTES} bytes for {self.name}, "
                f"got {len(self.verifying)} and {len(self.sealing)}; fix the roster"
            )
        if _of_small_order(self.verifying):
            raise StudyError(
                f"expected a verifying key of {self.name} that only its owner can sign for, got "
                "one of small order; fix the roster"
            )
        try:
            self.seal(b"", b"hubbub roster check")
        except ValueError:
            raise StudyError(
                f"expected a valid sealing key for {self.name}, got other bytes; fix the roster"
            ) from None

    def verifies(self, signature: bytes, content: bytes) -> bool:
        """Whether this party signed the content."""
        return _is_signed(self.verifying, bytes(signature), bytes(content))

    def seal(self, plaintext: bytes, context: bytes) -> bytes:
        """A ciphertext that only this party opens, and only in the same context."""
        return _SUITE.encrypt(plaintext, self._sealing_key, info=context)

    @cached_property
    def _sealing_key(self) -> MLKEM768X25519PublicKey:
        return MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(self.sealing[:_MLKEM_BYTES]),
            X25519PublicKey.from_public_bytes(self.sealing[_MLKEM_BYTES:]),
        )


@dataclass(frozen=True, kw_only=True)
class Keys:
    """A party's identity with its private keys, which never leave this object."""

    identity: Identity
    _signing: Ed25519PrivateKey = field(repr=False)
    _opening: MLKEM768X25519PrivateKey = field(repr=False)
    _halves: tuple[Ed25519PrivateKey, MLKEM768PrivateKey, X25519PrivateKey] | None = field(
        default=None, repr=False, compare=False
    )

    @classmethod
    def generate(cls, name: str, role: str) -> Keys:
        """Fresh keys from the operating system's generator."""
        return cls._of(
            name,
            role,
            Ed25519PrivateKey.generate(),
            MLKEM768PrivateKey.generate(),
            X25519PrivateKey.generate(),
        )

    @classmethod
    def restored(
        cls, name: str, role: str, *, signing: bytes, lattice: bytes, curve: bytes
    ) -> Keys:
        """The keys whose `secret_parts` these are; ValueError if they are none."""
        return cls._of(
            name,
            role,
            Ed25519PrivateKey.from_private_bytes(signing),
            MLKEM768PrivateKey.from_seed_bytes(lattice),
            X25519PrivateKey.from_private_bytes(curve),
        )

    @classmethod
    def _of(
        cls,
        name: str,
        role: str,
        signing: Ed25519PrivateKey,
        lattice: MLKEM768PrivateKey,
        curve: X25519PrivateKey,
    ) -> Keys:
        identity = Identity(
            name=name,
            role=role,
            verifying=signing.public_key().public_bytes_raw(),
            sealing=lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw(),
        )
        opening = MLKEM768X25519PrivateKey(lattice, curve)
        halves = (signing, lattice, curve)
        return cls(identity=identity, _signing=signing, _opening=opening, _halves=halves)

    def secret_parts(self) -> dict[str, bytes]:
        """Everything that is secret, for the owner's key file and for nothing else."""
        if self._halves is None:
            raise StudyError("expected keys that were made or read here, got others; make new ones")
        signing, lattice, curve = self._halves
        return {
            "signing": signing.private_bytes_raw(),
            "lattice": lattice.private_bytes_raw(),
            "curve": curve.private_bytes_raw(),
        }

    def sign(self, content: bytes) -> bytes:
        """An Ed25519 signature, 64 bytes."""
        return self._signing.sign(content)

    def open(self, ciphertext: bytes, context: bytes) -> bytes:
        """What was sealed to this party in this context; InvalidTag or ValueError if nothing."""
        return _SUITE.decrypt(ciphertext, self._opening, info=context)


@dataclass(frozen=True, kw_only=True)
class Roster:
    """Everybody who takes part, in order: the aggregator, the silos, the compute nodes."""

    parties: tuple[Identity, ...]

    def __post_init__(self) -> None:
        names = [party.name for party in self.parties]
        roles = [ROLES.index(party.role) for party in self.parties]
        if len(set(names)) < len(names):
            raise StudyError("expected every name in the roster once, got a name twice; rename it")
        if roles != sorted(roles) or roles.count(0) != 1:
            raise StudyError(
                "expected the roster to list one aggregator, then the silos, then the compute "
                "nodes, got another order; sort it"
            )
        # A sealing key has two halves; who shares one of them is as safe as the other half alone.
        keys = (
            {party.verifying for party in self.parties},
            {party.sealing[:_MLKEM_BYTES] for party in self.parties},
            {_point_of(party.sealing[_MLKEM_BYTES:]) for party in self.parties},
        )
        if min(len(one) for one in keys) < len(names):
            raise StudyError(
                "expected every key in the roster once, and every half of one, got one of two "
                "parties, who could speak or read for each other; have each make its own"
            )

    @classmethod
    def of(cls, keys: Sequence[Keys]) -> Roster:
        """The roster of parties whose keys are at hand (in-process runs and tests)."""
        return cls(parties=tuple(one.identity for one in keys))

    @cached_property
    def silos(self) -> range:
        """Indices of the silos."""
        return range(1, 1 + sum(party.role == "silo" for party in self.parties))

    @cached_property
    def nodes(self) -> range:
        """Indices of the compute nodes."""
        return range(self.silos.stop, len(self.parties))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over names, roles and keys, in order."""
        return self.digest_of(self.parties)

    @staticmethod
    def digest_of(parties: Sequence[Identity]) -> bytes:
        """`digest` of some parties."""
        whole = hashlib.sha256(b"hubbub roster v1")
        for party in parties:
            for part in (party.name.encode(), party.role.encode(), party.verifying, party.sealing):
                whole.update(len(part).to_bytes(4, "little") + part)
        return whole.digest()

    def name(self, index: int) -> str:
        """The name of a party, for messages to people."""
        return self.parties[index].name if 0 <= index < len(self.parties) else f"party {index}"
