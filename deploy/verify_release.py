"""Says whether a folder is the release that somebody has signed: `python deploy/verify_release.py`.

    python deploy/verify_release.py FOLDER release-key.pub

The key, as PEM, comes from elsewhere than the folder: a release that brings its own shows nothing.
Needs the package `cryptography` alone, and reads nothing outside the folder.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from deploy import provenance

SUMS = "SHA256SUMS"
ABOUT = {SUMS, provenance.STATEMENT, provenance.ENVELOPE}  # about the release, not of it


class NotReleasedError(Exception):
    """Why a folder is no release by this key, in a sentence."""


def main(arguments: list[str]) -> int:
    """Print what was signed; 1 if the folder is something else, 2 if it is called otherwise."""
    if len(arguments) != 2:
        print("hubbub: expected FOLDER and the release key as PEM", file=sys.stderr)
        return 2
    folder, key = map(Path, arguments)
    try:
        statement = verified(folder, public_key(key))
    except (NotReleasedError, OSError) as error:
        print(f"hubbub: {error}", file=sys.stderr)
        return 1
    predicate = statement["predicate"]
    print(f"commit {predicate['buildDefinition']['externalParameters']['commit']}")
    print(f"builder {predicate['runDetails']['builder']['id']}")
    print(f"{len(statement['subject'])} files, all as signed")
    return 0


def public_key(path: Path) -> Ed25519PublicKey:
    """The key in a PEM file; NotReleasedError if it is of another kind."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise NotReleasedError(f"expected a public Ed25519 key as PEM in {path}")
    return key


def verified(folder: Path, key: Ed25519PublicKey) -> dict[str, Any]:
    """The statement of a release, which holds of the folder.

    Guarantees:
        1. The key has signed it.
        2. Each file that it names is there with its SHA-256, and no other is.
        3. `provenance.json` and `SHA256SUMS` say the same.

    Args:
        folder: with the release's files and no other.
        key: of whoever releases.

    Raises:
        NotReleasedError: something is not so.
    """
    try:
        statement = provenance.opened(json.loads((folder / provenance.ENVELOPE).read_text()), key)
    except InvalidSignature:
        raise NotReleasedError("expected this key's signature, got another's or none") from None
    except (ValueError, LookupError, TypeError) as error:
        raise NotReleasedError(f"expected a DSSE envelope, got: {error}") from None
    named = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    there = {path.name for path in folder.iterdir()} - ABOUT
    if there != named.keys():
        raise NotReleasedError(
            f"expected the files that were signed, got {_listed(named.keys() - there)} missing and "
            f"{_listed(there - named.keys())} besides"
        )
    wrong = {
        name
        for name, digest in named.items()
        if sha256((folder / name).read_bytes()).hexdigest() != digest
    }
    if wrong:
        raise NotReleasedError(f"expected the bytes that were signed, got others: {_listed(wrong)}")
    if (folder / provenance.STATEMENT).read_bytes() != provenance.written(statement):
        raise NotReleasedError(f"expected {provenance.STATEMENT} to be what was signed")
    sums = "".join(f"{digest}  {name}\n" for name, digest in sorted(named.items()))
    if (folder / SUMS).read_text() != sums:
        raise NotReleasedError(f"expected {SUMS} to say what was signed")
    return statement


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
