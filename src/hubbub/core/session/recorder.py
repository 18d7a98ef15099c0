"""Where the messages of a session are kept, as the rounds see it."""

from __future__ import annotations

from typing import Protocol


class Recorder(Protocol):
    """Where the messages of a session are kept."""

    def keep(self, frame: bytes, short: bytes = b"") -> None:
        """Keep a message that the aggregator has sent or used.

        `short` is what stands for its payload, where the aggregator has just found that.
        """

    def seal(self) -> None:
        """Have everything that was kept on disk."""

    def close(self) -> None:
        """Keep no more."""


class NoRecorder:
    """Nothing is kept."""

    def keep(self, frame: bytes, short: bytes = b"") -> None:
        """Nothing is kept."""

    def seal(self) -> None:
        """Nothing is on disk."""

    def close(self) -> None:
        """Nothing was open."""
