"""The derivations of docs/protocol.md once more, from the page alone.

It shares no line with the package: HKDF is two lines of HMAC, counter mode is AES-ECB over counters
that are written out, HPKE is RFC 9180 on X-Wing step by step, residues are Python integers.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB


def u32(value: int) -> bytes:
    return bytes(value >> shift & 255 for shift in (0, 8, 16, 24))


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def expand(key: bytes, info: bytes, length: int) -> bytes:
    """HKDF-Expand for at most one block."""
    return hmac.digest(key, info + b"\x01", "sha256")[:length]


def pair_secret(
    study: bytes, session: bytes, low: int, high: int, from_low: bytes, from_high: bytes
) -> bytes:
    extracted = hmac.digest(study + session, from_low + from_high, "sha256")
    return expand(extracted, b"hubbub pair v1" + u32(low) + u32(high), 32)


def mask_key(secret: bytes, transcript: bytes, round: int, attempt: int, model: bytes) -> bytes:
    """The key for the MODEL with this digest."""
    return expand(secret, b"hubbub mask v2" + transcript + u32(round) + u32(attempt) + model, 16)


def share_key(
    secret: bytes, transcript: bytes, round: int, attempt: int, model: bytes, silo: int
) -> bytes:
    info = b"hubbub share v2" + transcript + u32(round) + u32(attempt) + model + u32(silo)
    return expand(secret, info, 16)


def key_check(secret: bytes, transcript: bytes, sender: int) -> bytes:
    return expand(secret, b"hubbub check v1" + transcript + u32(sender), 32)


def keystream(key: bytes, size: int, first: int = 0) -> bytes:
    """AES-128 of first, first + 1, ..., as big-endian blocks of 16 bytes."""
    places = range(first, first - (-size // 16))
    counters = b"".join(block.to_bytes(16, "big") for block in places)
    cipher = Cipher(AES(key), ECB()).encryptor()  # noqa: S305 - counter mode, written out
    return cipher.update(counters)[:size]


def words(data: bytes, bits: int) -> list[int]:
    size = bits // 8
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def mask(key: bytes, length: int, bits: int) -> list[int]:
    return words(keystream(key, length * bits // 8), bits)


def commitment(session: bytes, index: int, share: bytes) -> bytes:
    return sha(b"hubbub commit v1", session, u32(index), share)


def told(commits: Mapping[int, bytes], shares: Mapping[int, bytes]) -> bytes:
    """Commitments and shares of the silos that are there, by roster index."""
    assert commits.keys() == shares.keys()
    return b"".join(u32(silo) + commits[silo] + shares[silo] for silo in sorted(commits))


def joint_seed(
    session: bytes, roll: bytes, commits: Mapping[int, bytes], shares: Mapping[int, bytes]
) -> bytes:
    """With the digest of the ROLL."""
    return sha(b"hubbub joint seed v2", session, roll, told(commits, shares))


def sent_digest(frames: Mapping[int, bytes]) -> bytes:
    return sha(b"hubbub sent v1", *(u32(to) + sha(frames[to]) for to in sorted(frames)))


def roster_digest(parties: Sequence[tuple[str, str, bytes, bytes]]) -> bytes:
    fields = (
        part
        for name, role, verifying, sealing in parties
        for part in (name.encode(), role.encode(), verifying, sealing)
    )
    return sha(b"hubbub roster v1", *(u32(len(part)) + part for part in fields))


def transcript(
    study: bytes,
    session: bytes,
    roster: bytes,
    commits: Mapping[int, bytes],
    shares: Mapping[int, bytes],
    digests: Sequence[bytes],
    context: bytes = b"",
) -> bytes:
    """With what else all must have been shown alike."""
    start = (b"hubbub transcript v1", study, session, roster, context)
    return sha(*start, told(commits, shares), *digests)


def links(study: bytes, session: bytes, silo: int, top: bytes, length: int) -> list[bytes]:
    """A silo's chain by number: the anchor first, the secret last."""
    chain = [top]
    for number in range(length, 0, -1):
        start = b"hubbub seed link v1"
        chain.append(sha(start, study, session, u32(silo), u32(number), chain[-1]))
    return chain[::-1]


def anchors_digest(
    study: bytes, session: bytes, rounds: int, attempts: int, anchors: Mapping[int, bytes]
) -> bytes:
    parts = (u32(silo) + anchors[silo] for silo in sorted(anchors))
    return sha(b"hubbub seed anchors v2", study, session, u32(rounds), u32(attempts), *parts)


def attempt_seed(
    study: bytes, session: bytes, round: int, attempt: int, revealed: Mapping[int, bytes]
) -> bytes:
    """The joint seed of an attempt, from the links of its active silos."""
    parts = (u32(silo) + revealed[silo] for silo in sorted(revealed))
    return sha(b"hubbub attempt seed v1", study, session, u32(round), u32(attempt), *parts)


