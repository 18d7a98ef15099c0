"""Chains of X.509 certificates, from a key that signs evidence to a vendor's pinned root.

Time is an argument. What is checked: every signature, every validity, that issuers may issue, and
that the last certificate is the root itself, byte for byte. This file knows no platform.
"""

from __future__ import annotations

import re
import warnings
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.utils import CryptographyDeprecationWarning

from hubbub.core.errors import AttestationError, UserError, with_extra
from hubbub.core.verification.attestation.policy import AttestedClaims

MOST_CERTIFICATE = 4096  # bytes
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\n([A-Za-z0-9+/=\n]+)-----END \1-----\n")
T = TypeVar("T", x509.Certificate, x509.CertificateRevocationList)
_PSS = padding.PSS(padding.MGF1(SHA384()), SHA384.digest_size)  # the way AMD signs
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, OverflowError)


@cache
def pinned_root(name: str) -> x509.Certificate:
    """A vendor's root that this package pins, by its file name without the ending."""
    file = files("hubbub.site.attestation") / "roots" / f"{name}.pem"
    return x509.load_pem_x509_certificate(file.read_bytes())


def pem_blocks(pem: bytes) -> list[tuple[bytes, bytes]]:
    """The kinds and contents of the blocks of a PEM text in its one spelling, lines of 64."""
    blocks = []
    with suppress(Base64Error):
        blocks = [(kind, b64decode(text)) for kind, text in _BLOCK.findall(pem)]
    if pem != b"".join(_armoured(kind, content) for kind, content in blocks):
        raise AttestationError(
            "spelling", "expected PEM in lines of 64 characters and nothing around, got another"
        )
    return blocks


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
    said = "expected a certificate, got other bytes; get it again"
    return _loaded(x509.load_der_x509_certificate, der, "chain", said)


def _loaded(load: Callable[[bytes], T], der: bytes, rule: str, said: str) -> T:
    """What these bytes are, in their one spelling."""
    with _any_serial_number():
        try:
            read = load(der)
            # A signature has whole bytes: it could else be said to have fewer bits.
            if read.public_bytes(Encoding.DER) == der and der.endswith(b"\0" + read.signature):
                return read
        except _UNREADABLE:
            pass
    raise AttestationError(rule, said)


def at_time(seconds: int) -> datetime:
    """A time in seconds since 1970 as certificates know it."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise AttestationError(
            "time", f"expected a time between the years 1 and 9999, got {seconds} seconds"
        ) from None


def check_chain(chain: Sequence[x509.Certificate], root: x509.Certificate, at: int) -> int:
    """Refuse a chain that does not lead to the root, or did not at that time; when it ends.

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
                if not _may_issue(issuer):
                    raise AttestationError(
                        "chain", "expected issuers that may issue, got one that may not"
                    )
    except (InvalidSignature, *_UNREADABLE):
        raise AttestationError(
            "chain", "expected every certificate to be signed by the next, got one that is not"
        ) from None
    then = at_time(at)
    for one in chain:
        if not one.not_valid_before_utc <= then <= one.not_valid_after_utc:
            raise AttestationError(
                "expired",
                f"expected certificates that are valid at {then:%Y-%m-%d %H:%M:%S} UTC, got one "
                f"from {one.not_valid_before_utc:%Y-%m-%d %H:%M} to "
                f"{one.not_valid_after_utc:%Y-%m-%d %H:%M}; get new evidence or collateral",
            )
    return min(int(certificate.not_valid_after_utc.timestamp()) for certificate in chain)


def _may_issue(issuer: x509.Certificate) -> bool:
    try:
        return issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, x509.DuplicateExtension):
        return False


def curve_key(one: x509.Certificate, curve: type[ec.EllipticCurve]) -> ec.EllipticCurvePublicKey:
    """The public key of a certificate, which must be on this curve."""
    try:
        key = one.public_key()
    except _UNREADABLE:
        key = None
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, curve):
        return key
    raise AttestationError("chain", f"expected a key on {curve.name}, got another")


# AWS Nitro Enclaves: a signed CBOR document (COSE_Sign1) that brings its own chain.
#
# The certificates are in the payload, so the payload is decoded before its signature is checked;
# what else it says is looked at afterwards. Everything around it has one spelling, and is compared
# with it. There is no collateral: AWS asks verifiers not to look for revocation lists, and the
# signer's certificate lives three hours, so the time of verification must be near that of the
# document.
#
# Source: AWS, Nitro Enclaves attestation document (aws-nitro-enclaves-nsm-api, docs/
# attestation_process.md); RFC 9052, section 4.4.

