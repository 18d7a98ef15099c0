"""What endpoints answer in a collection, and what is on their disks: attacks, deaths, images (P30)."""

from __future__ import annotations

from typing import Any

from hubbub.ledger import Ledger
from network.consortium import Consortium


def rows(parties: Consortium, name: str) -> list[Any]:
    """The entries of a silo's ledger."""
    endpoint = parties.seats.get(name)
    ledger: Ledger = endpoint._ledger  # type: ignore[union-attr]
    return list(ledger.entries())
