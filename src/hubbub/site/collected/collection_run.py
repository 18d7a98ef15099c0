"""The aggregator of sums that are open for weeks: who is asked for what, and the study's end.

Every few seconds it looks who is there. Whom something is due of is asked for it, everybody else is
told that nothing is, and how far it is. What comes is on the disk before anything follows from it
(`network/kept_frames.py`), so the process may end at any moment and go on later. The set is fixed
when everybody has come, or time is up and enough have; then all nodes promise it, then all tell
their totals. Nothing here is trusted with privacy (docs/privacy.md P30).
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError, UserError
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.message_sizes import SESSION_BYTES
from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.protocol.round.draw import Lift
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import RoundParameters, decoded
from hubbub.core.runs.federated import RunSessions, ask_before
from hubbub.core.runs.run_folder import RunFolder
from hubbub.core.session.ask import Absent, Call
from hubbub.core.session.attestation_exchange import NONCE_BYTES
from hubbub.core.session.offer import SessionOffer, round_parameters_of
from hubbub.core.study import silo_records
from hubbub.core.verification.transcript.frame_records import FOLDER as TRANSCRIPTS
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.result import Result
from hubbub.site.collected.collection_frames import CollectionPlace, read_deposit
from hubbub.site.collected.collection_request import check_collectable, collect_frame, until_of
from hubbub.site.collected.collector import CollectorBox
from hubbub.site.network.aggregator_run import concluded, run_folder_of, trained_with
from hubbub.site.network.coordinator import Coordinator
from hubbub.site.network.event_log import WAITING
from hubbub.site.network.kept_frames import FOLDER, KeptFrames
from hubbub.site.network.requests import Requests

HOUR, DAY = 3600.0, 86400.0
_BEFORE = (14 * DAY, 7 * DAY, 3 * DAY, DAY, 6 * HOUR, HOUR)


def next_reminder(now: float, until: float) -> float:
    """The time after `now` at which people are reminded of who has not come, in seconds since 1970.

    Seldom at first, and daily once time is up.
    """
    planned = [until - before for before in _BEFORE] + [until]
    later = [at for at in planned if at > now]
    if later:
        return min(later)
    return until + DAY * (int((now - until) // DAY) + 1)


_PAUSE = 5.0  # seconds between two looks at who is there
_FIRST_WAIT, _MOST_DOUBLINGS = 30.0, 10  # seconds for an answer; doubled for who is silent
_LONGEST_PAUSE = 600.0  # until one that has refused, and stays, is asked again
Due = dict[int, tuple[Call, list[bytes]]]
_KINDS = {  # under which what parties answer is kept
    Call.COLLECT_KEY: "key",
    Call.COLLECT_DEPOSIT: "deposit",
    Call.COLLECT_PROMISE: "promise",
    Call.COLLECT_TOTAL: "total",
}


def day_of(seconds: float) -> str:
    """A time as people write it."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


