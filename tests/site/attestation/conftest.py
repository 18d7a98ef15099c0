"""What the tests of attestation share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def page() -> str:
    """What the docs say of platforms."""
    docs = Path(__file__).parents[3] / "docs"
    names = ("attestation.md", "reference/platforms.md")
    return "".join((docs / name).read_text(encoding="utf-8") for name in names)
