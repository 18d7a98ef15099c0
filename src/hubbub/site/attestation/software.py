"""The platform "software": evidence that nobody vouches for, for tests and demonstrations.

It has all that real evidence has (a root, a certificate that expires, a measurement, a security
version, a debug flag), so that everything around it can be tried. Its root's private key is below,
for everybody to use: such evidence shows nothing, and is believed only where a study names the
platform.

    offset  size  field
         0     8  "hubbubSW"
         8     4  security version, little-endian
        12     1  1 in debug mode, else 0
        13    48  measurement
        61    64  report data
       125    32  the signer's key (Ed25519)
       157     8  the certificate's first second, since 1970
       165     8  its last
       173    64  the root's signature over the last three
       237    64  the signer's over all before it
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hubbub.core.errors import AttestationError
from hubbub.core.verification.attestation.attested_claims import AttestedClaims

_MAGIC = b"hubbubSW"
_BODY = struct.Struct("<8sIB48s64s")
_CERTIFICATE = struct.Struct("<32sQQ")
_SIGNATURE = 64
QUOTE_BYTES = _BODY.size + _CERTIFICATE.size + 2 * _SIGNATURE
_ISSUED, _QUOTED = b"hubbub software certificate v1", b"hubbub software quote v1"
# Known to all: whoever wants to, signs.
_ROOT = Ed25519PrivateKey.from_private_bytes(
    hashlib.sha256(b"hubbub software attester v1, which vouches for nothing").digest()
)
_DAY = 86_400


@cache
def own_code() -> bytes:
    """SHA-384 over the files of this package: the measurement of a party that runs from source."""
    whole = hashlib.sha384(b"hubbub code v1")
    for name, file in sorted(_sources(files("hubbub"), "")):
        content = file.read_bytes()
        whole.update(len(name.encode()).to_bytes(4, "little") + name.encode())
        whole.update(len(content).to_bytes(8, "little") + content)
    return whole.digest()


def _sources(folder: Traversable, above: str) -> list[tuple[str, Traversable]]:
    """Every Python file below a folder, by its path."""
    sources: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            sources += _sources(entry, f"{above}{entry.name}/")
        elif entry.name.endswith(".py"):
            sources.append((above + entry.name, entry))
    return sources


@dataclass(frozen=True, kw_only=True)
class SoftwareAttester:
    """Makes evidence that shows nothing.

    Args:
        measurement: what it says of the code, 48 bytes; this package's if None.
        version: its security version.
        debug: whether it says that it can be looked into.
        since, until: the validity of its certificate, seconds since 1970; a day around the time of
            the quote if None.
    """

    measurement: bytes | None = None
    version: int = 1
    debug: bool = False
    since: int | None = None
    until: int | None = None
    _key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate, repr=False)

    def quote(self, report_data: bytes, at: int) -> bytes:
        """Evidence over 64 bytes, at a time in seconds since 1970."""
        since = max(0, at - _DAY) if self.since is None else self.since
        until = at + _DAY if self.until is None else self.until
        measured = own_code() if self.measurement is None else self.measurement
        body = _BODY.pack(_MAGIC, self.version, self.debug, measured, report_data)
        certificate = _CERTIFICATE.pack(self._key.public_key().public_bytes_raw(), since, until)
        quote = body + certificate + _ROOT.sign(_ISSUED + certificate)
        return quote + self._key.sign(_QUOTED + quote)


def verify_software(quote: bytes, collateral: bytes, at: int) -> AttestedClaims:
    """What software evidence says, once its signatures have held; see `verify_snp`."""
    if len(quote) != QUOTE_BYTES or collateral:
        raise AttestationError(
            "size",
            f"expected software evidence of {QUOTE_BYTES} bytes and no collateral, got "
            f"{len(quote)} and {len(collateral)}",
        )
    issued, rest = quote[_BODY.size :][: _CERTIFICATE.size], quote[-2 * _SIGNATURE :]
    _check(_ROOT.public_key(), rest[:_SIGNATURE], _ISSUED + issued, "chain")
    key, since, until = _CERTIFICATE.unpack(issued)
    signer = Ed25519PublicKey.from_public_bytes(key)
    _check(signer, rest[_SIGNATURE:], _QUOTED + quote[:-_SIGNATURE], "signature")
    magic, version, debug, measured, report_data = _BODY.unpack_from(quote)
    if magic != _MAGIC or debug > 1:
        raise AttestationError("platform", "expected software evidence, got another")
    if not since <= at <= until:
        raise AttestationError(
            "expired",
            f"expected a certificate from {since} to {until} to hold at {at}, it does not",
        )
    return AttestedClaims(
        platform="software",
        report_data=report_data,
        measurements={"code": measured},
        tcb={"svn": version},
        debug=bool(debug),
        until=until,
    )


def _check(key: Ed25519PublicKey, signature: bytes, content: bytes, rule: str) -> None:
    try:
        key.verify(signature, content)
    except InvalidSignature:
        raise AttestationError(rule, "expected evidence that was signed, got other bytes") from None
