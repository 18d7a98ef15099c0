"""What a networked study will take: bytes, seconds and memory of every kind of party.

Arithmetic only: no clock is read here, and nothing is measured. Seconds are counts of what a step
does (numbers noised; bytes masked, hashed, moved) times rates that somebody measured; memory is a
sum of sizes; bytes are those of `traffic.py`. What is predicted is an ordinary step of the
training: nobody is missing, the model is not evaluated after it, and no ledger has a cap to check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, inf
from typing import Any

from hubbub.errors import UserError
from hubbub.plan.planning import Plan
from hubbub.plan.traffic import (
    NOTHING,
    Flow,
    Formats,
    Sizes,
    lists_at,
    node_setup,
    node_step,
    silo_setup,
    silo_step,
)

SILO, NODE, AGGREGATOR, RELAY = "silo", "compute node", "aggregator", "relay"
_FLOAT, _DOUBLE = 4, 8
_POOLS = 16
_BITS = 8e-6  # megabits of a byte


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What one core and the disk of a machine take, in processor seconds unless said otherwise.

    Args:
        mask: a byte of keystream, made and added.
        noise: a number divided by the grid step, noised and rounded.
        hash: a byte of SHA-256.
        copy: a byte moved.
        add: a residue added to the sum.
        sign, verify: a frame's signature.
        message: a request and its answer, without what is in them.
        charge: a row in a ledger; charge_wait: seconds of its disk besides.
        sync: seconds of the disk until a file is there for certain.
        gradient: a silo's clipped sum of the expected batch; None: not known.
        update: from the sum to the next model, on disk; None: not known.
        update_wait: seconds of the disk besides.
        base: bytes of a party without torch before it holds a vector.
        learning_base: of one with it.
        record: bytes of a record; 0: not known.
    """

    mask: float
    noise: float
    hash: float
    copy: float
    add: float
    sign: float
    verify: float
    message: float
    charge: float
    charge_wait: float
    sync: float
    gradient: float | None
    update: float | None
    update_wait: float
    base: int
    learning_base: int
    record: int = 0


