"""A silo's or a compute node's process: its folder, its line, and the loop between them.

What can be checked without the others is checked before anything else: the approved studies, the
files of records. The line is connected while the libraries for models are still being read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubbub.core.errors import HubbubError, StudyError, UserError
from hubbub.core.kept_pages import one_arena
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.site.network.endpoint import ENDED_EARLY, Endpoint
from hubbub.site.network.envelope import OFFER_LIMIT, is_bare
from hubbub.site.network.event_log import CONNECTING, DONE, LOST, TRAINING, WAITING, EventLog
from hubbub.site.network.local_line import LocalLine
from hubbub.site.network.nats.carrier import Answering
from hubbub.site.network.nats.relay import Relay, RelayCertificate
from hubbub.site.network.party_folder import LEDGER, PartyFolder, alone

_STEP = 1.0  # seconds
_SILENCE = 20.0  # seconds after which an aggregator at work is missed


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a party's administrator says of this machine."""

    data: Path | None = None  # a study's file names are relative to it; the home if None
    ledger: Path | None = None  # of the silo's data set; in the home if None
    device: str = "auto"
    certificate: Path | None = None  # of a leaf relay here; the roster's relay is believed if None


def relay_of(
    party_folder: PartyFolder,
    url: str | None,
    roster: Roster | None = None,
    certificate: Path | None = None,
) -> Relay:
    """Where the relay is: as the roster says, or at another URL.

    Args:
        url: of the relay, if it is another.
        roster: of a party that has approved nothing yet, and so has none in its folder.
        certificate: of what is at the URL, where that is a leaf relay; else the roster's key holds.
    """
    if certificate is not None:
        if not url:
            raise UserError("expected --relay with --relay-certificate, got none; name the leaf")
        return Relay.of(url, RelayCertificate(path=certificate, key=certificate).pin)
    named = (roster or party_folder.roster).parties[0]
    if not (url or named.relay):
        raise UserError(
            "expected the relay's URL with --relay, got none, and the roster names none; ask the "
            "aggregator"
        )
    return Relay.of(url or named.relay, named.relay_key)


def join(
    party_folder: PartyFolder,
    relay: Relay | Path,
    machine: Machine,
    event_log: EventLog,
    *,
    url: str | None = None,
    until: Callable[[], bool] = lambda: False,
    once: float | None = None,
) -> None:
    """Take part, until asked to end; `check` comes before.

    What is approved, withdrawn or replaced in the folder meanwhile holds at once: a session of
    another roster is over, and where a new roster names another relay, that is gone to.

    Args:
        relay: where the relay is; or the socket at which others hand requests in.
        url: of the relay, where it is not the roster that says it.
        once: end when the aggregator says that nothing is left to do here for now, or has been
            still for a while after a study's end; it may take so many seconds without a word until
            then. None: stay.

    Raises:
        UserError: it is the aggregator's folder, another process works with it, or, with `once`,
            the aggregator was not heard.
        StudyError: a new roster does not list this party any more.
        ReplacedError: there are new keys in the folder; a new process reads them.
    """
    check_role(party_folder)
    with alone(party_folder.home):
        event_log.state(state=CONNECTING)
        try:
            _Joined(party_folder, relay, machine, event_log, url, once).run(until)
        except HubbubError as error:
            event_log.stopped(error)
            raise


def check(party_folder: PartyFolder, machine: Machine) -> list[str]:
    """Whether what is approved can be run here; the studies' names.

    Files of records are read before anybody is told that this party is there: of a silo whose file
    is refused, others learn that it has not joined. Studies that are over need none any more. Of
    studies that ask the same of a file one has it read, now; each has it read anew once it begins.
    """
    check_role(party_folder)
    read = list[Any]()
    for study in party_folder.open_studies():
        check_records(party_folder, study, machine)
        asked = silo_records.asked_of_file(study)
        if study.data.is_extracted or asked not in read:
            party_folder.read(study, machine.data)  # code of others runs when it is asked for
            read.append(asked)
    return [study.name for study in party_folder.studies()]


def check_role(party_folder: PartyFolder) -> None:
    """Refuse a party that does not join, or that no relay would know."""
    if party_folder.role == "aggregator":
        raise UserError("expected a silo or a compute node, got the aggregator; use hubbub serve")
    if not party_folder.keys.identity.transport:
        raise StudyError(
            f"expected a transport key of {party_folder.name}, found none in "
            f"{party_folder.home}; make its keys with hubbub keygen"
        )


def check_records(party_folder: PartyFolder, study: Study, machine: Machine) -> None:
    """Refuse a silo's folder without the file of a study's records."""
    if party_folder.role == "silo":
        silo_records.check_file(study, party_folder.name, machine.data or party_folder.home)