@dataclass(kw_only=True)
class Collecting:
    """One collection while it goes on."""

    box: CollectorBox
    requests: Requests
    keys: Keys = field(repr=False)
    study: str  # its name, for people
    purpose: str  # of the query
    until: float  # seconds since 1970, as what `wall` gives; then enough are enough
    check: Callable[[], None]  # raises where there is nothing to go on for
    wall: Callable[[], float] = time.time
    _remind_at: float = 0.0
    _shown: dict[int, list[int]] = field(default_factory=dict)
    _stated: set[int] = field(default_factory=set)  # silos whose ledgers' heads were just taken
    _pauses: dict[int, tuple[float, float]] = field(default_factory=dict)  # until, and how long
    _slow: Counter[int] = field(default_factory=Counter)  # answers that did not come, by party

    def run(self) -> None:
        """Go on until the sum can be taken."""
        self._remind_at = next_reminder(self.wall(), self.until)
        self._tell()
        while not self.box.collector.is_complete:
            self.check()
            if not self.step():
                self.requests.timeouts.clock.sleep(_PAUSE, self.check)
        self._greeted({})  # whoever is there need not wait for more

    def step(self) -> bool:
        """Ask who is there for what is due; whether anything has come."""
        self._fix_if_due()
        due = self._due()
        there = self._greeted(due)
        taken = False
        for call in dict.fromkeys(due[index][0] for index in there):
            # So that what is said to this request was never said before.
            nonce = self.box.collector.place.frame(Tag.NONCE, 0, os.urandom(NONCE_BYTES))
            fresh = nonce.sealed(self.keys)
            asked = {i: [*due[i][1], fresh] for i in there if due[i][0] is call}
            self._stated -= asked.keys()
            # Who deposits has paid, and says so: no READY of before goes with a deposit (P15).
            paid = int(call is Call.COLLECT_DEPOSIT)
            self.requests.least_paid = {self.purpose: dict.fromkeys(self._silos, paid)}
            # Others wait meanwhile: who needs long to sum or to send has longer the next time.
            most = self.requests.timeouts.of(call)
            doublings = min(_MOST_DOUBLINGS, max(self._slow[index] for index in asked))
            more = min(most, _FIRST_WAIT * 2.0**doublings) - most
            for index, answer in self.requests.ask(call, asked, self._id, more_seconds=more):
                self._slow[index] += isinstance(answer, Absent) and answer.why == "silent"
                if isinstance(answer, Absent) or not self._take(call, index, answer):
                    # Who has not done its part is asked again, less and less often.
                    last = self._pauses.get(index, (0.0, _PAUSE / 2))[1]
                    pause = min(2 * last, _LONGEST_PAUSE)
                    self._pauses[index] = (self.requests.timeouts.clock.now() + pause, pause)
                else:
                    taken = True
                    if index not in self._stated:  # a READY alone is not its part
                        self._pauses.pop(index, None)
                        self._slow.pop(index, None)
        self._fix_if_due()
        self._tell()
        if self.wall() >= self._remind_at:
            self._remind_at = next_reminder(self.wall(), self.until)
            missing = ", ".join(self.missing) or "nobody"
            until = day_of(self.until)
            self.requests.warn("reminder", study=self.study, until=until, missing=missing)
        return taken

    @property
    def _id(self) -> bytes:
        return self.box.collector.place.id

    @property
    def _silos(self) -> list[str]:
        return [self.requests.roster.name(index) for index in self.requests.roster.silos]

    @property
    def _quorum(self) -> int:
        return self.box.collector.round_parameters.quorum

    def _due(self) -> Due:
        """From whom what is to be had, as things are."""
        collector, roster = self.box.collector, self.requests.roster
        keys = [collector.node_keys[node] for node in sorted(collector.node_keys)]
        base, due = [collector.collect, *keys], Due()
        if collector.opening is None:
            left = set(roster.nodes) - collector.node_keys.keys()
            return {node: (Call.COLLECT_KEY, [collector.collect]) for node in left}
        if not collector.fixed:
            for silo in set(roster.silos) - collector.deposits.keys():
                if silo in self._stated:
                    due[silo] = (Call.COLLECT_DEPOSIT, base)
                else:  # before it pays: an older ledger is refused (P15)
                    due[silo] = (Call.COLLECT_KEY, [collector.collect])
            for node in roster.nodes:
                if silos := collector.to_look(node):
                    self._shown[node] = silos
                    due[node] = (Call.COLLECT_LOOK, [*base, *self._heads(silos)])
            return due
        heads = self._heads(collector.named)
        for node in roster.nodes:
            if node not in collector.promises:
                due[node] = (Call.COLLECT_PROMISE, [*base, collector.fixed, *heads])
            elif collector.all_promised and node not in collector.totals:
                promises = [collector.promises[promise] for promise in sorted(collector.promises)]
                due[node] = (Call.COLLECT_TOTAL, [*base, *heads, *promises])
        return due

    def _heads(self, silos: Sequence[int]) -> list[bytes]:
        """DEPOSITs, without the vectors."""
        return [self.box.collector.deposits[silo].deposit for silo in silos]

    def _greeted(self, due: Mapping[int, object]) -> list[int]:
        """Of whom something is due, who is there and asked; others are told that nothing is.

        Who has refused and went away is asked as soon as it comes again.
        """
        everybody = range(1, len(self.requests.roster.parties))
        rest = {i: [self._receipt(i)] for i in everybody if i not in due}
        there = []
        for index, one in self._asked(Call.PING, dict.fromkeys(sorted(due), ())):
            if isinstance(one, Absent):
                self._pauses.pop(index, None)
                self._stated.discard(index)
            else:
                there.append(index)
        for _ in self._asked(Call.COLLECT_REST, rest):
            pass
        now = self.requests.timeouts.clock.now()
        return [i for i in there if now >= self._pauses.get(i, (0.0, 0.0))[0]]

    def _asked(
        self, call: Call, requests: Mapping[int, Sequence[bytes]]
    ) -> list[tuple[int, object]]:
        return list(self.requests.ask(call, requests, self._id)) if requests else []

    def _receipt(self, index: int) -> bytes:
        """How far it is, and what has come of this party."""
        collector, place = self.box.collector, self.box.collector.place
        own = collector.deposits.get(index)
        said = {
            "until": int(self.until),
            "come": len(collector.deposits),
            "quorum": self._quorum,
            "taken": "" if own is None else read_deposit(place, own.deposit).digest.hex(),
        }
        payload = json.dumps(said).encode()
        return place.frame(Tag.RECEIPT, 0, payload, receiver=index).sealed(self.keys)

    def _take(self, call: Call, index: int, answer: list[bytes]) -> bool:
        """What a party has answered; whether it could be used."""
        name = self.requests.roster.name(index)
        try:
            if call is Call.COLLECT_KEY and index in self.requests.roster.silos:
                self._stated.add(index)  # its READY was taken where it came in
                return True
            if call is Call.COLLECT_LOOK:
                self._looked(index, answer)
                return True
            self.box.take(_KINDS[call], index, answer)
            if call is Call.COLLECT_DEPOSIT:
                come, silos = len(self.box.collector.deposits), len(self.requests.roster.silos)
                self.requests.note("came", whom=name, come=come, silos=silos)
        except ProtocolError as error:
            self.requests.garbled(index, str(error), error.culprit)
            return False
        return True

    def _looked(self, node: int, answer: list[bytes]) -> None:
        """A node says whose seeds do not open; it is believed, and so is the silo: neither is."""
        roster = self.requests.roster
        for silo in sorted(self.box.take_look(node, self._shown[node], answer)):
            self.requests.warn("seed", whom=roster.name(node), silo=roster.name(silo))

    def _fix_if_due(self) -> None:
        """Fix the set when all have come, or time is up and enough have."""
        collector, roster = self.box.collector, self.requests.roster
        if collector.fixed or collector.opening is None:
            return
        looked = not any(collector.to_look(node) for node in roster.nodes)
        all_here = len(collector.deposits) == len(roster.silos)
        if (
            looked
            and len(collector.ready) >= self._quorum
            and (all_here or self.wall() >= self.until)
        ):
            self.box.fix(self.keys)
            nodes = ", ".join(roster.name(node) for node in roster.nodes)
            self.requests.note("fixed", silos=len(collector.named), missing=nodes)

    @property
    def missing(self) -> list[str]:
        """Whom it waits for."""
        collector, roster = self.box.collector, self.requests.roster
        left: set[int] = set(self._due())
        if not collector.fixed and collector.opening is None:
            left |= set(roster.silos)
        return [roster.name(index) for index in sorted(left)]

    def _tell(self) -> None:
        """Where it stands, for `hubbub status`."""
        collector, roster = self.box.collector, self.requests.roster
        come = [roster.name(silo) for silo in sorted(collector.deposits)]
        told = {
            "state": WAITING,
            "study": self.study,
            "phase": self.phase,
            "open_until": day_of(self.until),
            "deposits": len(come),
            "quorum": self._quorum,
            "come": come,
            "waiting_for": self.missing,
        }
        if any(self.requests.event_log.current(key) != value for key, value in told.items()):
            self.requests.event_log.state(**told)

    @property
    def phase(self) -> str:
        """What it waits for, in a few words."""
        collector = self.box.collector
        if collector.opening is None:
            return "nodes' keys"
        if not collector.fixed:
            return "deposits"
        return "nodes' totals" if collector.all_promised else "nodes' promises"