@dataclass(frozen=True, kw_only=True)
class Lines:
    """What lies between the parties; by default nothing.

    Args:
        mbit: megabits per second of every party's line, each way.
        aggregator_mbit: of the aggregator's.
        engine_mbit: the most that the engine carries.
        latency: seconds, one way.
        engine: seconds that the engine adds to a phase.
        pace: seconds; a silo's answer leaves at a multiple of it.

    Raises:
        UserError: a line without width, or a time below 0.
    """

    mbit: float = inf
    aggregator_mbit: float = inf
    engine_mbit: float = inf
    latency: float = 0.0
    engine: float = 0.0
    pace: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no line has."""
        for name, value in asdict(self).items():
            if name.endswith("mbit") and not value > 0:
                raise UserError(f"expected {name} above 0, got {value}; give megabits per second")
            if not name.endswith("mbit") and not 0 <= value < inf:
                raise UserError(f"expected {name} of at least 0 seconds, got {value}; measure it")

    def carried(self, each: int, whole: int) -> float:
        """Seconds until everybody's bytes have passed the narrowest place."""
        wide = min(self.aggregator_mbit, self.engine_mbit)
        return max(each * _BITS / self.mbit, whole * _BITS / wide)


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one party of a kind bears; of compute nodes, the busiest.

    Args:
        kind: silo, compute node, aggregator or relay.
        count: how many of the kind there are.
        setup: bytes of a session's set-up.
        step: bytes of a step.
        listed: bytes of making a list of tokens; of silos, the one that moves most.
        work: processor seconds of a step, by part.
        waits: seconds of a step in which its disk keeps it waiting.
        base: bytes of the program.
        vectors: the most bytes that it holds besides.
    """

    kind: str
    count: int
    setup: Flow
    step: Flow
    listed: Flow = NOTHING
    work: Mapping[str, float] = field(default_factory=dict)
    waits: float = 0.0
    base: int
    vectors: int

    @property
    def processor(self) -> float:
        """Processor seconds of a step."""
        return sum(self.work.values())

    @property
    def memory(self) -> int:
        """The most bytes that it holds, the program included."""
        return self.base + self.vectors

    def as_json(self) -> dict[str, Any]:
        """It as plain values."""
        return {
            "kind": self.kind,
            "count": self.count,
            "setup_bytes": asdict(self.setup),
            "step_bytes": asdict(self.step),
            "list_bytes": asdict(self.listed),
            "processor_seconds": dict(self.work),
            "disk_seconds": self.waits,
            "memory_bytes": self.memory,
        }


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a networked study will take; made by `forecast`.

    Args:
        loads: of every kind of party.
        seconds: of a step, by part.
        cores: of the one machine that all share; None: each party has its own.
        memory: bytes of all in one process, where they share a machine.
        complete: whether gradients and the update of the model are in the seconds.
        lists: of tokens, that the whole study takes; their seconds and memory are not in the rest.
    """

    loads: tuple[Load, ...]
    seconds: Mapping[str, float]
    cores: int | None
    memory: int | None
    complete: bool
    lists: int = 0

    @property
    def step_seconds(self) -> float:
        """Seconds from one model to the next."""
        return sum(self.seconds.values())

    @property
    def processor_seconds(self) -> float:
        """Processor seconds of a step, of all parties together."""
        return sum(load.count * load.processor for load in self.loads)

    def load(self, kind: str) -> Load:
        """What a party of this kind bears."""
        return next(load for load in self.loads if load.kind == kind)

    def as_json(self) -> dict[str, Any]:
        """It as plain values.

        "parties": a list, for each kind "kind", "count", "setup_bytes", "step_bytes" and
        "list_bytes" (each "received" and "sent"), "processor_seconds" of a step by part,
        "disk_seconds" and "memory_bytes"; of compute nodes, the busiest. "seconds": of a step, by
        part; "seconds_per_step": their sum. "processor_seconds_per_step": of all parties. "cores"
        and "memory_bytes": where all share a machine, else null. "complete": false where gradients
        and the update of the model could not be measured and are left out. "lists": of tokens, in
        the whole study.
        """
        return {
            "parties": [load.as_json() for load in self.loads],
            "seconds": dict(self.seconds),
            "seconds_per_step": self.step_seconds,
            "processor_seconds_per_step": self.processor_seconds,
            "cores": self.cores,
            "memory_bytes": self.memory,
            "complete": self.complete,
            "lists": self.lists,
        }


def forecast(
    plan: Plan,
    *,
    formats: Formats,
    rates: Rates,
    lines: Lines | None = None,
    cores: int | None = None,
) -> Forecast:
    """Bytes, seconds and memory of a study whose parties run apart.

    Guarantees:
        1. The bytes are exact for a session of the training that nobody misses and in which no
           silo has paid for an attempt of the study before.

    Args:
        plan: of the study, with the size of its model.
        formats: of messages.
        rates: of every machine.
        lines: between the parties.
        cores: of the one machine that all share; None: each party has its own.

    Raises:
        StudyError: the size of the study's model is not known, or with joint batches the number
            of records of each silo.
        UserError: `cores` is below 1.
    """
    if cores is not None and cores < 1:
        raise UserError(f"expected --cores of at least 1, got {cores}; say how many work at once")
    sizes = Sizes.of(plan)
    silo, nodes = _silo(plan, sizes, formats, rates), _nodes(sizes, formats, rates)
    setup, step = silo.setup.times(silo.count), silo.step.times(silo.count)
    for users in sizes.users:
        setup += node_setup(sizes, formats, users)
        step += node_step(sizes, formats, users)
    listed = sum(lists_at(sizes, formats), start=NOTHING)
    aggregator = _aggregator(plan, sizes, rates, setup.turned(), step.turned())
    aggregator = replace(aggregator, listed=listed.turned())
    relay = replace(_relay(rates, setup, step), listed=listed + listed.turned())
    loads = (silo, *nodes, aggregator, relay)
    waiting = _silo_waiting(sizes) + _records(plan, rates)
    together = _memory_together(silo, (*nodes, aggregator), waiting)
    return Forecast(
        loads=loads,
        seconds=_seconds(sizes, silo, nodes, aggregator, lines or Lines(), cores),
        cores=cores,
        memory=together if cores else None,
        complete=rates.gradient is not None and rates.update is not None,
        lists=sizes.lists,
    )