class _Joined:
    """A party that takes part."""

    def __init__(
        self,
        party_folder: PartyFolder,
        relay: Relay | Path,
        machine: Machine,
        event_log: EventLog,
        url: str | None,
        once: float | None = None,
    ) -> None:
        self._site, self._machine, self._log, self._url = party_folder, machine, event_log, url
        self._once, self._heard = once, time.monotonic()
        self._endpoint: Endpoint | None = None
        self._silent = self._ended = False
        self._approved = party_folder.approved
        self._gone = False  # the aggregator has said goodbye, and has asked nothing since
        self._reached = relay
        self._named = self._relay() or relay
        self._line: Answering | LocalLine

    def run(self, until: Callable[[], bool]) -> None:
        """Answer, until asked to end."""
        try:
            while not (self._ended or until()):
                with self._line_to(self._reached) as self._line:
                    self._answer_here(until)
        finally:
            if self._endpoint is not None:
                self._endpoint.close()

    def _answer_here(self, until: Callable[[], bool]) -> None:
        """Answer, until asked to end or to go to another relay."""
        endpoint = self._endpoint = self._endpoint or _endpoint(
            self._site, self._machine, self._log
        )
        while not until():
            self._line.step(_STEP)
            endpoint.look()
            self._await_approved()
            if self._once is not None and self._is_done(endpoint, self._once):
                self._ended = True
                return
            named = self._relay()
            if named is not None and named != self._named:
                self._named = self._reached = named
                self._log.note("moved")
                return
            self._listen()

    def _await_approved(self) -> None:
        """Where a study is done and another was approved since, that is waited for."""
        before, self._approved = self._approved, self._site.approved
        if self._log.current("state") == DONE and self._approved - before:
            self._log.state(state=WAITING)

    def _is_done(self, endpoint: Endpoint, patience: float) -> bool:
        """Whether nothing is left to do here for now."""
        silence = time.monotonic() - self._heard
        over = self._log.current("state") == DONE and silence > _SILENCE
        if endpoint.is_at_rest or self._gone or over:
            return True
        if silence > patience:
            raise UserError(
                f"expected the aggregator to say within {patience:g} s that nothing is left to do "
                "here, but it was silent; make sure that hubbub serve --until runs, and try again"
            )
        return False

    def _line_to(self, relay: Relay | Path) -> Answering | LocalLine:
        if isinstance(relay, Path):
            self._log.note("listening", path=str(relay))
            self._log.state(state=WAITING, connected=True)
            return LocalLine(relay, self._site, self._answer, self._largest_request)
        one_arena()  # for the line's thread
        return Answering(
            relay,
            self._site.keys,
            self._answer,
            self._told,
            self._left,
            twice=lambda: self._log.seen_twice(self._site.name),
            most=self._largest_request,
            repeats=self._repeats,
        )

    def _relay(self) -> Relay | None:
        """Where the relay is by the roster of this moment; None where that says nothing."""
        if isinstance(self._reached, Path):
            return None
        try:
            return relay_of(self._site, self._url, certificate=self._machine.certificate)
        except UserError:
            return None

    def _answer(self, request: bytes) -> bytes:
        assert self._endpoint is not None  # noqa: S101 (made before the first step)
        self._gone = False
        self._log.absent((), absent_why={})
        try:
            return self._endpoint.answer(request)
        finally:
            if not is_bare(request):  # a sign of life is asked of who has refused, too
                self._heard = time.monotonic()

    def _largest_request(self) -> int:
        """Bytes of what may be asked."""
        return OFFER_LIMIT if self._endpoint is None else self._endpoint.largest_request

    def _repeats(self, request: bytes) -> bool:
        assert self._endpoint is not None  # noqa: S101 (made before the first step)
        return self._endpoint.repeats(request)

    def _told(self, up: bool, why: str) -> None:
        """The line comes up, or goes down."""
        before = self._log.current("state")
        self._log.line(up, why)
        down = CONNECTING if before == CONNECTING else LOST
        after = self._state_here if up else down
        if before != DONE:
            self._log.state(state=after)

    @property
    def _state_here(self) -> str:
        """Whether a study goes on, or is waited for, when the line is up."""
        at_work = self._endpoint is not None and self._endpoint.at_work
        return TRAINING if at_work and not self._gone else WAITING

    def _left(self) -> None:
        """The aggregator says goodbye."""
        self._gone = True
        if self._log.current("state") != DONE:
            vain = self._endpoint is not None and self._endpoint.is_answered_in_vain
            why = {"the aggregator": ENDED_EARLY} if vain else {}
            self._log.absent(["the aggregator"], absent_why=why)
            self._log.note("left")
            self._log.state(state=WAITING)

    def _listen(self) -> None:
        """Miss an aggregator that is not heard any more, in the middle of its study."""
        silence = self._line.silence
        silent = silence is not None and silence > _SILENCE
        if silent == self._silent or (silent and self._log.current("state") != TRAINING):
            return
        self._silent = silent
        if silence is None:  # it has left, which was told
            return
        if silent:
            self._log.warn("silent", seconds=silence)
            self._log.absent(["the aggregator"])
        else:
            self._log.note("heard")
            self._log.absent(())
        self._log.state(state=LOST if silent else self._state_here)


def _endpoint(party_folder: PartyFolder, machine: Machine, event_log: EventLog) -> Endpoint:
    """A silo's or a compute node's endpoint."""
    if party_folder.role == "node":
        from hubbub.site.network.endpoint import NodeEndpoint

        return NodeEndpoint(party_folder, event_log)
    from hubbub.site.network.silo_endpoint import SiloEndpoint

    return SiloEndpoint(
        party_folder,
        event_log,
        data=machine.data or party_folder.home,
        ledger=machine.ledger or party_folder.home / LEDGER,
        device=machine.device,
    )
