"""The aggregator's process: its folder, a relay of its own or another's, and the study.

Where no relay is named, one is started here, from public keys and on the port that the roster says;
it is a process of its own, ends with this one, and is started again when it ends alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from hubbub.core.disk import why_of
from hubbub.core.errors import HubbubError, NoRoomError, UserError, loggable
from hubbub.core.number_format import few, listed
from hubbub.core.registered import loaded, registered
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.site.network.endpoint import SIDES
from hubbub.site.network.envelope import word_limit
from hubbub.site.network.event_log import (
    CONNECTING,
    DONE,
    LOST,
    QUEUED,
    TRAINING,
    WAITING,
    EventLog,
    StudyLog,
)
from hubbub.site.network.join import relay_of
from hubbub.site.network.nats.carrier import Carrier, EndedError
from hubbub.site.network.nats.relay import Relay
from hubbub.site.network.nats.server import RelayFiles, Server
from hubbub.site.network.party_folder import RELAY, BusyError, PartyFolder, alone
from hubbub.site.network.proposals import ABSENT, DECLINED, Courier, Outbox, Standing, Verdict
from hubbub.site.network.requests import Requests
from hubbub.site.network.waiting import Door, Timeouts, WaitedError

_LOOK = 1.0  # seconds between looks at a folder, or at what parties say


def host(
    party_folder: PartyFolder,
    study: Study,
    event_log: EventLog,
    *,
    url: str | None = None,
    data: Path | None = None,
    timeouts: Timeouts | None = None,
    until: float | None = None,
) -> Path | None:
    """Run a study as its aggregator, or go on with it.

    Args:
        url: of a relay that runs; one is started here if None.
        data: the folder that the public test set is in; the home if None.
        until: collect its single sums, each from parties that come when they like; when enough
            silos are enough, seconds since 1970. None: everybody is needed at once.

    Returns:
        The run's folder; None where sums were collected that a training follows.

    Raises:
        UserError: it cannot begin: another process is at it, the port is taken, a file is missing.
        HubbubError: as for `serve`.
    """
    check(party_folder, study, data)
    timeouts = timeouts or Timeouts()
    with (
        _line(party_folder, url, event_log) as carrier,
        _carrying(party_folder, carrier, event_log),
    ):
        quiet = until is not None
        with _asking(carrier, party_folder, study, event_log, timeouts, quiet=quiet) as requests:
            return played(party_folder, study, requests, data=data, until=until)


def played(
    party_folder: PartyFolder,
    study: Study,
    requests: Requests,
    *,
    data: Path | None = None,
    until: float | None = None,
) -> Path | None:
    """Run a study to its end, whatever carries the requests; see `host`."""
    event_log = requests.event_log
    event_log.state(study=study.name, study_id=study.id.hex()[:16])
    try:
        done = _run(party_folder, study, requests, data, until)
    except HubbubError as error:
        event_log.stopped(error)
        raise
    event_log.state(state=DONE if done else WAITING)
    return party_folder.run(study.id) if done else None


@contextmanager
def _line(party_folder: PartyFolder, url: str | None, event_log: EventLog) -> Iterator[Carrier]:
    """The aggregator's line to the relay, which is started here if none is named."""

    def told(up: bool, why: str) -> None:
        event_log.line(up, why)
        event_log.state(state=WAITING if up else LOST)

    with alone(party_folder.home):
        event_log.state(state=CONNECTING)
        with (
            _relayed(party_folder, relay_of(party_folder, url), url, event_log) as reached,
            Carrier(reached, party_folder.keys, party_folder.roster, told) as carrier,
        ):
            yield carrier


@contextmanager
def _carrying(party_folder: PartyFolder, carrier: Carrier, event_log: EventLog) -> Iterator[None]:
    """Carry what is proposed meanwhile."""
    ended, courier = Event(), _courier(party_folder, carrier, event_log)
    thread = Thread(target=courier.carry_all, args=(ended,), daemon=True, name="courier")
    thread.start()
    try:
        yield
    finally:
        ended.set()


def _courier(party_folder: PartyFolder, carrier: Carrier, event_log: EventLog) -> Courier:
    most = word_limit(len(party_folder.roster.parties))
    phase = partial(carrier.phase, largest_answer=lambda _: most)
    return Courier(party_folder=party_folder, phase=phase, event_log=event_log)


