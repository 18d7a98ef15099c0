"""How a silo answers: it accepts a new attempt at a round, and hides residues under its masks.

With full shares it divides them instead (`additive_shares.py`). Nothing here touches records or
noise; it is the part of a silo that also serves a plain secure sum of integers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.key_agreement import Place, Session
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.wire import EVERYBODY, Tag
from hubbub.core.protocol.round import round_parameters
from hubbub.core.protocol.round.round_parameters import PresentThroughout, Turn


@dataclass(frozen=True, kw_only=True)
class Attempt(Place):
    """An accepted MODEL: one attempt at one round, who takes part in it, and the frame's digest.

    `row` is the number of the attempt in its session, from 1, where noise is correlated.
    """

    active: frozenset[int]
    parameters: round_parameters.Parameters = field(repr=False)
    row: int = 0


class Masking:
    """One silo's side of the wire in one session.

    Args:
        mask_stream: how masks are added (on how many threads); changes speed only.
    """

    def __init__(
        self,
        *,
        keys: Keys,
        roster: Roster,
        round_parameters: round_parameters.RoundParameters,
        session: Session,
        mask_stream: MaskStream,
    ) -> None:
        self._keys, self._roster, self._round_parameters = keys, roster, round_parameters
        self._channel = session.channel(roster)
        self._session, self._mask_stream = session, mask_stream
        self._turn, self._attendance = Turn(), PresentThroughout(round_parameters)
        self._masked: tuple[int, int] = (0, 0)

    def accept(self, model: bytes) -> Attempt:
        """The attempt that the aggregator's MODEL opens; each can be opened once.

        Raises:
            ProtocolError: it is not from the aggregator, not for this session, not new, or names
                too few silos or one that is not in it; where noise is correlated, also if it names
                one that had left, or leaves an attempt out.
        """
        # The signature first: all that follows believes what the frame says of itself.
        frame = self._channel.parse(model)
        sender = self._roster.name(frame.sender)
        # A true frame of another kind was carried here; a MODEL of anybody else is its signer's
        # lie.
        if frame.tag is not Tag.MODEL or frame.sender != 0 or frame.receiver != EVERYBODY:
            raise ProtocolError(
                f"expected a MODEL from the aggregator to everybody, got a {frame.tag.name} of "
                f"{sender}",
                culprit=sender if frame.tag is Tag.MODEL else "relay",
            )
        # P3, P29: a set below the quorum, or one with silos that have no masks in this session,
        # would open with less noise than was promised.
        active, parameters = self._round_parameters.read_model(frame, sender, self._session.silos)
        # The aggregator shows a MODEL to those alone whom it names; nobody else must pay for it.
        if self._session.index not in active:
            raise ProtocolError("expected to be among the active silos, was not", culprit="relay")
        # `SeedCheck.number` refuses this too, but only after the attempt was charged.
        if (
            self._round_parameters.needs_joint_seed
            and frame.attempt >= self._round_parameters.attempts
        ):
            raise ProtocolError(
                f"expected at most {self._round_parameters.attempts} attempts at a round, got "
                f"attempt {frame.attempt}: nobody has committed to a link for it",
                culprit=sender,
            )
        # What was refused above has used nothing up. From here on this time is gone, answered or
        # not: masks and noise exist once for each attempt (P3).
        self._turn.take(frame, self._round_parameters.steps, sender)
        # P25, rules 1 and 2: no row of noise is left out, and nobody comes back.
        self._attendance.follow(frame, active, sender)
        return Attempt(
            round=frame.round,
            attempt=frame.attempt,
            active=active,
            model=frame.digest,
            parameters=parameters,
            row=self._attendance.row,
        )

    def masked(self, attempt: Attempt, residues: ring.Residues) -> bytes:
        """The MASKED frame with these residues, which it masks and keeps; once per attempt.

        Raises:
            ProtocolError: the attempt was answered already, or is not the newest.
        """
        number = (attempt.round, attempt.attempt)
        # Two answers under the same masks would show the difference of what they hide.
        if number != self._turn.last or number == self._masked:
            raise ProtocolError(f"expected a new attempt to answer, got {number} again")
        # Before anything is made: what fails halfway is not made a second time.
        self._masked = number
        return self._hidden(attempt, residues)

    def shares(self) -> dict[int, bytes]:
        """By compute node, what goes with the last answer besides: nothing."""
        return {}

    def _hidden(self, attempt: Attempt, residues: ring.Residues) -> bytes:
        """The MASKED frame that hides them."""
        self._add_masks(attempt, residues)
        return self._frame(Tag.MASKED, attempt, 0, ring.final_bytes(residues), attempt.model)

    def _frame(
        self,
        tag: Tag,
        attempt: Attempt,
        receiver: int,
        payload: bytes | memoryview,
        after: bytes = b"",
    ) -> bytes:
        return self._channel.frame(
            tag,
            self._session.index,
            payload,
            receiver=receiver,
            time=(attempt.round, attempt.attempt),
            after=after,
        ).sealed(self._keys)

    def _add_masks(self, attempt: Attempt, residues: ring.Residues) -> None:
        """The mask of every compute node, or of every active neighbour with its sign."""
        # P4: a neighbour whom the MODEL does not name puts no opposite mask on, and one with it
        # would stay in the sum.
        pairwise = self._round_parameters.nodes == 0
        secrets = self._session.secrets
        others = [secret for secret in secrets if not pairwise or secret in attempt.active]
        # P4: bare, a vector is hidden by its own silo's share of the noise alone.
        if not others:
            raise ProtocolError(
                "expected somebody to share a mask with, got nobody; nothing is sent"
            )
        # P4: the MODEL's digest, active silos included, is in the key. Masks of silos that were
        # shown different MODELs do not cancel, and leave uniform residues.
        transcript = self._session.transcript
        keys = {other: secrets[other].mask_key(transcript, attempt) for other in others}
        mine = self._session.index
        # Two silos take opposite signs, by their places in the roster; what is shared with a node
        # is added, and its TOTAL is taken away again.
        self._mask_stream.add_all(
            residues, [(key, pairwise and other < mine) for other, key in keys.items()]
        )
