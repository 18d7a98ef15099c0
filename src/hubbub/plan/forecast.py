"""What a networked study will take: bytes, seconds and memory of every kind of party.

Arithmetic only. The bytes follow from the plan and from the formats of frames and parcels, and are
exact. The seconds are counts of what a step does (numbers noised, bytes masked, hashed, moved)
times rates that somebody measured; memory is a sum of sizes. No clock is read here and nothing is
measured. What is predicted is an ordinary step of the training: nobody is missing, the model is not
evaluated after it, and a ledger has no cap to check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from math import ceil, inf
from typing import Any

from hubbub.errors import StudyError
from hubbub.identity import SEAL_OVERHEAD
from hubbub.plan.planning import Plan
from hubbub.summation.joint import LINK_BYTES
from hubbub.summation.secrets import CHECK_BYTES, CONTRIBUTION_BYTES
from hubbub.wire import OVERHEAD

SILO, NODE, AGGREGATOR, RELAY = "silo", "compute node", "aggregator", "relay"
_DIGEST = 32
_COMMIT = _REVEAL = _CONFIRM = _DIGEST
_FLOAT, _DOUBLE = 4, 8
_STATES = {"adam": 2, "sgd": 0}  # float64 vectors that an optimizer keeps


@dataclass(frozen=True, kw_only=True)
class Formats:
    """Bytes that messages are packed in; the layers that write them say how many.

    Args:
        request: of a request without parts.
        answer: of an answer without parts.
        part: that each frame adds in one of them.
        opening: of the payload that opens a session.
        silo_ready, node_ready: of what a party says to it.
        share_seal: that sealing adds to a full share.
    """

    request: int
    answer: int
    part: int
    opening: int
    silo_ready: int
    node_ready: int
    share_seal: int


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What one core and the disk of a machine take, in processor seconds unless said otherwise.

    Args:
        mask: a byte of keystream, made and added.
        noise: a number divided by the grid step, noised and rounded.
        hash: a byte of SHA-256.
        copy: a byte moved to fresh memory.
        add: a residue added to the sum.
        sign, verify: a frame's signature.
        message: a request and its answer, without what is in them.
        charge: a row in a ledger; charge_wait: seconds of the disk besides.
        sync: seconds that the disk takes to have a file for certain.
        gradient: a silo's clipped sum of the expected batch; None: not known.
        update: the aggregator's, from the sum to the next model on disk; None: not known.
        update_wait: seconds of the disk besides.
        base: bytes of a party that needs no torch before it holds a vector.
        learning_base: of one that needs it.
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


@dataclass(frozen=True, kw_only=True)
class Lines:
    """What lies between the parties.

    Args:
        mbit: of every party's line, each way; inf for none.
        aggregator_mbit: of the aggregator's.
        latency: seconds, one way.
        engine: seconds that the engine adds to a phase.
        engine_mbit: most that the engine carries.
        pace: seconds; a silo's answer leaves at a multiple of it.
    """

    mbit: float = 100.0
    aggregator_mbit: float = 100.0
    latency: float = 0.020
    engine: float = 0.025
    engine_mbit: float = 1600.0
    pace: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no line has."""
        for name, value in asdict(self).items():
            least = 0.0 if name.endswith("mbit") else -1e-300
            if not value > least or (value == inf and not name.endswith("mbit")):
                raise StudyError(f"expected a {name} above 0, got {value}; measure the line")


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Bytes that a party receives and sends."""

    received: int
    sent: int

    def __add__(self, other: Flow) -> Flow:
        return Flow(received=self.received + other.received, sent=self.sent + other.sent)

    def times(self, count: int) -> Flow:
        """Of so many parties together."""
        return Flow(received=count * self.received, sent=count * self.sent)

    def turned(self) -> Flow:
        """The same from the other end."""
        return Flow(received=self.sent, sent=self.received)


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one party of a kind has to bear; of compute nodes, the busiest.

    Args:
        kind: silo, compute node, aggregator or relay.
        count: how many of the kind there are.
        setup: bytes of a session's set-up.
        step: bytes of a step.
        work: processor seconds of a step, by part.
        waits: seconds of a step in which its disk keeps it waiting.
        memory: most bytes that it holds.
    """

    kind: str
    count: int
    setup: Flow
    step: Flow
    work: Mapping[str, float] = field(default_factory=dict)
    waits: float = 0.0
    memory: int

    @property
    def processor(self) -> float:
        """Processor seconds of a step."""
        return sum(self.work.values())


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a networked study will take; made by `forecast`.

    Args:
        loads: of every kind of party.
        seconds: of a step, by part, in the order in which the parts come.
        cores: on which all parties run together; None: each has a machine of its own.
        memory: bytes of all parties in one process, where they run together.
        complete: whether gradients and the model's update are in the seconds.
    """

    loads: tuple[Load, ...]
    seconds: Mapping[str, float]
    cores: int | None
    memory: int | None
    complete: bool

    @property
    def step_seconds(self) -> float:
        """Seconds from one model to the next."""
        return sum(self.seconds.values())

    @property
    def processor_seconds(self) -> float:
        """Processor seconds of a step, of all parties together."""
        return sum(load.count * load.processor for load in self.loads)

    def load(self, kind: str) -> Load:
        """That of one kind of party."""
        return next(load for load in self.loads if load.kind == kind)

    def as_json(self) -> dict[str, Any]:
        """It as plain values.

        `parties` lists kinds: "kind", "count", "setup_bytes" and "step_bytes" with "received" and
        "sent", "processor_seconds" of a step by part, "disk_seconds", "memory_bytes".
        `seconds_per_step` is the sum of `seconds`; `processor_seconds_per_step` is that of all
        parties; `memory_bytes` that of all in one process, null where they run apart; `complete`
        is false where gradients and the model's update could not be measured.
        """
        return {
            "parties": [
                {
                    "kind": load.kind,
                    "count": load.count,
                    "setup_bytes": asdict(load.setup),
                    "step_bytes": asdict(load.step),
                    "processor_seconds": dict(load.work),
                    "disk_seconds": load.waits,
                    "memory_bytes": load.memory,
                }
                for load in self.loads
            ],
            "seconds": dict(self.seconds),
            "seconds_per_step": self.step_seconds,
            "processor_seconds_per_step": self.processor_seconds,
            "cores": self.cores,
            "memory_bytes": self.memory,
            "complete": self.complete,
        }


def forecast(
    plan: Plan, *, formats: Formats, rates: Rates, lines: Lines, cores: int | None = None
) -> Forecast:
    """Bytes, seconds and memory of a study whose parties run apart.

    Guarantees:
        1. The bytes are exact for a session of the training that nobody misses and in which no
           silo has paid for an attempt of the study before.

    Args:
        plan: of the study; it must know the model's size.
        formats: of messages.
        rates: of the machines, all alike.
        lines: between them.
        cores: where all parties share one machine, how many of its cores; None: they do not.

    Raises:
        StudyError: the study's batches are joint, which is not done apart, or the model's size is
            not known.
    """
    shape = _Shape.of(plan)
    if cores is not None and cores < 1:
        raise StudyError(f"expected at least 1 core, got {cores}; say how many run at once")
    loads = _loads(plan, shape, formats, rates)
    seconds = _together(loads, cores) if cores else _apart(shape, loads, rates, lines)
    complete = rates.gradient is not None and rates.update is not None
    memory = _memory_together(loads, rates) if cores else None
    return Forecast(loads=loads, seconds=seconds, cores=cores, memory=memory, complete=complete)


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """The sizes of a study: parties, who shares secrets with whom, bytes of model and vector."""

    silos: int
    users: Sequence[int]  # of every compute node
    neighbours: int  # of a silo
    joint: bool
    full: bool
    kept: bool
    parameters: int
    numbers: int
    model: int
    vector: int
    states: int

    @classmethod
    def of(cls, plan: Plan) -> _Shape:
        study, training, parties = plan.study, plan.study.training, plan.study.parties
        if training.sampling == "without-replacement":
            raise StudyError(
                'expected Poisson sampling, got training.sampling = "without-replacement", which '
                "is not run apart; change it, or leave the forecast out"
            )
        if plan.dimension is None or plan.numbers is None:
            raise StudyError(
                "expected a model whose size is known, got one that is not; state model.inputs, "
                "and install hubbub[learn] where the model must be built for it"
            )
        nodes, each = parties.compute_nodes, plan.nodes_per_silo
        return cls(
            silos=parties.silos,
            users=users_of(parties.silos, nodes, each) if nodes else (),
            neighbours=each if nodes else plan.degree,
            joint=bool(training.projection),
            full=parties.shares == "full",
            kept=study.transcript == "full",
            parameters=plan.dimension,
            numbers=plan.numbers,
            model=plan.dimension * (2 if training.download == "bfloat16" else _FLOAT),
            vector=plan.numbers * plan.word_bits // 8,
            states=_states(training.optimizer),
        )

    @property
    def parties(self) -> int:
        """Silos and nodes."""
        return self.silos + len(self.users)

    @property
    def bitmap(self) -> int:
        """Bytes of a set of silos."""
        return ceil(self.silos / 8)


def _states(optimizer: Mapping[str, Any]) -> int:
    """Float64 vectors that the optimizer keeps."""
    return _STATES.get(str(optimizer["name"]), 2) + bool(optimizer.get("momentum"))


def users_of(silos: int, nodes: int, each: int) -> list[int]:
    """How many silos use each compute node, where silo k uses `each` nodes from number k on."""
    turns, rest = divmod(silos, nodes)
    changes = [0] * (2 * nodes + 1)
    for first in range(rest):
        changes[first] += 1
        changes[first + each] -= 1
    begun = list(accumulate(changes))
    return [turns * each + begun[node] + begun[node + nodes] for node in range(nodes)]


def _loads(plan: Plan, shape: _Shape, formats: Formats, rates: Rates) -> tuple[Load, ...]:
    """Of every kind of party that there is."""
    silo = _silo(shape, formats, rates)
    nodes = [_node(shape, formats, rates, users) for users in shape.users]
    setup = silo.setup.times(shape.silos)
    step = silo.step.times(shape.silos)
    for node in nodes:
        setup, step = setup + node.setup, step + node.step
    aggregator = _aggregator(plan, shape, rates, setup.turned(), step.turned())
    relay = _relay(shape, setup, step, rates)
    busiest = [max(nodes, key=lambda load: load.processor)] if nodes else []
    return (silo, *busiest, aggregator, relay)


def _silo(shape: _Shape, formats: Formats, rates: Rates) -> Load:
    model, vector = shape.model, shape.vector
    copies = shape.neighbours if shape.full else 1
    links = shape.silos if shape.joint else 0
    work = {
        "gradients": rates.gradient or 0.0,
        "noise": shape.numbers * rates.noise,
        "masks": shape.neighbours * vector * rates.mask,
        "hashing": (model + copies * vector) * rates.hash,
        "ledger": rates.charge,
        "handling": rates.message
        + (1 + links) * rates.verify
        + (copies + shape.joint) * rates.sign
        + (2 * model + 3 * copies * vector) * rates.copy,
    }
    return Load(
        kind=SILO,
        count=shape.silos,
        setup=_setup(shape, formats, shape.neighbours, silo=True),
        step=_silo_step(shape, formats),
        work=work,
        waits=rates.charge_wait,
        memory=rates.learning_base + _silo_memory(shape),
    )


def _node(shape: _Shape, formats: Formats, rates: Rates, users: int) -> Load:
    vector, shares = shape.vector, users if shape.full else 0
    work = {
        "masks": users * vector * rates.mask,
        "hashing": (1 + shares) * vector * rates.hash,
        "handling": rates.message
        + (1 + shares) * rates.verify
        + rates.sign
        + (3 + 2 * shares) * vector * rates.copy,
    }
    return Load(
        kind=NODE,
        count=len(shape.users),
        setup=_setup(shape, formats, users, silo=False),
        step=_node_step(shape, formats, users),
        work=work,
        memory=rates.base + (4 + 3 * shares) * vector,
    )


def _aggregator(plan: Plan, shape: _Shape, rates: Rates, setup: Flow, step: Flow) -> Load:
    """It makes the model known, adds what comes, and takes the step."""
    answers = shape.parties
    summed = 0 if shape.full else shape.silos
    vectors = (summed + len(shape.users)) * shape.vector
    passed = sum(shape.users) * shape.vector if shape.full else 0
    moved = 3 if shape.kept else 1
    work = {
        "model": (2 * rates.hash + 5 * rates.copy) * shape.model + rates.sign,
        "sums": 2 * vectors * rates.hash
        + moved * (vectors + passed) * rates.copy
        + (summed + len(shape.users)) * shape.numbers * rates.add
        + answers * (rates.message + rates.verify)
        + (2 * shape.silos * rates.verify if shape.joint else 0.0),
        "update": rates.update or 0.0,
    }
    del plan
    return Load(
        kind=AGGREGATOR,
        count=1,
        setup=setup,
        step=step,
        work=work,
        waits=rates.sync + rates.update_wait,
        memory=rates.learning_base + _aggregator_memory(shape),
    )


def _relay(shape: _Shape, setup: Flow, step: Flow, rates: Rates) -> Load:
    """It carries everything once, and holds at most what all parties are being sent, or send."""
    most = max(step.received, step.sent)
    return Load(
        kind=RELAY,
        count=1,
        setup=setup + setup.turned(),
        step=step + step.turned(),
        memory=rates.base + most,
    )


def _silo_memory(shape: _Shape) -> int:
    """The model twice, what arrived, and the larger of making gradients and of hiding them."""
    still = 2 * _FLOAT * shape.parameters + 2 * shape.model
    gradients = (2 * _DOUBLE + _FLOAT) * shape.parameters
    copies = shape.neighbours if shape.full else 1
    hiding = _DOUBLE * shape.numbers + (1 + 3 * copies) * shape.vector
    return still + max(gradients, hiding)


def _aggregator_memory(shape: _Shape) -> int:
    """The model as it goes out, the sum, and the optimizer's state with its copy for the disk."""
    kept = _FLOAT + _DOUBLE * shape.states
    models = 3 * _FLOAT * shape.parameters + 3 * shape.model
    return models + (4 * _DOUBLE + 3 * kept) * shape.parameters + 4 * shape.vector


