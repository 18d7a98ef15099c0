"""The boundary between the protocol and whatever carries it: one function, `Phase`.

A phase hands each named party one blob and gives back what each answers, as answers come, or
`Missing` at the deadline. It promises nothing else: what carries blobs may lose them, delay them,
or hand over others, and the parties notice. `network/nats` crosses machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

MOST_BYTES = 1 << 30  # of what is handed over; see `size_limits` for each call


@dataclass(frozen=True, kw_only=True)
class Missing:
    """No answer: none in time, or none that could be had."""

    why: str = "no answer in time"


# From the phase's name, a blob for each party and seconds, to the parties' answers as they come.
Phase = Callable[[str, Mapping[str, bytes], float], Iterator[tuple[str, "bytes | Missing"]]]
