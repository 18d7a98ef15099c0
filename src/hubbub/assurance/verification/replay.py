"""A transcript played again: who sent what when, what it adds up to, and the step that follows.

Theory of operation. The frames of a session are read in their order. Every signature is verified,
every time must be later than the one before, and every party that was asked answers once. Where the
vectors were kept, an attempt that everybody answered gives its sum, the sum gives the step, and the
next MODEL must hold the result to the last bit, which is the business of `model_course.py`. Where
they were not, a silo's answer still says which MODEL it was shown. The
keys in a transcript's header are believed here, and no other file is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.assurance.transcript import Header, Kept, read
from hubbub.assurance.verification.model_course import Course
from hubbub.errors import IntegrityError, ProtocolError
from hubbub.protocol import (
    EARLIER,
    EVERYBODY,
    Attendance,
    Lift,
    Parameters,
    RoundParameters,
    SeedCheck,
    Tag,
    decoded,
    draw_of,
    ring,
    unverified,
)

Time = tuple[int, int]
_ROUND = frozenset(
    {*(Tag.SEED_LINK, Tag.MASKED), *(Tag.ARRIVED, Tag.HELD, Tag.REQUEST, Tag.PROMISE, Tag.TOTAL)}
)


@dataclass
class Played:
    """What a session came to."""

    frames: int = 0
    version: int = 0  # of the wire
    attempts: int = 0  # that some silo answered
    answers: Counter[int] = field(default_factory=Counter)  # by silo
    unseen: int = 0  # rounds whose sum could not be made again here
    withheld: int = 0  # those of them of which vectors were not kept
    # By round, in a session that makes no steps.
    sums: dict[int, NDArray[np.float64]] = field(default_factory=dict, repr=False)


def gradient_of(
    terms: RoundParameters, attempt: ReplayedAttempt, lift: Lift | None
) -> NDArray[np.float64]:
    """From the sum of an attempt to the gradient: the one place for what lies between."""
    total = decoded(terms, ring.to_integers(attempt.total))
    if lift is None or attempt.seed is None:
        return total
    return lift(total, draw_of(attempt.seed, *attempt.time, attempt.parameters))


@dataclass
class ReplayedAttempt:
    """An attempt while its answers are read."""

    time: Time
    active: frozenset[int]
    model: bytes
    parameters: Parameters = field(repr=False)
    total: ring.Residues = field(repr=False)
    links: list[bytes] = field(default_factory=list, repr=False)
    seed: bytes | None = None
    arrived: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)  # silos whose shares some node could not open
    held: set[int] = field(default_factory=set)
    promises: set[int] = field(default_factory=set)  # of nodes
    totals: set[int] = field(default_factory=set)
    asked: bool = False
    whole: bool = True

    def is_complete(self, terms: RoundParameters, nodes: Iterable[int]) -> bool:
        """Whether no mask is left on the sum."""
        if terms.nodes:
            return len(self.summed) >= terms.quorum and self.totals == set(nodes)
        return self.arrived == self.active

    @property
    def summed(self) -> set[int]:
        """Silos whose answers are in the sum."""
        return self.arrived - self.closed

    def add(self, kept: Kept, terms: RoundParameters, sender: str, aggregator: str) -> None:
        """Take an answer in, if its vector was kept."""
        is_total = kept.tag is Tag.TOTAL
        if not is_total and kept.answered != self.model:
            raise ProtocolError(
                f"expected {sender} to answer the MODEL of this attempt, found that it was shown "
                "another, or says so: what such silos send does not add up",
                culprit=aggregator,
            )
        (self.totals if is_total else self.arrived).add(kept.sender)
        if kept.payload is None:
            self.whole = False
            return
        frame = unverified(_bytes(kept))
        if is_total:
            combine = np.add if terms.full_shares else np.subtract
            combine(self.total, terms.read_total(frame, sender), out=self.total)
        else:
            self.total += terms.read_answer(frame, self.model, aggregator)

    def add_link(self, kept: Kept, seeds: SeedCheck, sender: str) -> None:
        """Take a silo's link; with the last one the joint seed is known."""
        if self.arrived or self.seed is not None:
            raise ProtocolError("expected its link before the answers, once", culprit=sender)
        self.links.append(_bytes(kept))
        if len(self.links) == len(self.active):
            self.seed = seeds.seed(*self.time, self.active, self.links)

    def check_request(self, kept: Kept, terms: RoundParameters, sender: str) -> None:
        """A node must be asked about those who answered, and nobody else, and about their MODEL."""
        named, model = terms.read_request(unverified(_bytes(kept)), sender)
        total = kept.tag is Tag.REQUEST
        done, wanted = (self.totals, self.summed) if total else (self.held, self.arrived)
        if kept.sender != 0 or kept.receiver in done or not (total or terms.full_shares):
            raise ProtocolError(
                f"expected {kept.tag.name} before the node's answer", culprit=sender
            )
        self.asked |= total
        if named != wanted or model != self.model:
            raise ProtocolError(
                f"expected a {kept.tag.name} that names the {len(wanted)} silos that answered "
                "this MODEL, found another set or another MODEL",
                culprit=sender,
            )

    def add_promise(self, kept: Kept, terms: RoundParameters, sender: str) -> None:
        """A node's word for the silos that it was asked about, which are all that answered."""
        named, model = terms.read_request(unverified(_bytes(kept)), sender)
        if not self.asked or named != self.summed or model != self.model:
            raise ProtocolError(
                f"expected {sender} to promise the total of the {len(self.summed)} silos whose sum "
                "is taken, found a promise of others",
                culprit=sender,
            )
        self.promises.add(kept.sender)

    def add_held(self, kept: Kept, terms: RoundParameters, sender: str) -> None:
        """A node's word about the shares that it was handed."""
        if not terms.full_shares:
            raise ProtocolError("expected no HELD in this study, found one", culprit=sender)
        closed, _ = terms.read_named(unverified(_bytes(kept)), sender)
        self.held.add(kept.sender)
        self.closed |= closed


