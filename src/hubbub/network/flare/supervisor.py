"""What `hubbub serve` and `hubbub join` do all day: keep FLARE's processes up, and tell people.

FLARE keeps nothing across a restart of its server, and gives a running job to no site that comes
late. So the supervisor hands the job in again whenever it ended without word from the aggregator's
worker, and whenever it waits for sites that are connected. The run itself goes on from its folder.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubbub.errors import HubbubError, UserError
from hubbub.network.event_log import LOG
from hubbub.network.event_messages import sentence
from hubbub.network.flare.job import job_name, write_job
from hubbub.network.flare.outcome import OUTCOME
from hubbub.network.flare.parent import Admin, Parent, UnreachableError, administered, follow
from hubbub.network.flare.site_settings import Settings
from hubbub.protocol import Roster
from hubbub.study import Study

Tell = Callable[[dict[str, Any]], None]

_LOOK = 0.5  # seconds between looks at the event log
_ASK = 5.0  # seconds between questions to the server
_STUCK = 5.0  # seconds that a job may wait for sites which are connected without it
_WEDGED = 120.0  # seconds that it may wait for sites which have it, and do not answer
_SHORT = 30.0  # seconds; jobs that end sooner count as failures
_MOST_SHORT = 5


class EndedError(HubbubError):
    """The run ended with an error; its sentence is the aggregator's."""


@dataclass(kw_only=True)
class Watched:
    """The event log of a party, read as it grows."""

    path: Path
    tell: Tell
    place: int = 0
    waiting_since: float | None = None

    @classmethod
    def of(cls, home: Path, tell: Tell) -> Watched:
        """From what is there now on."""
        path = home / LOG
        return cls(path=path, tell=tell, place=path.stat().st_size if path.exists() else 0)

    def look(self) -> None:
        """Tell what is new."""
        for event in follow(self.path, self.place):
            self.place = event.pop("end")
            if event["event"] == "waiting":
                self.waiting_since = self.waiting_since or time.monotonic()
            elif event["event"] in ("open", "step"):
                self.waiting_since = None
            self.tell(event)


@dataclass(kw_only=True)
class Serving:
    """A study at the aggregator's machine.

    Args:
        study, roster: what is run, by whom.
        quorum: silos that a round needs.
        settings: of the aggregator.
        parent: FLARE's server; None: somebody else keeps it up.
        admin_kit: of an administrator who may hand jobs in.
        tell: told every event.
    """

    study: Study
    roster: Roster
    quorum: int
    settings: Settings
    parent: Parent | None
    admin_kit: Path
    tell: Tell
    _watched: Watched = field(init=False)

    def run(self) -> None:
        """Until the study is done.

        Raises:
            EndedError: it ended with an error.
            UnreachableError: FLARE's server does not answer.
        """
        home, short = Path(self.settings.home), 0
        self._watched = Watched.of(home, self.tell)
        (home / OUTCOME).unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            job = write_job(Path(folder) / "job", self.study, self.roster, self.quorum)
            while not self._over():
                began = time.monotonic()
                self._start()
                with administered(self.admin_kit, wait=60.0) as admin:
                    self._attend(admin, job)
                short = short + 1 if time.monotonic() - began < _SHORT else 0
                if short >= _MOST_SHORT and not self._over():
                    raise EndedError(
                        f"expected the job to run, it ended at once {short} times; see log.txt and "
                        "error_log.txt in the startup kits of the server and the sites"
                    )

    def _start(self) -> None:
        if self.parent is not None:
            self.parent.start()

    def _attend(self, admin: Admin, job: Path) -> None:
        """One job, to its end or to that of the server."""
        try:
            self._gather(admin)
            self._serve(admin, job)
        except UnreachableError as error:
            self._say("again", status=str(error))

    def _gather(self, admin: Admin) -> None:
        """Wait until all sites are connected."""
        wanted = {party.name for party in self.roster.parties[1:]}
        end, told = time.monotonic() + self.settings.waiting, ""
        while missing := ", ".join(sorted(wanted - admin.sites())):
            if missing != told:
                self._say("waiting", parties=missing)
                told = missing
            if time.monotonic() > end:
                raise EndedError(
                    f"expected {missing} to connect within {self.settings.waiting:g} s, got no "
                    "sign of them; start hubbub join there, then serve again"
                )
            self._start()
            time.sleep(1.0)

    def _serve(self, admin: Admin, job: Path) -> None:
        """Hand the job in, and watch it to its end."""
        for old in admin.running(job_name(self.study)):  # of a supervisor that is gone
            admin.abort(old)
        name = admin.submit(job)
        self._say("submitted", job=name)
        self._watched.waiting_since, asked = None, time.monotonic()
        while not self._over():
            time.sleep(_LOOK)
            self._watched.look()
            if self.parent is not None and not self.parent.running:
                self._say("restarted", process="FLARE's server")
                return
            if time.monotonic() - asked < _ASK:
                continue
            asked = time.monotonic()
            status = admin.status(name)
            if status.startswith("FINISHED"):
                self._watched.look()
                if not self._over():
                    self._say("again", status=status)
                return
            if not status.startswith("RUNNING"):  # the job before it may still have been waiting
                self._watched.waiting_since = None
            elif self._stuck(admin, name):
                self._say("again", status="it waited for sites that are connected again")
                admin.abort(name)
                return
        self._watched.look()

    def _stuck(self, admin: Admin, job: str) -> bool:
        """Whether the job waits for a site that came back too late to be part of it.

        It cannot be given to a site that is cut off, so all must answer before it is ended.
        """
        waited = time.monotonic() - (self._watched.waiting_since or time.monotonic())
        if waited < _STUCK:
            return False
        wanted = {party.name for party in self.roster.parties[1:]}
        heard, having = admin.reached(job)
        return wanted <= heard and (waited >= _WEDGED or not wanted <= having)

    def _over(self) -> bool:
        """Whether the aggregator's worker has left word.

        Raises:
            EndedError: of an error.
        """
        try:
            said = json.loads((Path(self.settings.home) / OUTCOME).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return False
        if said["study"] != self.study.id.hex():
            return False
        if said["done"]:
            return True
        raise UserError(said["said"]) if said["bad_input"] else EndedError(said["said"])

    def _say(self, event: str, **values: Any) -> None:
        self.tell({"event": event, "party": "aggregator", **values})


def keep_joined(parent: Parent, home: Path, tell: Tell, *, until: Callable[[], bool]) -> None:
    """Keep a site's parent up, and tell what its party writes down.

    Args:
        parent: of the site.
        home: the party's folder.
        tell: told every event.
        until: whether to end; asked twice a second.
    """
    watched = Watched.of(home, tell)
    pause = 1.0
    while not until():
        if not parent.running:
            parent.start()
            time.sleep(pause)
            pause = min(60.0, 2 * pause)
        else:
            pause = 1.0
        time.sleep(_LOOK)
        watched.look()


def told(event: dict[str, Any]) -> str:
    """An event in one line."""
    values = {k: v for k, v in event.items() if k not in ("event", "time", "level", "party")}
    return sentence(event["event"], values)
