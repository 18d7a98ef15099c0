"""Chains of X.509 certificates, from a key that signs evidence to a vendor's pinned root.

Time is an argument. What is checked: every signature, every validity, that issuers may issue, and
that the last certificate is the root itself, byte for byte. This file knows no platform.
"""

from __future__ import annotations

import re
import warnings
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.utils import CryptographyDeprecationWarning

from hubbub.core.errors import AttestationError

MOST_CERTIFICATE = 4096  # bytes
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\n([A-Za-z0-9+/=\n]+)-----END \1-----\n")
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, OverflowError)


@cache
def pinned_root(name: str) -> x509.Certificate:
    """A vendor's root that this package pins, by its file name without the ending."""
    file = files("hubbub.site.attestation") / "roots" / f"{name}.pem"
    return x509.load_pem_x509_certificate(file.read_bytes())


def pem_blocks(pem: bytes) -> list[tuple[bytes, bytes]]:
    """The kinds and contents of the blocks of a PEM text in its one spelling, lines of 64.

    Raises:
        AttestationError: by the rule "spelling", if a bit of it could be another.
    """
    blocks = [(kind, _decoded(text)) for kind, text in _BLOCK.findall(pem)]
    if pem != b"".join(_armoured(kind, content) for kind, content in blocks):
        raise AttestationError(
            "spelling", "expected PEM in lines of 64 characters and nothing around, got another"
        )
    return blocks


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text)
    except Base64Error:
        return b""


def _armoured(kind: bytes, content: bytes) -> bytes:
    body = b64encode(content)
    lines = b"".join(body[k : k + 64] + b"\n" for k in range(0, len(body), 64))
    return b"-----BEGIN " + kind + b"-----\n" + lines + b"-----END " + kind + b"-----\n"


@contextmanager
def _any_serial_number() -> Iterator[None]:
    """AMD gives its chips' certificates the serial number 0, and a flipped bit makes others so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        yield


def certificate_of(der: bytes) -> x509.Certificate:
    """A certificate; AttestationError if these bytes are none, or more than one."""
    if len(der) > MOST_CERTIFICATE:
        raise AttestationError(
            "size", f"expected a certificate of at most {MOST_CERTIFICATE} bytes, got {len(der)}"
        )
    with _any_serial_number():
        try:
            certificate = x509.load_der_x509_certificate(der)
            if certificate.public_bytes(Encoding.DER) == der:
                return certificate
        except _UNREADABLE:
            pass
    raise AttestationError("chain", "expected a certificate, got other bytes; get it again")


def at_time(seconds: int) -> datetime:
    """A time in seconds since 1970 as certificates know it."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise AttestationError(
            "time", f"expected a time between the years 1 and 9999, got {seconds} seconds"
        ) from None


def check_chain(chain: Sequence[x509.Certificate], root: x509.Certificate, at: int) -> None:
    """Refuse a chain that does not lead to the root, or did not at that time.

    Args:
        chain: the signer's certificate first, the root last.
        root: which is pinned.
        at: seconds since 1970.

    Raises:
        AttestationError: by the rule "chain" or "expired".
    """
    if not chain or chain[-1] != root:
        raise AttestationError(
            "chain", "expected a chain that ends in the vendor's pinned root, got another"
        )
    try:
        with _any_serial_number():
            for issued, issuer in zip(chain, [*chain[1:], root], strict=True):
                issued.verify_directly_issued_by(issuer)
                _check_issuer(issuer)
    except (InvalidSignature, *_UNREADABLE):
        raise AttestationError(
            "chain", "expected every certificate to be signed by the next, got one that is not"
        ) from None
    for certificate in chain:
        _check_validity(certificate, at_time(at))


def _check_issuer(issuer: x509.Certificate) -> None:
    """Who issues must be allowed to."""
    try:
        if issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return
    except (x509.ExtensionNotFound, x509.DuplicateExtension):
        pass
    raise AttestationError("chain", "expected issuers that may issue, got one that may not")


def _check_validity(one: x509.Certificate, at: datetime) -> None:
    if not one.not_valid_before_utc <= at <= one.not_valid_after_utc:
        raise AttestationError(
            "expired",
            f"expected certificates that are valid at {at:%Y-%m-%d %H:%M:%S} UTC, got one from "
            f"{one.not_valid_before_utc:%Y-%m-%d %H:%M} to {one.not_valid_after_utc:%Y-%m-%d %H:%M}"
            "; get new evidence or collateral",
        )


def curve_key(one: x509.Certificate, curve: type[ec.EllipticCurve]) -> ec.EllipticCurvePublicKey:
    """The public key of a certificate, which must be on this curve."""
    try:
        key = one.public_key()
    except _UNREADABLE:
        key = None
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, curve):
        return key
    raise AttestationError("chain", f"expected a key on {curve.name}, got another")
