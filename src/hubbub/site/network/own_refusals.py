"""What a party cannot do itself, from its refusal until it has done it.

A refusal for a reason of its own (`session_offer.OWN`) stands here by study and call, and is gone
once that call is answered; after a sum, or with the study's end, all of that study's are. Its state
tells it in known words, so that whoever watches the party hears of it; nothing in them follows from
a record. What others did wrong is not this file's affair.
"""

from __future__ import annotations

from hubbub.core.session.ask import Call
from hubbub.core.session.session_offer import OWN, REASONS
from hubbub.site.network.event_log import EventLog

_WHOLE = (Call.MODEL, Call.SEED, Call.TOTAL, Call.CLOSE)


class OwnRefusals:
    """A party's refusals that nobody else can be blamed for.

    Args:
        event_log: whose state has them.
    """

    def __init__(self, event_log: EventLog) -> None:
        self._log = event_log
        self._why: dict[tuple[bytes, Call], str] = {}

    @property
    def studies(self) -> set[bytes]:
        """The studies of which there is one."""
        return {study for study, _ in self._why}

    def add(self, study: bytes, call: Call, why: str) -> None:
        """A call was refused."""
        if why in OWN:
            self._why[study, call] = why
            self._tell()

    def answered(self, study: bytes, call: Call) -> None:
        """A call was answered."""
        if call in _WHOLE:
            self.forget(study)
        elif self._why.pop((study, call), None) is not None:
            self._tell()

    def forget(self, study: bytes) -> None:
        """A study is well again, or over."""
        self._why = {asked: why for asked, why in self._why.items() if asked[0] != study}
        self._tell()

    def _tell(self) -> None:
        words = [f"{why}: {REASONS[why]}" for why in dict.fromkeys(self._why.values())]
        said = "; ".join(words)
        if said != (self._log.current("refusing") or ""):
            self._log.state(refusing=said)