# A study of single sums from the aggregator's chair: collections, then the end of any run.
#
# The loop is that of every run (`core/runs/loop.py`); only where a sum comes from differs: it is
# collected over weeks. What is lost when this process dies is nothing: it goes on from its files.
# Where a training follows, what comes before it is collected, and `serve` without a date trains.


@dataclass(frozen=True, kw_only=True)
class CollectedSum:
    """The one sum of a query."""

    collected: Callable[[], ring.Integers]
    round_parameters: RoundParameters

    def round(
        self, number: int, parameters: Any, attempts: int
    ) -> tuple[NDArray[np.float64] | None, int]:
        """The noisy sum in units of the query; it is the first round's, and one attempt."""
        assert (number, attempts) == (1, 1), "a collection is one sum"  # noqa: S101
        return decoded(self.round_parameters, self.collected()), 1


@dataclass(frozen=True, kw_only=True)
class CollectedSums(RunSessions):
    """Where the sums of a run come from: a collection for each."""

    coordinator: Coordinator
    until: float  # seconds since 1970, as what `wall` gives
    wall: Callable[[], float] = time.time
    boxes: dict[str, CollectorBox] = field(default_factory=dict)  # by purpose

    def open(  # type: ignore[override]  # both are asked for rounds alone
        self,
        planned: PlannedQuery[Query],
        tasks: Sequence[LocalTask],
        lift: Callable[[RoundParameters], Lift | None] = lambda _: None,
    ) -> CollectedSum:
        """A collection of a query's sum."""
        numbers = round_parameters_of(planned)
        return CollectedSum(
            collected=lambda: self._collected(planned, numbers), round_parameters=numbers
        )

    def charged(self, purpose: str) -> int:
        """None: the sum of a collection is charged with its deposit, and opens once."""
        return 0

    def _collected(self, planned: PlannedQuery[Query], numbers: RoundParameters) -> ring.Integers:
        """The sum in grid steps, however long it takes."""
        requests, coordinator = self.coordinator.requests, self.coordinator
        requests.expect(planned.purpose, numbers)
        box = self.boxes[planned.purpose] = self.box_of(planned, numbers)
        Collecting(
            box=box,
            requests=requests,
            keys=coordinator.party_folder.keys,
            study=coordinator.study.name,
            purpose=planned.purpose,
            until=self.until,
            check=coordinator.check_approval,
            wall=self.wall,
        ).run()
        # The transcript of a collection, written at once from what is kept.
        assert self.folder is not None, "a run apart has a folder"  # noqa: S101
        place = box.collector.place
        torn = self.folder.path / TRANSCRIPTS / f"{place.id.hex()}.frames"
        torn.unlink(missing_ok=True)  # of a process that has died in the middle of this
        with self.folder.new_transcript(
            place.study, place.id, place.roster, numbers, purpose=planned.purpose
        ) as transcript:
            for frame in box.collector.frames():
                transcript.keep(frame)
            transcript.seal()
        return box.collector.integers()

    def box_of(self, planned: PlannedQuery[Query], numbers: RoundParameters) -> CollectorBox:
        """The collection that was begun, or a new one."""
        home, study = self.coordinator.party_folder, self.coordinator.study
        kept = KeptFrames(home.home / FOLDER / f"{study.id.hex()[:16]}-{planned.purpose}")
        box = CollectorBox.found(kept, study.id, home.roster, numbers)
        if box is not None:
            return box
        place = CollectionPlace(
            roster=home.roster, study=study.id, session=os.urandom(SESSION_BYTES)
        )
        offer = SessionOffer.of(planned.purpose, numbers, self.coordinator.standardisation)
        collect = collect_frame(place, home.keys, offer, self.until)
        return CollectorBox.begun(kept, place, numbers, collect)


