"""Where the messages of a session are kept, as the rounds see it."""

from __future__ import annotations

from typing import Protocol


class Recorder(Protocol):
    """Where the messages of a session are kept."""

    def keep(self, frame: bytes) -> None:
        """Keep a message that the aggregator has sent or used."""

    def seal(self) -> None:
        """Have everything that was kept on disk."""

    def close(self) -> None:
        """Keep no more."""


class NoRecorder:
    """Nothing is kept."""

    def keep(self, frame: bytes) -> None:
        """Nothing is kept."""

    def seal(self) -> None:
        """Nothing is on disk."""

    def close(self) -> None:
        """Nothing was open."""
