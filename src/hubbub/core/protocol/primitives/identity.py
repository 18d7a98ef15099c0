"""Who the parties are: long-term keys, and the roster that lists everybody's public halves.

The roster is exchanged outside the system; no key is ever taken from the aggregator or a relay.
Signatures are Ed25519; sealing is HPKE with the hybrid X25519 + ML-KEM-768, so that recorded
traffic stays closed to a later quantum computer. All cryptography is the `cryptography` library's.
A party of a network has a transport key besides, with which it logs in at the relay and which
nothing of the protocol rests on. This file knows no messages and no studies.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from hubbub.core.errors import StudyError
from hubbub.core.study.parties import check_name

# Signatures that are known to be true, so that a process with many parties verifies each once.

_MOST_KNOWN = 1 << 17
_LONG = 512  # bytes of content, beyond which nothing is remembered


class TrueSignatures:
    """Signatures that this process has made or verified: key, signature and content together.

    Where all parties are in one process each of them looks at the same frames. Whether a signature
    is true depends on these three alone, so it is found out once; one that is not true, or that
    differs in a bit from what is here, is verified each time. Of the three a hash is kept.
    """

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def add(self, verifying: bytes, signature: bytes, content: bytes) -> None:
        """Remember one; where there are many, all are forgotten first."""
        if len(content) > _LONG:  # which `has` does not look for
            return
        if len(self._known) >= _MOST_KNOWN:
            self.forget()
        self._known.add(_hash_of(verifying, signature, content))

    def forget(self) -> None:
        """Know nothing."""
        self._known = set()

    def has(self, verifying: bytes, signature: bytes, content: bytes) -> bool:
        """Whether the owner of a key signed the content."""
        if len(content) <= _LONG and _hash_of(verifying, signature, content) in self._known:
            return True
        try:
            Ed25519PublicKey.from_public_bytes(verifying).verify(signature, content)
        except InvalidSignature:
            return False
        self.add(verifying, signature, content)
        return True


def _hash_of(verifying: bytes, signature: bytes, content: bytes) -> bytes:
    """SHA-256 of the three, and of where one ends and the next begins."""
    lengths = len(verifying).to_bytes(4, "little") + len(signature).to_bytes(4, "little")
    return hashlib.sha256(lengths + verifying + signature + content).digest()


TRUE_SIGNATURES = TrueSignatures()  # of this process


ROLES = ("aggregator", "silo", "node")
_NEEDED = {"name", "role", "verifying", "sealing"}  # of an identity in plain words
_MORE = {"transport", "relay", "relay_key"}
# The field and the curve of Ed25519 (RFC 8032, section 5.1): -x² + y² = 1 + d x² y² modulo p.
_FIELD = 2**255 - 19
_CURVE = -121665 * pow(121666, -1, _FIELD) % _FIELD
_MLKEM_BYTES = 1184
_SEALING_BYTES = _MLKEM_BYTES + 32
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def _of_small_order(verifying: bytes) -> bool:
    """Whether eight times this point is nothing, so that anybody can sign for it."""
    # The sign of x, which is the highest bit, does not matter here; modulo p neither does whether y
    # is canonical.
    y = int.from_bytes(verifying, "little") & (2**255 - 1)
    # Orders 1 and 2 are y = 1 and y = -1; order 4 is y = 0. A point of order 8 doubles to y = 0,
    # hence x² = -y², and the curve's equation becomes d y⁴ + 2 y² = 1.
    return y * (y * y - 1) * (_CURVE * y**4 + 2 * y * y - 1) % _FIELD == 0


def _point_of(curve: bytes) -> int:
    """The point of an X25519 key, of which a few have two spellings (RFC 7748, section 5)."""
    return (int.from_bytes(curve, "little") & (2**255 - 1)) % _FIELD


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The public half of a party: name, role, and its public keys as raw bytes.

    Args:
        name, role: who it is, and what it does.
        verifying, sealing: its keys in the protocol.
        transport: its key at the relay; none where all parties are in one process.
        relay: the relay's URL, where the party is an aggregator that names one.
        relay_key: SHA-256 of that server's public key; none where a public CA vouches for it.
    """

    name: str
    role: str
    verifying: bytes = field(repr=False)
    sealing: bytes = field(repr=False)
    transport: bytes = field(default=b"", repr=False)
    relay: str = field(default="", repr=False)
    relay_key: bytes = field(default=b"", repr=False)

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
        if len(self.transport) not in (0, 32) or len(self.relay_key) not in (0, 32):
            raise StudyError(
                f"expected a transport key and a relay's digest of {self.name} of 32 bytes or "
                "none, got others; fix the roster"
            )
        for word, key in (("verifying", self.verifying), ("transport", self.transport)):
            if key and _of_small_order(key):
                raise StudyError(
                    f"expected a {word} key of {self.name} that only its owner can sign for, got "
                    "one of small order; fix the roster"
                )
        try:
            # Tried once here: a key to which nothing can be sealed is found with the roster, not in
            # a set-up.
            self.seal(b"", b"hubbub roster check")
        except ValueError:
            raise StudyError(
                f"expected a valid sealing key for {self.name}, got other bytes; fix the roster"
            ) from None

    def verifies(self, signature: bytes, content: bytes) -> bool:
        """Whether this party signed the content."""
        return TRUE_SIGNATURES.has(self.verifying, bytes(signature), bytes(content))

    def seal(self, plaintext: bytes, context: bytes) -> bytes:
        """A ciphertext that only this party opens, and only in the same context."""
        return _SUITE.encrypt(plaintext, _sealing_key_of(self.sealing), info=context)