def serve_collection(
    coordinator: Coordinator,
    out: Path,
    *,
    until: float,
    data: Path | None = None,
    wall: Callable[[], float] = time.time,
) -> Result | None:
    """Collect a study's single sums, or go on with it where it was interrupted.

    Args:
        until: when enough silos are enough; seconds since 1970, as what `wall` gives.
        data: the folder that the public test set is in; the home if None.

    Returns:
        The result; None where a training follows, which needs sessions.

    Raises:
        StudyError: the study cannot be collected.
        UserError: the date is over, and no silo was told of it.
        UserError, IntegrityError: as for `hubbub.run`.
    """
    began = time.perf_counter()
    home, study = coordinator.party_folder, coordinator.study
    whose = [silo_records.TEST] if silo_records.has_test_set(study) else []
    prepared = prepare(study, whose=whose, folder=data or home.home)
    collected = check_collectable(prepared.plan)
    _check_open_until(coordinator, until, wall())
    with run_folder_of(coordinator, out, prepared) as (folder, start, stack):
        sums = CollectedSums(
            backend=coordinator,
            plan=prepared.plan,
            folder=folder,
            stack=stack,
            coordinator=coordinator,
            until=until,
            wall=wall,
        )
        if prepared.plan.main not in collected:
            ask_before(prepared, sums.asked, folder)
            return None
        prepared, trained = trained_with(
            coordinator, prepared, sums, start, progress=lambda _step, _row: None
        )
        parts = _last_words(coordinator, sums, folder, prepared.plan)
        return concluded(coordinator, prepared, trained, folder, parts, began)


