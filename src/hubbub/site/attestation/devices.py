"""Evidence from this machine's own devices, as Linux and Gramine offer them.

    tdx   configfs-tsm: a folder is made, 64 bytes go into it, a quote comes out
    snp   configfs-tsm where there is one, else an ioctl of /dev/sev-guest
    nitro an ioctl of /dev/nsm, whose words are CBOR
    sgx   Gramine's files in /dev/attestation

Written from the public interfaces of the kernel and of Gramine, and tested against exchanges that
were made up from them: no such device was at hand. What is verified of the result is not this
file's business.

Source: Linux, Documentation/ABI/testing/configfs-tsm-report, include/uapi/linux/sev-guest.h,
include/uapi/linux/nsm.h, include/uapi/linux/tdx-guest.h; Gramine, "Attestation and secret
provisioning".
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hubbub.core.disk import read_bytes, why_of
from hubbub.core.errors import UserError, with_extra
from hubbub.core.verification.attestation import platforms
from hubbub.site.attestation import dcap, software

# An ioctl: of an open file, with a number and a buffer that it may change.
Ioctl = Callable[[int, int, bytearray], Any]
_TSM = Path("sys/kernel/config/tsm/report")
_PROVIDERS = {"tdx": "tdx_guest", "snp": "sev_guest"}
_MOST = 1 << 17  # bytes of a quote, or of collateral
# _IOWR(kind, number, size): direction 3, then size, kind and number.
_SEV_GUEST, _SNP_GET_REPORT = Path("dev/sev-guest"), 0xC0205300
_NSM, _NSM_REQUEST = Path("dev/nsm"), 0xC0200A00
_TDX_GUEST, _TDX_GET_REPORT = Path("dev/tdx_guest"), 0xC4405401
_GRAMINE = Path("dev/attestation")
_SNP_ANSWER, _SNP_REPORT = 4000, 1184
_NSM_MOST = 0x3000
_TDX_REPORT = 1024


class MachineAttester:
    """Makes this machine's evidence.

    Args:
        collateral: file that goes with it; nothing does if it is not there.
        root: of the file system; another one in tests.
        ioctl: of the system; another one in tests.
    """

    def __init__(
        self,
        collateral: Path | None = None,
        *,
        root: Path = Path("/"),
        ioctl: Ioctl = fcntl.ioctl,
    ) -> None:
        self._collateral, self._root, self._ioctl = collateral, root, ioctl
        self._software = software.SoftwareAttester()

    def __call__(self, platform: str, report_data: bytes, at: int) -> platforms.PlatformEvidence:
        """This machine's evidence over 64 bytes.

        Raises:
            UserError: it has no such device, or the device refuses.
        """
        if platform == "software":
            quote = self._software.quote(report_data, at)
            return platforms.PlatformEvidence(platform=platform, quote=quote)
        makers: dict[str, Callable[[bytes], bytes]] = {
            "tdx": self._tdx,
            "snp": self._snp,
            "nitro": self._nitro,
            "sgx": self._sgx,
        }
        quote = self._guarded(platform, lambda: makers[platform](report_data))
        kept = self._guarded(platform, self._kept) if platform != "nitro" else b""
        return platforms.PlatformEvidence(platform=platform, quote=quote, collateral=kept)

    def tdx_report(self) -> bytes:
        """The TDREPORT of this machine, which names its measurements and is not signed.

        Raises:
            UserError: it has no such device, or the device refuses.
        """

        def asked() -> bytes:
            buffer = bytearray(64 + _TDX_REPORT)
            self._asked(_TDX_GUEST, _TDX_GET_REPORT, buffer)
            return bytes(buffer[64:])

        return self._guarded("tdx", asked)

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
