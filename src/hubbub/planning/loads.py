"""What one party of each kind bears: bytes, processor seconds and memory of an ordinary step.

Arithmetic only: seconds are counts of what a step does (numbers noised; bytes masked, hashed,
moved) times rates that somebody measured; memory is a sum of sizes; bytes are those of
`traffic.py`. How parties wait for each other is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import Any

from hubbub.planning.study_plan import Plan
from hubbub.planning.traffic_forecast import (
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

    def to_dict(self) -> dict[str, Any]:
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


def silo_load(plan: Plan, sizes: Sizes, formats: Formats, rates: Rates) -> Load:
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
        vectors=waiting(plan, sizes, rates) + _working(sizes),
    )


def node_loads(sizes: Sizes, formats: Formats, rates: Rates) -> tuple[Load, ...]:
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


def aggregator_load(plan: Plan, sizes: Sizes, rates: Rates, setup: Flow, step: Flow) -> Load:
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


def relay_load(rates: Rates, setup: Flow, step: Flow) -> Load:
    """Everything passes once; at most what all are being sent, or all send, is held at a time."""
    return Load(
        kind=RELAY,
        count=1,
        setup=setup + setup.turned(),
        step=step + step.turned(),
        base=rates.base,
        vectors=max(step.received, step.sent),
    )


def waiting(plan: Plan, sizes: Sizes, rates: Rates) -> int:
    """Bytes of a silo's records, two models, and the one that arrived with its parcel."""
    records = ceil(plan.study.data.records / sizes.silos) * rates.record
    return records + 2 * _FLOAT * sizes.parameters + 2 * sizes.model


def _working(sizes: Sizes) -> int:
    """Bytes of gradients, or of vectors on their way."""
    gradients = (2 * _DOUBLE + _FLOAT) * sizes.parameters
    hiding = _DOUBLE * sizes.numbers + (1 + 3 * sizes.copies) * sizes.vector
    return max(gradients, hiding)


def _aggregator_vectors(plan: Plan, sizes: Sizes) -> int:
    """Models, the sum, and the optimizer's state, which is copied for the disk."""
    optimizer = dict(plan.study.training.optimizer)
    kept = 2 if optimizer["name"] == "adam" else bool(optimizer.get("momentum"))
    state = (_FLOAT + kept * _DOUBLE) * sizes.parameters
    models = 2 * _FLOAT * sizes.parameters + 3 * sizes.model
    return models + 3 * state + 4 * _DOUBLE * sizes.parameters + 3 * sizes.vector
