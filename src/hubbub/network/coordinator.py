"""The aggregator's side of a networked study: sessions are set up until all have come, and closed.

A try at a set-up is in `session/setup.py`, the rounds are in `session/rounds.py`. Messages travel
through an engine, and everybody but the aggregator is somewhere else.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hubbub.assurance import MachineAttester, StudyAttestation, checked_part
from hubbub.errors import BudgetError, HubbubError, ProtocolError
from hubbub.network.party_folder import COLLATERAL, PartyFolder
from hubbub.network.requests import UNREADABLE, Requests
from hubbub.protocol import EVERYBODY, Frame, Tag, parse
from hubbub.session import (
    Absent,
    AbsentError,
    Call,
    Rounds,
    SessionOffer,
    SetUp,
    check_apart,
    layout_of,
)
from hubbub.study import Standardisation, Study
from hubbub.training import SessionPlan

_PAUSE = 2.0  # seconds
_LIES = 3  # set-ups that may fail by what a relay can do, before the run stops
_MOST_LOST = 3  # sessions in a row without a sum


class WaitedError(HubbubError):
    """The operator waits no longer, and somebody is still missing."""


class Coordinator:
    """The aggregator of one study: the venue of a networked run.

    Args:
        site: its own folder.
        study: approved there; see `host.check`.
        requests: asks the parties.

    Raises:
        RefusedError: the study cannot be run apart.
    """

    def __init__(self, site: PartyFolder, study: Study, requests: Requests) -> None:
        check_apart(study)
        self.site, self.study, self.requests = site, study, requests
        made, asked = MachineAttester(site.home / COLLATERAL), study.attestation
        self._attests = None if asked is None else StudyAttestation(asked=asked, attester=made)
        self._standardisation: Standardisation | None = None

    def standardise(self, found: Standardisation | None) -> None:
        """From now on, tell silos how features are standardised."""
        self._standardisation = found

    def charged(self, purpose: str) -> int:
        """Attempts that some silo says it has paid for, for a purpose."""
        return max(self.requests.paid.get(purpose, {}).values(), default=0)

    def set_up(self, wanted: SessionPlan) -> Rounds:
        """Set a session up; wait for those who are not there.

        Raises:
            WaitedError: somebody did not come in time, or does not take part as things are.
            ProtocolError: somebody broke the protocol, or a relay does so again and again.
        """
        timeouts, lies = self.requests.timeouts, 0
        end = timeouts.clock.now() + timeouts.waiting
        while True:
            began = time.monotonic()
            try:
                rounds = self._tried(wanted)
            except AbsentError as error:
                liars = [one for one in error.absent.values() if one.why in ("protocol", "garbled")]
                lies += bool(liars)
                if lies >= _LIES:
                    raise ProtocolError(
                        f"expected a set-up that everybody could check, got {lies} that failed: "
                        f"{error}; find out who carries the messages, and start again",
                        culprit=_blamed(liars, self.study.parties.colluders),
                    ) from None
                if timeouts.clock.now() + _PAUSE > end:
                    raise WaitedError(f"{error}; start again when they can take part") from None
                waiting = ", ".join(f"{n} ({one.said})" for n, one in error.absent.items())
                self.requests.warn("waiting", parties=waiting)
                timeouts.clock.sleep(_PAUSE)
            else:
                count = len(self.site.roster.parties)
                seconds = time.monotonic() - began
                self.requests.note("open", purpose=wanted.purpose, parties=count, seconds=seconds)
                rounds.ask_absent_every(timeouts.ask_again, timeouts.clock.now)
                return rounds

    def _tried(self, wanted: SessionPlan) -> Rounds:
        """One try at a set-up, with a session of its own."""
        roster, attests = self.site.roster, self._attests
        at = attests.now() if attests else 0
        made = SetUp(
            peers=self.requests,
            keys=self.site.keys,
            study=self.study.id,
            layout=layout_of(wanted.plan),
            terms=wanted.terms,
            offer=SessionOffer.of(wanted.purpose, wanted.terms, self._standardisation, at),
            counts=self.study.data.counts,
            attempts_per_list=wanted.planned.mechanism.attempts_per_list,
            attests=attests,
        )
        self.requests.expect(wanted.purpose, wanted.terms, self.study.data.counts)
        everybody = dict.fromkeys(range(1, len(roster.parties)), ())
        self.requests.ask_all(Call.PING, everybody, made.session)
        return made.open_session()

    def lost(self, number: int, in_a_row: int, lost: AbsentError) -> None:
        """Hear that a session was lost in a round; raise unless a new one would help."""
        self.requests.warn("lost", round=number, said=str(lost))
        if any(one.why == "budget" for one in lost.absent.values()):
            raise BudgetError(f"{lost}; no round is possible without them") from None
        if in_a_row >= _MOST_LOST:
            raise WaitedError(
                f"{lost}; {in_a_row} sessions in a row gave no sum, and every attempt costs: "
                "raise --deadline if the line is slow, or fix what is broken, and serve again"
            ) from None

    def close(
        self, rounds: Rounds, sessions: Sequence[bytes], parameters: bytes
    ) -> list[dict[str, Any]]:
        """Give everybody the model, and have the silos sign what their ledgers hold.

        Returns:
            What the silos say that answered; who did not is in the event log.
        """
        listed = json.dumps({"sessions": [one.hex() for one in sessions]}).encode()
        frames = [
            self._frame(rounds, Tag.CLOSE, listed),
            self._frame(rounds, Tag.RESULT, parameters),
        ]
        asked = dict.fromkeys(self.site.roster.silos, frames)
        parts = []
        for index, received in self.requests.ask(Call.CLOSE, asked, rounds.session):
            if isinstance(received, Absent):
                continue
            try:
                frame = parse(
                    received[0], self.site.roster, study=rounds.study, session=rounds.session
                )
                if frame.tag is not Tag.CLOSED or frame.sender != index:
                    raise ProtocolError("expected CLOSED, got another frame", culprit="relay")
                silo, payload = self.site.roster.parties[index], json.loads(bytes(frame.payload))
                parts.append(checked_part(payload, silo, study=self.study.id, sessions=sessions))
            except UNREADABLE as error:
                name = self.site.roster.name(index)
                self.requests.warn("garbled", whom=name, said=str(error))
        return parts

    def _frame(self, rounds: Rounds, tag: Tag, payload: bytes) -> bytes:
        return Frame(
            tag=tag,
            study=rounds.study,
            session=rounds.session,
            sender=0,
            receiver=EVERYBODY,
            payload=payload,
        ).sealed(self.site.keys)


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