def propose(
    party_folder: PartyFolder,
    study: Study,
    event_log: EventLog,
    *,
    url: str | None = None,
    seconds: float = 30.0,
) -> dict[str, Standing]:
    """Propose a study to all parties, by the process that serves here if there is one.

    Who is away for so many seconds is asked again by `serve`.
    """
    outbox, end = Outbox(party_folder), time.monotonic() + seconds
    outbox.put(study)
    everybody = {party.name for party in party_folder.roster.parties[1:]}

    def heard() -> bool:
        standings = outbox.standings(study.id)
        reached = {name for name, one in standings.items() if one.state != ABSENT}
        return everybody <= reached or time.monotonic() > end

    try:
        with _line(party_folder, url, event_log) as carrier:
            courier = _courier(party_folder, carrier, event_log)
            courier.carry(study, anew=True)
            while not heard():
                time.sleep(_LOOK)
                courier.carry(study)
    except BusyError:  # whoever works here carries it
        while not heard():
            time.sleep(_LOOK)
    return outbox.standings(study.id)


@contextmanager
def _asking(
    carrier: Carrier,
    party_folder: PartyFolder,
    study: Study,
    event_log: EventLog,
    timeouts: Timeouts,
    *,
    quiet: bool = False,
) -> Iterator[Requests]:
    """What asks the parties for one study, over a line that others may use, too."""

    def phase(name: str, blobs: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, Any]]:
        return carrier.phase(name, blobs, seconds, requests.largest_answer)

    requests = Requests(party_folder.roster, study.id, phase, event_log, timeouts, quiet=quiet)
    with carrier.hearing_twice(requests.see_twice):
        yield requests


def _run(
    party_folder: PartyFolder,
    study: Study,
    requests: Requests,
    data: Path | None,
    until: float | None = None,
    door: Door | None = None,
) -> bool:
    """Run the study to its end; whether it is done."""
    from hubbub.site.network.aggregator_run import serve
    from hubbub.site.network.coordinator import Coordinator

    coordinator = Coordinator(party_folder, study, requests, door)
    out = party_folder.run(study.id)
    if until is not None:
        collecting = registered(SIDES).get(party_folder.role)
        if collecting is None:
            raise UserError(
                "expected a package that collects sums over weeks (--until), found none; install "
                "all of hubbub"
            )
        return loaded(collecting)(coordinator, out, until=until, data=data) is not None
    serve(coordinator, out, data=data)
    return True


# Several studies, of a folder: each in a thread, over one line, by the order of their files' names.
#
# A study is proposed first; it begins once so many parties have approved it as it needs, all were
# asked of those before it, and the one before it has its first sum or waits itself. What caps have
# no room for waits until another study is over, or a cap is raised. A study that stops keeps no
# other from going on.

_AT_ONCE = 4  # studies
_AGAIN_SECONDS = 60.0  # until a study is tried again that had no room, or whose parties were away
RUNNING, STOPPED = "running", "stopped"


@dataclass(kw_only=True)
class QueuedStudy:
    """A study of the folder that is served."""

    study: Study
    event_log: EventLog = field(repr=False)
    state: str = QUEUED
    why: str = ""  # it waits or was stopped, as its people were told last
    again: float = 0.0  # of `time.monotonic`: it is looked at then
    came: float = field(default_factory=time.monotonic)
    vain: int = -1  # studies that were over when it could not begin
    enough_since: float = 0.0  # parties had approved it as it needs; 0 while they have not
    is_proposed: bool = True  # as far as is known, to all parties; they may not have decided

    def wait(self, why: str, state: str = QUEUED) -> None:
        """It waits, or is over without a result; told if that is news."""
        if (self.state, self.why) == (state, why):
            return
        self.state, self.why = state, why
        if state == QUEUED:
            self.event_log.note("queued", why=why)
        else:
            self.event_log.warn("stopped", said=why)
        self.event_log.state(state=state, why=why)