MOST_DOCUMENT = 16_384  # bytes
# An array of four: the protected header {1: -35} (ES384), an empty map, the payload, the signature.
_HEADER = bytes.fromhex("a1013822")
_FIRST = bytes.fromhex("8444a1013822a059")
_SIGNATURE = bytes.fromhex("5860")
_SIGNATURE_BYTES = 96
_TO_BE_SIGNED = b"\x84\x6aSignature1\x44" + _HEADER + b"\x40\x59"  # then the payload's length
_NEEDED = {"module_id", "digest", "timestamp", "pcrs", "certificate", "cabundle"}
_MAY_BE_EMPTY = {"public_key", "user_data", "nonce"}
_MOST_CHAIN, _MOST_PCRS, _PCR_BYTES, _MOST_DATA = 8, 32, 48, 1024


def verify_nitro(
    document: bytes, collateral: bytes, at: int, root: x509.Certificate | None = None
) -> AttestedClaims:
    """What a document says, once its signature and chain have held.

    Args:
        document: COSE_Sign1 without a tag, as the Nitro Security Module gives it.
        collateral: empty.
        at: the time of verification, seconds since 1970.
        root: AWS's; the pinned one if None.
    """
    if collateral:
        raise AttestationError("collateral", "expected no collateral with Nitro, got some")
    payload, signature = _split(document)
    said = _document_in(payload)
    chain = [certificate_of(one) for one in [said["certificate"], *reversed(said["cabundle"])]]
    until = check_chain(chain, root or pinned_root("aws-nitro"), at)
    content = _TO_BE_SIGNED + len(payload).to_bytes(2, "big") + payload
    if not _is_signed_by(chain[0], signature, "big", content):
        raise AttestationError(
            "signature", "expected a document that its certificate has signed, got another"
        )
    # What a document says that is known to be AWS's.
    pcrs: Mapping[int, bytes] = said["pcrs"]
    return AttestedClaims(
        platform="nitro",
        report_data=said.get("user_data") or b"",
        measurements={f"pcr{place}": value for place, value in pcrs.items()},
        debug=not any(map(any, (pcrs[0], pcrs[1], pcrs[2]))),
        made=said["timestamp"] // 1000,
        until=until,
    )


def _split(document: bytes) -> tuple[bytes, bytes]:
    """Payload and signature; everything around them has one spelling."""
    if len(document) > MOST_DOCUMENT:
        raise AttestationError(
            "size", f"expected a document of at most {MOST_DOCUMENT} bytes, got {len(document)}"
        )
    start, end = len(_FIRST) + 2, len(document) - _SIGNATURE_BYTES
    size = (end - len(_SIGNATURE) - start).to_bytes(2, "big") if end > start + 2 else b""
    payload = document[start : end - len(_SIGNATURE)]
    if not size or document != _FIRST + size + payload + _SIGNATURE + document[end:]:
        raise AttestationError(
            "signature", "expected a document that ES384 signs, in its one spelling, got another"
        )
    return payload, document[end:]


def _document_in(payload: bytes) -> dict[str, Any]:
    """The payload with the members that a document has, each of its kind."""
    try:
        import cbor2
    except ImportError:
        raise UserError(
            f"expected the package cbor2 for Nitro, it is missing; {with_extra('attest')}"
        ) from None
    try:
        said = cbor2.loads(
            payload,
            max_depth=4,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            semantic_decoders=None,
        )
        if cbor2.dumps(said) == payload and _is_document(said):
            return dict(said)
    except (cbor2.CBORError, ValueError, TypeError, RecursionError, OverflowError, MemoryError):
        pass
    raise AttestationError("signature", "expected a Nitro document's members, got others")


def _is_document(said: object) -> bool:
    """Whether these are a document's members, each of its kind and of a size that it may have."""
    if not isinstance(said, dict) or not _NEEDED <= set(said) <= _NEEDED | _MAY_BE_EMPTY:
        return False
    chain, pcrs, made = said["cabundle"], said["pcrs"], said["timestamp"]
    return (
        type(said["module_id"]) is str
        and said["digest"] == "SHA384"
        and type(made) is int
        and 0 < made < 2**53
        and type(said["certificate"]) is bytes
        and type(chain) is list
        and 1 <= len(chain) <= _MOST_CHAIN
        and all(type(certificate) is bytes for certificate in chain)
        and type(pcrs) is dict
        and all(type(place) is int and 0 <= place < _MOST_PCRS for place in pcrs)
        and {0, 1, 2} <= set(pcrs)
        and all(type(pcr) is bytes and len(pcr) == _PCR_BYTES for pcr in pcrs.values())
        and all(
            value is None or (type(value) is bytes and len(value) <= _MOST_DATA)
            for value in map(said.get, _MAY_BE_EMPTY)
        )
    )


