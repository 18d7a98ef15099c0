"""What a networked study will take: bytes, seconds and memory of every kind of party.

Arithmetic only: no clock is read here, and nothing is measured. What each party bears is in
`loads.py`; here parties wait for each other, on lines and cores. What is predicted is an ordinary
step of the training: nobody is missing, the model is not evaluated after it, and no ledger has a
cap to check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, inf
from typing import Any

from hubbub.errors import UserError
from hubbub.planning.loads import (
    Load,
    Rates,
    aggregator_load,
    node_loads,
    relay_load,
    silo_load,
    waiting,
)
from hubbub.planning.study_plan import Plan
from hubbub.planning.traffic_forecast import (
    NOTHING,
    Formats,
    Sizes,
    lists_at,
    node_setup,
    node_step,
)

_POOLS = 16  # of memory, for the threads of a process
_BITS = 8e-6  # megabits of a byte


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

    def to_dict(self) -> dict[str, Any]:
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
            "parties": [load.to_dict() for load in self.loads],
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
    silo, nodes = silo_load(plan, sizes, formats, rates), node_loads(sizes, formats, rates)
    setup, step = silo.setup.times(silo.count), silo.step.times(silo.count)
    for users in sizes.users:
        setup += node_setup(sizes, formats, users)
        step += node_step(sizes, formats, users)
    listed = sum(lists_at(sizes, formats), start=NOTHING)
    aggregator = aggregator_load(plan, sizes, rates, setup.turned(), step.turned())
    aggregator = replace(aggregator, listed=listed.turned())
    relay = replace(relay_load(rates, setup, step), listed=listed + listed.turned())
    loads = (silo, *nodes, aggregator, relay)
    together = _memory_together(silo, (*nodes, aggregator), waiting(plan, sizes, rates))
    return Forecast(
        loads=loads,
        seconds=_seconds(sizes, silo, nodes, aggregator, lines or Lines(), cores),
        cores=cores,
        memory=together if cores else None,
        complete=rates.gradient is not None and rates.update is not None,
        lists=sizes.lists,
    )


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


def _memory_together(silo: Load, others: Sequence[Load], each: int) -> int:
    """One process: the program once, and what every party holds besides.

    All silos hold what they wait with, `each`. What they work with comes from pools that the
    allocator keeps for threads, which share them where there are more (seen, not derived).
    """
    base = max(load.base for load in (silo, *others))
    silos = silo.count * each + min(silo.count, _POOLS) * silo.vectors
    return base + silos + sum(load.count * load.vectors for load in others)
