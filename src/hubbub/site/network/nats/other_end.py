"""Another party as a line has it: where it is heard and told, and how much of no use it may send.

Whoever means well sends next to nothing that nobody can use: a few words when a line is new, pieces
that were sent twice after a gap.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hubbub.site.network.nats.message_delivery import MessageDelivery

UNHEARD_SECONDS = 2.0  # for which who sends too much is not heard
_WASTE, _WASTE_RATE = 512, 100.0  # packets of no use: at a time, and each second


@dataclass(kw_only=True)
class OtherEnd:
    """Another party, over the line.

    Args:
        hears: the subject on which it is heard.
        says: the subject on which it is told.
        link: what is known of it.
        wake: set when there may be something to send.
        unheard: whether nothing is taken in of it for now.
        unknown: whether the relay lets nobody hear it, as one whose key is not in its roster.
        subscription: the library's, by which it is heard.
        told_twice: how often somebody was told that two processes take part as it.
    """

    hears: str
    says: str
    link: MessageDelivery
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    unheard: bool = False
    unknown: bool = False
    subscription: Any = field(default=None, repr=False)
    told_twice: int = 0
    _allowed: float = _WASTE
    _counted: tuple[int, float] = (0, 0.0)

    def is_flooding(self, now: float) -> bool:
        """Whether more has come of no use than may; what is too much does not count for ever."""
        waste, at = self._counted
        self._counted = (self.link.waste, now)
        allowed = min(_WASTE, self._allowed + _WASTE_RATE * (now - at)) - (self.link.waste - waste)
        self._allowed = max(allowed, -_WASTE_RATE * UNHEARD_SECONDS / 2)
        return self._allowed < 0