@lru_cache(maxsize=1 << 10)  # one has 6 kB: of a hundred thousand parties not all are kept
def _sealing_key_of(sealing: bytes) -> MLKEM768X25519PublicKey:
    """The key in these bytes; ValueError if it is none."""
    return MLKEM768X25519PublicKey(
        MLKEM768PublicKey.from_public_bytes(sealing[:_MLKEM_BYTES]),
        X25519PublicKey.from_public_bytes(sealing[_MLKEM_BYTES:]),
    )


@dataclass(frozen=True, kw_only=True)
class Keys:
    """A party's identity with its private keys, which never leave this object."""

    identity: Identity
    _signing: Ed25519PrivateKey = field(repr=False)
    _lattice: bytes = field(repr=False)  # the seed of the first half of what opens
    _curve: bytes = field(repr=False)
    _transport: Ed25519PrivateKey | None = field(default=None, repr=False, compare=False)

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
        cls,
        name: str,
        role: str,
        *,
        signing: bytes,
        lattice: bytes,
        curve: bytes,
        transport: bytes = b"",
    ) -> Keys:
        """The keys whose `secret_parts` these are; ValueError if they are none."""
        keys = cls._of(
            name,
            role,
            Ed25519PrivateKey.from_private_bytes(signing),
            MLKEM768PrivateKey.from_seed_bytes(lattice),
            X25519PrivateKey.from_private_bytes(curve),
        )
        return keys.networked(transport) if transport else keys

    def networked(self, transport: bytes = b"") -> Keys:
        """The same party with a transport key: this private half of 32 bytes, or a fresh one."""
        transport_key = Ed25519PrivateKey.generate()
        if transport:
            transport_key = Ed25519PrivateKey.from_private_bytes(transport)
        public = transport_key.public_key().public_bytes_raw()
        return replace(
            self, identity=replace(self.identity, transport=public), _transport=transport_key
        )

    def naming(self, relay: str, relay_key: bytes) -> Keys:
        """The same party, whose identity names a relay; see `Identity`."""
        return replace(self, identity=replace(self.identity, relay=relay, relay_key=relay_key))

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
        return cls(
            identity=identity,
            _signing=signing,
            _lattice=lattice.private_bytes_raw(),
            _curve=curve.private_bytes_raw(),
        )

    def secret_parts(self) -> dict[str, bytes]:
        """Everything that is secret, for the owner's key file and for nothing else."""
        parts = {
            "signing": self._signing.private_bytes_raw(),
            "lattice": self._lattice,
            "curve": self._curve,
        }
        if self._transport is not None:
            parts["transport"] = self._transport.private_bytes_raw()
        return parts

    def sign(self, content: bytes) -> bytes:
        """An Ed25519 signature, 64 bytes."""
        signature = self._signing.sign(content)
        TRUE_SIGNATURES.add(self._signing_for, signature, bytes(content))
        return signature

    @cached_property
    def _signing_for(self) -> bytes:
        """The public half of the key that signs, whatever the identity says."""
        return self._signing.public_key().public_bytes_raw()

    def open(self, ciphertext: bytes, context: bytes) -> bytes:
        """What was sealed to this party in this context; InvalidTag or ValueError if nothing."""
        return _SUITE.decrypt(ciphertext, self._opening, info=context)

    def put_away(self) -> None:
        """Keep only what the key that opens is made of, which is a hundredth of its size."""
        vars(self).pop("_opening", None)

    @cached_property
    def _opening(self) -> MLKEM768X25519PrivateKey:
        return MLKEM768X25519PrivateKey(
            MLKEM768PrivateKey.from_seed_bytes(self._lattice),
            X25519PrivateKey.from_private_bytes(self._curve),
        )


