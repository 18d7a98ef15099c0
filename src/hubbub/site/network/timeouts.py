"""How long parties wait for each other, in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from hubbub.core.session.ask import Call
from hubbub.site.network.clock import Clock


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long the aggregator waits.

    Args:
        deadline: seconds for a phase of a round; who has not answered then is left out.
        opening: seconds for a session's opening, in which silos read their records.
        waiting: seconds for parties that a session cannot do without to come, or come back.
        ask_again: seconds after which somebody who was left out is asked for.
        ping: seconds for a sign of life.
        grace: seconds that a session is not set up yet once enough silos are there for it, in case
            the others come.
        clock: that all this goes by.
    """

    deadline: float = 60.0
    opening: float = 600.0
    waiting: float = 3600.0
    ask_again: float = 30.0
    ping: float = 5.0
    grace: float = 30.0
    clock: Clock = field(default_factory=Clock, repr=False)

    def of(self, call: Call) -> float:
        """The deadline of a call."""
        short = dict.fromkeys((Call.PING, Call.COLLECT_REST), self.ping)
        reading = (Call.OPEN, Call.COLLECT_KEY, Call.COLLECT_DEPOSIT, Call.COLLECT_LOOK)
        return {**short, **dict.fromkeys(reading, self.opening)}.get(call, self.deadline)