def _setup(shape: _Shape, formats: Formats, neighbours: int, *, silo: bool) -> Flow:
    """Bytes of a session's set-up at one party."""
    calls = 7 if not shape.users else 5
    anchors = shape.silos if shape.joint else 0
    witnesses = shape.silos - 1 if silo and (shape.joint or not shape.users) else neighbours
    sealed = _frame(formats, SEAL_OVERHEAD + CONTRIBUTION_BYTES)
    check, confirm = _frame(formats, CHECK_BYTES), _frame(formats, _CONFIRM)
    anchor, public = _frame(formats, LINK_BYTES), _frame(formats, _COMMIT)
    received = (
        calls * formats.request
        + _frame(formats, formats.opening)
        + anchors * anchor
        + (2 * shape.silos * public if not shape.users else 0)
        + formats.part
        + _DIGEST * (shape.parties + 1)
        + neighbours * (sealed + check)
        + witnesses * confirm
    )
    sent = (
        calls * formats.answer
        + _frame(formats, formats.silo_ready if silo else formats.node_ready)
        + (anchor if shape.joint and silo else 0)
        + (2 * public if not shape.users else 0)
        + neighbours * (sealed + check)
        + confirm
    )
    return Flow(received=received, sent=sent)


def _silo_step(shape: _Shape, formats: Formats) -> Flow:
    received = formats.request + _frame(formats, shape.bitmap + shape.model)
    sent = formats.answer + _frame(formats, 0 if shape.full else shape.vector)
    if shape.full:
        sent += shape.neighbours * _frame(formats, shape.vector + formats.share_seal)
    if shape.joint:
        received += formats.request + shape.silos * _frame(formats, LINK_BYTES)
        sent += formats.answer + _frame(formats, LINK_BYTES)
    return Flow(received=received, sent=sent)