def _check_open_until(coordinator: Coordinator, until: float, now: float) -> None:
    """Refuse a date that is over before anybody was told of it: nobody would be waited for."""
    home, study = coordinator.party_folder, coordinator.study
    folders = (home.home / FOLDER).glob(f"{study.id.hex()[:16]}-*")
    opened = [parts[0] for folder in folders if (parts := KeptFrames(folder).parts("collect"))]
    announced = [until_of(unverified(collect).payload, home.name) for collect in opened]
    if until < min([now, *announced]) or (until <= now and not announced):
        told = f"{day_of(min(announced))}, as silos were told" if announced else "a later one"
        raise UserError(
            f"expected --until in the future, got {day_of(until)}, which is over; name {told}"
        )


def _last_words(
    coordinator: Coordinator, sums: CollectedSums, folder: RunFolder, plan: Plan
) -> list[dict[str, Any]]:
    """What silos have signed of their ledgers, with their deposits."""
    box = sums.boxes.get(plan.main.purpose)
    if box is None:  # the sum was taken by a process that has ended since
        box = sums.box_of(plan.main, round_parameters_of(plan.main))
    sessions = [session for ids in folder.sessions.values() for session in ids]
    parts = []
    for silo in box.collector.named:
        if (word := box.last_word(silo)) is None:
            said = "expected a CLOSED with the deposit, got none"
            coordinator.requests.garbled(silo, said, culprit="")
        elif part := coordinator.closing.part(box.collector.place.id, silo, [word], sessions):
            parts.append(part)
    return sorted(parts, key=lambda one: str(one["silo"]))