def _silo(plan: Plan, sizes: Sizes, formats: Formats, rates: Rates) -> Load:
    """The model comes; a noisy, masked vector goes."""
    links = sizes.silos if sizes.joint else 0
    vectors = sizes.copies * sizes.vector
    work = {
        "gradients": rates.gradient or 0.0,
        "noise": sizes.numbers * rates.noise,
        "masks": sizes.neighbours * sizes.vector * rates.mask,
        "hashing": (sizes.model + vectors) * rates.hash,
        "ledger": rates.charge,
        "messages": (1 + sizes.joint) * rates.message
        + (1 + links) * rates.verify
        + (sizes.copies + sizes.joint) * rates.sign
        + (2 * sizes.model + 3 * vectors) * rates.copy,
    }
    return Load(
        kind=SILO,
        count=sizes.silos,
        setup=silo_setup(sizes, formats),
        step=silo_step(sizes, formats),
        listed=max(
            lists_at(sizes, formats),
            key=lambda flow: flow.received + flow.sent,
            default=NOTHING,
        ),
        work=work,
        waits=rates.charge_wait,
        base=rates.learning_base,
        vectors=_silo_vectors(sizes) + _records(plan, rates),
    )


def _nodes(sizes: Sizes, formats: Formats, rates: Rates) -> tuple[Load, ...]:
    """The busiest compute node, if there is any."""
    if sizes.pairwise:
        return ()
    users = max(sizes.users)
    shares = users if sizes.full else 0
    work = {
        "totals": users * sizes.vector * rates.mask,
        "hashing": (1 + shares) * sizes.vector * rates.hash,
        "messages": rates.message
        + (1 + shares) * rates.verify
        + rates.sign
        + (3 + 2 * shares) * sizes.vector * rates.copy,
    }
    return (
        Load(
            kind=NODE,
            count=len(sizes.users),
            setup=node_setup(sizes, formats, users),
            step=node_step(sizes, formats, users),
            work=work,
            base=rates.base,
            vectors=(4 + 3 * shares) * sizes.vector,
        ),
    )


def _aggregator(plan: Plan, sizes: Sizes, rates: Rates, setup: Flow, step: Flow) -> Load:
    """The model goes out, vectors come in and are added, a step is made."""
    answers = (0 if sizes.full else sizes.silos) + len(sizes.users)
    passed = sum(sizes.users) if sizes.full else 0  # shares on their way to the nodes
    kept = 2 if plan.study.transcript == "full" else 0  # written to the transcript
    moved = (1 + kept) * answers + 2 * passed
    work = {
        "model": (2 * rates.hash + 5 * rates.copy) * sizes.model + rates.sign,
        "sums": (2 * answers * rates.hash + moved * rates.copy) * sizes.vector
        + answers * sizes.numbers * rates.add
        + sizes.parties * (rates.message + rates.verify)
        + (2 * sizes.silos * rates.verify if sizes.joint else 0.0),
        "update": rates.update or 0.0,
    }
    return Load(
        kind=AGGREGATOR,
        count=1,
        setup=setup,
        step=step,
        work=work,
        waits=rates.sync + rates.update_wait,
        base=rates.learning_base,
        vectors=_aggregator_vectors(plan, sizes),
    )


def _relay(rates: Rates, setup: Flow, step: Flow) -> Load:
    """Everything passes once; at most what all are being sent, or all send, is held at a time."""
    return Load(
        kind=RELAY,
        count=1,
        setup=setup + setup.turned(),
        step=step + step.turned(),
        base=rates.base,
        vectors=max(step.received, step.sent),
    )


