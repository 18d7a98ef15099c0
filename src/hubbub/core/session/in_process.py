"""All parties in one process, asked one after the other: the seam of `ask.py` without a network.

Calls are taken in the order of the roster, so that a refusing ledger ends an attempt before later
silos are charged; what they leave to do is done on a few threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import BudgetError, HubbubError, IntegrityError
from hubbub.core.protocol.agreement.key_agreement import Session
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Channel, seal_ahead
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters, decoded
from hubbub.core.protocol.round.silo import Charge
from hubbub.core.session import party, setup
from hubbub.core.session.ask import Absent, AbsentError, Answer, Call, Peers
from hubbub.core.session.attestation_exchange import AttestedSession, Attests
from hubbub.core.session.joint_batches import JointBatches
from hubbub.core.session.offer import Layout, SessionOffer
from hubbub.core.session.party import NodeParty, SiloParty
from hubbub.core.session.rounds import AbortedError, Rounds

# Writes down the charge of an attempt of the silo with a roster index, or raises.
Record = Callable[[int, Session, Charge], None]
# What is worth threads; the mixnet has processes, which its silos share.
_ROUND = (Call.MODEL, Call.SEED, Call.SHARES, Call.PROMISE, Call.TOTAL)


class LocalPeers(Peers):
    """Parties of this process.

    Args:
        parties: all but the aggregator, by roster index.
        threads: how many answers are made at once; changes speed only.
    """

    def __init__(
        self, roster: Roster, parties: Mapping[int, party.Party], threads: int = 1
    ) -> None:
        super().__init__(roster)
        self.parties, self.threads = parties, threads
        seal_ahead(threads)

    def ask(
        self,
        call: Call,
        requests: Mapping[int, Sequence[bytes]],
        session: bytes,
        *,
        needs_all: bool = False,
        more_seconds: float = 0.0,
    ) -> Iterator[tuple[int, Answer]]:
        """As `Peers.ask`; a ledger's refusal is an absence, any other error is a defect."""
        taken = self._all_taken(call, requests, needs_all=needs_all)
        if self.threads == 1 or call not in _ROUND:
            for index, work in taken:
                yield index, work if isinstance(work, Absent) else work()
            return
        with ThreadPoolExecutor(self.threads) as pool:
            begun: deque[tuple[int, Future[list[bytes]]]] = deque()
            for index, work in taken:
                if isinstance(work, Absent):
                    yield index, work
                    continue
                begun.append((index, pool.submit(work)))
                if len(begun) > self.threads:  # no more is begun than they can soon use
                    first, work_done = begun.popleft()
                    yield first, work_done.result()
            for index, work_done in begun:
                yield index, work_done.result()

    def _all_taken(
        self, call: Call, requests: Mapping[int, Sequence[bytes]], *, needs_all: bool
    ) -> Iterable[tuple[int, party.Work | Absent]]:
        """What calls leave to do, each taken when it is asked for."""
        taken = ((index, self._taken(index, call, parts)) for index, parts in requests.items())
        # Where all are needed, all are taken first: if one refuses, none after it is asked, and
        # none answers.
        if not needs_all:
            return taken
        works: list[tuple[int, party.Work | Absent]] = []
        for index, work in taken:
            if isinstance(work, Absent):
                return [(index, work)]
            works.append((index, work))
        return works

    def _taken(self, index: int, call: Call, parts: Sequence[bytes]) -> party.Work | Absent:
        """What a call leaves to do; or that the silo's ledger refuses it."""
        try:
            return self.parties[index].take(call, parts)
        except (BudgetError, IntegrityError) as error:
            why = "budget" if isinstance(error, BudgetError) else "ledger"
            return Absent(why=why, said=str(error), error=error)


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Everybody in one process, after set-up.

    Args:
        keys: everybody's, in the order of the roster.
        peers: all but the aggregator.
        rounds: the session, at the aggregator.
    """

    keys: Sequence[Keys] = field(repr=False)
    peers: LocalPeers
    rounds: Rounds

    @property
    def roster(self) -> Roster:
        """Everybody."""
        return self.peers.roster

    def sum(self, number: int, parameters: Parameters) -> NDArray[np.int64]:
        """A round of one attempt, which must succeed."""
        try:
            return self.rounds.attempt(number, 0, parameters).astype(np.int64, copy=False)
        except AbortedError as aborted:
            raise raised_by(AbsentError(self.rounds.attendance.named_absent), aborted) from None

    def noisy_sum(self, number: int, parameters: Parameters) -> NDArray[np.float64]:
        """The same in the units of what is summed."""
        return decoded(self.rounds.round_parameters, self.sum(number, parameters))


def raised_by(lost: AbsentError, otherwise: HubbubError | None = None) -> HubbubError:
    """The error of the party of this process that was lost last."""
    errors = [absence.error for absence in lost.absent.values() if absence.error is not None]
    return errors[-1] if errors else otherwise or lost


def federate(
    layout: Layout,
    round_parameters: RoundParameters,
    tasks: Sequence[LocalTask],
    *,
    study: bytes,
    noiseless: Collection[int] = (),
    joint: JointBatches | None = None,
    keys: Sequence[Keys] | None = None,
    source: Callable[[int], SecureSource] | None = None,
    record: Record | None = None,
    threads: int = 1,
    purpose: str = "sum",
    session: bytes | None = None,
    attests: Callable[[int], Attests] | None = None,
) -> Federation:
    """Set up a session among all parties, and give each silo its records.

    Args:
        tasks: the silos' tasks, in the order of the names.
        noiseless: silos that add no noise, as an adversary's may.
        joint: how all silos draw together; None where each draws alone.
        keys: everybody's, in the order of the roster; fresh ones if None.
        source: a party's randomness by its index; the operating system's if None.
        record: writes a silo's charges down, before its answers exist; nobody does if None.
        threads: how many parties work at once; changes speed only.
        purpose: what is summed.
        session: its name; a new one if None.
        attests: how a party shows evidence and checks others', by its index; None where the study
            asks for none.
    """
    keys = keys or layout.keys()
    roster, session = Roster.of(keys), session or setup.new_session()
    channel = Channel(roster=roster, study=study, session=session)
    at = attests(0).now() if attests else 0
    offer = SessionOffer.of(purpose, round_parameters, at=at)
    draw, mask_stream = source or (lambda _: SecureSource()), MaskStream()

    def attested(index: int) -> AttestedSession | None:
        if attests is None:
            return None
        return AttestedSession(**vars(channel), attests=attests(index), at=at)

    def member(index: int) -> party.Party:
        membership = party.Membership(
            keys=keys[index],
            channel=channel,
            index=index,
            # P3: who lies adds no noise; the others' shares are as wide as the plan says.
            round_parameters=replace(round_parameters, sigma_grid=0.0)
            if index in noiseless
            else round_parameters,
            layout=layout,
            offer=payload,
            source=draw(index),
            attested=attested(index),
            joint=joint,
            mask_stream=mask_stream,
        )
        if index in roster.nodes:
            return NodeParty(membership)
        return SiloParty(
            membership,
            lambda: tasks[index - 1],
            record=(lambda agreed, charge: record(index, agreed, charge)) if record else None,
        )

    payload = offer.payload()
    peers = LocalPeers(roster, {i: member(i) for i in range(1, len(keys))}, threads)
    rounds = setup.SetUp(
        peers=peers,
        keys=keys[0],
        study=study,
        layout=layout,
        round_parameters=round_parameters,
        offer=offer,
        joint=joint,
        session=session,
        attests=attests(0) if attests else None,
    ).open_session()
    return Federation(keys=keys, peers=peers, rounds=rounds)
