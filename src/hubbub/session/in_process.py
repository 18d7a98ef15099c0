"""All parties of a study in one process, with the real messages between them.

The round is written out here in the order in which the messages travel, as the set-up is in
`members.py`, so that the whole protocol can be read on two screens; what each party does with them
is its own file. Vectors are added as they come, so memory does not grow with the number of silos.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import BudgetError, HubbubError, IntegrityError, ProtocolError
from hubbub.planning import Plan, joint_batch, largest_batch
from hubbub.protocol.agreement.key_agreement import Session
from hubbub.protocol.agreement.mask_stream import MaskStream
from hubbub.protocol.identity import Keys, Roster
from hubbub.protocol.randomness import SecureSource
from hubbub.protocol.round import Aggregator, Charge, ComputeNode, LocalTask, RoundParameters, Silo
from hubbub.protocol.round.round_parameters import Parameters
from hubbub.session.layout import JointSeeds, Layout, Members

Record = Callable[[int, Charge], None]
# Called with every message that the aggregator has sent or used, in their order.
Keep = Callable[[bytes], None]
# The silos' places in the list of tokens from which an attempt's batch is drawn; None: the old one.
Lists = Callable[[int, int], Mapping[int, NDArray[np.intp]] | None]


class AbandonedError(HubbubError):
    """An attempt that came to nothing because a silo did not answer."""

    def __init__(self, silo: int, why: HubbubError) -> None:
        super().__init__(f"expected every silo's answer, got none from one: {why}")
        self.silo, self.why = silo, why


def round_parameters_of(
    plan: Plan, dimension: int, *, parameters: int | None = None
) -> RoundParameters:
    """The numbers of the rounds that a plan fixes.

    Args:
        plan: of the study.
        dimension: how many numbers are summed, before any projection.
        parameters: of the model that goes down, if not as many.
    """
    training, parties = plan.study.training, plan.study.parties
    joint, records = training.sampling == "without-replacement", plan.study.data.records
    return RoundParameters(
        dimension=training.projection or dimension,
        parameters=dimension if parameters is None else parameters,
        silos=parties.silos,
        quorum=plan.quorum,
        steps=training.steps,
        word_bits=plan.word_bits,
        grid_step=plan.grid_step,
        sigma_grid=plan.share_sigma_grid,
        sample_rate=training.sample_rate,
        nodes=parties.compute_nodes,
        full_shares=parties.shares == "full",
        projection=training.projection_kind if training.projection else "",
        clip=plan.clip,
        most_records=largest_batch(plan.study),
        batch=joint_batch(training.sample_rate, records) if joint else 0,
        records=records,
        fresh_lists=training.tokens == "per-step",
        short_models=training.download == "bfloat16",
    )


def layout_of(plan: Plan) -> Layout:
    """Who takes part, and who shares masks with whom."""
    parties = plan.study.parties
    return Layout(
        names=parties.names,
        nodes=parties.compute_nodes,
        nodes_per_silo=parties.nodes_per_silo,
        degree=plan.degree,
    )


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Everybody, after set-up."""

    roster: Roster
    keys: Sequence[Keys] = field(repr=False)
    sessions: Mapping[int, Session] = field(repr=False)
    aggregator: Aggregator
    silos: Mapping[int, Silo]
    nodes: Mapping[int, ComputeNode]
    quorum: int = 0
    joint: JointSeeds | None = field(default=None, repr=False)
    lists: Lists | None = field(default=None, repr=False)
    threads: int = 1
    keep: Keep = field(default=lambda _: None, repr=False)
    gone: set[int] = field(default_factory=set)

    @property
    def session(self) -> Session:
        """The session, as the first silo knows it; all have compared it at set-up."""
        return next(iter(self.sessions.values()))

    def round(
        self,
        number: int,
        parameters: Parameters,
        *,
        attempts: int = 1,
        record: Record | None = None,
    ) -> tuple[NDArray[np.int64] | None, int]:
        """A round: with pairwise masks it is repeated among those left when a silo is missing.

        Every attempt has a fresh batch, noise and masks, and is charged (docs/privacy.md P3).

        Args:
            number: from 1.
            parameters: the model.
            attempts: the most to make.
            record: see `sum`; a silo whose ledger refuses is missing from then on.

        Returns:
            The sum in grid steps, or None if no attempt succeeded, and the attempts made.

        Raises:
            HubbubError: what the silo said that left too few.
        """
        for attempt in range(attempts):
            try:
                total = self.sum(
                    number, parameters, attempt=attempt, record=record, absent=self.gone
                )
            except AbandonedError as lost:
                self._lose(lost.silo, lost.why)
            else:
                return total, attempt + 1
        return None, attempts

    def _lose(self, silo: int, why: HubbubError) -> None:
        """Go on without a silo, if enough are left."""
        self.gone.add(silo)
        if len(self.silos) - len(self.gone) < self.quorum:
            raise why from None

    def sum(
        self,
        round: int,
        parameters: Parameters,
        *,
        attempt: int = 0,
        record: Record | None = None,
        absent: Iterable[int] = (),
    ) -> NDArray[np.int64]:
        """One attempt at a round, from the model to the sum in grid steps.

        With pairwise masks, `AbandonedError` is raised at the first silo whose ledger refuses; with
        compute nodes the attempt goes on without it.

        Args:
            round: from 1.
            parameters: the model.
            attempt: from 0, higher for every repetition.
            record: called with a silo's index and charge before its answer is made; it must have
                written the charge when it returns, or raise.
            absent: silos that do not answer.

        Raises:
            AbandonedError: see above.
            BudgetError, IntegrityError: a ledger refused, which left too few silos.
        """
        away = set(absent)
        whole = not self.nodes or self.joint is not None
        active = [index for index in self.silos if not whole or index not in away]
        if self.lists is not None:
            for index, positions in (self.lists(round, attempt) or {}).items():
                self.silos[index].take_list(positions, round)
        model = self.aggregator.begin(round, attempt, active, parameters)
        self.keep(model)
        present = (index for index in active if index not in away)
        ready = self._charged(model, present, record, whole)
        if self.joint is not None:
            ready = self._seeded(list(ready))
        answers = ((index, self.silos[index].contribute) for index in ready)
        for index, answer in in_order(answers, self.threads):
            for node, share in self.silos[index].shares().items():
                self.nodes[node].keep(share)
            self._use(answer)
        if self.nodes:
            requests = self.aggregator.requests()
            for request in requests.values():
                self.keep(request)
            totals = ((i, partial(self.nodes[i].total, each)) for i, each in requests.items())
            for _, answer in in_order(totals, self.threads):
                self._use(answer)
        return self.aggregator.integers()

    def _seeded(self, ready: Sequence[int]) -> Sequence[int]:
        """The joint seed of an attempt: everybody has accepted the model, then all reveal."""
        links = [self.silos[index].reveal() for index in ready]
        for link in links:
            self.keep(link)
        try:
            self.aggregator.learn_seed(links)
        except ProtocolError as refused:
            silent = [index for index in ready if self.roster.name(index) == refused.culprit]
            if not silent:
                raise
            raise AbandonedError(silent[0], refused) from None
        for index in ready:
            self.silos[index].learn_seed(links)
        return ready

    def _use(self, answer: bytes) -> None:
        """Give the aggregator an answer, and keep what it has used."""
        self.aggregator.receive(answer)
        self.keep(answer)

    def _charged(
        self, model: bytes, present: Iterable[int], record: Record | None, whole: bool
    ) -> Iterable[int]:
        """The silos whose charge is written; one after the other, each when it is asked for.

        Where the attempt needs all of the active silos (`whole`), the first refusal ends it.
        """
        for index in present:
            charge = self.silos[index].accept(model)
            try:
                if record is not None:
                    record(index, charge)
            except (BudgetError, IntegrityError) as refused:
                self.silos[index].decline()
                if whole:
                    raise AbandonedError(index, refused) from None
                self._lose(index, refused)
                continue
            yield index


