"""One attempt at a round as a fold of the frames that parties sign in it.

    SEED_LINK  of every active silo, before all answers: together they are the joint seed
    MASKED     of the active silos, each once, for the attempt's MODEL: added as it comes
    SHARE      with full shares, of the same silo for each node
    ARRIVED    with full shares, to each node: who has answered
    HELD       of each node: whose shares do not open there; such silos are left out of the sum
    REQUEST    to each node: whose answers are in the sum; no MASKED counts from then on
    PROMISE    of each node: that it tells the total for these silos and no others
    TOTAL      of each node, when all have promised: masks to take away, or full shares to add

The aggregator feeds it what arrives, and a verifier what a transcript has kept: the same frames
make the same state, so a sum is verified by the rules by which it was made. A frame that is refused
changes nothing. To blame is who has signed it, or "relay" where somebody on the way can have.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.joint_seed import SeedCheck
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag
from hubbub.core.protocol.round.round_parameters import RoundParameters, digest_of_shares

Time = tuple[int, int]  # round and attempt


@dataclass(kw_only=True)
class AttemptSum:
    """What has been said in an attempt, and what it adds up to.

    Args:
        active: the silos that take part, by roster index.
        model: digest of the MODEL that is to be answered.
        seeds: checks the joint seed, where the rounds need one.

    Attributes:
        seed: the joint seed, public once all links are known.
        total: the sum so far, (dimension,) residues.
        is_whole: whether all vectors that belong to it were there to be added.
        closed: silos whose shares do not open, and the nodes that say so.
    """

    numbers: RoundParameters
    roster: Roster
    time: Time
    active: frozenset[int]
    model: bytes
    seeds: SeedCheck | None = None
    seed: bytes | None = field(default=None, init=False)
    total: ring.Residues = field(init=False, repr=False)
    is_whole: bool = field(default=True, init=False)
    closed: dict[int, list[int]] = field(default_factory=dict, init=False)
    # By tag, from the party that said it (that it went to, of ARRIVED and REQUEST) to its digest.
    _taken: dict[Tag, dict[int, bytes]] = field(init=False, repr=False)
    _shares: dict[int, dict[int, bytes]] = field(init=False)  # node to silo to its SHARE's digest

    def __post_init__(self) -> None:
        self.total = ring.zeros(self.numbers.dimension, self.numbers.word_bits)
        self._taken = {tag: {} for tag in Tag}
        self._shares = {node: {} for node in self.roster.nodes}

    @property
    def arrived(self) -> Set[int]:
        """Silos that have answered."""
        return self._taken[Tag.MASKED].keys()

    @property
    def summed(self) -> Set[int]:
        """Silos whose answers are in the sum."""
        return self.arrived - self.closed.keys()

    @property
    def waits_for(self) -> str:
        """Who has yet to answer before the sum is free of masks, one of them; else ""."""
        parties: Collection[int] = self.active
        tag = Tag.MASKED
        if self.numbers.nodes:
            parties, tag = self.roster.nodes, Tag.TOTAL
        missing = set(parties) - self._taken[tag].keys()
        return self.roster.name(min(missing)) if missing else ""

    def payload(self, tag: Tag) -> bytes:
        """What an ARRIVED, a REQUEST or a PROMISE says now: silos, and the MODEL they answered.

        Raises:
            ProtocolError: they are fewer than the quorum.
        """
        silos = self.arrived if tag is Tag.ARRIVED else self.summed
        # P3: in a sum of fewer there is less noise than was promised, and nodes refuse it.
        if len(silos) < self.numbers.quorum:
            raise ProtocolError(
                f"expected at least {self.numbers.quorum} silos to answer, got {len(silos)}; the "
                "attempt is abandoned"
            )
        return self.numbers.named_payload(silos, self.model)

    def take(self, frame: Frame, withheld: bytes = b"") -> None:
        """Take in a frame of which the signature, the study and the session were checked.

        Args:
            withheld: the frame's digest, where its vector was not kept and it has no payload.

        Raises:
            ProtocolError: it is not what this attempt waits for; all is as before.
        """
        tag, sender, digest = frame.tag, self.roster.name(frame.sender), withheld or frame.digest
        self._check_place(frame, sender)
        if tag is Tag.SHARE:
            self._take_share(frame, digest)
            return
        self._check_once(frame, digest, sender)
        if tag is Tag.MASKED:
            # The nodes know by now whose masks to tell; those of one who comes later would stay.
            if self._taken[Tag.ARRIVED] or self._taken[Tag.REQUEST]:
                raise ProtocolError(
                    f"expected no MASKED after the requests, got one of {sender}", culprit="relay"
                )
            if not withheld:
                self.total += self.numbers.read_answer(frame, self.model, sender)
        elif tag is Tag.HELD:
            self._take_held(frame, sender)
        elif tag is Tag.TOTAL:
            if not withheld:
                # P4: a node tells masks, which come off again; of full shares its total is a part
                # of the sum.
                combine = np.add if self.numbers.full_shares else np.subtract
                combine(self.total, self.numbers.read_total(frame, sender), out=self.total)
        # P3: all nodes speak of one set and one MODEL.
        elif bytes(frame.payload) != self.payload(tag):  # ARRIVED, REQUEST or PROMISE
            raise ProtocolError(
                f"expected {sender} to name the silos that have answered this MODEL in its "
                f"{tag.name}, got other silos or another MODEL: it lies, or somebody else signs as "
                "the aggregator",
                culprit=sender,
            )
        # Last: a frame that was refused above was never said.
        self.is_whole &= not withheld
        self._taken[tag][self._said_by(frame)] = digest

    def check_share(self, frame: Frame, silo: int) -> None:
        """See that a frame is a SHARE of a silo in this attempt; what is in it its node sees.

        Raises:
            ProtocolError: it is another's, of another attempt, or not of the length.
        """
        time = (frame.round, frame.attempt)
        is_share = frame.tag is Tag.SHARE and frame.receiver in self._shares
        if frame.sender != silo or not is_share or time < self.time:
            raise ProtocolError(
                f"expected a SHARE of {self.roster.name(silo)} for this attempt, got another frame",
                culprit="relay",
            )
        # An old frame anybody can carry here again; one for a time to come only its silo can have
        # made.
        if time != self.time:
            raise ProtocolError(
                f"expected a SHARE for attempt {self.time[0]}.{self.time[1]}, got one for "
                f"{frame.round}.{frame.attempt}, which is still to come",
                culprit=self.roster.name(silo),
            )
        self.numbers.read_share(frame, self.roster.name(silo))

    def learn_seed(self, links: Sequence[bytes]) -> None:
        """The joint seed, from the links of all active silos.

        Raises:
            ProtocolError: naming who has revealed nothing, or what it had not committed to; or
                somebody has answered before.
        """
        assert self.seeds is not None, "the rounds need no seed"  # noqa: S101
        # P8, P9: what answered before did not follow the seed, and a second seed would be a choice.
        if self.arrived or self.seed is not None:
            raise ProtocolError("expected all links before the answers, once")
        self.seed = self.seeds.seed(*self.time, self.active, links)

    def integers(self) -> ring.Integers:
        """The sum of what the silos encoded, in grid steps, each as wide as a residue.

        Raises:
            ProtocolError: somebody has not answered, so masks are still on it.
        """
        if self.numbers.needs_joint_seed and self.seed is None:
            raise ProtocolError("expected a link of every active silo before the answers, got none")
        # P4: the masks of who has not answered, or not told its total, are still on it.
        if self.waits_for:
            what = "total" if self.numbers.nodes else "masked vector"
            raise ProtocolError(
                f"expected its {what}, got none; the attempt is abandoned", culprit=self.waits_for
            )
        return ring.representatives(self.total)

    def _check_place(self, frame: Frame, sender: str) -> None:
        """A frame is of this attempt, is for whom such a frame is, and may come now."""
        if frame.tag in (Tag.SHARE, Tag.ARRIVED, Tag.REQUEST):
            is_right = frame.receiver in self.roster.nodes
        else:
            is_right = frame.receiver == (EVERYBODY if frame.tag is Tag.PROMISE else 0)
        # What is addressed to others, or to another time, was carried here. What is addressed to
        # the aggregator was carried rightly: if it does not belong here, its signer is to blame.
        if (frame.round, frame.attempt) != self.time or not (is_right or frame.receiver == 0):
            raise ProtocolError(
                f"expected an answer to attempt {self.time[0]}.{self.time[1]}, got one to "
                f"{frame.round}.{frame.attempt} from {sender}",
                culprit="relay",
            )
        if not is_right or not self._is_due(frame.tag, frame.sender):
            raise ProtocolError(f"expected no {frame.tag.name} now, got one", culprit=sender)

    def _is_due(self, tag: Tag, sender: int) -> bool:
        """Whether a frame of this kind may come now; which silo or node sends it is seen later."""
        taken, nodes = self._taken, len(self.roster.nodes)
        if tag in (Tag.ARRIVED, Tag.REQUEST) and sender != 0:
            return False
        if tag in (Tag.SHARE, Tag.ARRIVED):
            return self.numbers.full_shares
        if tag is Tag.HELD:
            return bool(taken[Tag.ARRIVED])
        # P4: with full shares every node has spoken of its own before, once: who was found closed
        # after it could not leave the set any more.
        if tag is Tag.REQUEST:
            return not self.numbers.full_shares or len(taken[Tag.HELD]) == nodes
        if tag is Tag.PROMISE:
            return bool(taken[Tag.REQUEST])
        if tag is Tag.TOTAL:  # P3: no honest node tells one before all have promised
            return bool(taken[Tag.REQUEST]) and len(taken[Tag.PROMISE]) == nodes
        return tag is Tag.MASKED

    def _said_by(self, frame: Frame) -> int:
        """The party for whom a frame counts once: who sent it, or the node that was asked by it."""
        return frame.receiver if frame.tag in (Tag.ARRIVED, Tag.REQUEST) else frame.sender

    def _check_once(self, frame: Frame, digest: bytes, sender: str) -> None:
        """A party says a thing once, if it was asked for it."""
        asked: Container[int] = {
            Tag.MASKED: self.active,
            Tag.HELD: self._taken[Tag.ARRIVED],
            Tag.ARRIVED: (0,),
            Tag.REQUEST: (0,),
            # PROMISE and TOTAL: the nodes to which a REQUEST has gone.
        }.get(frame.tag, self._taken[Tag.REQUEST])
        if frame.sender not in asked:
            raise ProtocolError(
                f"expected no {frame.tag.name} of a party that was not asked, got one",
                culprit=sender,
            )
        before = self._taken[frame.tag].get(self._said_by(frame))
        if before is not None:  # only the signer can have signed two different things
            raise ProtocolError(
                f"expected one {frame.tag.name} of {sender}, got a second",
                culprit="relay" if before == digest else sender,
            )

    def _take_share(self, frame: Frame, digest: bytes) -> None:
        """That a silo has sent a node a share with its answer."""
        handed = self._shares[frame.receiver]
        # A HELD is compared with the shares that its node was handed, so ARRIVED ends their coming.
        is_early = frame.sender not in self.arrived
        if is_early or frame.sender in handed or self._taken[Tag.ARRIVED]:
            raise ProtocolError(
                "expected one SHARE for a node, after its silo's MASKED and before ARRIVED",
                culprit=self.roster.name(frame.sender),
            )
        handed[frame.sender] = digest

    def _take_held(self, frame: Frame, sender: str) -> None:
        """Whose shares do not open at a node, which must speak of the very shares it was handed."""
        closed, digest = self.numbers.read_named(frame, sender)
        shares = self._shares[frame.sender]
        # A node that was handed others on the way has told the truth about those.
        if digest != digest_of_shares(self.model, shares):
            raise ProtocolError(
                f"expected {sender} to speak of the shares that it was handed, got other shares",
                culprit="relay",
            )
        if not closed <= shares.keys():
            raise ProtocolError(
                "expected a HELD about silos that use the node, got others", culprit=sender
            )
        for silo in closed:
            self.closed.setdefault(silo, []).append(frame.sender)
