"""A written ledger for every test that alters one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubbub.core.ledger.privacy_ledger import Ledger
from ledger.book import ROWS, entry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of four entries, closed."""
    place = tmp_path / "ledger.sqlite"
    with Ledger(place) as ledger:
        for number in range(1, ROWS + 1):
            ledger.charge(entry(number))
    return place
