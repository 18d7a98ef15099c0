"""The aggregator's side of a networked study: sessions are set up until all have come, and closed.

A try at a set-up is in `setup.py`, the rounds are in `assembly.py`. Messages travel through an
engine, and everybody but the aggregator is somewhere else.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hubbub.assurance.evidence import checked_part
from hubbub.errors import HubbubError, ProtocolError
from hubbub.network.envelope import Call
from hubbub.network.party_folder import PartyFolder
from hubbub.network.requests import Absent, AbsentError, Exchange
from hubbub.network.timeouts import Timeouts
from hubbub.planning import Plan
from hubbub.protocol.round import RoundParameters
from hubbub.protocol.wire import EVERYBODY, Frame, Tag, parse
from hubbub.session.rounds import Assembly
from hubbub.session.session_offer import SessionOffer
from hubbub.session.setup import UNREADABLE, Opened, SetUp
from hubbub.study import Study

_PAUSE = 2.0  # seconds
_LIES = 3  # set-ups that may fail by what a relay can do, before the run stops


class WaitedError(HubbubError):
    """The operator's patience is over, and somebody is still missing."""


class Conductor:
    """The aggregator of one study.

    Args:
        site: its own folder.
        study: the study.
        exchange: asks the parties.
        patience: how long it waits.
    """

    def __init__(
        self, site: PartyFolder, study: Study, exchange: Exchange, timeouts: Timeouts
    ) -> None:
        self._site, self._study = site, study
        self._exchange, self._patience = exchange, timeouts

    def open(self, plan: Plan, opening: SessionOffer, terms: RoundParameters) -> Opened:
        """Set a session up; wait for those who are not there.

        Args:
            plan: of what the session is for.
            opening: what everybody is told of it.
            terms: of its rounds.

        Raises:
            WaitedError: somebody did not come in time, or does not take part as things are.
            ProtocolError: somebody broke the protocol, or a relay does so again and again.
        """
        event_log, end, lies = (
            self._exchange.event_log,
            time.monotonic() + self._patience.waiting,
            0,
        )
        while True:
            began = time.monotonic()
            try:
                opened = SetUp(self._site, self._study, self._exchange, plan, terms).made(
                    opening, self._patience
                )
            except AbsentError as error:
                liars = [one for one in error.absent.values() if one.why in ("protocol", "garbled")]
                lies += bool(liars)
                if lies >= _LIES:
                    raise ProtocolError(
                        f"expected a set-up that everybody could check, got {lies} that failed: "
                        f"{error}; find out who carries the messages, and start again",
                        culprit=_blamed(liars, self._study.parties.colluders),
                    ) from None
                if time.monotonic() + _PAUSE > end:
                    raise WaitedError(f"{error}; start again when they can take part") from None
                waiting = ", ".join(f"{n} ({one.said})" for n, one in error.absent.items())
                event_log.warn("waiting", parties=waiting)
                time.sleep(_PAUSE)
            else:
                count = len(self._site.roster.parties)
                seconds = time.monotonic() - began
                event_log.note("open", purpose=opening.purpose, parties=count, seconds=seconds)
                return opened

    def close(
        self, assembly: Assembly, sessions: Sequence[bytes], parameters: bytes
    ) -> list[dict[str, Any]]:
        """Give everybody the model, and have the silos sign what their ledgers hold.

        Returns:
            What the silos say that answered; who did not is in the journal.
        """
        listed = json.dumps({"sessions": [one.hex() for one in sessions]}).encode()
        frames = [
            self._frame(assembly, Tag.CLOSE, listed),
            self._frame(assembly, Tag.RESULT, parameters),
        ]
        asked = dict.fromkeys(self._site.roster.silos, frames)
        parts = []
        for index, heard in self._exchange.ask(
            Call.CLOSE, asked, self._patience.deadline, assembly.session
        ):
            if isinstance(heard, Absent):
                continue
            try:
                frame = parse(
                    heard[0], self._site.roster, study=assembly.study, session=assembly.session
                )
                if frame.tag is not Tag.CLOSED or frame.sender != index:
                    raise ProtocolError("expected CLOSED, got another frame", culprit="relay")
                silo, said = self._site.roster.parties[index], json.loads(bytes(frame.payload))
                parts.append(checked_part(said, silo, study=self._study.id, sessions=sessions))
            except UNREADABLE as error:
                name = self._site.roster.name(index)
                self._exchange.event_log.warn("garbled", whom=name, said=str(error))
        return parts

    def _frame(self, assembly: Assembly, tag: Tag, payload: bytes) -> bytes:
        return Frame(
            tag=tag,
            study=assembly.study,
            session=assembly.session,
            sender=0,
            receiver=EVERYBODY,
            payload=payload,
        ).sealed(self._site.keys)


def _blamed(liars: Sequence[Absent], colluders: int) -> str:
    """Who is to blame: whom the aggregator has caught, or more parties accuse than may collude.

    One party's word is enough to say that somebody on the way is.
    """
    caught = [one.culprit for one in liars if one.why == "garbled" and one.culprit]
    if caught:
        return caught[0]
    counts = Counter(one.culprit for one in liars)
    name, count = counts.most_common(1)[0] if counts else ("", 0)
    return name if name == "relay" or count > max(1, colluders) else ""
