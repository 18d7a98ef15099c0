"""The figure of the experiment `utility`: accuracy against epsilon, and against the noise.

This file knows what the columns of the table mean; it must not know how they came about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.drawing import curve, panels, plain_ticks, save, spreads
from experiments.results import Row
from experiments.utility_study import FRESH, HUBBUB, ONE_SUM, POISSON, TRUSTED


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One way to train, as it looks in both panels.

    Args:
        method: of its rows.
        sampling: of its rows.
        name: for the legend.
        look: colour and marker.
        aside: its points are shifted by this share in the right panel, where all curves are one.
    """

    method: str
    sampling: str
    name: str
    look: int
    query: float = 0.0

    def pairs(self, rows: Sequence[Row], column: str) -> list[tuple[float, float]]:
        """A column of its rows, and the accuracy."""
        kind = (self.method, self.sampling)
        mine = [row for row in rows if (row["method"], row["sampling"]) == kind]
        return [(float(row[column]), float(row["accuracy"])) for row in mine]


CURVES = (
    Curve(method=TRUSTED, sampling=POISSON, name="trusted, Poisson", look=0, query=-0.09),
    Curve(method=HUBBUB, sampling=POISSON, name="hubbub, Poisson", look=1, query=-0.03),
    Curve(method=TRUSTED, sampling=FRESH, name="trusted, joint batches", look=3, query=0.03),
    Curve(method=HUBBUB, sampling=FRESH, name="hubbub, joint batches", look=2, query=0.09),
    Curve(method=ONE_SUM, sampling=POISSON, name="local DP as one sum, Poisson", look=4),
)


def draw(
    rows: Sequence[Row],
    path: Path,
    *,
    silos: int,
    anchors: Mapping[float, float] | None = None,
    printed: Mapping[tuple[str, float], float] | None = None,
) -> None:
    """Both panels, of so many silos that trust nobody.

    Args:
        rows: of the table.
        path: of the picture.
        silos: of the rows that are shown; for whoever is trusted with all sums any number will do.
        anchors: accuracy elsewhere by total noise.
        printed: epsilon in the paper by sampling and total noise.
    """
    figure, (left, right) = panels(2, width=6.8, height=5.4)
    mine = [row for row in rows if row["method"] == TRUSTED or row["silos"] == str(silos)]
    shown = [row for row in mine if row["colluders"] == "0"]
    for one in CURVES:
        _add(left, one, one.pairs(shown, "epsilon"))
        noise = one.pairs(shown, "total_noise_multiplier")
        _add(right, one, [((1 + one.query) * x, y) for x, y in noise], joined=not one.query)
    _mark_uncertified(left, shown)
    if printed:
        _mark_printed(left, shown, printed)
    if anchors:
        _mark(right, anchors, "trusted, measured elsewhere")
    left.set_xlabel("epsilon at delta = 1e-5 (Poisson: add-remove, joint: substitution)")
    right.set_xlabel("noise in the sum / clipping norm C (equal noise: set beside each other)")
    _finish(left, (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20))
    _finish(right, (1, 2, 4, 8, 16, 32, 64))
    save(figure, path)


def _add(
    axes: Any, one: Curve, pairs: Sequence[tuple[float, float]], *, joined: bool = True
) -> None:
    """Filled markers trust nobody."""
    if pairs:
        more = {"markerfacecolor": "white"} if one.method == TRUSTED else {}
        line = ("-" if one.sampling == POISSON else "--") if joined else ""
        curve(axes, spreads(pairs), one.look, one.name, line=line, **more)


def _mark_uncertified(axes: Any, rows: Sequence[Row]) -> None:
    """Rings around points whose study could not promise so small a delta."""
    found = [
        (float(row["epsilon"]), float(row["accuracy"]))
        for row in rows
        if row["method"] == HUBBUB and row["study_delta"] != row["delta"]
    ]
    rings = {one.x: one.mean for one in spreads(found)}
    if rings:
        _mark(axes, rings, "not certified in finite precision", marker="o", markersize=14)


def _mark_printed(
    axes: Any, rows: Sequence[Row], printed: Mapping[tuple[str, float], float]
) -> None:
    """Hubbub's accuracy at the epsilon that the paper prints for the same noise."""
    found = [
        (printed[row["sampling"], float(row["level"])], float(row["accuracy"]))
        for row in rows
        if row["method"] == HUBBUB and (row["sampling"], float(row["level"])) in printed
    ]
    _mark(axes, {one.x: one.mean for one in spreads(found)}, "hubbub, at the paper's epsilon")


def _mark(
    axes: Any, points: Mapping[float, float], label: str, marker: str = "x", markersize: int = 8
) -> None:
    axes.plot(
        list(points),
        list(points.values()),
        label=label,
        color="#000000",
        marker=marker,
        markersize=markersize,
        markerfacecolor="none",
        linestyle="",
        zorder=5,
    )


def _finish(axes: Any, ticks: Sequence[float]) -> None:
    axes.set_xscale("log")
    plain_ticks(axes.xaxis, ticks)
    axes.set_ylabel("final test accuracy")
    axes.legend(fontsize=9, frameon=False)