def federate(
    layout: Layout,
    terms: RoundParameters,
    tasks: Sequence[LocalTask],
    *,
    study: bytes,
    source: Callable[[int], SecureSource] | None = None,
    threads: int = 1,
    keys: Sequence[Keys] | None = None,
    noiseless: Collection[int] = (),
) -> Federation:
    """Set up a session among all parties, and give each its part.

    Args:
        layout: who there is.
        terms: the numbers of the rounds.
        tasks: the silos' tasks, in the order of the names.
        study: the study id.
        source: a party's randomness by its index; the operating system's if None.
        threads: how many silos, and then compute nodes, work at once; changes speed only.
        keys: everybody's, in the order of the roster; fresh ones if None.
        noiseless: silos that add no noise, as an adversary's may.
    """
    members = Members.gather(layout, study=study, source=source, terms=terms, keys=keys)
    mask_stream, joint = MaskStream(), members.joint
    return Federation(
        roster=members.roster,
        keys=members.keys,
        sessions=members.sessions,
        aggregator=members.aggregator(terms),
        silos={
            index: Silo(
                terms=replace(terms, sigma_grid=0.0) if index in noiseless else terms,
                task=tasks[index - 1],
                masking=members.masking(index, terms, mask_stream),
                source=members.sources[index],
                seeds=joint.silos[index] if joint else None,
            )
            for index in members.roster.silos
        },
        nodes=members.nodes(terms, mask_stream),
        quorum=terms.quorum,
        joint=joint,
        threads=threads,
    )


def in_order(
    jobs: Iterable[tuple[int, Callable[[], bytes]]], threads: int
) -> Iterator[tuple[int, bytes]]:
    """The results of jobs in their order; no more are begun than the threads can soon use."""
    if threads == 1:
        yield from ((index, job()) for index, job in jobs)
        return
    with ThreadPoolExecutor(threads) as pool:
        begun: deque[tuple[int, Future[bytes]]] = deque()
        for index, job in jobs:
            begun.append((index, pool.submit(job)))
            if len(begun) > threads:
                first, made = begun.popleft()
                yield first, made.result()
        for index, made in begun:
            yield index, made.result()
