"""The aggregator's part: it adds what arrives and sees only the sum.

An attempt is opened with `begin`, fed with `receive`, and closed with `integers` once everybody
that was asked has answered. With compute nodes, `requests` asks for the masks of exactly the silos
that arrived; each node promises them first, and the promises of all go to all. With full shares,
`check_shares` comes before, and what the nodes say of them: a silo whose share does not open is
left out. With pairwise masks a missing silo spoils the attempt: it is abandoned, and the next one
is begun among those left. Vectors are added as they come and not kept.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.joint_seed import SeedCheck
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag, doubled_by, parse
from hubbub.core.protocol.round import additive_shares, round_parameters
from hubbub.core.protocol.round.round_parameters import RoundParameters, Turn, decoded


class Aggregator:
    """The aggregator in one session.

    Args:
        keys: its own.
        roster: everybody.
        round_parameters: the numbers of the rounds.
        study: the study id.
        session: 16 bytes chosen for this session.
        seeds: checks the joint seeds, where the round parameters need them.

    Attributes:
        short: what stands for the payload of the last MODEL where it is not kept.
    """

    def __init__(
        self,
        *,
        keys: Keys,
        roster: Roster,
        round_parameters: round_parameters.RoundParameters,
        study: bytes,
        session: bytes,
        seeds: SeedCheck | None = None,
    ) -> None:
        self._keys, self._roster, self._round_parameters = keys, roster, round_parameters
        self._study, self._session = study, session
        self._turn, self._row = Turn(), 0
        self._active: frozenset[int] = frozenset()
        self._model = b""  # the digest of the MODEL that is to be answered
        self.short = b""
        self._arrived: dict[int, bytes] = {}  # silo to the digest of its answer
        self._shares: dict[int, dict[int, bytes]] = {}  # node to silo to its SHARE's digest
        self._held: dict[int, bytes] = {}  # node to the digest of what it said of them
        self._promised: dict[int, bytes] = {}  # node to the digest of its PROMISE
        self._answered: dict[int, bytes] = {}  # node to the digest of its answer
        self._asked = False
        self._total = ring.zeros(0, round_parameters.word_bits)
        self._seeds = seeds
        self._seed: bytes | None = None

    def begin(
        self,
        round: int,
        attempt: int,
        active: Iterable[int],
        parameters: round_parameters.Parameters,
    ) -> bytes:
        """Open an attempt: the MODEL for everybody."""
        silos = frozenset(active)
        payload = self._round_parameters.model_parts(silos, parameters, self._row + 1)
        self._turn.advance(round, attempt, self._round_parameters.steps)
        self._row += 1
        self._active, self._seed = silos, None
        self._arrived, self._promised, self._answered, self._asked = {}, {}, {}, False
        self._shares, self._held = {node: {} for node in self._roster.nodes}, {}
        self._total = ring.zeros(self._round_parameters.dimension, self._round_parameters.word_bits)
        model = self._frame(Tag.MODEL, EVERYBODY, *payload)
        self._model, self.short = model.digest, model.short
        return model.sealed(self._keys)

    def receive(self, message: bytes) -> bytes:
        """Add a silo's masked vector, or take a compute node's total of masks away.

        Full shares are the other way round: the silo's answer is empty and the totals are added.

        Returns:
            What stands for the frame's payload where it is not kept.

        Raises:
            ProtocolError: it is not what this attempt waits for; the sum is as before.
        """
        frame, sender = self._answer(message)
        if frame.tag is Tag.MASKED:
            self._once(frame, self._active, self._arrived, sender)
            if self._asked:
                raise ProtocolError(
                    f"expected no MASKED after the requests, got one of {sender}", culprit="relay"
                )
            self._total += self._round_parameters.read_answer(frame, self._model, sender)
            self._arrived[frame.sender] = frame.digest
        elif frame.tag is Tag.TOTAL and self._all_promised:
            self._once(frame, self._roster.nodes, self._answered, sender)
            vector = self._round_parameters.read_total(frame, sender)
            combine = np.add if self._round_parameters.full_shares else np.subtract
            combine(self._total, vector, out=self._total)
            self._answered[frame.sender] = frame.digest
        else:
            raise ProtocolError(f"expected no {frame.tag.name} now, got one", culprit=sender)
        return frame.short

    def check_shares(self, silo: int, shares: Sequence[bytes]) -> None:
        """See that a silo's SHAREs are of the open attempt, before its answer is received.

        What is in them only the nodes can see.

        Raises:
            ProtocolError: one is not the silo's, not of this attempt, or not of the length.
        """
        frames = [self._share(silo, data) for data in shares]
        for frame in frames:
            self._shares[frame.receiver][silo] = frame.digest

    def _share(self, silo: int, data: bytes) -> Frame:
        """One SHARE of a silo."""
        frame = parse(data, self._roster, study=self._study, session=self._session)
        sender, time = self._roster.name(frame.sender), (frame.round, frame.attempt)
        is_share = frame.tag is Tag.SHARE and frame.receiver in self._shares
        if frame.sender != silo or not is_share or time < self._turn.last:
            raise ProtocolError(
                f"expected a SHARE of {self._roster.name(silo)} for this attempt, got another "
                "frame",
                culprit="relay",
            )
        if time != self._turn.last:
            raise ProtocolError(
                f"expected a SHARE for attempt {self._turn.last[0]}.{self._turn.last[1]}, got one "
                f"for {frame.round}.{frame.attempt}, which is still to come",
                culprit=sender,
            )
        self._round_parameters.read_share(frame, sender)
        return frame

    def arrivals(self) -> dict[int, bytes]:
        """ARRIVED for every compute node: who answered, before it is asked for a total."""
        self._check_quorum()
        return self._named(Tag.ARRIVED)

    def receive_held(self, message: bytes) -> frozenset[int]:
        """What a node says of the shares that it was handed.

        Returns:
            The silos whose shares do not open, as it says; they are left out of the sum.

        Raises:
            ProtocolError: it is not what this attempt waits for.
        """
        frame, sender = self._answer(message)
        if frame.tag is not Tag.HELD or self._asked:
            raise ProtocolError(f"expected no {frame.tag.name} now, got one", culprit=sender)
        self._once(frame, self._roster.nodes, self._held, sender)
        closed, digest = self._round_parameters.read_named(frame, sender)
        handed, (round, attempt) = self._shares[frame.sender], self._turn.last
        place = additive_shares.Place(round=round, attempt=attempt, model=self._model)
        shares = {silo: each for silo, each in handed.items() if silo in self._arrived}
        if digest != additive_shares.digest_of_shares(place, shares):
            raise ProtocolError(
                f"expected {sender} to speak of the shares that it was handed, got other shares",
                culprit="relay",
            )
        if not closed <= shares.keys():
            raise ProtocolError(
                "expected a HELD about silos that use the node, got others", culprit=sender
            )
        self._held[frame.sender] = frame.digest
        return closed

    def receive_promise(self, message: bytes) -> None:
        """A node's word that it tells the total of the silos that it was asked about.

        Raises:
            ProtocolError: it is not what this attempt waits for.
        """
        frame, sender = self._answer(message, EVERYBODY)
        if frame.tag is not Tag.PROMISE or not self._asked:
            raise ProtocolError(f"expected no {frame.tag.name} now, got one", culprit=sender)
        self._once(frame, self._roster.nodes, self._promised, sender)
        if bytes(frame.payload) != self._round_parameters.named_payload(self._arrived, self._model):
            raise ProtocolError(
                f"expected {sender} to promise what it was asked for, got other silos or another "
                "MODEL: it lies, or somebody else signs as the aggregator",
                culprit=sender,
            )
        self._promised[frame.sender] = frame.digest

    @property
    def _all_promised(self) -> bool:
        """Whether totals may come: no honest node tells one before."""
        return self._asked and len(self._promised) == len(self._roster.nodes)

    def leave_out(self, silos: Iterable[int]) -> None:
        """Take no sum of silos whose shares a node cannot open; all nodes have spoken."""
        for silo in silos:
            self._arrived.pop(silo, None)

    def learn_seed(self, links: Sequence[bytes]) -> None:
        """The joint seed of the open attempt, from the links of all active silos.

        Raises:
            ProtocolError: naming who has revealed nothing, or what it had not committed to.
        """
        assert self._seeds is not None, "the rounds need no seed"  # noqa: S101
        self._seed = self._seeds.seed(*self._turn.last, self._active, links)

    @property
    def time(self) -> tuple[int, int]:
        """Round and attempt of the open attempt."""
        return self._turn.last

    @property
    def seed(self) -> bytes | None:
        """The joint seed of the last attempt, public from then on."""
        return self._seed

    @property
    def missing(self) -> frozenset[int]:
        """Active silos that have not answered."""
        return self._active.difference(self._arrived)

    def requests(self) -> dict[int, bytes]:
        """Close the silos' phase and ask every compute node for the masks of who arrived."""
        self._check_quorum()
        self._asked = True
        return self._named(Tag.REQUEST)

    def _check_quorum(self) -> None:
        if len(self._arrived) < self._round_parameters.quorum:
            raise ProtocolError(
                f"expected at least {self._round_parameters.quorum} silos to answer, "
                f"got {len(self._arrived)}; the attempt is abandoned"
            )

    def _named(self, tag: Tag) -> dict[int, bytes]:
        """For every node, who arrived and the MODEL that they have answered."""
        payload = self._round_parameters.named_payload(self._arrived, self._model)
        return {
            node: self._frame(tag, node, payload).sealed(self._keys) for node in self._roster.nodes
        }

    def integers(self) -> ring.Integers:
        """The sum of what the silos encoded, in grid steps, each as wide as a residue.

        Raises:
            ProtocolError: somebody has not answered, so masks are still on it.
        """
        if not self._active:
            raise ProtocolError("expected an open attempt, got none; begin one first")
        if self._round_parameters.needs_joint_seed and self._seed is None:
            raise ProtocolError(
                "expected the links of the active silos, got none; learn them first"
            )
        if self._round_parameters.nodes and len(self._answered) < len(self._roster.nodes):
            waiting = min(set(self._roster.nodes).difference(self._answered))
            raise ProtocolError(
                "expected its total, got none; the attempt is abandoned",
                culprit=self._roster.name(waiting),
            )
        if not self._round_parameters.nodes and self.missing:
            raise ProtocolError(
                "expected its masked vector, got none; the attempt is abandoned",
                culprit=self._roster.name(min(self.missing)),
            )
        return ring.representatives(self._total)

    def _answer(self, message: bytes, receiver: int = 0) -> tuple[Frame, str]:
        """A verified frame about the open attempt, to the aggregator or all, and who sent it."""
        frame = parse(message, self._roster, study=self._study, session=self._session)
        sender = self._roster.name(frame.sender)
        if (frame.round, frame.attempt) != self._turn.last or frame.receiver != receiver:
            raise ProtocolError(
                f"expected an answer to attempt {self._turn.last[0]}.{self._turn.last[1]}, "
                f"got one to {frame.round}.{frame.attempt} from {sender}",
                culprit="relay",
            )
        return frame, sender

    def _once(
        self, frame: Frame, asked: Container[int], taken: Mapping[int, bytes], sender: str
    ) -> None:
        if frame.sender not in asked:
            raise ProtocolError(
                f"expected no {frame.tag.name} of a party that was not asked, got one",
                culprit=sender,
            )
        if frame.sender in taken:
            raise ProtocolError(
                f"expected one {frame.tag.name} of {sender}, got a second",
                culprit=doubled_by(frame, taken[frame.sender], sender),
            )

    def _frame(
        self, tag: Tag, receiver: int, payload: bytes, after: bytes | memoryview = b""
    ) -> Frame:
        round, attempt = self._turn.last
        return Frame(
            tag=tag,
            study=self._study,
            session=self._session,
            round=round,
            attempt=attempt,
            sender=0,
            receiver=receiver,
            payload=payload,
            after=after,
        )


# A revealed sum in units of the gradient, made of its residues where it is read.
#
# A vector of float64 is up to four times as large as the residues of a sum; whoever takes a step
# along it reads it block by block and needs no more of it than a block.


class RevealedSum:
    """What a round reveals, (dimension,), to be read as an array of float64 is; public.

    Args:
        round_parameters: of the round.
        total: the sum in grid steps, (dimension,); not copied.
    """

    def __init__(self, round_parameters: RoundParameters, total: ring.Integers) -> None:
        self._round_parameters, self._total = round_parameters, total

    @property
    def shape(self) -> tuple[int, ...]:
        """(dimension,)."""
        return self._total.shape

    @property
    def size(self) -> int:
        """The dimension."""
        return self._total.size

    def __getitem__(self, part: slice) -> NDArray[np.float64]:
        """A block of it, decoded."""
        return decoded(self._round_parameters, self._total[part])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All of it, decoded."""
        return self[:].astype(dtype or np.float64, copy=False)
