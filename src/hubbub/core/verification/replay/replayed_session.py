"""A transcript played again: who sent what when, what it adds up to, and the step that follows.

Theory of operation. The frames of a session are read in their order. Every signature is verified,
every time must be later than the one before, and every party that was asked answers once. Sets of
silos are parts of the session's, which its ROLL names (P29); before there were ROLLs, all. A node's
word about full shares must be about the very SHAREs that silos have signed for it, and for the
MODEL of the attempt. Where the vectors were kept, an attempt that everybody answered gives its sum,
the sum gives the step, and the next MODEL must hold the result to the last bit, which is the
business of `course.py`. Where they were not, a silo's answer still says which MODEL it was
shown. The keys in a transcript's header are believed here, and no other file is known.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.protocol.agreement.joint_seed import SeedCheck
from hubbub.core.protocol.agreement.key_agreement import RollCall
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import EVERYBODY, VERSION, Tag, unverified
from hubbub.core.protocol.round.additive_shares import Place, digest_of_shares
from hubbub.core.protocol.round.draw import Lift, draw_of
from hubbub.core.protocol.round.round_parameters import (
    Parameters,
    PresentThroughout,
    RoundParameters,
    decoded,
)
from hubbub.core.registered import loaded, registered
from hubbub.core.session.offer import RefusedError, SessionOffer
from hubbub.core.verification.replay.course import Course
from hubbub.core.verification.transcript.frame_records import Header, Kept, read

# One attempt while a transcript is played: who was asked, who answered, and what it adds up to.
#
# What may come when, and whose signature it must have, is the business of `replayed_session.py`.

Time = tuple[int, int]


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
    shares: dict[int, dict[int, bytes]] = field(default_factory=dict)  # node, silo, SHARE's digest
    told: dict[Tag, set[int]] = field(default_factory=dict)  # nodes that were asked, by ARRIVED too
    closed: set[int] = field(default_factory=set)  # silos whose shares some node could not open
    held: set[int] = field(default_factory=set)
    promises: set[int] = field(default_factory=set)  # of nodes
    totals: set[int] = field(default_factory=set)
    asked: bool = False
    whole: bool = True

    def is_complete(self, round_parameters: RoundParameters, nodes: Iterable[int]) -> bool:
        """Whether no mask is left on the sum."""
        if round_parameters.nodes:
            return len(self.summed) >= round_parameters.quorum and self.totals == set(nodes)
        return self.arrived == self.active

    @property
    def summed(self) -> set[int]:
        """Silos whose answers are in the sum."""
        return self.arrived - self.closed

    def add(
        self, kept: Kept, round_parameters: RoundParameters, sender: str, aggregator: str
    ) -> None:
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
        frame = unverified(kept.frame)
        if is_total:
            combine = np.add if round_parameters.full_shares else np.subtract
            combine(self.total, round_parameters.read_total(frame, sender), out=self.total)
        else:
            self.total += round_parameters.read_answer(frame, self.model, aggregator)

    def add_link(self, kept: Kept, seeds: SeedCheck, sender: str) -> None:
        """Take a silo's link; with the last one the joint seed is known."""
        if self.arrived or self.seed is not None:
            raise ProtocolError("expected its link before the answers, once", culprit=sender)
        self.links.append(kept.frame)
        if len(self.links) == len(self.active):
            self.seed = seeds.seed(*self.time, self.active, self.links)

    def check_request(self, kept: Kept, round_parameters: RoundParameters, sender: str) -> None:
        """A node must be asked about those who answered, and nobody else, and about their MODEL."""
        named, model = round_parameters.read_request(unverified(kept.frame), sender, self.active)
        total = kept.tag is Tag.REQUEST
        done, wanted = (self.totals, self.summed) if total else (self.held, self.arrived)
        if kept.sender != 0 or kept.receiver in done or not (total or round_parameters.full_shares):
            raise ProtocolError(
                f"expected {kept.tag.name} before the node's answer", culprit=sender
            )
        self.asked |= total
        self.told.setdefault(kept.tag, set()).add(kept.receiver)
        if named != wanted or model != self.model:
            raise ProtocolError(
                f"expected a {kept.tag.name} that names the {len(wanted)} silos that answered "
                "this MODEL, found another set or another MODEL",
                culprit=sender,
            )
        if total and self.held != self.told.get(Tag.ARRIVED, set()):
            raise ProtocolError("expected every node's HELD before a REQUEST", culprit=sender)

    def add_promise(self, kept: Kept, round_parameters: RoundParameters, sender: str) -> None:
        """A node's word for the silos that it was asked about, which are all that answered."""
        named, model = round_parameters.read_request(unverified(kept.frame), sender, self.active)
        if not self.asked or named != self.summed or model != self.model:
            raise ProtocolError(
                f"expected {sender} to promise the total of the {len(self.summed)} silos whose sum "
                "is taken, found a promise of others",
                culprit=sender,
            )
        self.promises.add(kept.sender)

    def add_held(
        self, kept: Kept, round_parameters: RoundParameters, sender: str, aggregator: str
    ) -> None:
        """A node's word about the shares that it was handed.

        Where shares were kept, it must be about these; there are none in transcripts of old.
        """
        if not round_parameters.full_shares:
            raise ProtocolError("expected no HELD in this study, found one", culprit=sender)
        closed, digest = round_parameters.read_named(unverified(kept.frame), sender)
        place = Place(round=self.time[0], attempt=self.time[1], model=self.model)
        shares = self.shares.get(kept.sender, {})
        if self.shares and digest != digest_of_shares(place, shares):
            raise ProtocolError(
                f"expected {sender} to speak of the shares that it was handed for this MODEL, "
                "found a word about others",
                culprit=aggregator,
            )
        if not closed <= (shares.keys() if self.shares else self.arrived):
            raise ProtocolError("expected a HELD about silos that use the node", culprit=sender)
        self.held.add(kept.sender)
        self.closed |= closed

    def add_share(self, kept: Kept, sender: str) -> None:
        """That a silo has sent a node a share with its answer."""
        handed = self.shares.setdefault(kept.receiver, {})
        if kept.sender not in self.arrived or kept.sender in handed or self.told:
            raise ProtocolError(
                "expected one SHARE for a node, after its silo's MASKED and before ARRIVED",
                culprit=sender,
            )
        handed[kept.sender] = hashlib.sha256(kept.signed).digest()