def _is_signed_by(
    one: x509.Certificate, signature: bytes, order: Literal["big", "little"], content: bytes
) -> bool:
    """Whether a certificate's key has signed this, with ECDSA of P-384 in two numbers."""
    key, half = curve_key(one, ec.SECP384R1), len(signature) // 2
    r, s = (int.from_bytes(number, order) for number in (signature[:half], signature[half:]))
    try:
        key.verify(utils.encode_dss_signature(r, s), content, ec.ECDSA(SHA384()))
    except (InvalidSignature, ValueError):
        return False
    return True


# AMD SEV-SNP: a report of 1,184 bytes, signed by a key of the chip, and the chip's certificates.
#
# The collateral is a PEM file: the chip's certificate (VCEK), AMD's ASK and ARK of the generation
# in this order, and after them AMD's revocation list, if it is at hand. Milan, Genoa and Turin are
# known; reports that a cloud's key (VLEK) has signed are refused. Every byte is covered: by the
# signature, by the range that a signature's numbers must be in, or by the demand that it is zero.
#
# Source: AMD, SEV Secure Nested Paging Firmware ABI (56860), tables "ATTESTATION_REPORT" and
# "TCB_VERSION"; AMD, Versioned Chip Endorsement Key Certificate and KDS Interface (57230).

REPORT_BYTES = 1184
MOST_COLLATERAL = 65_536  # bytes
_SIGNED = 0x2A0
_NUMBER = 72  # bytes of each of a signature's two numbers
_ECDSA_P384 = 1
# Of the guest's policy. Bits 0 to 25 are known; a later firmware's might allow anything.
_MIGRATION, _DEBUG, _KNOWN_POLICY = 1 << 18, 1 << 19, (1 << 26) - 1
_NO_AGENT = (bytes(32), b"\xff" * 32)  # in the place of a migration agent's report id
_VERSIONS = (2, 3, 4, 5)
_OID = "1.3.6.1.4.1.3704.1."
_CHIP = "4"
_GENERATIONS = ("amd-milan", "amd-genoa", "amd-turin")


class _Level(NamedTuple):
    """One security version: its place in a report's TCB, and that in the chip's certificate."""

    byte: int
    oid: str


_LEVELS = {
    "bootloader": _Level(0, "3.1"),
    "tee": _Level(1, "3.2"),
    "snp": _Level(6, "3.3"),
    "microcode": _Level(7, "3.8"),
}
_TURIN_LEVELS = {
    "fmc": _Level(0, "3.9"),
    "bootloader": _Level(1, "3.1"),
    "tee": _Level(2, "3.2"),
    "snp": _Level(3, "3.3"),
    "microcode": _Level(7, "3.8"),
}


def verify_snp(
    report: bytes, collateral: bytes, at: int, roots: Mapping[str, x509.Certificate] | None = None
) -> AttestedClaims:
    """What a report says, once its signature and chain have held.

    Args:
        report: 1,184 bytes.
        collateral: see above.
        at: the time of verification, seconds since 1970.
        roots: AMD's by generation; the pinned ones if None.
    """
    if len(report) != REPORT_BYTES:
        raise AttestationError(
            "size", f"expected a report of {REPORT_BYTES} bytes, got {len(report)}"
        )
    chain, revoked = _snp_collateral(collateral)
    generation, root = _generation(chain[-1], roots)
    until = check_chain(chain, root, at)
    chip, end = chain[0], _SIGNED + 2 * _NUMBER
    if not _is_signed_by(chip, report[_SIGNED:end], "little", report[:_SIGNED]):
        raise AttestationError(
            "signature", "expected a report that the chip has signed, got another"
        )
    if any(report[end:]):
        raise AttestationError("signature", "expected zeros after the signature, got other bytes")
    if revoked is not None:
        until = min(until, _check_revocation(revoked, chain, at))
    return _snp_claims(report, chip, generation, until, revoked is not None)


def _snp_collateral(
    pem: bytes,
) -> tuple[list[x509.Certificate], x509.CertificateRevocationList | None]:
    """The chain and the revocation list in a PEM file; AttestationError if it is another."""
    if len(pem) > MOST_COLLATERAL:
        raise AttestationError(
            "size", f"expected at most {MOST_COLLATERAL} bytes of collateral, got {len(pem)}"
        )
    blocks = pem_blocks(pem)
    kinds = [kind for kind, _ in blocks]
    if kinds[:3] != [b"CERTIFICATE"] * 3 or kinds[3:] not in ([], [b"X509 CRL"]):
        raise AttestationError(
            "collateral",
            "expected a PEM file of the chip's certificate, AMD's ASK and its ARK, and at most a "
            f"revocation list after them, got {len(kinds)} other blocks",
        )
    chain = [certificate_of(content) for _, content in blocks[:3]]
    if not blocks[3:]:
        return chain, None
    said = "expected a revocation list, got other bytes"
    return chain, _loaded(x509.load_der_x509_crl, blocks[3][1], "revocation", said)


