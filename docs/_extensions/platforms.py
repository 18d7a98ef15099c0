"""The page of what a study can pin of a machine, from the code, and of the vendors' pinned roots.

`python docs/_extensions/platforms.py` writes `docs/reference/platforms.md` anew. Who signs stands
here; a platform of the code without a signer is an error, and so is one that it has no more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from hubbub.core.study.attested_roles import PLATFORMS, Pinnable

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "platforms.md"
_ROOTS = ROOT / "src" / "hubbub" / "site" / "attestation" / "roots"
SIGNERS = {
    "sgx": "Intel SGX quotes",
    "tdx": "Intel TDX quotes, versions 4 and 5",
    "snp": "AMD SEV-SNP reports of Milan, Genoa and Turin",
    "nitro": "AWS Nitro Enclaves documents",
    "software": "nobody: its key is public",
}
_HEAD = """# Platforms and roots

For an expert. What a study can pin of a machine ([attestation](../attestation.md)). The first
measurement must be stated.

| platform | measurements (hex digits) | security versions | signed by |
|---|---|---|---|"""
_MIDDLE = """
## Pinned roots

SHA-256 of the certificates in DER, from public samples: compare them with the vendors' pages.

| file | root | SHA-256 |
|---|---|---|"""


def page() -> str:
    """The page.

    Raises:
        ValueError: the code has a platform without a signer here, or has it no more.
    """
    if odd := set(PLATFORMS) ^ set(SIGNERS):
        raise ValueError(f"expected a signer of each platform, not: {sorted(odd)}")
    rows = (_row(name, pinnable) for name, pinnable in PLATFORMS.items())
    return "\n".join([_HEAD, *rows, _MIDDLE, *roots(), ""])


def _row(name: str, pinnable: Pinnable) -> str:
    measured = [f"`{each}` ({2 * size})" for each, size in pinnable.measurements.items()]
    if len(measured) > 16:  # Nitro's registers
        measured = [measured[0], "…", measured[-1]]
    versions = ", ".join(f"`{each}`" for each in pinnable.versions) or "none"
    return f"| `{name}` | {', '.join(measured)} | {versions} | {SIGNERS[name]} |"


def roots() -> Iterator[str]:
    """A row for each root certificate in the package."""
    for path in sorted(_ROOTS.glob("*.pem")):
        for root in x509.load_pem_x509_certificates(path.read_bytes()):
            (name,) = root.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
            digest = hashlib.sha256(root.public_bytes(Encoding.DER)).hexdigest()
            yield f"| `{path.name}` | {name.value!s} | `{digest}` |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