class Studies:
    """The studies of a folder, served; see `host_all`."""

    def __init__(
        self,
        party_folder: PartyFolder,
        folder: Path,
        carrier: Carrier,
        event_log: EventLog,
        timeouts: Timeouts,
        data: Path | None,
    ) -> None:
        self._party, self._folder, self._carrier = party_folder, folder, carrier
        self._log, self._timeouts, self._data = event_log, timeouts, data
        self._roster = party_folder.roster
        self._door = Door()
        self.unread: dict[Path, str] = {}  # why
        self.studies: dict[bytes, QueuedStudy] = {}

    @property
    def left(self) -> list[QueuedStudy]:
        """Those that are not over."""
        return [one for one in [*self.studies.values()] if one.state in (QUEUED, RUNNING)]

    @property
    def is_stuck(self) -> bool:
        """Whether none of those that are left runs, or could begin as things are."""
        return all((one.state, one.vain) == (QUEUED, self._over) for one in self.left)

    @property
    def _over(self) -> int:
        return len(self.studies) - len(self.left)

    def look(self) -> None:
        """Take new files in, and begin what may begin; UserError if the roster was replaced."""
        if self._party.roster != self._roster:
            raise UserError(
                f"expected the roster in {self._party.home.resolve()} that this process began "
                "with, found another; start hubbub serve again"
            )
        self._take_in()
        first = True  # among those of which all parties were not asked yet
        for one in self.studies.values():
            running = sum(other.state == RUNNING for other in self.studies.values())
            now = time.monotonic()
            if one.state != QUEUED or one.again > now:
                continue
            wanted = self._is_wanted(one)
            if wanted and first:
                if running >= _AT_ONCE:
                    one.wait(f"{_AT_ONCE} studies run at once; it begins when one of them is over")
                elif not self._door.is_free:
                    one.wait("another study begins, and this one after its first step")
                else:
                    self._begin(one)
            elif not wanted and not one.enough_since and now > one.came + self._timeouts.waiting:
                one.vain = self._over
            # For a while: an answer that cannot be kept hinders no other study.
            first = first and (one.is_proposed or now > one.came + self._timeouts.grace)

    def _take_in(self) -> None:
        """Read the folder; studies keep the order of their files' names, new ones come last."""
        paths = sorted(self._folder.glob("*.toml"))
        for gone in self.unread.keys() - {*paths}:
            del self.unread[gone]
        for path in paths:
            try:
                study = self._party.parsed(path, Study.parse)
            except HubbubError as error:
                if self.unread.get(path) != loggable(error):
                    self.unread[path] = loggable(error)
                    self._log.warn("stopped", study=path.name, said=loggable(error))
                continue
            self.unread.pop(path, None)
            if study.id not in self.studies:
                log = StudyLog.within(self._log, study.name, study.id)
                self.studies[study.id] = QueuedStudy(study=study, event_log=log)
                if self._party.has_ended(study.id):
                    self.studies[study.id].state = DONE
                    log.state(state=DONE)
        unread = {path.name: why for path, why in self.unread.items()}
        if unread != (self._log.current("unread") or {}):
            self._log.state(unread=unread)

    def _is_wanted(self, one: QueuedStudy) -> bool:
        """Whether a study is approved here, and by enough parties; it is proposed to them."""
        study = one.study
        try:
            check(self._party, study, self._data)
            Outbox(self._party).put(study)
        except HubbubError as error:
            one.wait(loggable(error))
            return False
        except OSError as error:
            one.wait(f"it cannot be proposed, the disk says: {why_of(error)}")
            return False
        said = Outbox(self._party).standings(study.id)
        one.is_proposed = said.keys() >= {party.name for party in self._roster.parties[1:]}
        verdict, now = Verdict.of(study, self._party.roster, said), time.monotonic()
        if verdict.hopeless:
            reasons = listed({name: said[name].reason for name in verdict.declined})
            one.wait(f"too many parties have declined it: {reasons}", DECLINED)
            return False
        one.enough_since = (one.enough_since or now) if verdict.enough else 0.0
        if verdict.enough and (
            not verdict.lacking or now > one.enough_since + self._timeouts.grace
        ):
            return True
        lost = [name for name in verdict.lacking if name in said and said[name].is_lost]
        why = listed({name: said[name].reason for name in lost})
        asked = f"it is not decided on yet by {few(verdict.lacking)}"
        one.wait(f"{asked}; {why or 'hubbub inbox there'}")
        return False

    def _begin(self, one: QueuedStudy) -> None:
        """Run a study on a thread of its own."""
        if not self._door.enter(
            one.study.id, wait=False
        ):  # somebody came in since it was seen free
            return
        one.state, one.why = RUNNING, ""
        one.event_log.state(state=RUNNING, why="")
        Thread(target=self._served, args=(one,), daemon=True, name=one.study.name).start()

    def _served(self, one: QueuedStudy) -> None:
        """A study's thread."""
        over = self._over
        try:
            given = (self._carrier, self._party, one.study, one.event_log, self._timeouts)
            with _asking(*given) as requests:
                _run(self._party, one.study, requests, self._data, door=self._door)
            one.state = DONE
            one.event_log.state(state=DONE)
            for other in self.left:
                other.again = 0.0  # there may be room now
        except EndedError:
            one.state = QUEUED
        except (NoRoomError, WaitedError) as error:
            one.again, one.vain = time.monotonic() + _AGAIN_SECONDS, over
            one.wait(loggable(error))
        except HubbubError as error:
            one.wait(loggable(error), STOPPED)
        except OSError as error:  # tried again, it might have all pay again and again
            why = f"the disk says: {why_of(error)}; make room, and start hubbub serve again"
            one.wait(why, STOPPED)
        except Exception as error:  # noqa: BLE001 (others go on)
            one.wait(f"expected no such error: {type(error).__name__}", STOPPED)
        finally:
            self._door.leave(one.study.id)
            nobody: dict[str, Any] = {"absent_why": {}, "left_out": [], "parties_refusing": []}
            one.event_log.absent((), **nobody)  # for this study: others may miss somebody


