"""What a release was built from: an in-toto statement with SLSA provenance, and its signature.

The statement names every file of the release by its SHA-256, the commit, and the lock files that
pin all that goes in. It states no time and no machine, so that two people who build one commit
make the same bytes. Whoever has the project's release key, an Ed25519 key as PEM, signs it as a
DSSE envelope; without one it is left unsigned, and is called so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

STATEMENT, ENVELOPE = "provenance.json", "provenance.dsse.json"
BUILD_TYPE = "urn:hubbub:build:make-release:1"  # docs/project/releases.md says what it does
SOURCE = "urn:hubbub:source"  # wherever the repository is: the commit names what is in it
_PAYLOAD_TYPE = "application/vnd.in-toto+json"


def statement(
    made: Mapping[str, str], *, commit: str, builder: str, materials: Mapping[str, str]
) -> dict[str, Any]:
    """An in-toto statement (v1) with the SLSA provenance (v1) of a release.

    Args:
        made: SHA-256 of each file by name.
        commit: that was built, hexadecimal.
        builder: who says so, as a URI.
        materials: SHA-256 of what pins the dependencies, by name.
    """
    resolved: list[dict[str, Any]] = [{"uri": SOURCE, "digest": {"gitCommit": commit}}]
    resolved += [
        {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(materials.items())
    ]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(made.items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"commit": commit},
                "resolvedDependencies": resolved,
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }


def written(content: Mapping[str, Any]) -> bytes:
    """A statement as the bytes that are signed."""
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def signed(payload: bytes, key: Ed25519PrivateKey) -> dict[str, Any]:
    """A statement in a DSSE envelope."""
    public = key.public_key().public_bytes_raw().hex()
    return {
        "payloadType": _PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [
            {"keyid": public, "sig": base64.b64encode(key.sign(_encoded(payload))).decode()}
        ],
    }


def opened(envelope: Mapping[str, Any], key: Ed25519PublicKey) -> dict[str, Any]:
    """The statement in an envelope; InvalidSignature if this key has not signed it."""
    payload = base64.b64decode(envelope["payload"], validate=True)
    key.verify(base64.b64decode(envelope["signatures"][0]["sig"]), _encoded(payload))
    found: dict[str, Any] = json.loads(payload)
    return found


def release_key(path: Path) -> Ed25519PrivateKey:
    """The key in a PEM file; ValueError if it is of another kind."""
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("expected an Ed25519 key; openssl genpkey -algorithm ed25519 makes one")
    return key


def _encoded(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding."""
    kind = _PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
