"""How long a step of a study takes in the clear and masked, and where it is spent.

A step has two lengths. One is what it takes with all parties in one process. The other is the
slowest path through it if each party had a core of its own: the slowest silo, then the aggregator's
work on all that arrives, then the slowest compute node; messages take no time. For the path the
processor time of every call of a party is kept by party, in steps of their own, in which messages
are copied on their way: in one process a receiver need not hash the very object that the sender has
hashed, and parties that are apart must.

This file knows how steps are timed; it must not know what they are compared with, nor tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import mean, median
from typing import Any, cast

import numpy as np
import torch
from benchmarks.encrypted_run import (
    BATCH,
    HIDDEN,
    PIXELS,
    RECORDS,
    SILOS,
    ClearSilo,
    ClearSum,
    Parameters,
    Ready,
    Run,
    Step,
    Vector,
    clear,
    made_up,
    study_of,
)

from experiments.datasets import mnist
from hubbub import learning
from hubbub.core.errors import DataError
from hubbub.core.protocol.agreement.key_agreement import Place, Session
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring, wire
from hubbub.core.protocol.primitives.identity import TRUE_SIGNATURES
from hubbub.core.session.in_process import Federation, federate
from hubbub.core.session.offer import layout_of
from hubbub.core.session.party import NodeParty, SiloParty
from hubbub.core.tabular.records import Records

APART = 0  # in the place of a number of threads: every party on its own
_MASKINGS = 5  # silos whose masks are timed alone


@dataclass(frozen=True, kw_only=True)
class Case:
    """Who trains what. Records are dealt to the silos in turn; as many in a step, however many.

    Args:
        silos: N.
        nodes: compute nodes; 0 for pairwise masks.
        degree: of the mask graph, whatever the plan would take; None for the plan's.
        hidden: widths of the hidden layers, 784 numbers going in and 10 coming out.
        records: of all silos; None for MNIST's 60,000, or as many made-up ones without it.
        rate: the sample rate.
    """

    silos: int
    nodes: int = 0
    degree: int | None = None
    hidden: tuple[int, ...] = HIDDEN
    records: int | None = None
    rate: float = BATCH / SILOS / RECORDS


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of one step; of a run's steps the mean, but the least wall.

    Args:
        wall: of the step with all parties in one process, to which other work on the machine adds.
        cpu: processor time of the same.
        silo: processor time of the slowest silo, messages copied as between processes.
        aggregator: of the aggregator, its optimizer step included, likewise.
        node: of the slowest compute node, likewise; 0 without.
    """

    wall: float
    cpu: float
    silo: float
    aggregator: float
    node: float

    @property
    def path(self) -> float:
        """The slowest path through a step in which each party has a core of its own."""
        return self.silo + self.aggregator + self.node


def paths_of(clear: Times, apart: Times) -> dict[str, float]:
    """Columns of the slowest path and its parts, in the clear and with parties apart."""
    pairs = (("clear_", clear), ("", apart))
    parts = ("path", "silo", "aggregator")
    return {f"{head}{part}": getattr(times, part) for part in parts for head, times in pairs}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One run: clear and masked steps in turn, the first of each thrown away."""

    ready: Ready
    images: str
    clear: Times
    masked: dict[int, Times]  # by the number of threads; with 0 the parties are apart
    setup: float
    mask_stream: float


class Watched:
    """A party whose calls are timed, as if it were in a process of its own.

    What it is asked for and what it answers is unchanged, but it shares no message with others.
    """

    def __init__(self, party: object) -> None:
        self._party, self._spent = party, 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._party, name)

        def called(*given: object) -> object:
            given = tuple(_copied(one) for one in given)
            start = time.thread_time()
            try:
                return found(*given)
            finally:
                self._spent += time.thread_time() - start

        return called if callable(found) else found

    def taken(self) -> float:
        """Processor seconds since it was last asked for them."""
        spent, self._spent = self._spent, 0.0
        return spent


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way to make steps, and the parties that are watched in it."""

    run: Run
    silos: Sequence[Watched]
    aggregator: Sequence[Watched]
    nodes: Sequence[Watched] = ()

    def go(self, number: int) -> Times:
        """One step."""
        self.run.go(number)
        return Times(
            wall=self.run.wall[-1],
            cpu=self.run.cpu[-1],
            silo=max((one.taken() for one in self.silos), default=0.0),
            aggregator=sum(one.taken() for one in self.aggregator),
            node=max((one.taken() for one in self.nodes), default=0.0),
        )


def _copied(message: object) -> object:
    """An equal message that nobody has seen; anything else as it is."""
    if type(message) is not bytes:
        return message
    # Or the second silo finds the first one's hash, and who signed what.
    wire._split_large.cache_clear()  # noqa: SLF001
    wire._split_small.cache_clear()  # noqa: SLF001
    TRUE_SIGNATURES.forget()
    return bytes(bytearray(message))