def host_all(
    party_folder: PartyFolder,
    folder: Path,
    event_log: EventLog,
    *,
    url: str | None = None,
    data: Path | None = None,
    timeouts: Timeouts | None = None,
    once: bool = False,
) -> Studies:
    """Run the studies of a folder, several at a time, as their aggregator.

    Guarantees:
        1. No study is asked for that its parties have not approved, and none is begun for which
           caps have no room: nobody pays for what cannot go on.
        2. What was interrupted goes on when the folder is served again.

    Args:
        url, data, timeouts: as for `host`.
        once: end when all that are there are over, or cannot begin: what caps have no room for
            when all others are over, and what parties have not come for, or decided on, as long as
            the aggregator waits. Else on `KeyboardInterrupt`.
    """
    with (
        _line(party_folder, url, event_log) as carrier,
        _carrying(party_folder, carrier, event_log),
    ):
        studies = Studies(party_folder, folder, carrier, event_log, timeouts or Timeouts(), data)
        while True:
            studies.look()
            running = any(one.state == RUNNING for one in studies.left)
            if event_log.current("state") == TRAINING and not running:
                event_log.state(state=WAITING)
            if once and studies.is_stuck:
                event_log.state(state=WAITING if studies.left else DONE)
                return studies
            time.sleep(_LOOK)


def check(party_folder: PartyFolder, study: Study, data: Path | None) -> None:
    """Whether a study can be served here."""
    if party_folder.role != "aggregator":
        raise UserError(
            f"expected the aggregator's folder, got that of a {party_folder.role}; use join"
        )
    if party_folder.study(study.id) is None:
        raise UserError(
            f"expected a study that was approved in {party_folder.home.resolve()}, got "
            f"{study.name} ({study.id.hex()[:16]}), which was not, as it is now; hubbub approve it"
        )
    if study.data.test:
        silo_records.check_file(study, silo_records.TEST, data or party_folder.home)


@contextmanager
def _relayed(
    party_folder: PartyFolder, relay: Relay, url: str | None, event_log: EventLog
) -> Iterator[Relay]:
    """A relay that runs, and how it is reached from here."""
    if url is not None:
        yield relay
        return
    folder = party_folder.home / RELAY
    certificate = RelayFiles.written(folder, party_folder.roster, None).certificate
    if notice := certificate.notice:
        event_log.warn("relay", said=notice)
    server = Server(folder, relay.port, lambda said: event_log.warn("relay", said=said))
    server.start()
    try:
        yield relay.near(relay.pin)
    finally:
        server.stop()
