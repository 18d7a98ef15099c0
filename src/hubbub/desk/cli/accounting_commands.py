"""`hubbub epsilon`, `delta` and `noise`: the accountant on its own, and its answer as a picture."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub
from hubbub.core.errors import UserError
from hubbub.core.privacy.arguments import RELATIONS, SAMPLINGS
from hubbub.desk.cli.terminal import add_command, answer, writing

Array = NDArray[np.float64]
Point = tuple[float, float]  # of epsilon and delta

_HEIGHT = 330
_POINTS = 200
_LEAST_DELTA, _LOWEST = 1e-12, 1e-16
_DELTA = "1e-15 to below 1"
_UNIT = "most records of one protected unit, such as a patient; default 1"
_PLOT = (
    "also write the whole curve, delta against epsilon from above and below, with the answer as a "
    "dot, as an SVG file"
)


def add_commands(commands: Any) -> None:
    """Register the commands."""
    epsilon = _command(commands, "epsilon", "certified epsilon of DP-SGD at a delta", _epsilon)
    epsilon.add_argument("--noise-multiplier", type=float, required=True, help="sigma / C")
    epsilon.add_argument("--delta", type=float, required=True, help=_DELTA)
    epsilon.add_argument("--records-per-unit", type=int, default=1, metavar="K", help=_UNIT)
    delta = _command(commands, "delta", "certified delta of DP-SGD at an epsilon", _delta)
    delta.add_argument("--noise-multiplier", type=float, required=True, help="sigma / C")
    delta.add_argument("--epsilon", type=float, required=True, help="0 to 500")
    noise = _command(commands, "noise", "least noise for an epsilon and delta", _noise)
    noise.add_argument("--epsilon", type=float, required=True, help="0.001 to 50")
    noise.add_argument("--delta", type=float, required=True, help=_DELTA)


def _command(
    commands: Any, name: str, words: str, function: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = add_command(commands, name, words, function)
    parser.add_argument("--sample-rate", type=float, default=1.0, help="default 1: every record")
    parser.add_argument("--steps", type=int, required=True, help="how often noise is added")
    parser.add_argument(
        "--relation", choices=RELATIONS, default="add-remove", help="which data sets are neighbours"
    )
    parser.add_argument(
        "--sampling",
        type=lambda word: "full-batch" if word == "none" else word,  # as it was called before 0.2
        choices=SAMPLINGS,
        default="poisson",
        help="how batches are drawn",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help=_PLOT)
    return parser


def _mechanism(options: argparse.Namespace, **more: float) -> dict[str, Any]:
    """The arguments that all three questions share, and more."""
    shared = ("sample_rate", "steps", "relation", "sampling")
    return {name: getattr(options, name) for name in shared} | more


def _epsilon(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    mechanism = _mechanism(options, noise_multiplier=options.noise_multiplier)
    if options.records_per_unit != 1 and options.plot:
        raise UserError(
            "expected --plot without --records-per-unit, got both: the curve is that of single "
            "records; leave one of them out"
        )
    units = {"records_per_unit": options.records_per_unit}
    bound = hubbub.epsilon(delta=options.delta, **mechanism, **units)
    result = {"lower": bound.lower, "upper": bound.upper, "seconds": time.perf_counter() - start}
    words = f"epsilon is between {bound.lower:.6f} and {bound.upper:.6f} at delta {options.delta:g}"
    return _answered(options, result, words, mechanism, (bound.upper, options.delta))


def _delta(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    mechanism = _mechanism(options, noise_multiplier=options.noise_multiplier)
    bound = hubbub.delta(epsilon=options.epsilon, **mechanism)
    result = {"lower": bound.lower, "upper": bound.upper, "seconds": time.perf_counter() - start}
    interval = f"delta is between {bound.lower:.4g} and {bound.upper:.4g}"
    words = f"{interval} at epsilon {options.epsilon:g}"
    return _answered(options, result, words, mechanism, (options.epsilon, bound.upper))


def _noise(options: argparse.Namespace) -> int:
    start, asked = time.perf_counter(), options.epsilon
    noise = hubbub.noise_multiplier(epsilon=asked, delta=options.delta, **_mechanism(options))
    mechanism = _mechanism(options, noise_multiplier=noise)
    upper = hubbub.epsilon(delta=options.delta, **mechanism).upper
    upper = min(upper, asked)  # calibration saw a sharper bound at the same noise
    seconds = time.perf_counter() - start
    result = {"noise_multiplier": noise, "epsilon_upper": upper, "seconds": seconds}
    words = f"noise multiplier {noise:.6g} (sigma / C) keeps epsilon at most {asked:g}"
    return _answered(options, result, words, mechanism, (upper, options.delta))


def _answered(
    options: argparse.Namespace,
    found: dict[str, Any],
    words: str,
    mechanism: dict[str, Any],
    point: Point,
) -> int:
    """Draw the curve if it is asked for, with the answer on it, and print the answer."""
    if options.plot:
        _write_curve(options.plot, mechanism, point)
    answer(options, found, words)
    return 0


def _write_curve(path: Path, mechanism: dict[str, Any], asked: Point) -> None:
    """Write delta against epsilon, from delta 1 down to 1e-12; the asked-for point is marked."""
    curve = hubbub.trade_off(**mechanism)
    seen = int(np.sum(curve.delta > _LEAST_DELTA))
    last = float(curve.epsilon[min(seen, curve.epsilon.size - 1)])
    if asked[0] > last:
        last = min(1.1 * asked[0], 50.0)
        curve = hubbub.trade_off(**mechanism, epsilons=np.linspace(0, last, _POINTS))
    lower = np.zeros_like(curve.delta) if curve.lower is None else curve.lower
    sides = [_drawn(curve.epsilon, one, last) for one in (curve.delta, lower)]
    with writing(path):
        path.write_text(_picture(sides, last, asked), encoding="utf-8")


def _drawn(epsilons: Array, deltas: Array, last: float) -> list[Point]:
    """The points of a curve that are in the picture."""
    points = zip(epsilons.tolist(), deltas.tolist(), strict=True)
    return [point for point in points if point[0] <= last and point[1] > _LOWEST]


def _picture(sides: list[list[Point]], last: float, asked: Point) -> str:
    """The SVG text: epsilon from 0 to `last` or a little more, delta on a logarithmic axis."""
    epsilon, delta = asked
    lowest = max(min(delta, _LEAST_DELTA), _LOWEST)
    from hubbub.desk.report import charts
    from hubbub.desk.report.charts import bounds, linear
    from hubbub.desk.report.markup import tag

    axes = charts.Axes(
        across=linear([0.0, last], charts.LEFT, charts.RIGHT),
        up=bounds([lowest, 1.0], *charts.vertical(_HEIGHT)),
        labels=("epsilon (smaller is more private)", "delta (logarithmic)"),
    )
    inside = [tuple(one for one in side if one[1] > lowest) for side in sides]
    words = f"epsilon {epsilon:.4g} at delta {delta:.4g}"
    above = "No mechanism with this noise is above the upper curve (certified)."
    chart = charts.lines(
        [
            charts.Series(name=name, points=points, marked=False)
            for name, points in zip(("from above", "from below"), inside, strict=True)
        ],
        axes,
        described=f"{above} {words}.",
        extra=[
            tag("text", f"Dot: {words}", x=charts.LEFT, y=34),
            charts.dot((epsilon, max(delta, lowest)), words, axes),
        ],
    )
    return charts.alone(chart, _HEIGHT)
