"""`hubbub plan --forecast`: bytes, seconds and memory of a study before anybody is connected.

The arithmetic is in `planning/forecast.py` and `planning/loads.py`, the measuring in `rates.py`; here both
are brought together with the sizes that the network's own writers give, and shown.
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from math import inf

from hubbub.cli.output import say, table
from hubbub.cli.rates import measured
from hubbub.errors import UserError
from hubbub.network.envelope import NO_SESSION, answer, request
from hubbub.network.timeouts import PACE
from hubbub.planning import TRAINING, Plan, plan, record_shape
from hubbub.planning.forecast import Forecast, Lines, forecast
from hubbub.planning.loads import AGGREGATOR, SILO
from hubbub.planning.traffic_forecast import Flow, Formats, Sizes
from hubbub.session.ask import Call
from hubbub.session.layout import round_parameters_of
from hubbub.session.session_offer import SessionOffer, purposes_of
from hubbub.study import Study
from hubbub.version import VERSION

# Between machines, where nothing is said: a hospital's line, and FLARE as it was measured on
# loopback with TLS (an empty phase, and the most bytes in a second).
_MBIT, _LATENCY_MS = 100.0, 20.0
_ENGINE_MS, _ENGINE_MBIT = 25.0, 1600.0
_LISTING = (SILO, AGGREGATOR)
_GIVEN = ("mbit", "aggregator_mbit", "latency_ms", "engine_ms", "cores")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `hubbub plan` that have to do with a forecast."""
    add = parser.add_argument
    add("--forecast", action="store_true", help="predict bytes, seconds and memory per party")
    add("--mbit", type=float, help="of every party's line, each way; default 100")
    add("--aggregator-mbit", type=float, help="of the aggregator's line; default as --mbit")
    add("--latency-ms", type=float, help="of a line, one way; default 20")
    add("--engine-ms", type=float, help="that the engine adds to a phase; default 25")
    add(
        "--cores",
        type=int,
        help="all parties share one machine and so many of its cores; lines are then left out "
        "unless they are given",
    )


def asked(options: argparse.Namespace, made: Plan) -> Forecast | None:
    """The forecast that the options ask for, if they do.

    Raises:
        UserError: they contradict each other.
    """
    given = {name: value for name in _GIVEN if (value := getattr(options, name)) is not None}
    if options.forecast:
        return forecast_of(made, **given)
    if given:
        option = "--" + next(iter(given)).replace("_", "-")
        raise UserError(f"expected --forecast with {option}, got none; add it, or leave both out")
    return None


def forecast_of(
    made: Plan | Study,
    *,
    mbit: float | None = None,
    aggregator_mbit: float | None = None,
    latency_ms: float | None = None,
    engine_ms: float | None = None,
    cores: int | None = None,
) -> Forecast:
    """What a networked study will take, with the rates of this machine, which are measured now.

    Guarantees:
        1. The bytes are those of `hubbub.planning.forecast.forecast`, exact.

    Args:
        made: the study or its plan.
        mbit: megabits per second of every party's line, each way; 100 by default.
        aggregator_mbit: of the aggregator's line; that of the others by default.
        latency_ms: of a line, one way; 20 by default.
        engine_ms: that the engine adds to a phase; 25 by default.
        cores: all parties share one machine and so many of its cores, and lines are as wide and
            fast as memory unless they are given; None: each has a machine like this one.

    Raises:
        StudyError: the study cannot be run apart, or its model's size is not known.
        UserError: a value is out of range.
    """
    lines = _lines(mbit, aggregator_mbit, latency_ms, engine_ms, alone=cores is None)
    sized = _sized(plan(made) if isinstance(made, Study) else made)
    Sizes.of(sized)  # refuses before anything is measured
    formats, rates = formats_of(sized), measured(sized, shared=cores is not None)
    return forecast(sized, formats=formats, rates=rates, lines=lines, cores=cores)


def formats_of(made: Plan) -> Formats:
    """Bytes that messages of a study are packed in, from those who write them."""
    ready = {"version": VERSION}
    paid = {**ready, "attempts": dict.fromkeys(purposes_of(made), 0)}
    terms = round_parameters_of(made, made.dimension or 0)
    return Formats(
        request=len(request(Call.PING, NO_SESSION)),
        answer=len(answer()),
        part=len(answer([b""])) - len(answer()),
        opening=len(SessionOffer.of(TRAINING, terms).payload()),
        silo_ready=len(json.dumps(paid)),
        node_ready=len(json.dumps(ready)),
    )


def show(found: Forecast) -> None:
    """The forecast as tables for people."""
    table(
        "What a party bears (of compute nodes, the busiest): a session's set-up, and a step",
        ("", "of them", "set-up in", "out", "step in", "out", "seconds", "memory"),
        [
            (
                load.kind,
                str(load.count),
                *_flow(load.setup),
                *_flow(load.step),
                f"{load.processor:.2g}" if load.work else "",
                _size(load.memory),
            )
            for load in found.loads
        ],
    )
    table(
        f"A step takes {found.step_seconds:.3g} seconds",
        ("", "seconds"),
        [(part, f"{seconds:.2g}") for part, seconds in found.seconds.items() if seconds],
    )
    if found.lists:
        silo, aggregator = (" in, ".join(_flow(found.load(one).listed)) for one in _LISTING)
        say(
            f"note: lists of tokens are made besides, {found.lists} in the whole study, whose "
            f"seconds and memory are not in the tables: each is {silo} out at a silo, {aggregator} "
            "out at the aggregator"
        )
    if found.memory is not None:
        say(f"all parties in one process hold {_size(found.memory)}")
    if not found.complete:
        say(
            "note: gradients and the update of the model are left out, because they could not be "
            "measured: that takes hubbub[learn], data.records, and a model that is built from "
            "what is public"
        )


def _flow(flow: Flow) -> tuple[str, str]:
    return _size(flow.received), _size(flow.sent)


def _size(count: int) -> str:
    """Bytes for people; to the byte they are in the JSON."""
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"


def _lines(
    mbit: float | None,
    aggregator_mbit: float | None,
    latency_ms: float | None,
    engine_ms: float | None,
    *,
    alone: bool,
) -> Lines:
    """The lines that were given; the rest as between machines, or as inside one."""
    wide = (_MBIT if alone else inf) if mbit is None else mbit
    latency = (_LATENCY_MS if alone else 0.0) if latency_ms is None else latency_ms
    engine = (_ENGINE_MS if alone else 0.0) if engine_ms is None else engine_ms
    return Lines(
        mbit=wide,
        aggregator_mbit=wide if aggregator_mbit is None else aggregator_mbit,
        engine_mbit=_ENGINE_MBIT if alone else inf,
        latency=latency / 1000,
        engine=engine / 1000,
        pace=PACE if alone else 0.0,
    )


def _sized(made: Plan) -> Plan:
    """The plan with the size of its model, which is built where that is the way to know it."""
    shape = record_shape(made.study)
    if made.dimension is not None or shape is None or find_spec("torch") is None:
        return made
    import hubbub.learning as learning
    from hubbub.learning.study_model import model_of

    return plan(made.study, dimension=learning.parameters_vector(model_of(made.study, shape)).size)
