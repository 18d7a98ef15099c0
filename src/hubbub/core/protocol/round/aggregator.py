"""The aggregator's part in a session: it opens attempts, and sees the sum alone.

What it does with an answer is in `attempt_sum.py`, which a verifier does again. With pairwise masks
a missing silo spoils the attempt: it is abandoned, and the next one is begun among those left.
Vectors are added as they come and not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.joint_seed import SeedCheck
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import Channel, Frame, Tag
from hubbub.core.protocol.round.attempt_sum import AttemptSum
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters, Turn, decoded


class Aggregator:
    """The aggregator in one session.

    Args:
        seeds: checks the joint seeds, where the round parameters need them.

    Attributes:
        short: what stands for the payload of the last MODEL where it is not kept.
    """

    def __init__(
        self,
        *,
        keys: Keys,
        channel: Channel,
        round_parameters: RoundParameters,
        seeds: SeedCheck | None = None,
    ) -> None:
        self._keys, self._channel, self._round_parameters = keys, channel, round_parameters
        self._seeds = seeds
        self._turn, self._row = Turn(), 0
        self._attempt: AttemptSum | None = None
        self.short = b""

    @property
    def attempt(self) -> AttemptSum:
        """What has been said in the open attempt.

        Raises:
            ProtocolError: none is open.
        """
        if self._attempt is None:
            raise ProtocolError("expected an open attempt, got none; begin one first")
        return self._attempt

    def begin(
        self, round: int, attempt: int, active: Iterable[int], parameters: Parameters
    ) -> bytes:
        """Open an attempt: the MODEL for everybody."""
        silos = frozenset(active)
        payload = self._round_parameters.model_parts(silos, parameters, self._row + 1)
        self._turn.advance(round, attempt, self._round_parameters.steps)
        # Attempts that fail count as well: silos expect every number once (P25, rule 1).
        self._row += 1
        head, parameters_sent = payload
        model = self._channel.frame(
            Tag.MODEL, 0, head, time=(round, attempt), after=parameters_sent
        )
        self.short = model.short
        self._attempt = AttemptSum(
            numbers=self._round_parameters,
            roster=self._channel.roster,
            time=(round, attempt),
            active=silos,
            model=model.digest,
            seeds=self._seeds,
        )
        return model.sealed(self._keys)

    def checked_shares(self, silo: int, shares: Sequence[bytes]) -> list[Frame]:
        """A silo's SHAREs of the open attempt, to be received with its answer.

        Raises:
            ProtocolError: one is not the silo's, not of this attempt, or not of the length.
        """
        frames = [self._channel.parse(data) for data in shares]
        for frame in frames:
            self.attempt.check_share(frame, silo)
        return frames

    def receive(self, message: bytes, shares: Sequence[Frame] = ()) -> bytes:
        """Take a silo's masked vector in, or what a node says.

        Args:
            message: MASKED, HELD, PROMISE or TOTAL.
            shares: those that `checked_shares` found good, with a MASKED.

        Returns:
            What stands for the frame's payload where it is not kept.

        Raises:
            ProtocolError: it is not what this attempt waits for; the sum is as before.
        """
        frame = self._channel.parse(message)
        # The MASKED first: a SHARE counts only beside its silo's answer.
        for each in (frame, *shares):
            self.attempt.take(each)
        return frame.short

    def ask_nodes(self, tag: Tag) -> dict[int, bytes]:
        """For every node its ARRIVED or REQUEST: who has answered, and the MODEL that they have.

        Raises:
            ProtocolError: they are fewer than the quorum.
        """
        payload, time = self.attempt.payload(tag), self.attempt.time
        frames = {
            node: self._channel.frame(tag, 0, payload, receiver=node, time=time)
            for node in self._channel.roster.nodes
        }
        # By the rules of whoever verifies: what they would refuse is not sent.
        for frame in frames.values():
            self.attempt.take(frame)
        return {node: frame.sealed(self._keys) for node, frame in frames.items()}


# A revealed sum in units of the gradient, made of its residues where it is read.
#
# A vector of float64 is up to four times as large as the residues of a sum; whoever takes a step
# along it reads it block by block and needs no more of it than a block.


class RevealedSum:
    """What a round reveals, (dimension,), to be read as an array of float64 is; public.

    Args:
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
