"""docs/sampling.md and the seeds of docs/protocol.md in other words: a second implementation.

HPKE is RFC 9180 written out with X25519, HMAC and AES-GCM; nothing of hubbub's own mixnet is called
to make what its output is held against.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hubbub.core.protocol.agreement.joint_seed import JointSeed
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, Channel, Tag
from sampling import vectors
from sampling.silos import COUNTS, KEYS, ROSTER, SESSION, STUDY, Play, payload_of

SILOS = range(1, 5)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def extract(suite: bytes, salt: bytes, label: bytes, key: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + key, "sha256")


def expand(suite: bytes, key: bytes, label: bytes, info: bytes, size: int) -> bytes:
    """One block of HKDF is enough for all sizes here."""
    text = struct.pack(">H", size) + b"HPKE-v1" + suite + label + info + b"\x01"
    return hmac.digest(key, text, "sha256")[:size]


def opened(private: bytes, info: bytes, form: bytes) -> bytes:
    """HPKE base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, empty aad."""
    own = X25519PrivateKey.from_private_bytes(private)
    shared = own.exchange(X25519PublicKey.from_public_bytes(form[:32]))
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x01"
    context = form[:32] + own.public_key().public_bytes_raw()
    secret = extract(kem, b"", b"eae_prk", shared)
    secret = expand(kem, secret, b"shared_secret", context, 32)
    schedule = b"\x00" + extract(suite, b"", b"psk_id_hash", b"")
    schedule += extract(suite, b"", b"info_hash", info)
    root = extract(suite, secret, b"secret", b"")
    key = expand(suite, root, b"key", schedule, 16)
    nonce = expand(suite, root, b"base_nonce", schedule, 12)
    return AESGCM(key).decrypt(nonce, form[32:], b"")


def cut(whole: bytes, size: int) -> list[bytes]:
    return [whole[at : at + size] for at in range(0, len(whole), size)]


@pytest.fixture(scope="module")
def play() -> tuple[Play, list[bytes], dict[str, dict[int, bytes]]]:
    """A list that was made, the keys of its mixers, and what they said at first."""
    said: dict[str, dict[int, bytes]] = {"commit": {}, "seen": {}}

    def network(phase: str, step: int, sender: int, receiver: int, frame: bytes) -> bytes:
        if phase in said and step < 1:
            said[phase][sender] = frame
        return frame

    made = Play(network, number=5)
    privates = [one._private for one in made.mixers.values()]
    made.make()
    return made, privates, said


def places_of(privates: list[bytes]) -> list[bytes]:
    keys = [X25519PrivateKey.from_private_bytes(one).public_key() for one in privates]
    counted = b"".join(
        u32(count) + key.public_bytes_raw() for count, key in zip(COUNTS, keys, strict=True)
    )
    start = sha(b"hubbub mix v1", STUDY, SESSION, ROSTER.digest, u32(5), counted)
    return [sha(b"hubbub mix list v1", start, u32(step)) for step in range(5)]


def test_every_list_follows_from_the_one_before_and_the_mixers_key(
    play: tuple[Play, list[bytes], dict[str, dict[int, bytes]]],
) -> None:
    made, privates, _ = play
    places = places_of(privates)
    forms = [form for frame in made.forms[0] for form in cut(payload_of(frame), 16 + 48 * 4)]
    for step in SILOS:
        info = b"hubbub mix layer v1" + places[step]
        inner = [opened(privates[step - 1], info, form) for form in forms]
        forms = sorted(inner, key=lambda form: sha(places[step], form))
        names = b"".join(sha(places[step], form) for form in forms)
        assert payload_of(made.names[step][0]) == names
        assert payload_of(made.forms[step][0]) == b"".join(forms)
    assert {len(token) for token in forms} == {16}


def test_commitments_and_statements_are_as_documented(
    play: tuple[Play, list[bytes], dict[str, dict[int, bytes]]],
) -> None:
    made, privates, said = play
    place = places_of(privates)[0]

    def statement(frame: bytes) -> bytes:
        header, payload = frame[:HEADER_BYTES], payload_of(frame)
        return b"hubbub frame v1" + header + sha(payload) + frame[-64:]

    keys = b"".join(statement(frame) for frame in made.keys)
    commits = b"".join(statement(frame) for _, frame in sorted(said["commit"].items()))
    inputs = b"".join(statement(frame) for frame in made.names[0])
    assert len(statement(made.keys[0])) == 185
    for index in SILOS:
        whole = payload_of(made.names[0][index - 1])
        names, told = whole[: -4 * 185], whole[-4 * 185 :]
        assert told == commits
        assert names == b"".join(sorted(cut(names, 32)))
        hidden = sha(b"hubbub mix commit v1", place, u32(index), names)
        assert payload_of(said["commit"][index]) == hidden + keys
        assert payload_of(said["seen"][index]) == inputs


def test_links_and_seeds_are_as_documented() -> None:
    steps, attempts, round, attempt = 6, 2, 3, 1
    number = (round - 1) * attempts + attempt + 1
    chains, silos = {}, {}
    for index in SILOS:
        key = bytes([index] * 16)
        link, chains[index] = SecureSource(key).bytes(32), {}
        for each in range(steps * attempts, -1, -1):
            chains[index][each] = link
            place = STUDY + SESSION + u32(index)
            link = sha(b"hubbub seed link v1", place, u32(each), link)
        silos[index] = JointSeed(
            keys=KEYS[index],
            channel=Channel(roster=ROSTER, study=STUDY, session=SESSION),
            index=index,
            steps=steps,
            attempts=attempts,
            source=SecureSource(key),
        )
    anchors = [one.anchor() for one in silos.values()]
    assert [payload_of(one) for one in anchors] == [chains[index][0] for index in SILOS]
    active = (1, 3, 4)
    for one in silos.values():
        one.learn_anchors(anchors)
    frames = [silos[index].reveal(round, attempt) for index in active]
    assert [payload_of(one) for one in frames] == [chains[index][number] for index in active]
    links = b"".join(u32(index) + chains[index][number] for index in active)
    time = u32(round) + u32(attempt)
    seed = sha(b"hubbub attempt seed v1", STUDY, SESSION, time, links)
    assert silos[1].seed(round, attempt, active, frames) == seed


# Golden vectors -----------------------------------------------------------------------------


def test_what_is_sent_and_derived_has_not_changed() -> None:
    assert json.loads(json.dumps(vectors.built(vectors.stored()["wrapped"]))) == vectors.stored()


def test_the_file_is_what_is_written_and_has_every_tag() -> None:
    text = vectors.FILE.read_text(encoding="utf-8")
    assert vectors.written(vectors.stored()) == text
    ours = [tag for tag in Tag if tag.name.startswith(("MIX", "SEED"))]
    assert len(ours) == 9
    for tag in ours:
        assert f'"{tag.name}"' in text


def test_the_vectors_follow_from_the_keys_in_the_other_implementation() -> None:
    said = vectors.stored()
    study, session = bytes.fromhex(said["study"]), bytes.fromhex(said["session"])
    privates = [bytes.fromhex(one) for one in said["privates"]]
    publics = [payload_of(bytes.fromhex(one)) for one in said["MIX_KEY"]]
    counted = b"".join(u32(1) + public for public in publics)
    start = sha(b"hubbub mix v1", study, session, bytes.fromhex(said["roster"]), u32(3), counted)
    forms = [payload_of(bytes.fromhex(one)) for one in said["steps"][0]["MIX_FORMS"]]
    for step, private in enumerate(privates, 1):
        place = sha(b"hubbub mix list v1", start, u32(step))
        inner = [opened(private, b"hubbub mix layer v1" + place, form) for form in forms]
        forms = sorted(inner, key=lambda form: sha(place, form))
        frame = bytes.fromhex(said["steps"][step]["MIX_FORMS"][0])
        assert payload_of(frame) == b"".join(forms)
    place = sha(b"hubbub mix list v1", start, u32(2))
    names = b"".join(sha(place, form) for form in forms)
    listed = sha(b"hubbub token list v1", study, session, u32(3), names)
    assert said["digest"] == listed.hex()
