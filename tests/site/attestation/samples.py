"""Real attestation documents, and when each was good; data/README.md says where they are from."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hubbub.core.verification.attestation.policy import PlatformEvidence

DATA = Path(__file__).with_name("data")
ROOTS = Path(__file__).parents[3] / "src/hubbub/site/attestation/roots"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A document, its collateral, and a time at which it holds."""

    platform: str
    quote: bytes
    collateral: bytes
    at: int

    @property
    def evidence(self) -> PlatformEvidence:
        return PlatformEvidence(
            platform=self.platform, quote=self.quote, collateral=self.collateral
        )


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def _chip(generation: str) -> Sample:
    folder = DATA / "snp"
    files = [
        folder / f"{generation}_vcek.pem",
        folder / f"{generation}_ask.pem",
        ROOTS / f"amd-{generation}.pem",
    ]
    return Sample(
        platform="snp",
        quote=(folder / f"{generation}_attestation_report.bin").read_bytes(),
        collateral=b"".join(path.read_bytes() for path in files),
        at=seconds("2026-06-01"),
    )


def _intel(name: str, at: str) -> Sample:
    folder = DATA / "dcap"
    return Sample(
        platform=name[:3],
        quote=(folder / name).read_bytes(),
        collateral=(folder / f"{name}_collateral.json").read_bytes(),
        at=seconds(at),
    )


def _nitro(name: str, at: str) -> Sample:
    document = (DATA / "nitro" / name).read_bytes()
    if name.endswith("base64"):
        document = b64decode(document)
    return Sample(platform="nitro", quote=document, collateral=b"", at=seconds(at))


GOOD = {
    "milan": _chip("milan"),
    "genoa": _chip("genoa"),
    "turin": _chip("turin"),
    "sgx": _intel("sgx_quote", "2025-06-25"),
    "tdx": _intel("tdx_quote", "2025-06-25"),
    "nitro": _nitro("beta-valid-attestation-doc-bytes", "2022-10-13T09:00:00"),
    "nitro-debug": _nitro("debug-mode-attestation-doc-bytes", "2022-10-12T14:00:00"),
    "nitro-base64": _nitro("valid-attestation-doc-base64", "2023-09-18T15:00:00"),
}
OUTDATED = _intel("tdx_quote_outdated", "2026-03-01")
