"""A transcript played again: who sent what when, what it adds up to, and the step that follows.

Theory of operation. The frames of a session are read in their order. Every signature is verified,
every time must be later than the one before, and what is said in an attempt is taken as the
aggregator took it (`attempt_sum.py`). Sets of silos are parts of the session's, which its ROLL
names (P29). Where the vectors were kept, an attempt that everybody answered gives its sum, the sum
gives the step, and the next MODEL must hold the result to the last bit, which is the business of
`course.py`. Where they were not, a silo's answer still says which MODEL it was
shown. The keys in a transcript's header are believed here, and no other file is known.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.protocol.agreement.joint_seed import SeedCheck
from hubbub.core.protocol.agreement.key_agreement import RollCall
from hubbub.core.protocol.primitives.wire import EVERYBODY, VERSION, Channel, Frame, Tag, unverified
from hubbub.core.protocol.round.attempt_sum import AttemptSum
from hubbub.core.protocol.round.draw import Lift, draw_of
from hubbub.core.protocol.round.round_parameters import (
    Parameters,
    PresentThroughout,
    RoundParameters,
    Turn,
    decoded,
)
from hubbub.core.registered import loaded, registered
from hubbub.core.session.offer import RefusedError, SessionOffer
from hubbub.core.verification.replay.course import Course, digest_of
from hubbub.core.verification.transcript.frame_records import Header, Kept, read

# What silos were told of a session or a collection before it began, held against what followed.
#
# An OPEN and a COLLECT have the same words (`session/offer.py`): the purpose, the numbers of the
# sum, and how features are standardised. The first two must be those of the transcript, which are
# the plan's; whether the last is what an earlier sum gave is seen in `session_findings.py`.


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


_ROUND = (
    *(Tag.SEED_LINK, Tag.MASKED, Tag.SHARE),  # of silos
    *(Tag.ARRIVED, Tag.HELD, Tag.REQUEST, Tag.PROMISE, Tag.TOTAL),  # of nodes
)


@dataclass
class ReplayedSession:
    """What a session came to."""

    frames: int = 0
    silos: frozenset[int] = frozenset()  # that it was set up with
    begun: int = 0  # attempts, answered or not: each is written down before it is asked
    attempts: int = 0  # that some silo answered
    # By round of which there is a sum, those of them until then.
    answered_by: dict[int, int] = field(default_factory=dict)
    spoilt: int = 0  # those of them that gave no sum, as an answer is missing
    answers: Counter[int] = field(default_factory=Counter)  # by silo
    unseen: int = 0  # rounds whose sum could not be made again here
    withheld: int = 0  # those of them of which vectors were not kept
    held: int = 0  # words of nodes about the shares that they were handed
    result: bytes | None = field(default=None, repr=False)  # the model that it was asked at
    signers: set[int] = field(default_factory=set)  # silos that signed that before any sum
    offer: SessionOffer | None = None  # what silos were told before it began, if that was kept
    is_collection: bool = False  # so that every silo in it has signed what it was told
    # By round, where there is no course of them; and the digest of what was sent down for each.
    sums: dict[int, NDArray[np.float64]] = field(default_factory=dict, repr=False)
    asked_at: dict[int, bytes] = field(default_factory=dict, repr=False)


def gradient_of(
    round_parameters: RoundParameters,
    attempt: AttemptSum,
    parameters: Parameters,
    lift: Lift | None,
) -> NDArray[np.float64]:
    """From the sum of an attempt to the gradient: the one place for what lies between."""
    total = decoded(round_parameters, attempt.integers())
    if lift is None or attempt.seed is None:
        return total
    return lift(total, draw_of(attempt.seed, *attempt.time, parameters))


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
        self._turn, self._attendance = Turn(), PresentThroughout(round_parameters)
        self._open: AttemptSum | None = None
        self._links: list[bytes] = []  # of the open attempt
        self._parameters: Parameters = np.zeros(0, dtype=np.float32)  # of its MODEL
        self._played = ReplayedSession()
        self._channel = Channel(roster=header.roster, study=header.study, session=header.session)
        self._roll_call = RollCall(self._channel, quorum=round_parameters.quorum)

    def play(self, path: Path, look: Callable[[], None] = lambda: None) -> ReplayedSession:
        """All frames of the transcript; IntegrityError names the first round that does not fit.

        `look` is called after every MODEL, to show progress.
        """
        at = self._turn.last
        try:
            for kept in read(path):
                at = (kept.round, kept.attempt)
                self._take(kept)
                if kept.tag is Tag.MODEL:
                    look()
            at = self._turn.last
            self._close()
        except ProtocolError as error:
            said = str(error).removeprefix("relay: ")  # nobody was on the way to a transcript
            where = f"round {at[0]}, attempt {at[1]}," if at[0] else "the set-up"
            raise IntegrityError(
                f"expected {where} of {path} to follow from what was sent before; {said}; ask the "
                "aggregator to account for it, and rely on no model from there on"
            ) from None
        return self._played

    def _take(self, kept: Kept) -> None:
        """One frame more."""
        self._played.frames += 1
        if kept.version != VERSION:
            raise IntegrityError(
                f"expected a transcript of wire version {VERSION}, found frames of {kept.version}; "
                "go on with the version of hubbub that wrote it, or verify with that"
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
            if self._played.offer is not None or self._turn.last != (0, 0):
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
        payload, is_early = kept.payload or b"", self._turn.last == (0, 0)
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
        if kept.sender != 0 or kept.receiver != EVERYBODY or kept.payload is None:
            raise ProtocolError("expected a MODEL from the aggregator to everybody", culprit=sender)
        last = self._turn.last
        self._turn.advance(kept.round, kept.attempt, self._round_parameters.steps, culprit=sender)
        # Who could ask again after a sum was complete could choose among sums.
        if self._close() and kept.round == last[0]:
            raise ProtocolError(
                "expected no further attempt at a round that all had answered", culprit=sender
            )
        model = unverified(kept.frame)
        active, parameters = self._round_parameters.read_model(model, sender, self._silos)
        self._attendance.follow(model, active, sender)
        if self._played.result is not None and not active <= self._played.signers:
            raise ProtocolError(
                "expected a MODEL for silos that had signed the RESULT, found one for others too",
                culprit=sender,
            )
        if self._course is not None:
            self._course.reach(kept.round)
            self._course.expect(parameters, self._round_parameters)
        self._played.begun += 1
        if self._round_parameters.needs_joint_seed and self._seeds is None:
            self._seeds = self._round_parameters.seed_check(self._channel)
            self._seeds.learn_anchors(self._anchors, self._silos)
        self._links, self._parameters = [], parameters
        self._open = AttemptSum(
            numbers=self._round_parameters,
            roster=self._roster,
            time=self._turn.last,
            active=active,
            model=model.digest,
            seeds=self._seeds,
        )

    def _answer(self, kept: Kept, sender: str) -> None:
        """What a party says in the open attempt, which takes it as the aggregator's did."""
        attempt = self._open
        if attempt is None:
            raise ProtocolError(f"expected a MODEL before a {kept.tag.name}", culprit=sender)
        if kept.tag is Tag.SEED_LINK and self._seeds is not None:
            self._links.append(kept.frame)
            if len(self._links) >= len(attempt.active):
                attempt.learn_seed(self._links)
            return
        is_now = (kept.round, kept.attempt) == attempt.time
        # Silos sign which MODEL they were shown, so it is the aggregator that has shown two.
        if kept.tag is Tag.MASKED and is_now and kept.answered != attempt.model:
            raise ProtocolError(
                f"expected {sender} to answer the MODEL of this attempt, found that it was shown "
                "another, or says so: what such silos send does not add up",
                culprit=self._roster.name(0),
            )
        frame, withheld = frame_of(kept)
        attempt.take(frame, withheld)
        # P25, rule 2, as the nodes keep it.
        if kept.tag is Tag.REQUEST:
            self._attendance.stay(frozenset(attempt.summed), sender)
        self._played.held += kept.tag is Tag.HELD

    @property
    def _silos(self) -> frozenset[int]:
        """Who takes part in the session."""
        if not self._played.silos:
            self._played.silos = self._roll_call.roll.silos
        return self._played.silos

    def _close(self) -> bool:
        """Make the sum and the step of the open attempt, if it is complete; whether it was."""
        attempt, self._open = self._open, None
        if attempt is None:
            return False
        self._played.attempts += bool(attempt.arrived)
        self._played.answers.update(attempt.arrived)
        # Whether an answer that is missing was lost, or left out, no frame shows.
        if attempt.waits_for:
            self._played.spoilt += bool(attempt.arrived)
            return False
        if self._round_parameters.needs_joint_seed and attempt.seed is None:
            raise ProtocolError("expected a link of every active silo before the answers")
        self._played.answered_by[attempt.time[0]] = self._played.attempts
        # Of an attempt whose vectors were not kept, order and signatures are shown, and no sum.
        seen = attempt.is_whole and self._liftable
        self._played.unseen += not seen
        self._played.withheld += not attempt.is_whole
        gradient = None
        if seen and (self._course is not None or attempt.time[0] > self._after):
            gradient = gradient_of(self._round_parameters, attempt, self._parameters, self._lift)
        if self._course is not None:
            self._course.step(attempt.time[0], gradient)
        elif gradient is not None:
            self._played.sums[attempt.time[0]] = gradient
            self._played.asked_at[attempt.time[0]] = digest_of(self._parameters)
        return True


def frame_of(kept: Kept) -> tuple[Frame, bytes]:
    """A kept frame, and its digest where its payload was not kept."""
    if kept.payload is not None:
        return unverified(kept.frame), b""
    frame = Frame(
        tag=kept.tag,
        study=kept.study,
        session=kept.session,
        round=kept.round,
        attempt=kept.attempt,
        sender=kept.sender,
        receiver=kept.receiver,
        payload=b"",
    )
    return frame, hashlib.sha256(kept.signed).digest()


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
    for point in registered(ENTRY_POINTS).values():
        player: Player | None = loaded(point)(path, header, round_parameters, course)
        if player is not None:
            return player
    return None
