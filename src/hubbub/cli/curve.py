"""The trade-off between epsilon and delta as a picture: an SVG file that any browser shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import hubbub
from hubbub.cli.output import writing
from hubbub.report import bounds, charts, linear, tag

Point = tuple[float, float]  # of epsilon and delta

_HEIGHT = 330
_POINTS = 200
_LEAST_DELTA, _LOWEST = 1e-12, 1e-16


def write_curve(path: Path, mechanism: dict[str, Any], delta: float, epsilon: float) -> None:
    """Write delta against epsilon, from delta 1 down to 1e-12; the asked-for point is marked."""
    curve = hubbub.trade_off(**mechanism)
    seen = int(np.sum(curve.delta > _LEAST_DELTA))
    last = float(curve.epsilon[min(seen, curve.epsilon.size - 1)])
    if epsilon > last:
        last = min(1.1 * epsilon, 50.0)
        curve = hubbub.trade_off(**mechanism, epsilons=np.linspace(0, last, _POINTS))
    points = list(zip(curve.epsilon.tolist(), curve.delta.tolist(), strict=True))
    with writing(path):
        path.write_text(_picture(points, last, (epsilon, delta)), encoding="utf-8")


def _picture(points: list[Point], last: float, asked: Point) -> str:
    """The SVG text: epsilon from 0 to `last` or a little more, delta on a logarithmic axis."""
    epsilon, delta = asked
    lowest = max(min(delta, _LEAST_DELTA), _LOWEST)
    across = linear([0.0, last], charts.LEFT, charts.RIGHT)
    up = bounds([lowest, 1.0], *charts.vertical(_HEIGHT))
    inside = [one for one in points if one[0] <= last and one[1] > lowest]
    words = f"epsilon {epsilon:.4g} at delta {delta:.4g}"
    above = "No mechanism with this noise is above the curve (certified)."
    chart = charts.lines(
        [charts.Series(name="delta", points=tuple(inside), marked=False)],
        across,
        up,
        labels=("epsilon (smaller is more private)", "delta (logarithmic)"),
        described=f"{above} {words}.",
        extra=[
            tag("text", above, x=charts.LEFT, y=16),
            tag("text", f"Dot: {words}", x=charts.LEFT, y=34),
            charts.dot((epsilon, max(delta, lowest)), words, across, up),
        ],
    )
    return charts.alone(chart, _HEIGHT)
