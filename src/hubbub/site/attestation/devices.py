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

import ctypes
import fcntl
import hashlib
import os
import re
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hubbub.core.disk import json_value, read_bytes, why_of
from hubbub.core.errors import AttestationError, UserError, with_extra
from hubbub.core.verification.attestation import policy
from hubbub.core.verification.attestation.policy import AttestedClaims
from hubbub.site.attestation import dcap

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
    top = Path(__file__).parents[2]
    for name in sorted(path.relative_to(top).as_posix() for path in top.rglob("*.py")):
        content = (top / name).read_bytes()
        whole.update(len(name.encode()).to_bytes(4, "little") + name.encode())
        whole.update(len(content).to_bytes(8, "little") + content)
    return whole.digest()


@dataclass(frozen=True, kw_only=True)
class SoftwareAttester:
    """Makes evidence that shows nothing."""

    measurement: bytes | None = None  # of the code, 48 bytes; this package's if None
    version: int = 1
    debug: bool = False
    since: int | None = None  # seconds since 1970; a day before the quote if None
    until: int | None = None  # a day after it if None
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


# Evidence from this machine's own devices, as Linux and Gramine offer them.
#
#     tdx   configfs-tsm: a folder is made, 64 bytes go into it, a quote comes out
#     snp   configfs-tsm where there is one, else an ioctl of /dev/sev-guest
#     nitro an ioctl of /dev/nsm, whose words are CBOR
#     sgx   Gramine's files in /dev/attestation
#
# Written from the public interfaces of the kernel and of Gramine, and tested against exchanges that
# were made up from them: no such device was at hand. What is verified of the result is not this
# file's business.
#
# Source: Linux, Documentation/ABI/testing/configfs-tsm-report, include/uapi/linux/sev-guest.h,
# include/uapi/linux/nsm.h; Gramine, "Attestation and secret
# provisioning".

# An ioctl: of an open file, with a number and a buffer that it may change.
Ioctl = Callable[[int, int, bytearray], Any]
_TSM = Path("sys/kernel/config/tsm/report")
_PROVIDERS = {"tdx": "tdx_guest", "snp": "sev_guest"}
_MOST = 1 << 17  # bytes of a quote, or of collateral
# _IOWR(kind, number, size): direction 3, then size, kind and number.
_SEV_GUEST, _SNP_GET_REPORT = Path("dev/sev-guest"), 0xC0205300
_NSM, _NSM_REQUEST = Path("dev/nsm"), 0xC0200A00
_GRAMINE = Path("dev/attestation")
_SNP_ANSWER, _SNP_REPORT = 4000, 1184
_NSM_MOST = 0x3000


