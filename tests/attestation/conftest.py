"""What the tests of attestation share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def page() -> str:
    """docs/attestation.md."""
    return (Path(__file__).parents[2] / "docs/attestation.md").read_text(encoding="utf-8")
