"""A study of single sums from the aggregator's chair: collections, then the end of any run.

The loop is that of every run (`training/loop.py`); only where a sum comes from differs: it is
collected over weeks. What is lost when this process dies is nothing: it goes on from its files.
Where a training follows, what comes before it is collected, and `serve` without a date trains.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError, UserError
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.protocol.agreement.key_agreement import SESSION_BYTES
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import Tag, parse, unverified
from hubbub.core.protocol.projection.product import Lift
from hubbub.core.protocol.round.projected_sum import LocalTask
from hubbub.core.protocol.round.round_parameters import RoundParameters, decoded
from hubbub.core.runs.checkpoint import CheckpointWriter
from hubbub.core.runs.federated import ask_before, private_queries, train_federated
from hubbub.core.runs.run_folder import RunFolder
from hubbub.core.runs.run_sessions import RunSessions
from hubbub.core.session.layout import round_parameters_of
from hubbub.core.session.session_offer import SessionOffer
from hubbub.core.study import sources
from hubbub.core.verification.evidence.collecting import checked_part
from hubbub.core.verification.transcript.frame_records import FOLDER as TRANSCRIPTS
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.result import Result
from hubbub.site.collected.collection_opening import CollectionPlace
from hubbub.site.network.aggregator_run import concluded, run_folder_of, saved_as_it_goes
from hubbub.site.network.collection.asked import collect_frame, until_of
from hubbub.site.network.collection.collectable import check_collectable
from hubbub.site.network.collection.collection_course import Collecting, day_of
from hubbub.site.network.collection.collector_box import CollectorBox
from hubbub.site.network.collection.kept_frames import FOLDER, KeptFrames
from hubbub.site.network.coordinator import Coordinator
from hubbub.site.network.requests import UNREADABLE


@dataclass(frozen=True, kw_only=True)
class CollectedSum:
    """The one sum of a query.

    Args:
        collected: goes on until it opens; the collection, and its sum in grid steps.
        round_parameters: its numbers.
    """

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
    """Where the sums of a run come from: a collection for each.

    Args:
        coordinator: the aggregator's.
        until: seconds since 1970.
        wall: the time, seconds since 1970.
        boxes: the collections that were opened, by purpose.
    """

    coordinator: Coordinator
    until: float
    wall: Callable[[], float] = time.time
    boxes: dict[str, CollectorBox] = field(default_factory=dict)

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
        requests.expect(planned.purpose, numbers, ())
        box = self.boxes[planned.purpose] = self.box_of(planned, numbers)
        Collecting(
            box=box,
            requests=requests,
            keys=coordinator.party_folder.keys,
            study=coordinator.study.name,
            until=self.until,
            check=coordinator.check_approval,
            wall=self.wall,
        ).run()
        self._record(planned, numbers, box)
        return box.collector.integers()

    def box_of(self, planned: PlannedQuery[Query], numbers: RoundParameters) -> CollectorBox:
        """The collection that was begun, or a new one."""
        home, study = self.coordinator.party_folder, self.coordinator.study
        kept = KeptFrames(home.home / FOLDER / f"{study.id.hex()[:16]}-{planned.purpose}")
        box = CollectorBox.found(kept, study.id, home.roster, numbers)
        if box is not None:
            return box
        place = CollectionPlace(roster=home.roster, study=study.id, id=os.urandom(SESSION_BYTES))
        offer = SessionOffer.of(planned.purpose, numbers, self.coordinator.standardisation)
        collect = collect_frame(place, home.keys, offer, self.until)
        return CollectorBox.begun(kept, place, numbers, collect)

    def _record(
        self, planned: PlannedQuery[Query], numbers: RoundParameters, box: CollectorBox
    ) -> None:
        """The transcript of a collection, written at once from what is kept."""
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
        coordinator: of the study, approved in the aggregator's folder.
        out: the run's folder, new or interrupted.
        until: when enough silos are enough; seconds since 1970.
        data: the folder that the public test set is in; the home if None.
        wall: the time, seconds since 1970.

    Returns:
        The result; None where a training follows, which needs sessions.

    Raises:
        StudyError: the study cannot be collected.
        UserError: the date is over, and no silo was told of it.
        UserError, IntegrityError: as for `hubbub.run`.
    """
    began = time.perf_counter()
    home, study = coordinator.party_folder, coordinator.study
    whose = [sources.TEST] if sources.has_test_set(study) else []
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
            ask_before(prepared, private_queries(sums), folder)
            return None
        saver = stack.enter_context(CheckpointWriter(folder.keep))
        prepared, trained = train_federated(
            prepared,
            sums,
            start=start,
            progress=lambda _step, _row: None,
            keep=saved_as_it_goes(coordinator, prepared, saver),
            settle=saver.wait,
            offer=coordinator.standardise,
            release=coordinator.release,
        )
        saver.wait()
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
    purpose, requests = plan.main.purpose, coordinator.requests
    box = sums.boxes.get(purpose)
    if box is None:  # the sum was taken by a process that has ended since
        box = sums.box_of(plan.main, round_parameters_of(plan.main))
    sessions = [session for each in folder.purposes for session in folder.sessions(each)]
    parts = []
    for silo in box.collector.named:
        word = box.last_word(silo)
        try:
            if word is None:
                raise ProtocolError("expected a CLOSED with the deposit, got none")
            place, party = box.collector.place, requests.roster.parties[silo]
            frame = parse(word, requests.roster, study=place.study, session=place.id)
            if frame.tag is not Tag.CLOSED or frame.sender != silo:
                raise ProtocolError("expected CLOSED, got another frame", culprit="relay")
            said = json.loads(bytes(frame.payload))
            parts.append(checked_part(said, party, study=place.study, sessions=sessions))
        except UNREADABLE as error:
            requests.warn("garbled", whom=requests.roster.name(silo), said=str(error))
    return sorted(parts, key=lambda one: str(one["silo"]))
