"""`hubbub epsilon`, `delta` and `noise`: the accountant on its own, and its answer as a picture."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import hubbub
from hubbub.core.errors import UserError
from hubbub.core.number_format import between, no_less
from hubbub.core.privacy.arguments import RELATIONS, SAMPLINGS
from hubbub.desk.cli.terminal import add_command, answer, argument, writing

_HEIGHT = 330
_POINTS = 200
_LEAST_DELTA, _LOWEST = 1e-12, 1e-16


def add_commands(commands: Any) -> None:
    """Register the commands."""
    mechanism = (
        argument("--sample-rate", "default 1: every record", float, default=1.0),
        argument("--steps", "how many times noise is added", int, required=True),
        argument(
            "--relation", "which data sets are neighbours", choices=RELATIONS, default="add-remove"
        ),
        argument("--sampling", "how batches are drawn", choices=SAMPLINGS, default="poisson"),
        argument(
            "--plot FILE.svg",
            "also write the curve of delta against epsilon, upper and lower bounds, as "
            "an SVG file; a dot marks the answer",
            Path,
        ),
    )
    noise = argument("--noise-multiplier", "sigma / C", float, required=True)
    delta = argument("--delta", "1e-15 to below 1", float, required=True)
    units = argument(
        "--records-per-unit K",
        "most records of one protected unit, such as a patient; default 1",
        int,
        default=1,
    )
    words = "certified epsilon of DP-SGD at a delta"
    add_command(commands, "epsilon", words, _epsilon, *mechanism, noise, delta, units)
    words = "certified delta of DP-SGD at an epsilon"
    epsilon = argument("--epsilon", "0 to 500", float, required=True)
    add_command(commands, "delta", words, _delta, *mechanism, noise, epsilon)
    words = "least noise for an epsilon and delta"
    epsilon = argument("--epsilon", "0.001 to 50", float, required=True)
    add_command(commands, "noise", words, _noise, *mechanism, epsilon, delta)


def _mechanism(options: argparse.Namespace, **more: float) -> dict[str, Any]:
    shared = ("sample_rate", "steps", "relation", "sampling")
    return {name: getattr(options, name) for name in shared} | more


def _epsilon(options: argparse.Namespace) -> int:
    start, delta = time.perf_counter(), options.delta
    mechanism = _mechanism(options, noise_multiplier=options.noise_multiplier)
    if options.records_per_unit != 1 and options.plot:
        raise UserError(
            "expected --plot without --records-per-unit, got both: the curve is that of single "
            "records; leave one of them out"
        )
    units = {"records_per_unit": options.records_per_unit}
    bound = hubbub.epsilon(delta=delta, **mechanism, **units)
    words = f"epsilon is between {between(bound.lower, bound.upper)} at delta {delta:g}"
    result = {"lower": bound.lower, "upper": bound.upper}
    return _answered(options, start, result, words, mechanism, (bound.upper, delta))


def _delta(options: argparse.Namespace) -> int:
    start, epsilon = time.perf_counter(), options.epsilon
    mechanism = _mechanism(options, noise_multiplier=options.noise_multiplier)
    bound = hubbub.delta(epsilon=epsilon, **mechanism)
    words = f"delta is between {between(bound.lower, bound.upper)} at epsilon {epsilon:g}"
    result = {"lower": bound.lower, "upper": bound.upper}
    return _answered(options, start, result, words, mechanism, (epsilon, bound.upper))


def _noise(options: argparse.Namespace) -> int:
    start, asked = time.perf_counter(), options.epsilon
    noise = hubbub.noise_multiplier(epsilon=asked, delta=options.delta, **_mechanism(options))
    mechanism = _mechanism(options, noise_multiplier=noise)
    upper = hubbub.epsilon(delta=options.delta, **mechanism).upper
    upper = min(upper, asked)  # calibration saw a sharper bound at the same noise
    words = f"noise multiplier {no_less(noise, 6)} (sigma / C) keeps epsilon at most {asked:g}"
    result = {"noise_multiplier": noise, "epsilon_upper": upper}
    return _answered(options, start, result, words, mechanism, (upper, options.delta))


def _answered(
    options: argparse.Namespace,
    start: float,
    result: dict[str, float],
    words: str,
    mechanism: dict[str, Any],
    point: tuple[float, float],
) -> int:
    """Draw the curve if it is asked for, with the answer on it, and print the answer."""
    result["seconds"] = time.perf_counter() - start
    if options.plot:
        picture = _picture(mechanism, *point)
        with writing(options.plot):
            options.plot.write_text(picture, encoding="utf-8")
    answer(options, result, words)
    return 0


def _picture(mechanism: dict[str, Any], epsilon: float, delta: float) -> str:
    """The SVG text: delta against epsilon, from delta 1 down to 1e-12, and a dot at the answer."""
    from hubbub.desk.report import charts
    from hubbub.desk.report.charts import bounds, linear
    from hubbub.desk.report.markup import tag

    curve = hubbub.trade_off(**mechanism)
    seen = int(np.sum(curve.delta > _LEAST_DELTA))
    last = float(curve.epsilon[min(seen, curve.epsilon.size - 1)])
    if epsilon > last:
        last = min(1.1 * epsilon, 50.0)
        curve = hubbub.trade_off(**mechanism, epsilons=np.linspace(0, last, _POINTS))
    lower = np.zeros_like(curve.delta) if curve.lower is None else curve.lower
    lowest = max(min(delta, _LEAST_DELTA), _LOWEST)
    series = []
    for name, deltas in (("from above", curve.delta), ("from below", lower)):
        pairs = zip(curve.epsilon.tolist(), deltas.tolist(), strict=True)
        points = tuple((x, y) for x, y in pairs if x <= last and y > lowest)
        series.append(charts.Series(name=name, points=points, marked=False))
    axes = charts.Axes(
        across=linear([0.0, last], charts.LEFT, charts.RIGHT),
        up=bounds([lowest, 1.0], *charts.vertical(_HEIGHT)),
        labels=("epsilon (smaller is more private)", "delta (logarithmic)"),
    )
    words = f"epsilon {no_less(epsilon, 4)} at delta {no_less(delta, 4)}"
    above = "No mechanism with this noise is above the upper curve (certified)."
    dot = charts.dot((epsilon, max(delta, lowest)), words, axes)
    extra = [tag("text", f"Dot: {words}", x=charts.LEFT, y=34), dot]
    chart = charts.lines(series, axes, described=f"{above} {words}.", extra=extra)
    return charts.alone(chart, _HEIGHT)
