"""What the figures have in common: means with their least and largest run, colours, the file.

This file knows matplotlib; it must not know what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # no screen is needed

from matplotlib import pyplot as plt

# Okabe and Ito's colours, which readers who see fewer colours can tell apart; markers differ too.
LOOKS = (
    ("#0072b2", "o"),
    ("#d55e00", "s"),
    ("#009e73", "^"),
    ("#cc79a7", "D"),
    ("#7a5c00", "v"),
    ("#000000", "P"),
)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The runs of one point."""

    x: float
    mean: float
    least: float
    largest: float
    runs: int


def spreads(pairs: Iterable[tuple[float, float]]) -> list[Spread]:
    """Means with minimum and maximum of y for each x, in order of x."""
    found: dict[float, list[float]] = {}
    for x, y in pairs:
        found.setdefault(x, []).append(y)
    return [
        Spread(x=x, mean=sum(ys) / len(ys), least=min(ys), largest=max(ys), runs=len(ys))
        for x, ys in sorted(found.items())
    ]


def panels(
    number: int, *, rows: int = 1, width: float = 6.2, height: float = 4.6
) -> tuple[Any, list[Any]]:
    """A figure with so many panels side by side, in each of so many rows."""
    size = (width * number, height * rows)
    figure, axes = plt.subplots(rows, number, figsize=size, squeeze=False)
    for one in axes.flat:
        one.grid(visible=True, color="#dddddd", linewidth=0.7)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    return figure, list(axes.flat)


def curve(
    axes: Any, found: Sequence[Spread], look: int, label: str, *, line: str = "-", **more: Any
) -> None:
    """Means joined by a line, and bars from the least to the largest run."""
    colour, marker = LOOKS[look]
    means = [one.mean for one in found]
    bars = [
        [max(0.0, one.mean - one.least) for one in found],
        [max(0.0, one.largest - one.mean) for one in found],
    ]
    axes.errorbar(
        [one.x for one in found],
        means,
        yerr=bars,
        label=label,
        color=colour,
        marker=marker,
        linestyle=line,
        markersize=6,
        capsize=3,
        **more,
    )


def plain_ticks(axis: Any, values: Sequence[float]) -> None:
    """Numbers as people write them on a logarithmic axis, and no others."""
    axis.set_major_locator(mpl.ticker.FixedLocator(list(values)))
    axis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(mpl.ticker.NullLocator())


def save(figure: Any, path: Path) -> None:
    """Write the figure as a PNG and forget it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
