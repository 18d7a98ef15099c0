"""Joint batches in a session: what all silos draw together from, whatever makes it (P9, P10).

Before an attempt the aggregator has it made, where it is due; a silo then draws its rows by it.
`joint_batches` names the one way that there is, the paper's Algorithm 2 (`token_lists.py`); nothing
else of a session knows which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.wire import Channel
from hubbub.core.protocol.round.batches import Batches, Rows
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session import token_lists
from hubbub.core.session.ask import Call, Peers

Notice = Callable[[str], None]
# What is asked of a silo beside rounds.
MAKING = tuple(call for call in Call if Call.LIST <= call <= Call.JUDGE)


class SiloLists(Protocol):
    """What one silo draws from in one session, and its part in the making of it."""

    @property
    def batches(self) -> Batches:
        """Its rows in an attempt."""

    def answer(self, call: Call, parts: Sequence[bytes]) -> list[bytes]:
        """What it says to one of the calls `MAKING`; raises as `SiloTokenLists.answer` does."""

    def prepare(self, model: bytes, *, is_open: bool) -> None:
        """See, before a MODEL is accepted, that there is what its batch is drawn from.

        Args:
            is_open: whether an attempt is open, whose seed may be known already.
        """

    @property
    def is_paid(self) -> bool:
        """Whether the row of an earlier attempt pays for the next one too (P9)."""

    def use(self, round: int) -> None:
        """Count an attempt that was charged."""


class Lists(Protocol):
    """The same at the aggregator."""

    def prepare(self) -> None:
        """Before an attempt; AbsentError, or ProtocolError by name, if somebody is to blame."""


class JointBatches(Protocol):
    """How the silos of one study draw together."""

    def at_silo(
        self, keys: Keys, index: int, channel: Channel, round_parameters: RoundParameters
    ) -> SiloLists:
        """For one silo, in one session."""

    def at_aggregator(self, peers: Peers, channel: Channel) -> Lists:
        """For the aggregator, in the same."""

    def places(self, round_parameters: RoundParameters, seed: bytes, step: int) -> Rows:
        """The public places of a step's batch, from 1, among those of all records."""

    def asked(self, roster: Roster) -> Sequence[int]:
        """Payloads of the frames that one of the calls `MAKING` has at most, in bytes."""

    def answered(self, roster: Roster) -> Mapping[Call, Sequence[int]]:
        """Payloads of the frames that an answer to each of them has at most, in bytes."""


def joint_batches(
    mechanism: Mechanism, counts: Sequence[int], notice: Notice | None = None
) -> JointBatches | None:
    """How silos with so many records draw together for a mechanism; None where each draws alone.

    Args:
        notice: where all silos are in this process: told how much of a list is made.
    """
    if not mechanism.has_joint_batches:
        return None
    return token_lists.TokenListBatches(
        counts=counts,
        attempts_per_list=mechanism.attempts_per_list,
        epoch=mechanism.epoch,
        notice=notice,
    )