class MachineAttester:
    """Makes this machine's evidence, with the collateral in a file if it is there."""

    def __init__(
        self,
        collateral: Path | None = None,
        *,
        root: Path = Path("/"),
        ioctl: Ioctl = fcntl.ioctl,
    ) -> None:
        self._collateral, self._root, self._ioctl = collateral, root, ioctl
        self._software = SoftwareAttester()

    def __call__(self, platform: str, report_data: bytes, at: int) -> policy.PlatformEvidence:
        """This machine's evidence over 64 bytes."""
        if platform == "software":
            quote = self._software.quote(report_data, at)
            return policy.PlatformEvidence(platform=platform, quote=quote)
        makers: dict[str, Callable[[bytes], bytes]] = {
            "tdx": self._tdx,
            "snp": self._snp,
            "nitro": self._nitro,
            "sgx": self._sgx,
        }
        quote = self._guarded(platform, lambda: makers[platform](report_data))
        kept = self._guarded(platform, self._kept) if platform != "nitro" else b""
        return policy.PlatformEvidence(platform=platform, quote=quote, collateral=kept)

    def _guarded(self, platform: str, work: Callable[[], bytes]) -> bytes:
        """The system's errors as ours."""
        try:
            return work()
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise UserError(
                f"expected a machine that makes {platform} evidence, got: {why_of(error)}{where}; "
                "run it where the study says, with the rights to its device"
            ) from None

    def _kept(self) -> bytes:
        if self._collateral is None or not self._collateral.exists():
            return b""
        return read_bytes(self._collateral, most=_MOST)

    def _asked(self, device: Path, number: int, buffer: bytearray) -> None:
        descriptor = os.open(self._root / device, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._ioctl(descriptor, number, buffer)
        finally:
            os.close(descriptor)

    def _tdx(self, report_data: bytes) -> bytes:
        """As Intel's service writes it, whatever of zeros a kernel puts after it."""
        return self._tsm("tdx", report_data).rstrip(b"\0").ljust(dcap.PADDED - 1, b"\0") + b"\0"

    def _snp(self, report_data: bytes) -> bytes:
        if (self._root / _TSM).is_dir():
            return self._tsm("snp", report_data)[:_SNP_REPORT]
        request = ctypes.create_string_buffer(report_data + bytes(4 + 28), 96)
        answer = ctypes.create_string_buffer(_SNP_ANSWER)
        places = (ctypes.addressof(request), ctypes.addressof(answer), 0)
        self._asked(_SEV_GUEST, _SNP_GET_REPORT, bytearray(struct.pack("<BxxxxxxxQQQ", 1, *places)))
        status, size = struct.unpack_from("<II", answer.raw)
        if status or size != _SNP_REPORT:
            raise OSError(0, f"the firmware refuses, with the status {status}")
        return answer.raw[32 : 32 + size]

    def _nitro(self, report_data: bytes) -> bytes:
        try:
            import cbor2
        except ImportError:
            raise UserError(
                f"expected the package cbor2 for Nitro, got none; {with_extra('attest')}"
            ) from None
        words = {"user_data": report_data, "nonce": None, "public_key": None}
        said = cbor2.dumps({"Attestation": words})
        request, answer = (
            ctypes.create_string_buffer(one, len(one)) for one in (said, bytes(_NSM_MOST))
        )
        places = (ctypes.addressof(request), len(said), ctypes.addressof(answer), _NSM_MOST)
        vector = bytearray(struct.pack("<QQQQ", *places))
        self._asked(_NSM, _NSM_REQUEST, vector)
        size = min(struct.unpack("<QQQQ", vector)[3], _NSM_MOST)
        try:
            return bytes(cbor2.loads(answer.raw[:size])["Attestation"]["document"])
        except (cbor2.CBORError, KeyError, TypeError, ValueError):
            raise OSError(0, "the Nitro Security Module refuses") from None

    def _sgx(self, report_data: bytes) -> bytes:
        folder = self._root / _GRAMINE
        (folder / "user_report_data").write_bytes(report_data)
        with (folder / "quote").open("rb") as file:
            return file.read(_MOST)

    def _tsm(self, platform: str, report_data: bytes) -> bytes:
        """One exchange in a folder of its own, which nobody else has written to meanwhile."""
        folder = self._root / _TSM / f"hubbub-{secrets.token_hex(8)}"
        folder.mkdir()
        try:
            before = _number(folder / "generation")
            (folder / "inblob").write_bytes(report_data)
            with (folder / "outblob").open("rb") as file:
                quote = file.read(_MOST)
            provider = (folder / "provider").read_text().strip()
            if provider != _PROVIDERS[platform] or _number(folder / "generation") != before + 1:
                raise OSError(0, f"the kernel's provider is {provider[:20]}, or others used it")
            return quote
        finally:
            folder.rmdir()


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except ValueError:
        raise OSError(0, "no number in a file of the kernel") from None


# What to pin for a build: measurements from what its tools write, or from this machine.
#
# A Gramine signature (`.sig`) and the JSON of `nitro-cli build-enclave` state what the processor
# will measure; a confidential machine can be asked what it has measured of itself. None of that is
# verified: it is as good as the machine on which it is read.

_SIGSTRUCT_BYTES, _MODULUS, _HASH = 1808, slice(128, 512), slice(960, 992)
_SIGSTRUCT_START = bytes.fromhex("06000000e10000000000010000000000")
_PCR = re.compile(r"PCR([0-9]|[12][0-9]|3[01])")
_HEX = re.compile(r"[0-9a-f]{96}")
_TDX = {"mr_td": 136, **{f"rtmr{place}": 328 + 48 * place for place in range(4)}}  # in a quote
_MOST_OF_A_FILE = 1 << 20  # bytes


def of_build(path: Path) -> tuple[str, dict[str, str]]:
    """The platform, and the measurements that a build's file states.

    Raises:
        UserError: it is neither a Gramine `.sig` file nor what `nitro-cli build-enclave` prints.
    """
    try:
        content = read_bytes(path, most=_MOST_OF_A_FILE)
    except OSError as error:
        raise UserError(f"expected a file at {path}, got: {why_of(error)}") from None
    measurements = _of_sigstruct(content) or _of_enclave_image(content)
    if not measurements:
        raise UserError(
            f"expected a Gramine .sig file or the JSON of nitro-cli build-enclave, got {path}"
        )
    return ("sgx" if "mr_enclave" in measurements else "nitro"), measurements


def of_machine(platform: str, attester: MachineAttester) -> dict[str, str]:
    """What this machine says that it has measured of itself."""
    if platform == "software":
        return {"code": own_code().hex()}
    if platform == "tdx":
        report = dcap.body_of(attester(platform, bytes(64), 0).quote)
        return {name: report[start : start + 48].hex() for name, start in _TDX.items()}
    if platform == "snp":
        report = attester(platform, bytes(64), 0).quote
        return {"measurement": report[0x90:0xC0].hex()}
    raise UserError(
        f"expected --build with {platform}, whose measurements a build's tools write, got none"
    )


def _of_sigstruct(content: bytes) -> dict[str, str]:
    """Intel's SIGSTRUCT: the enclave's hash, and that of the signer's key."""
    if len(content) != _SIGSTRUCT_BYTES or not content.startswith(_SIGSTRUCT_START):
        return {}
    signer = hashlib.sha256(content[_MODULUS]).hexdigest()
    return {"mr_enclave": content[_HASH].hex(), "mr_signer": signer}


def _of_enclave_image(content: bytes) -> dict[str, str]:
    """The member "Measurements" of what nitro-cli prints."""
    try:
        stated = json_value(content)["Measurements"]
        pcrs = {
            f"pcr{match[1]}": value
            for name, value in stated.items()
            if (match := _PCR.fullmatch(name))
        }
        return pcrs if pcrs and all(map(_HEX.fullmatch, pcrs.values())) else {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