def compared(
    case: Case, steps: int, threads: Sequence[int], shown: Callable[[float], None]
) -> Compared:
    """One run of each kind, with fresh keys and secrets; torch is held to one thread.

    Args:
        case: who trains what.
        steps: of each kind that count.
        threads: how many silos work at once, for each kind of masked steps in one process.
        shown: the progress.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _compared(case, steps, threads, shown)
    finally:
        torch.set_num_threads(before)


def _compared(
    case: Case, steps: int, threads: Sequence[int], shown: Callable[[float], None]
) -> Compared:
    ready, images = prepared(replace(case, degree=None))  # which the plan need not know
    start = time.perf_counter()
    parties = set_up(case, ready)
    setup = time.perf_counter() - start
    threads = (*threads, APART)
    kinds = [clear_kind(ready)]
    kinds += [
        masked_kind(ready, parties, each, place, threads) for place, each in enumerate(threads)
    ]
    found: list[list[Times]] = [[] for _ in kinds]
    for number in range(steps + 1):
        for kind, times in zip(kinds, found, strict=True):
            times.append(kind.go(number + 1))
        shown((number + 1) / (steps + 1))
    plain, *masked = (_of_run(times[1:]) for times in found)
    return Compared(
        ready=ready,
        images=images,
        clear=plain,
        masked=dict(zip(threads, masked, strict=True)),
        setup=setup,
        mask_stream=masking_seconds(parties, ready),
    )


def clear_kind(ready: Ready) -> Kind:
    """Steps in which nothing is hidden, on one thread."""
    silos = [Watched(ClearSilo(task, ready.round_parameters)) for task in ready.tasks]
    total, optimizer = (
        Watched(ClearSum(ready.round_parameters)),
        Watched(learning.Optimizer("adam", lr=9e-4)),
    )
    step = clear(cast(Any, silos), cast(Any, total), ready.round_parameters)
    return Kind(
        run=ready.run(step, cast(Any, optimizer)), silos=silos, aggregator=(total, optimizer)
    )


def masked_kind(
    ready: Ready, parties: Federation, threads: int, place: int, kinds: Sequence[int]
) -> Kind:
    """Steps of the real protocol. Kinds of one session use its rounds in turn, none twice."""
    if threads == APART:
        return apart_kind(ready, parties, place, kinds)
    parties.peers.threads = threads
    step = _real(parties, ready, place, len(kinds))
    return Kind(run=ready.run(step), silos=(), aggregator=())


def apart_kind(ready: Ready, parties: Federation, place: int, kinds: Sequence[int]) -> Kind:
    """The same steps with every party watched."""
    silos, nodes = [], []
    for party in parties.peers.parties.values():
        if isinstance(party, SiloParty):
            silos.append(Watched(party.silo))
            party.silo = cast(Any, silos[-1])
        elif isinstance(party, NodeParty):
            nodes.append(Watched(party.node))
            party.node = cast(Any, nodes[-1])
    total, optimizer = (
        Watched(parties.rounds.aggregator),
        Watched(learning.Optimizer("adam", lr=9e-4)),
    )
    parties.rounds.aggregator = cast(Any, total)
    return Kind(
        run=ready.run(_real(parties, ready, place, len(kinds)), cast(Any, optimizer)),
        silos=silos,
        aggregator=(total, optimizer),
        nodes=nodes,
    )


def _real(parties: Federation, ready: Ready, place: int, kinds: int) -> Step:
    """Every `kinds`-th round of the session, from `place` on."""

    def step(number: int, parameters: Parameters) -> Vector:
        round = (number - 1) * kinds + place + 1
        return np.multiply(parties.sum(round, parameters), ready.round_parameters.grid_step)

    return step


def set_up(case: Case, ready: Ready) -> Federation:
    """Everybody's keys and secrets, on the graph of the case."""
    layout = layout_of(ready.plan)
    if case.degree is not None:
        layout = replace(layout, degree=case.degree)
    return federate(layout, ready.round_parameters, ready.tasks, study=ready.study.id)


@lru_cache(maxsize=1)
def prepared(case: Case) -> tuple[Ready, str]:
    """The study's plan and tasks, and which images they hold."""
    records, images = images_of(case.silos, case.records)
    study = study_of(
        case.silos,
        case.nodes,
        records=sum(len(one) for one in records),
        rate=case.rate,
        hidden=case.hidden,
    )
    return Ready.of(study, records), images


def images_of(silos: int, records: int | None) -> tuple[list[Records], str]:
    """Every silo's images, and whether they are MNIST's; how long a step takes is the same."""
    if records is None:
        try:
            return [_flat(mnist(f"silo-{k + 1}", silos=silos)) for k in range(silos)], "mnist"
        except DataError:
            records = SILOS * RECORDS
    return [made_up(k, len(range(k, records, silos))) for k in range(silos)], "made up"


def masking_seconds(parties: Federation, ready: Ready) -> float:
    """Processor seconds of all masks of one silo, keys derived: the median of some silos."""
    some = list(parties.roster.silos)[:_MASKINGS]
    residues = ring.zeros(ready.round_parameters.dimension, ready.round_parameters.word_bits)
    mask_stream = MaskStream()

    def masked(session: Session) -> float:
        start = time.thread_time()
        place = Place(round=ready.round_parameters.steps, attempt=1, model=bytes(32))
        keys = [one.mask_key(session.transcript, place) for one in session.secrets.values()]
        mask_stream.add_all(residues, [(key, False) for key in keys])
        return time.thread_time() - start

    sessions = [parties.peers.parties[index].agreed for index in some]
    return median(masked(session) for session in sessions if session is not None)


def processor_seconds(work: Callable[[], object]) -> float:
    """What one call takes."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def _flat(records: Records) -> Records:
    return Records(
        inputs=np.ascontiguousarray(records.inputs.reshape(-1, PIXELS)), targets=records.targets
    )


def _of_run(times: Iterable[Times]) -> Times:
    all_ = list(times)
    return Times(
        wall=min(one.wall for one in all_),
        cpu=mean(one.cpu for one in all_),
        silo=mean(one.silo for one in all_),
        aggregator=mean(one.aggregator for one in all_),
        node=mean(one.node for one in all_),
    )