def _generation(
    claimed: x509.Certificate, roots: Mapping[str, x509.Certificate] | None
) -> tuple[str, x509.Certificate]:
    """Which of AMD's roots a chain names."""
    known = roots if roots is not None else {name: pinned_root(name) for name in _GENERATIONS}
    for name, root in known.items():
        if root == claimed:
            return name, root
    raise AttestationError("chain", "expected one of AMD's pinned roots, got another certificate")


def _is_signed_by_root(listed: x509.CertificateRevocationList, root: x509.Certificate) -> bool:
    """Whether a list is the root's; of what nobody has signed a part may be unreadable."""
    key = root.public_key()
    try:
        if listed.issuer != root.subject or not isinstance(key, rsa.RSAPublicKey):
            return False
        key.verify(listed.signature, listed.tbs_certlist_bytes, _PSS, SHA384())
    except (InvalidSignature, *_UNREADABLE):
        return False
    return True


def _check_revocation(
    listed: x509.CertificateRevocationList, chain: Sequence[x509.Certificate], at: int
) -> int:
    """Refuse a revoked chain; when the list ends."""
    _, intermediate, root = chain
    if not _is_signed_by_root(listed, root):
        raise AttestationError("revocation", "expected AMD's revocation list, got another's")
    ends = listed.next_update_utc
    if ends is None or not listed.last_update_utc <= at_time(at) <= ends:
        raise AttestationError(
            "revocation", "expected a revocation list that is valid at the time, got another"
        )
    if listed.get_revoked_certificate_by_serial_number(intermediate.serial_number) is not None:
        raise AttestationError("revocation", "expected a chain in force, AMD has revoked its ASK")
    return int(ends.timestamp())


def _snp_claims(
    report: bytes, chip: x509.Certificate, generation: str, until: int, revocation: bool
) -> AttestedClaims:
    """What a report says that is known to be the chip's."""
    version, policy, privilege, algorithm, flags = (
        int.from_bytes(report[start : start + size], "little")
        for start, size in ((0, 4), (8, 8), (0x30, 4), (0x34, 4), (0x48, 4))
    )
    if version not in _VERSIONS or privilege or algorithm != _ECDSA_P384 or flags >> 2:
        raise AttestationError(
            "platform",
            "expected a report of version 2 to 5, asked for at VMPL 0 and signed by the chip's own "
            f"key (VCEK), got version {version}, VMPL {privilege} and the flags {flags:#x}",
        )
    if policy & ~_KNOWN_POLICY:
        raise AttestationError(
            "platform", f"expected a guest's policy of known bits, got {policy:#x}; start it anew"
        )
    levels = _TURIN_LEVELS if generation == "amd-turin" else _LEVELS
    reported = report[0x180:0x188]
    tcb = {name: reported[level.byte] for name, level in levels.items()}
    if any(_number(chip, level.oid) != tcb[name] for name, level in levels.items()):
        raise AttestationError(
            "tcb", "expected a certificate for the TCB that the report states, got one for another"
        )
    identity = _extension(chip, _CHIP)
    if len(identity) < 8 or report[0x1A0:0x1E0] != identity.ljust(64, b"\0"):
        raise AttestationError("chain", "expected the certificate of this chip, got another's")
    return AttestedClaims(
        platform="snp",
        report_data=report[0x50:0x90],
        measurements={
            "measurement": report[0x90:0xC0],
            "host_data": report[0xC0:0xE0],
            "id_key_digest": report[0xE0:0x110],
            "author_key_digest": report[0x110:0x140],
        },
        tcb={**tcb, "guest": int.from_bytes(report[4:8], "little")},
        debug=bool(policy & _DEBUG),
        migratable=bool(policy & _MIGRATION) or report[0x160:0x180] not in _NO_AGENT,
        revocation=revocation,
        until=until,
    )


def _extension(chip: x509.Certificate, oid: str) -> bytes:
    """The bytes of one of AMD's extensions."""
    try:
        extension = chip.extensions.get_extension_for_oid(x509.ObjectIdentifier(_OID + oid)).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        extension = None
    if isinstance(extension, x509.UnrecognizedExtension):
        return extension.value
    raise AttestationError("chain", "expected a chip's certificate (VCEK), got another")


def _number(chip: x509.Certificate, oid: str) -> int:
    """A whole number in one of AMD's extensions, as DER writes it."""
    value = _extension(chip, oid)
    if len(value) < 3 or value[0] != 2 or value[1] != len(value) - 2 or len(value) > 4:
        raise AttestationError("chain", "expected a chip's certificate (VCEK), got another")
    return int.from_bytes(value[2:], "big")
