"""What to pin for a build: measurements from what its tools write, or from this machine.

A Gramine signature (`.sig`) and the JSON of `nitro-cli build-enclave` state what the processor will
measure; a confidential machine can be asked what it has measured of itself. None of that is
verified: it is as good as the machine on which it is read.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from hubbub.core.disk import json_value, read_bytes, why_of
from hubbub.core.errors import UserError
from hubbub.site.attestation import devices, software

_SIGSTRUCT_BYTES, _MODULUS, _HASH = 1808, slice(128, 512), slice(960, 992)
_SIGSTRUCT_START = bytes.fromhex("06000000e10000000000010000000000")
_PCR = re.compile(r"PCR([0-9]|[12][0-9]|3[01])")
_HEX = re.compile(r"[0-9a-f]{96}")
_TDX = {"mr_td": 528, **{f"rtmr{place}": 720 + 48 * place for place in range(4)}}
_MOST = 1 << 20  # bytes


def of_build(path: Path) -> tuple[str, dict[str, str]]:
    """The platform, and the measurements that a build's file states.

    Args:
        path: of a Gramine `.sig` file, or of the JSON that `nitro-cli build-enclave` prints.

    Raises:
        UserError: it is neither.
    """
    try:
        content = read_bytes(path, most=_MOST)
    except OSError as error:
        raise UserError(f"expected a file at {path}, got: {why_of(error)}") from None
    measurements = _of_sigstruct(content) or _of_enclave_image(content)
    if not measurements:
        raise UserError(
            f"expected a Gramine .sig file or the JSON of nitro-cli build-enclave, got {path}"
        )
    return ("sgx" if "mr_enclave" in measurements else "nitro"), measurements


def of_machine(platform: str, attester: devices.MachineAttester) -> dict[str, str]:
    """What this machine says that it has measured of itself.

    Args:
        platform: which it is.
        attester: asks its devices.

    Raises:
        UserError: it has no such device, or this cannot be read from it.
    """
    if platform == "software":
        return {"code": software.own_code().hex()}
    if platform == "tdx":
        report = attester.tdx_report()
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
