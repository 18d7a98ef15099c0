"""Asking parties of which most are away, which is no event."""

from __future__ import annotations

from collections.abc import Sequence

from hubbub.site.network.requests import Requests


class QuietRequests(Requests):
    """Asks as `Requests` does, and does not warn of who does not answer."""

    def note_missing(self, names: Sequence[str], deadline: float, why: str) -> None:
        """Nobody is expected at any moment."""