# What silos were told of a session or a collection before it began, held against what followed.
#
# An OPEN and a COLLECT have the same words (`session/offer.py`): the purpose, the numbers
# of
# the sum, and how features are standardised. The first two must be those of the transcript, which
# are
# the plan's; whether the last is what an earlier sum gave is seen in `session_findings.py`. This
# file
# plays nothing.


def offer_in(kept: Kept, header: Header, numbers: RoundParameters) -> SessionOffer:
    """What an OPEN or a COLLECT says, which is what the transcript is of.

    Raises:
        ProtocolError: it is another purpose's, or has other numbers.
    """
    sender = header.roster.name(kept.sender)
    offer = SessionOffer.read(kept.payload or b"", sender)
    if kept.sender != 0 or offer.purpose != header.purpose:
        raise ProtocolError(
            f"expected the aggregator's {kept.tag.name} for {header.purpose}, found another",
            culprit=sender,
        )
    try:
        offer.check(numbers)
    except RefusedError as error:
        raise ProtocolError(str(error), culprit=sender) from None
    return offer


_ROUND = frozenset(
    {
        *(Tag.SEED_LINK, Tag.MASKED, Tag.SHARE),
        *(Tag.ARRIVED, Tag.HELD, Tag.REQUEST, Tag.PROMISE, Tag.TOTAL),
    }
)


@dataclass
class ReplayedSession:
    """What a session came to."""

    frames: int = 0
    silos: frozenset[int] = frozenset()  # that it was set up with
    begun: int = 0  # attempts, answered or not: each is written down before it is asked
    attempts: int = 0  # that some silo answered
    spoilt: int = 0  # those of them that gave no sum, as an answer is missing
    answers: Counter[int] = field(default_factory=Counter)  # by silo
    unseen: int = 0  # rounds whose sum could not be made again here
    withheld: int = 0  # those of them of which vectors were not kept
    held: int = 0  # words of nodes about shares that were kept
    unshared: int = 0  # words of nodes about shares of which nothing was kept
    result: bytes | None = field(default=None, repr=False)  # the model that it was asked at
    signers: set[int] = field(default_factory=set)  # silos that signed that before any sum
    offer: SessionOffer | None = None  # what silos were told before it began, if that was kept
    is_collection: bool = False  # so that every silo in it has signed what it was told
    # By round, where there is no course of them.
    sums: dict[int, NDArray[np.float64]] = field(default_factory=dict, repr=False)