class Replay:
    """One session while it is played; its steps, if it makes any, lead along the course.

    Projected sums are lifted to whole ones, if that can be done here (`liftable`).
    """

    def __init__(
        self,
        header: Header,
        terms: RoundParameters,
        course: Course | None,
        *,
        lift: Lift | None = None,
        liftable: bool = True,
    ) -> None:
        self._header, self._terms, self._course = header, terms, course
        self._roster, self._lift, self._liftable = header.roster, lift, liftable
        self._anchors: list[bytes] = []
        self._seeds: SeedCheck | None = None
        self._last: Time = (0, 0)
        self._row, self._attendance = 0, Attendance(terms)
        self._open: ReplayedAttempt | None = None
        self._played = Played()

    def play(self, path: Path, look: Callable[[], None] = lambda: None) -> Played:
        """All frames of the transcript; IntegrityError names the first round that does not fit.

        `look` is called after every MODEL, to show progress.
        """
        at = self._last
        try:
            for kept in read(path):
                at = (kept.round, kept.attempt)
                self._take(kept)
                if kept.tag is Tag.MODEL:
                    look()
            at = self._last
            self._close()
        except ProtocolError as error:
            raise _misfit(path, at, error) from None
        return self._played

    def _take(self, kept: Kept) -> None:
        """One frame more."""
        self._played.frames += 1
        self._played.version = self._played.version or kept.version
        if kept.version != self._played.version:
            raise ProtocolError(
                f"expected frames of one wire version, found {kept.version} beside "
                f"{self._played.version}"
            )
        if (kept.study, kept.session) != (self._header.study, self._header.session):
            raise ProtocolError(f"expected a {kept.tag.name} of this session, found another's")
        sender = self._roster.name(kept.sender)
        if kept.sender >= len(self._roster.parties) or not self._roster.parties[
            kept.sender
        ].verifies(kept.signature, kept.signed):
            raise ProtocolError(
                f"expected a {kept.tag.name} signed by {sender}, found a false signature"
            )
        if kept.tag is Tag.MODEL:
            self._begin(kept, sender)
        elif kept.tag is Tag.SEED_ANCHOR:
            self._anchors.append(_bytes(kept))
        elif kept.tag in _ROUND:
            self._answer(kept, sender)

    def _begin(self, kept: Kept, sender: str) -> None:
        """A MODEL opens an attempt, and closes the one before."""
        time = (kept.round, kept.attempt)
        if kept.sender != 0 or kept.receiver != EVERYBODY or kept.payload is None:
            raise ProtocolError("expected a MODEL from the aggregator to everybody", culprit=sender)
        if time <= self._last or not 1 <= kept.round <= self._terms.steps:
            raise ProtocolError(
                f"expected a round after {self._last[0]}.{self._last[1]} and up to "
                f"{self._terms.steps}",
                culprit=sender,
            )
        if self._close() and kept.round == self._last[0]:
            raise ProtocolError(
                "expected no further attempt at a round that all had answered", culprit=sender
            )
        model = unverified(_bytes(kept))
        active, parameters = self._terms.read_model(model, sender)
        self._row += 1
        if self._terms.correlation and self._terms.row_of(model) != self._row:
            raise ProtocolError(f"expected attempt {self._row} of the session", culprit=sender)
        self._attendance.stay(active, sender)
        if self._course is not None:
            self._course.arrive(kept.round) if self._last[0] else self._course.go_back(kept.round)
            self._course.expect(parameters, self._terms)
        self._last = time
        total = ring.zeros(self._terms.dimension, self._terms.word_bits)
        self._open = ReplayedAttempt(
            time=time, active=active, model=model.digest, parameters=parameters, total=total
        )
        if self._terms.needs_joint_seed and self._seeds is None:
            self._seeds = self._anchored()

    def _answer(self, kept: Kept, sender: str) -> None:
        """What a party says in the open attempt."""
        attempt = self._open
        if attempt is None or (kept.round, kept.attempt) != attempt.time:
            raise ProtocolError(
                f"expected an answer to {self._last[0]}.{self._last[1]}, found a {kept.tag.name}",
                culprit=sender,
            )
        if kept.tag is Tag.SEED_LINK and self._seeds is not None:
            attempt.add_link(kept, self._seeds, sender)
        elif kept.tag in (Tag.ARRIVED, Tag.REQUEST):
            attempt.check_request(kept, self._terms, sender)
            if kept.tag is Tag.REQUEST:
                self._attendance.stay(frozenset(attempt.summed), sender)
        else:
            for_whom = EVERYBODY if kept.tag is Tag.PROMISE else 0
            if kept.sender not in self._awaited(attempt, kept.tag) or kept.receiver != for_whom:
                raise ProtocolError(
                    f"expected one {kept.tag.name} of everybody who was asked, found another",
                    culprit=sender,
                )
            if kept.tag is Tag.HELD:
                attempt.add_held(kept, self._terms, sender)
            elif kept.tag is Tag.PROMISE:
                attempt.add_promise(kept, self._terms, sender)
            else:
                attempt.add(kept, self._terms, sender, self._roster.name(0))

    def _anchored(self) -> SeedCheck:
        """What the links of the session must hash down to."""
        seeds = self._terms.seed_check(self._roster, self._header.study, self._header.session)
        seeds.learn_anchors(self._anchors)
        return seeds

    def _awaited(self, attempt: ReplayedAttempt, tag: Tag) -> Set[int]:
        """Who may still say this in the open attempt."""
        nodes = set(self._roster.nodes)
        if tag is Tag.TOTAL:  # told when all have promised, but by nodes of an earlier version
            told = attempt.promises == nodes or self._played.version == EARLIER
            return nodes - attempt.totals if told else set()
        if tag is Tag.PROMISE:
            return nodes - attempt.promises
        if tag is Tag.HELD:
            return set() if attempt.asked else nodes - attempt.held
        return frozenset() if attempt.asked else attempt.active - attempt.arrived

    def _close(self) -> bool:
        """Make the sum and the step of the open attempt, if it is complete; whether it was."""
        attempt, self._open = self._open, None
        if attempt is None:
            return False
        self._played.attempts += bool(attempt.arrived)
        self._played.answers.update(attempt.arrived)
        if not attempt.is_complete(self._terms, self._roster.nodes):
            return False
        if self._terms.needs_joint_seed and attempt.seed is None:
            raise ProtocolError("expected a link of every active silo before the answers")
        seen = attempt.whole and self._liftable
        self._played.unseen += not seen
        self._played.withheld += not attempt.whole
        gradient = gradient_of(self._terms, attempt, self._lift) if seen else None
        if self._course is not None:
            self._course.step(gradient)
            self._course.arrive(attempt.time[0] + 1)
        elif gradient is not None:
            self._played.sums[attempt.time[0]] = gradient
        return True


def first_round(path: Path) -> int | None:
    """The round with which a session begins; None if it has none."""
    return next((kept.round for kept in read(path) if kept.tag is Tag.MODEL), None)


def _bytes(kept: Kept) -> bytes:
    """A frame whose payload was kept, as it was sent."""
    return kept.words + (kept.payload or b"") + kept.signature


def _misfit(path: Path, at: Time, error: object) -> IntegrityError:
    where = f"round {at[0]}, attempt {at[1]}," if at[0] else "the set-up"
    return IntegrityError(
        f"expected {where} of {path} to follow from what was sent before; {error}; ask the "
        "aggregator to account for it, and rely on no model from there on"
    )
