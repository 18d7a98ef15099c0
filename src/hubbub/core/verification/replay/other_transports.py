"""Ways to sum that have frames of their own: each replays its transcripts itself.

A package registers one under the entry point `hubbub.transports`: a function that is given a
transcript's path, its header, the numbers of its rounds and the course of its query, and that
returns what plays it, or None if the transcript is not of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.registered import loaded, registered
from hubbub.core.verification.replay.course import Course
from hubbub.core.verification.replay.replayed_session import ReplayedSession
from hubbub.core.verification.transcript.transcript_header import Header

ENTRY_POINTS = "hubbub.transports"


class Player(Protocol):
    """What plays a transcript again."""

    def play(self, path: Path, look: Callable[[], None] = lambda: None) -> ReplayedSession:
        """All frames; IntegrityError if the sums do not follow from them."""


def other_player(
    path: Path, header: Header, round_parameters: RoundParameters, course: Course | None
) -> Player | None:
    """What plays a transcript that is not one of sessions; None if it is."""
    players = (each(path, header, round_parameters, course) for each in _others())
    return next((player for player in players if player is not None), None)


@cache
def _others() -> list[Callable[..., Any]]:
    return [loaded(point) for point in registered(ENTRY_POINTS).values()]