def _node_step(shape: _Shape, formats: Formats, users: int) -> Flow:
    received = formats.request + _frame(formats, shape.bitmap)
    if shape.full:
        received += users * _frame(formats, shape.vector + formats.share_seal)
    return Flow(received=received, sent=formats.answer + _frame(formats, shape.vector))


def _frame(formats: Formats, payload: int) -> int:
    """A frame with this payload as a part of a parcel."""
    return formats.part + OVERHEAD + payload


def _together(loads: Sequence[Load], cores: int) -> dict[str, float]:
    """One machine: the silos' work is divided among the cores, then that of the nodes."""
    found = {}
    for load in loads:
        at_once = min(cores, load.count)
        for part, seconds in load.work.items():
            name = part if load.kind in (SILO, AGGREGATOR) else f"{part}, nodes"
            found[name] = load.count * seconds / at_once
    found["disk"] = sum(load.waits for load in loads)
    return found


def _apart(
    shape: _Shape, loads: Sequence[Load], rates: Rates, lines: Lines
) -> dict[str, float]:
    """Machines of their own: parties of a kind work at the same time, and lines have a width."""
    by_kind = {load.kind: load for load in loads}
    silo, aggregator = by_kind[SILO], by_kind[AGGREGATOR]
    phases = 1 + shape.joint + bool(shape.users)
    up = _carried(lines, silo.step.sent, silo.step.sent * silo.count)
    adding = aggregator.work["sums"] + shape.silos * 0.0
    found = {
        "model": aggregator.work["model"],
        "model down": _carried(lines, silo.step.received, silo.step.received * silo.count),
        **silo.work,
        "pace": _paced(silo.processor + silo.waits, lines.pace),
        "vector up": up,
        "sums": max(adding / shape.silos, adding - up),
    }
    if shape.users:
        node = by_kind[NODE]
        whole = node.step.times(node.count)
        found["totals"] = node.processor
        found["totals up and down"] = _carried(
            lines, node.step.received, whole.received
        ) + _carried(lines, node.step.sent, whole.sent)
    found["update"] = aggregator.work["update"]
    found["disk"] = silo.waits + aggregator.waits
    found["engine"] = phases * lines.engine
    found["latency"] = 2 * phases * lines.latency
    del rates
    return found


def _carried(lines: Lines, each: int, whole: int) -> float:
    """Seconds until everybody's bytes have passed the narrowest place."""
    bits = 8e-6
    return max(
        each * bits / lines.mbit,
        whole * bits / lines.aggregator_mbit,
        whole * bits / lines.engine_mbit,
    )


def _paced(seconds: float, pace: float) -> float:
    """What an answer waits for the next multiple of the pace."""
    return ceil(seconds / pace) * pace - seconds if pace else 0.0


def _memory_together(loads: Sequence[Load], rates: Rates) -> int:
    """One process: what every party holds beside the program, and the program once."""
    bases = {SILO: rates.learning_base, NODE: rates.base, AGGREGATOR: rates.learning_base}
    held = sum(
        load.count * (load.memory - bases[load.kind]) for load in loads if load.kind in bases
    )
    return rates.learning_base + held
