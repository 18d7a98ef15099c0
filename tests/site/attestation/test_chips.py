"""SEV-SNP with a vendor of our own: what real documents do not have, such as a revocation list."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from hubbub.core.errors import AttestationError
from hubbub.core.verification.attestation.policy import AttestedClaims
from hubbub.site.attestation.certificate_chains import pem_blocks, verify_snp

AT = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PSS = padding.PSS(padding.MGF1(SHA384()), 48)
OID = "1.3.6.1.4.1.3704.1."
LEVELS = {"3.1": 4, "3.2": 0, "3.3": 24, "3.8": 219}
TCB = bytes([4, 0, 0, 0, 0, 0, 24, 219])
CHIP = bytes(range(64))


@cache
def rsa_key(_name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


CHIP_KEY = ec.generate_private_key(ec.SECP384R1())


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def issued(
    name: str,
    issuer: str,
    key: object = None,
    *,
    serial: int = 7,
    more: dict[str, bytes] | None = None,
    days: int = 100,
    ca: bool = True,
) -> x509.Certificate:
    """A certificate as AMD makes them."""
    key = key or rsa_key(name).public_key()
    made = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(AT - 100 * DAY)
        .not_valid_after(AT + days * DAY)
    )
    if ca:
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    for oid, value in (more or {}).items():
        extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(OID + oid), value)
        made = made.add_extension(extension, critical=False)
    return made.sign(rsa_key(issuer), SHA384(), rsa_padding=PSS)


def chip(chip_id: bytes = CHIP, **more: object) -> x509.Certificate:
    levels = {
        oid: bytes([2, 1, n]) if n < 128 else bytes([2, 2, 0, n]) for oid, n in LEVELS.items()
    }
    extensions = {**levels, "4": chip_id}
    return issued("VCEK", "ASK", CHIP_KEY.public_key(), ca=False, more=extensions, **more)


def report(**changes: bytes) -> bytes:
    """A report that the chip has signed; changes by the hexadecimal offset."""
    made = bytearray(1184)
    fields = {"0x0": b"\3", "0x34": b"\1", "0x180": TCB, "0x1a0": CHIP}
    for offset, value in {**fields, **changes}.items():
        made[int(offset, 16) : int(offset, 16) + len(value)] = value
    r, s = utils.decode_dss_signature(CHIP_KEY.sign(bytes(made[:0x2A0]), ec.ECDSA(SHA384())))
    made[0x2A0:0x2E8], made[0x2E8:0x330] = r.to_bytes(72, "little"), s.to_bytes(72, "little")
    return bytes(made)


def revoked(*serials: int, issuer: str = "ARK", since: int = -1, until: int = 30) -> bytes:
    """A revocation list in PEM."""
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(named(issuer))
        .last_update(AT + since * DAY)
        .next_update(AT + until * DAY)
    )
    for serial in serials:
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(AT - DAY)
        made = made.add_revoked_certificate(one.build())
    return made.sign(rsa_key(issuer), SHA384(), rsa_padding=PSS).public_bytes(Encoding.PEM)


@dataclass(kw_only=True)
class Vendor:
    """A chain that may be wrong in something."""

    chain: list[x509.Certificate] = field(
        default_factory=lambda: [chip(), issued("ASK", "ARK"), issued("ARK", "ARK")]
    )
    listed: bytes = b""

    def verified(self, data: bytes = b"") -> AttestedClaims:
        pem = b"".join(one.public_bytes(Encoding.PEM) for one in self.chain) + self.listed
        roots = {"amd-milan": self.chain[-1]}
        return verify_snp(data or report(), pem, int(AT.timestamp()), roots)

    def rule(self, data: bytes = b"") -> str:
        with pytest.raises(AttestationError) as caught:
            self.verified(data)
        return caught.value.rule


def test_no_other_bytes_are_taken_for_a_list() -> None:
    """One bit of each byte is flipped; a version or a date may become unreadable by that."""
    lists = (pem_blocks(revoked(99))[0][1] for _ in range(99))
    der = next(one for one in lists if one[-1] % 2 == 0)  # whose last bit may seem to be unused
    vendor, data, unused = Vendor(), report(), len(der) - 257
    for place in range(len(der)):
        changed = bytearray(der)
        changed[place] ^= 1 if place == unused else 1 << place % 8
        body = b64encode(changed)
        lines = b"".join(body[k : k + 64] + b"\n" for k in range(0, len(body), 64))
        vendor.listed = b"-----BEGIN X509 CRL-----\n" + lines + b"-----END X509 CRL-----\n"
        assert vendor.rule(data) == "revocation"


def test_our_vendors_report_holds_with_and_without_a_list() -> None:
    assert Vendor().verified().revocation is False
    found = Vendor(listed=revoked(99)).verified()
    assert found.revocation is True
    assert found.until == int((AT + 30 * DAY).timestamp())
    assert found.tcb["microcode"] == 219


@pytest.mark.parametrize(
    "listed",
    [
        lambda: revoked(7),
        lambda: revoked(since=-9, until=-1),
        lambda: revoked(since=1),
        lambda: revoked(issuer="ASK"),
    ],
    ids=["revoked", "ended", "to come", "another's"],
)
def test_a_list_that_revokes_or_does_not_hold_is_refused(listed: Callable[[], bytes]) -> None:
    assert Vendor(listed=listed()).rule() == "revocation"


@pytest.mark.parametrize(
    ("signer", "how", "digest"),
    [
        ("ASK", PSS, SHA384()),
        ("ARK", padding.PKCS1v15(), SHA384()),
        ("ARK", padding.PSS(padding.MGF1(SHA256()), 32), SHA256()),
        ("ARK", padding.PSS(padding.MGF1(SHA384()), 32), SHA384()),
    ],
    ids=["another key", "another padding", "another digest", "another salt"],
)
def test_a_list_that_its_root_has_not_signed_as_amd_does_is_refused(
    signer: str, how: padding.AsymmetricPadding, digest: SHA256 | SHA384
) -> None:
    forged = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(named("ARK"))
        .last_update(AT - DAY)
        .next_update(AT + DAY)
        .sign(rsa_key(signer), digest, rsa_padding=how)
    )
    assert Vendor(listed=forged.public_bytes(Encoding.PEM)).rule() == "revocation"


@pytest.mark.parametrize(
    ("rule", "chain"),
    [
        ("expired", lambda: [chip(days=-1), issued("ASK", "ARK"), issued("ARK", "ARK")]),
        ("expired", lambda: [chip(), issued("ASK", "ARK", days=-1), issued("ARK", "ARK")]),
        ("chain", lambda: [chip(), issued("ASK", "ARK", ca=False), issued("ARK", "ARK")]),
        ("chain", lambda: [chip(), issued("ASK", "Other"), issued("ARK", "ARK")]),
        ("chain", lambda: [chip(CHIP[::-1]), issued("ASK", "ARK"), issued("ARK", "ARK")]),
        ("collateral", lambda: [chip(), issued("ARK", "ARK")]),
    ],
    ids=["old chip", "old ASK", "no issuer", "another issuer", "another chip", "too short"],
)
def test_a_chain_that_does_not_hold_is_refused(
    rule: str, chain: Callable[[], list[x509.Certificate]]
) -> None:
    assert Vendor(chain=chain()).rule() == rule


def test_a_chain_to_a_root_that_is_not_pinned_is_refused() -> None:
    """With the real roots, ours is a stranger."""
    pem = b"".join(one.public_bytes(Encoding.PEM) for one in Vendor().chain)
    with pytest.raises(AttestationError, match="pinned"):
        verify_snp(report(), pem, int(AT.timestamp()))


@pytest.mark.parametrize(
    ("rule", "offset", "value"),
    [
        ("tcb", "0x186", b"\x17"),
        ("tcb", "0x187", b"\xdc"),
        ("platform", "0x0", b"\x01"),
        ("platform", "0x0", b"\x09"),
        ("platform", "0x30", b"\x01"),
        ("platform", "0x34", b"\x02"),
        ("platform", "0x48", b"\x04"),
        ("chain", "0x1a0", b"\xff"),
    ],
    ids=["older", "newer", "old", "new", "VMPL 1", "algorithm", "VLEK", "chip"],
)
def test_a_signed_report_that_says_something_else_is_refused(
    rule: str, offset: str, value: bytes
) -> None:
    assert Vendor().rule(report(**{offset: value})) == rule


def test_debug_mode_is_seen() -> None:
    assert Vendor().verified(report(**{"0xa": b"\x08"})).debug is True
    assert Vendor().verified().debug is False


@pytest.mark.parametrize(
    "changes",
    [{"0xa": b"\x04"}, {"0xa": b"\x07"}, {"0x160": bytes(range(32))}],
    ids=["allowed", "allowed beside others", "bound"],
)
def test_a_guest_that_an_agent_may_move_is_seen(changes: dict[str, bytes]) -> None:
    """Bit 18 of the policy: an agent of the host's choice gets the guest's memory and its keys."""
    assert Vendor().verified(report(**changes)).migratable is True


@pytest.mark.parametrize("nobody", [bytes(32), b"\xff" * 32])
def test_a_guest_without_an_agent_is_not_taken_for_one_that_moves(nobody: bytes) -> None:
    assert Vendor().verified(report(**{"0xa": b"\x03", "0x160": nobody})).migratable is False


def test_a_policy_with_a_bit_that_is_not_known_is_refused() -> None:
    for changes in ({"0xb": b"\x04"}, {"0xf": b"\x80"}):
        assert Vendor().rule(report(**changes)) == "platform"
    Vendor().verified(report(**{"0xa": b"\xf3", "0xb": b"\x03"}))  # all bits but 18 and 19