def _records(plan: Plan, rates: Rates) -> int:
    """A silo's records, if all have as many."""
    return ceil(plan.study.data.records / plan.study.parties.silos) * rates.record


def _silo_waiting(sizes: Sizes) -> int:
    """Two models, and the one that arrived with its parcel."""
    return 2 * _FLOAT * sizes.parameters + 2 * sizes.model


def _silo_vectors(sizes: Sizes) -> int:
    """The same, and gradients or vectors on their way."""
    gradients = (2 * _DOUBLE + _FLOAT) * sizes.parameters
    hiding = _DOUBLE * sizes.numbers + (1 + 3 * sizes.copies) * sizes.vector
    return _silo_waiting(sizes) + max(gradients, hiding)


def _aggregator_vectors(plan: Plan, sizes: Sizes) -> int:
    """Models, the sum, and the optimizer's state, which is copied for the disk."""
    optimizer = dict(plan.study.training.optimizer)
    kept = 2 if optimizer["name"] == "adam" else bool(optimizer.get("momentum"))
    state = (_FLOAT + kept * _DOUBLE) * sizes.parameters
    models = 2 * _FLOAT * sizes.parameters + 3 * sizes.model
    return models + 3 * state + 4 * _DOUBLE * sizes.parameters + 3 * sizes.vector


def _seconds(
    sizes: Sizes,
    silo: Load,
    nodes: Sequence[Load],
    aggregator: Load,
    lines: Lines,
    cores: int | None,
) -> dict[str, float]:
    """The parts of a step; parties of a kind work at once, as far as there are cores for them."""
    phases = 1 + sizes.joint + len(nodes)
    turns = _turns(silo, cores)
    found = {"model": aggregator.work["model"]}
    found["model down"] = lines.carried(silo.step.received, silo.count * silo.step.received)
    found |= {part: turns * seconds for part, seconds in silo.work.items()}
    made = turns * silo.processor
    found["pace"] = _paced(made + silo.waits, lines.pace)
    found["vector up"] = lines.carried(silo.step.sent, silo.count * silo.step.sent)
    found["sums"] = _added(silo, aggregator, made, found["vector up"], cores)
    for node in nodes:
        whole = node.step.times(node.count)
        found["totals"] = _turns(node, cores) * node.processor
        found["totals asked and sent"] = lines.carried(
            node.step.received, whole.received
        ) + lines.carried(node.step.sent, whole.sent)
    found["update"] = aggregator.work["update"]
    ledgers = max(silo.waits, silo.count * silo.waits - made) if cores else silo.waits
    found["disk"] = ledgers + aggregator.waits
    found["latency"] = 2 * phases * lines.latency
    found["engine"] = phases * lines.engine
    return found


def _turns(load: Load, cores: int | None) -> float:
    """How often one party's time passes until all of a kind have worked."""
    return load.count / min(cores, load.count) if cores else 1.0


def _added(silo: Load, aggregator: Load, made: float, up: float, cores: int | None) -> float:
    """What adding takes after the last vector came: vectors are added while others are awaited."""
    adding = aggregator.work["sums"]
    last = adding / silo.count
    if cores is None:
        return max(last, adding - up)
    return max(adding / cores, last, adding - up - (made if cores > 1 else 0.0))


def _paced(seconds: float, pace: float) -> float:
    """What an answer waits for the next multiple of the pace."""
    return ceil(seconds / pace) * pace - seconds if pace else 0.0


def _memory_together(silo: Load, others: Sequence[Load], waiting: int) -> int:
    """One process: the program once, and what every party holds besides.

    All silos hold what they wait with. What they work with comes from pools that the allocator
    keeps for threads, and lets threads share where there are more of them (seen, not derived).
    """
    base = max(load.base for load in (silo, *others))
    silos = silo.count * waiting + min(silo.count, _POOLS) * silo.vectors
    return base + silos + sum(load.count * load.vectors for load in others)