@dataclass(frozen=True, kw_only=True)
class Roster:
    """Everybody who takes part, in order: the aggregator, the silos, the compute nodes."""

    parties: tuple[Identity, ...]

    def __post_init__(self) -> None:
        names = [party.name for party in self.parties]
        roles = [ROLES.index(party.role) for party in self.parties]
        if len(set(names)) < len(names):
            raise StudyError("expected every name in the roster once, got a name twice; rename it")
        # `silos` and `nodes` are ranges of indices because of this order.
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
        if min(len(key) for key in keys) < len(names):
            raise StudyError(
                "expected every key in the roster once, and every half of one, got one of two "
                "parties, who could speak or read for each other; have each make its own"
            )
        transport = [party.transport for party in self.parties if party.transport]
        if len(set(transport)) < len(transport) or keys[0] & set(transport):
            raise StudyError(
                "expected every transport key in the roster once, and none that signs, got one "
                "that two stand for or that is a verifying key too; have each make its own"
            )

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def of(cls, keys: Sequence[Keys]) -> Roster:
        """The roster of parties whose keys are at hand (in-process runs and tests)."""
        return cls(parties=tuple(key.identity for key in keys))

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
        """SHA-256 over names, roles, keys and the relay, in order."""
        return self.digest_of(self.parties)

    @staticmethod
    def digest_of(parties: Sequence[Identity]) -> bytes:
        """`digest` of some parties."""
        networked = any(one.transport or one.relay or one.relay_key for one in parties)
        whole = hashlib.sha256(b"hubbub roster v2" if networked else b"hubbub roster v1")
        for party in parties:
            parts = [party.name.encode(), party.role.encode(), party.verifying, party.sealing]
            if networked:
                parts += [party.transport, party.relay.encode(), party.relay_key]
            # With lengths, so that two rosters never hash the same bytes.
            for part in parts:
                whole.update(len(part).to_bytes(4, "little") + part)
        return whole.digest()

    def name(self, index: int) -> str:
        """The name of a party, for messages to people."""
        return self.parties[index].name if 0 <= index < len(self.parties) else f"party {index}"


def plain_identity(party: Identity) -> dict[str, str]:
    """A public half as JSON and TOML know it; what the party does not have is left out."""
    more = {"transport": party.transport, "relay_key": party.relay_key}
    plain = {
        "name": party.name,
        "role": party.role,
        "verifying": b64encode(party.verifying).decode(),
        "sealing": b64encode(party.sealing).decode(),
        "relay": party.relay,
        **{name: b64encode(key).decode() for name, key in more.items()},
    }
    return {name: value for name, value in plain.items() if value or name in _NEEDED}


def identity_of(plain: Mapping[str, str]) -> Identity:
    """The public half that `plain_identity` wrote; ValueError if it is none."""
    told = dict(plain)
    if not _NEEDED <= set(told) <= _NEEDED | _MORE or any(
        type(v) is not str for v in told.values()
    ):
        raise ValueError("no identity")
    texts = {name: told.pop(name) for name in ("name", "role", "relay") if name in told}
    keys = {name: b64decode(value, validate=True) for name, value in told.items()}
    return Identity(**texts, **keys)  # type: ignore[arg-type]
