"""A silo in one session: what it is asked becomes what it answers; see `party.py`.

This is the one place where an answer is charged before it exists (docs/privacy.md P15): the charge
of an attempt is written down when its MODEL is taken, and the work that is left makes the answer.

Of a silo there are five: `SiloParty` here keeps the order and the charge; `protocol.Masking` checks
a model and masks; `protocol.Silo` draws the batch, sums, adds noise; a `Contributor` is that or a
vector that is given (`secure_sums.py`); among machines `network.SiloEndpoint` carries its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from hubbub.core.errors import HubbubError, ProtocolError
from hubbub.core.protocol.agreement.joint_seed import JointSeed
from hubbub.core.protocol.agreement.key_agreement import Session
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.protocol.round.silo import Charge, Silo
from hubbub.core.protocol.token_lists.list_context import ListContext
from hubbub.core.session import ask, party, silo_token_lists

# What is asked in the making of a shuffled token list.
MIXING = tuple(call for call in ask.Call if ask.Call.LIST <= call <= ask.Call.JUDGE)
# Writes the charge of an attempt down, durably, or raises.
Record = Callable[[Session, Charge], None]
# Makes what a silo does in rounds.
MakeSilo = Callable[[party.Membership, Masking, JointSeed | None], "Contributor"]


class Contributor(Protocol):
    """What a silo does in a round: `Silo`, or one whose vector is given (`secure_sums.py`)."""

    def accept(self, model: bytes) -> Charge:
        """Check a model; what answering it costs."""

    def decline(self) -> None:
        """Give up the accepted model."""

    def contribute(self) -> bytes:
        """The masked answer."""

    def shares(self) -> dict[int, bytes]:
        """What goes to the compute nodes with it."""


class SiloParty(party.Party):
    """A silo in one session.

    Args:
        membership, permit: see `Party`.
        make_silo: makes what answers, once the session is set up.
        record: see `Record`; nothing is written down if None.
        lists: the silo's shuffled token lists, where batches are joint.
    """

    def __init__(
        self,
        membership: party.Membership,
        make_silo: MakeSilo,
        *,
        record: Record | None = None,
        lists: silo_token_lists.SiloTokenLists | None = None,
        permit: party.Permit = lambda: None,
    ) -> None:
        super().__init__(membership, permit)
        self._make_silo, self._record, self._lists = make_silo, record, lists
        self._paid_epoch = -1  # the last one, where a row pays for an epoch of noise
        self.silo: Contributor | None = None

    def _round_calls(self) -> Mapping[ask.Call, party.Handler]:
        mixing = {call: partial(self._answer_list_call, call) for call in MIXING}
        return {ask.Call.MODEL: self._model, ask.Call.SEED: self._seed, **mixing}

    def _begin_rounds(self, agreed: Session) -> None:
        me = self._me
        masking = Masking(
            keys=me.keys,
            roster=me.roster,
            round_parameters=me.round_parameters,
            session=agreed,
            mask_stream=me.mask_stream,
            source=me.source,
        )
        seeds = self._seeds if isinstance(self._seeds, JointSeed) else None
        self.silo = self._make_silo(me, masking, seeds)

    def _model(self, parts: Sequence[bytes]) -> party.Work:
        """A new attempt: checked, charged, and answered, or its part of the joint seed revealed."""
        silo = self._ready_silo
        if len(parts) != 1:
            raise ProtocolError(f"expected one MODEL, got {len(parts)} frames", culprit="relay")
        if self._lists is not None:
            self._lists.prepare(parts[0], self._silo_with_seed)
        charge = silo.accept(parts[0])
        self._charge(silo, charge)
        return self._link if self._me.round_parameters.needs_joint_seed else self._answer

    def _charge(self, silo: Contributor, charge: Charge) -> None:
        """P15: in the ledger before the answer exists.

        Where every record takes part once in an epoch, the row of its first attempt pays for it
        (P9); so it does where a record may take part in one of so many attempts alone (P25).
        """
        agreed = self.agreed
        assert agreed is not None, "the session is set up"  # noqa: S101
        try:
            if self._record is not None and not self._is_paid_already(charge):
                self._record(agreed, charge)
        except HubbubError:
            silo.decline()
            raise
        if charge.row:
            self._paid_epoch = self._epoch_of(charge)
        if self._lists is not None:
            self._lists.use(charge.round)

    def _is_paid_already(self, charge: Charge) -> bool:
        """Whether an earlier row pays for this attempt: its list's (P9), or its epoch's (P25)."""
        if charge.row:
            return self._epoch_of(charge) == self._paid_epoch
        return self._lists is not None and self._lists.is_paid

    def _epoch_of(self, charge: Charge) -> int:
        """Of noise that goes on: as many of its rows as a record has a part in once (P25)."""
        return (charge.row - 1) // self._me.round_parameters.noise_epoch

    def _seed(self, parts: Sequence[bytes]) -> party.Work:
        """The links of all active silos: now the batch or the projection is fixed."""
        self._silo_with_seed.learn_seed(parts)
        return self._answer

    def _link(self) -> list[bytes]:
        return [self._silo_with_seed.reveal()]

    def _answer(self) -> list[bytes]:
        silo = self._ready_silo
        return [silo.contribute(), *silo.shares().values()]

    def forget(self) -> None:
        """No round follows."""
        if isinstance(self.silo, Silo):
            self.silo.forget()

    def _answer_list_call(self, call: ask.Call, parts: Sequence[bytes]) -> party.Work:
        """A phase in the making of a shuffled token list."""
        lists = self._lists
        if lists is None:
            raise ProtocolError(
                f"expected no {call.name} in a session without joint batches, got one",
                culprit="relay",
            )
        return lambda: lists.answer(call, parts)

    @property
    def _ready_silo(self) -> Contributor:
        assert self.silo is not None, "the session is set up"  # noqa: S101
        return self.silo

    @property
    def _silo_with_seed(self) -> Silo:
        """The silo where batches or projections follow from a joint seed."""
        if not isinstance(self.silo, Silo):
            raise ProtocolError("expected a sum without joint seeds, got a call about one")
        return self.silo


def lists_of(
    membership: party.Membership,
    counts: Sequence[int],
    attempts_per_list: int,
    epoch: int,
    pool: silo_token_lists.Pool,
) -> silo_token_lists.SiloTokenLists:
    """A silo's shuffled token lists, none of which is made yet."""
    return silo_token_lists.SiloTokenLists(
        keys=membership.keys,
        index=membership.index,
        list_context=ListContext(
            roster=membership.roster,
            study=membership.study,
            session=membership.session,
            number=0,
        ),
        counts=counts,
        attempts_per_list=attempts_per_list,
        epoch=epoch,
        pool=pool,
    )