def circle(silos: int, seed: bytes) -> list[int]:
    """The silos, from 0, in the order of their words; a repeated word means: draw all anew."""
    key, start = sha(b"hubbub mask graph v1", seed)[:16], 0
    while True:
        drawn = words(keystream(key, 8 * (start + silos))[8 * start :], 64)
        if len(set(drawn)) == silos:
            return sorted(range(silos), key=drawn.__getitem__)
        start += silos


def neighbours(silo: int, silos: int, degree: int, seed: bytes) -> list[int]:
    if degree >= silos - 1:
        return [other for other in range(silos) if other != silo]
    order = circle(silos, seed)
    place, half = order.index(silo), degree // 2
    return sorted(order[(place + step) % silos] for step in range(-half, half + 1) if step)


def encoded(real: float, grid_step: float, bits: int) -> int:
    """The residue of a real number, without noise; a half goes down."""
    scaled = real / grid_step
    whole = math.floor(scaled)
    return (whole + (scaled - whole > 0.5)) % 2**bits


def decoded(residue: int, bits: int) -> int:
    return residue - 2**bits if residue >= 2 ** (bits - 1) else residue


def nodes_of(silo: int, each: int, silos: int, nodes: int) -> list[int]:
    """Roster indices of the compute nodes that a silo, by roster index, uses."""
    return sorted(1 + silos + (silo - 1 + step) % nodes for step in range(each))


def bitmap(members: Iterable[int], silos: int) -> bytes:
    """A set of silos; silo 1 is the highest bit of the first byte."""
    bits = 0
    for silo in members:
        bits |= 1 << (-(-silos // 8) * 8 - silo)
    return bits.to_bytes(-(-silos // 8), "big")


def frame(
    tag: int,
    place: tuple[bytes, bytes, int, int, int, int],
    payload: bytes,
    sign: Callable[[bytes], bytes],
) -> bytes:
    """A frame of (study, session, round, attempt, sender, receiver)."""
    study, session, *numbers = place
    fields = [u32(number) for number in numbers]
    size = len(payload).to_bytes(8, "little")
    header = b"".join((bytes([4, tag]), study, session, *fields, size))
    return header + payload + sign(signed(header, payload))


def signed(header: bytes, payload: bytes) -> bytes:
    """The words under a signature; a MASKED is hashed as residues and the digest after them."""
    hashed = sha(payload)
    if header[1] == 7:
        end = max(len(payload) - 32, 0)
        hashed = sha(sha(payload[:end]), payload[end:])
    return b"hubbub frame v1" + header + hashed


def digest(frame: bytes) -> bytes:
    """What stands for a frame: the hash of what is signed."""
    return sha(signed(frame[:74], frame[74:-64]))


def held_digest(model: bytes, shares: Mapping[int, bytes]) -> bytes:
    """What a node says it has looked at: from silo to SHARE."""
    parts = (u32(silo) + digest(shares[silo]) for silo in sorted(shares))
    return sha(b"hubbub held v1", model, *parts)


def masked(
    values: Sequence[int], own: int, keys: Mapping[int, bytes], bits: int, *, pairwise: bool
) -> bytes:
    """The payload of a TOTAL, and of a MASKED up to the digest of its MODEL."""
    total = list(values)
    for other, key in keys.items():
        sign = -1 if pairwise and other < own else 1
        total = [v + sign * m for v, m in zip(total, mask(key, len(total), bits), strict=True)]
    return b"".join((value % 2**bits).to_bytes(bits // 8, "little") for value in total)


def opened(
    sealed: bytes, context: bytes, lattice: MLKEM768PrivateKey, curve: X25519PrivateKey
) -> bytes:
    """HPKE in base mode, X-Wing (0x647a), HKDF-SHA256, AES-128-GCM, one message, no extra data."""
    hidden, point, ciphertext = sealed[:1088], sealed[1088:1120], sealed[1120:]
    ours, label = curve.public_key().public_bytes_raw(), b"\\.//^\\"
    shared = curve.exchange(X25519PublicKey.from_public_bytes(point))
    secret = hashlib.sha3_256(lattice.decapsulate(hidden) + shared + point + ours + label).digest()
    suite = b"HPKE" + bytes.fromhex("647a 0001 0001")

    def extract(salt: bytes, name: bytes, key: bytes) -> bytes:
        return hmac.digest(salt, b"HPKE-v1" + suite + name + key, "sha256")

    def derive(key: bytes, name: bytes, info: bytes, size: int) -> bytes:
        return expand(key, size.to_bytes(2, "big") + b"HPKE-v1" + suite + name + info, size)

    schedule = b"\0" + extract(b"", b"psk_id_hash", b"") + extract(b"", b"info_hash", context)
    key = extract(secret, b"secret", b"")
    nonce = derive(key, b"base_nonce", schedule, 12)
    return AESGCM(derive(key, b"key", schedule, 16)).decrypt(nonce, ciphertext, b"")