def gradient_of(
    round_parameters: RoundParameters, attempt: ReplayedAttempt, lift: Lift | None
) -> NDArray[np.float64]:
    """From the sum of an attempt to the gradient: the one place for what lies between."""
    total = decoded(round_parameters, ring.to_integers(attempt.total))
    if lift is None or attempt.seed is None:
        return total
    return lift(total, draw_of(attempt.seed, *attempt.time, attempt.parameters))


class Replay:
    """One session while it is played; its steps, if it makes any, lead along the course.

    Projected sums are lifted to whole ones, if that can be done here (`liftable`). Without a course
    the sums of the rounds after `after` are kept.
    """

    def __init__(
        self,
        header: Header,
        round_parameters: RoundParameters,
        course: Course | None,
        *,
        lift: Lift | None = None,
        liftable: bool = True,
        after: int = 0,
    ) -> None:
        self._header, self._round_parameters, self._course = header, round_parameters, course
        self._roster, self._lift, self._liftable = header.roster, lift, liftable
        self._after = after
        self._anchors: list[bytes] = []
        self._seeds: SeedCheck | None = None
        self._last: Time = (0, 0)
        self._row, self._attendance = 0, PresentThroughout(round_parameters)
        self._open: ReplayedAttempt | None = None
        self._played = ReplayedSession()
        self._roll_call = RollCall(
            roster=header.roster,
            study=header.study,
            session=header.session,
            quorum=round_parameters.quorum,
        )

    def play(self, path: Path, look: Callable[[], None] = lambda: None) -> ReplayedSession:
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
        if kept.version != VERSION:
            raise ProtocolError(
                f"expected frames of wire version {VERSION}, found one of {kept.version}"
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
        elif kept.tag in _ROUND:
            self._answer(kept, sender)
        else:
            self._set_up(kept, sender)

    def _set_up(self, kept: Kept, sender: str) -> None:
        """What is kept of all that comes before rounds."""
        if kept.tag is Tag.OPEN:
            if self._played.offer is not None or self._last != (0, 0):
                raise ProtocolError("expected one OPEN, before all rounds", culprit=sender)
            self._played.offer = offer_in(kept, self._header, self._round_parameters)
        elif kept.tag is Tag.ROLL:
            self._roll_call.take(kept.frame)
        elif kept.tag in (Tag.RESULT, Tag.RESULT_SIGNED):
            self._show_result(kept, sender)
        elif kept.tag is Tag.SEED_ANCHOR:
            self._anchors.append(kept.frame)

    def _show_result(self, kept: Kept, sender: str) -> None:
        """What silos were shown before a sum that is asked last, and that they signed it."""
        if self._course is None:
            return  # of a query that is asked at nothing that was shown, or nobody asks
        played, is_result = self._played, kept.tag is Tag.RESULT
        payload, is_early = kept.payload or b"", self._last == (0, 0)
        if is_result and is_early and kept.sender == 0 and played.result is None:
            played.result = payload
            self._course.begin_at(payload)
            return
        known = hashlib.sha256(played.result or b"").digest()
        fits = is_early and played.result is not None and kept.sender in self._roster.silos
        if is_result or not fits or payload != known or kept.sender in played.signers:
            raise ProtocolError(
                "expected one RESULT before all rounds, and each silo's word for it, found another",
                culprit=sender,
            )
        played.signers.add(kept.sender)

    def _begin(self, kept: Kept, sender: str) -> None:
        """A MODEL opens an attempt, and closes the one before."""
        time = (kept.round, kept.attempt)
        if kept.sender != 0 or kept.receiver != EVERYBODY or kept.payload is None:
            raise ProtocolError("expected a MODEL from the aggregator to everybody", culprit=sender)
        if time <= self._last or not 1 <= kept.round <= self._round_parameters.steps:
            raise ProtocolError(
                f"expected a round after {self._last[0]}.{self._last[1]} and up to "
                f"{self._round_parameters.steps}",
                culprit=sender,
            )
        if self._close() and kept.round == self._last[0]:
            raise ProtocolError(
                "expected no further attempt at a round that all had answered", culprit=sender
            )
        model, silos = unverified(kept.frame), self._silos
        active, parameters = self._round_parameters.read_model(model, sender, silos)
        self._row += 1
        numbered = self._round_parameters.needs_every_attempt
        if numbered and self._round_parameters.row_of(model) != self._row:
            raise ProtocolError(f"expected attempt {self._row} of the session", culprit=sender)
        self._attendance.stay(active, sender)
        if self._played.result is not None and not active <= self._played.signers:
            raise ProtocolError(
                "expected a MODEL for silos that had signed the RESULT, found one for others too",
                culprit=sender,
            )
        if self._course is not None:
            self._course.reach(kept.round)
            self._course.expect(parameters, self._round_parameters)
        self._last = time
        self._played.begun += 1
        total = ring.zeros(self._round_parameters.dimension, self._round_parameters.word_bits)
        self._open = ReplayedAttempt(
            time=time, active=active, model=model.digest, parameters=parameters, total=total
        )
        if self._round_parameters.needs_joint_seed and self._seeds is None:
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
        elif kept.tag is Tag.SHARE and kept.receiver in self._roster.nodes:
            attempt.add_share(kept, sender)
        elif kept.tag in (Tag.ARRIVED, Tag.REQUEST):
            attempt.check_request(kept, self._round_parameters, sender)
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
                attempt.add_held(kept, self._round_parameters, sender, self._roster.name(0))
                self._played.held += bool(attempt.shares)
                self._played.unshared += not attempt.shares
            elif kept.tag is Tag.PROMISE:
                attempt.add_promise(kept, self._round_parameters, sender)
            else:
                attempt.add(kept, self._round_parameters, sender, self._roster.name(0))

    @property
    def _silos(self) -> frozenset[int]:
        """Who takes part in the session."""
        if not self._played.silos:
            self._played.silos = self._roll_call.roll.silos
        return self._played.silos

    def _anchored(self) -> SeedCheck:
        """What the links of the session must hash down to."""
        seeds = self._round_parameters.seed_check(
            self._roster, self._header.study, self._header.session
        )
        seeds.learn_anchors(self._anchors, self._silos)
        return seeds

    def _awaited(self, attempt: ReplayedAttempt, tag: Tag) -> Set[int]:
        """Who may still say this in the open attempt."""
        asked = attempt.told.get(Tag.REQUEST, set())
        if tag is Tag.TOTAL:  # told when all have promised
            promised = attempt.promises == set(self._roster.nodes)
            return asked - attempt.totals if promised else set()
        if tag is Tag.PROMISE:
            return asked - attempt.promises
        if tag is Tag.HELD:
            told = attempt.told.get(Tag.ARRIVED, set())
            return set() if attempt.asked else told - attempt.held
        if tag is Tag.MASKED and not attempt.told:
            return attempt.active - attempt.arrived
        return frozenset()

    def _close(self) -> bool:
        """Make the sum and the step of the open attempt, if it is complete; whether it was."""
        attempt, self._open = self._open, None
        if attempt is None:
            return False
        self._played.attempts += bool(attempt.arrived)
        self._played.answers.update(attempt.arrived)
        if not attempt.is_complete(self._round_parameters, self._roster.nodes):
            self._played.spoilt += bool(attempt.arrived)
            return False
        if self._round_parameters.needs_joint_seed and attempt.seed is None:
            raise ProtocolError("expected a link of every active silo before the answers")
        seen = attempt.whole and self._liftable
        self._played.unseen += not seen
        self._played.withheld += not attempt.whole
        wanted = seen and (self._course is not None or attempt.time[0] > self._after)
        gradient = gradient_of(self._round_parameters, attempt, self._lift) if wanted else None
        if self._course is not None:
            self._course.step(attempt.time[0], gradient)
        elif gradient is not None:
            self._played.sums[attempt.time[0]] = gradient
        return True


def _misfit(path: Path, at: Time, error: object) -> IntegrityError:
    where = f"round {at[0]}, attempt {at[1]}," if at[0] else "the set-up"
    return IntegrityError(
        f"expected {where} of {path} to follow from what was sent before; {error}; ask the "
        "aggregator to account for it, and rely on no model from there on"
    )


# Ways to sum that have frames of their own: each replays its transcripts itself.
#
# A package registers one under the entry point `hubbub.transports`: a function that is given a
# transcript's path, its header, the numbers of its rounds and the course of its query, and that
# returns what plays it, or None if the transcript is not of its kind.

ENTRY_POINTS = "hubbub.transports"


class Player(Protocol):
    """What plays a transcript again."""

    def play(self, path: Path, look: Callable[[], None] = lambda: None) -> ReplayedSession:
        """All frames; IntegrityError if the sums do not follow from them."""


def other_player(
    path: Path, header: Header, round_parameters: RoundParameters, course: Course | None
) -> Player | None:
    """What plays a transcript that is not one of sessions; None if it is."""
    players = (each(path, header, round_parameters, course) for each in _others())
    return next((player for player in players if player is not None), None)


@cache
def _others() -> list[Callable[..., Any]]:
    return [loaded(point) for point in registered(ENTRY_POINTS).values()]
