"""AMD SEV-SNP: a report of 1,184 bytes, signed by a key of the chip, and the chip's certificates.

The collateral is a PEM file: the chip's certificate (VCEK), AMD's ASK and ARK of the generation in
this order, and after them AMD's revocation list, if it is at hand. Milan, Genoa and Turin are
known; reports that a cloud's key (VLEK) has signed are refused. Every byte is covered: by the
signature, by the range that a signature's numbers must be in, or by the demand that it is zero.

Source: AMD, SEV Secure Nested Paging Firmware ABI (56860), tables "ATTESTATION_REPORT" and
"TCB_VERSION"; AMD, Versioned Chip Endorsement Key Certificate and KDS Interface (57230).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding

from hubbub.core.errors import AttestationError
from hubbub.core.verification.attestation import attested_claims
from hubbub.site.attestation import certificates

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


class SnpCollateral(NamedTuple):
    """The certificates of a chip, and AMD's revocation list."""

    chain: list[x509.Certificate]
    revoked: x509.CertificateRevocationList | None


def verify_snp(
    report: bytes, collateral: bytes, at: int, roots: Mapping[str, x509.Certificate] | None = None
) -> attested_claims.AttestedClaims:
    """What a report says, once its signature and chain have held.

    Args:
        report: 1,184 bytes.
        collateral: see above.
        at: the time of verification, seconds since 1970.
        roots: AMD's by generation; the pinned ones if None.

    Raises:
        AttestationError: by the rule that does not hold.
    """
    if len(report) != REPORT_BYTES:
        raise AttestationError(
            "size", f"expected a report of {REPORT_BYTES} bytes, got {len(report)}"
        )
    collateral_read = snp_collateral(collateral)
    generation, root = _generation(collateral_read.chain[-1], roots)
    certificates.check_chain(collateral_read.chain, root, at)
    chip = collateral_read.chain[0]
    _check_signature(report, certificates.curve_key(chip, ec.SECP384R1))
    until = min(
        int(certificate.not_valid_after_utc.timestamp()) for certificate in collateral_read.chain
    )
    if collateral_read.revoked is not None:
        until = min(until, _check_revocation(collateral_read, at))
    return _claims(report, chip, generation, until, collateral_read.revoked is not None)


def snp_collateral(pem: bytes) -> SnpCollateral:
    """The chain and the revocation list in a PEM file; AttestationError if it is another."""
    if len(pem) > MOST_COLLATERAL:
        raise AttestationError(
            "size", f"expected at most {MOST_COLLATERAL} bytes of collateral, got {len(pem)}"
        )
    blocks = certificates.pem_blocks(pem)
    kinds = [kind for kind, _ in blocks]
    if kinds[:3] != [b"CERTIFICATE"] * 3 or kinds[3:] not in ([], [b"X509 CRL"]):
        raise AttestationError(
            "collateral",
            "expected a PEM file of the chip's certificate, AMD's ASK and its ARK, and at most a "
            f"revocation list after them, got {len(kinds)} other blocks",
        )
    chain = [certificates.certificate_of(content) for _, content in blocks[:3]]
    return SnpCollateral(chain, _list_of(blocks[3][1]) if blocks[3:] else None)


def _list_of(der: bytes) -> x509.CertificateRevocationList:
    try:
        revoked = x509.load_der_x509_crl(der)
        if revoked.public_bytes(Encoding.DER) == der:
            return revoked
    except ValueError:
        pass
    raise AttestationError("revocation", "expected a revocation list, got other bytes")


def _generation(
    claimed: x509.Certificate, roots: Mapping[str, x509.Certificate] | None
) -> tuple[str, x509.Certificate]:
    """Which of AMD's roots a chain names."""
    known = (
        roots
        if roots is not None
        else {name: certificates.pinned_root(name) for name in _GENERATIONS}
    )
    for name, root in known.items():
        if root == claimed:
            return name, root
    raise AttestationError("chain", "expected one of AMD's pinned roots, got another certificate")


def _check_signature(report: bytes, key: ec.EllipticCurvePublicKey) -> None:
    r, s = (
        int.from_bytes(report[start : start + _NUMBER], "little")
        for start in (_SIGNED, _SIGNED + _NUMBER)
    )
    try:
        key.verify(utils.encode_dss_signature(r, s), report[:_SIGNED], ec.ECDSA(SHA384()))
    except (InvalidSignature, ValueError):
        raise AttestationError(
            "signature", "expected a report that the chip has signed, got another"
        ) from None
    if any(report[_SIGNED + 2 * _NUMBER :]):
        raise AttestationError("signature", "expected zeros after the signature, got other bytes")


def _check_revocation(found: SnpCollateral, at: int) -> int:
    """Refuse a revoked chain; when the list ends."""
    listed, (_, intermediate, root) = found.revoked, found.chain
    assert listed is not None, "who calls has looked"  # noqa: S101
    if listed.issuer != root.subject or not _is_signed(listed, root):
        raise AttestationError("revocation", "expected AMD's revocation list, got another's")
    ends = listed.next_update_utc
    if ends is None or not listed.last_update_utc <= certificates.at_time(at) <= ends:
        raise AttestationError(
            "revocation", "expected a revocation list that is valid at the time, got another"
        )
    if listed.get_revoked_certificate_by_serial_number(intermediate.serial_number) is not None:
        raise AttestationError("revocation", "expected a chain in force, AMD has revoked its ASK")
    return int(ends.timestamp())


def _is_signed(listed: x509.CertificateRevocationList, root: x509.Certificate) -> bool:
    """Whether the root has signed a list, the way AMD signs."""
    key = root.public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        return False
    pss = padding.PSS(padding.MGF1(SHA384()), SHA384.digest_size)
    try:
        key.verify(listed.signature, listed.tbs_certlist_bytes, pss, SHA384())
    except InvalidSignature:
        return False
    return True


def _claims(
    report: bytes, chip: x509.Certificate, generation: str, until: int, revocation: bool
) -> attested_claims.AttestedClaims:
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
    return attested_claims.AttestedClaims(
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
