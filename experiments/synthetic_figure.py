"""The figure of synthetic records beside those of trusted curators and of sites' own twins.

This file knows the columns of `synthetic_utility` and `synthetic_peers`; it must not know how their
rows came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.drawing import curve, panels, plain_ticks, save, spreads
from experiments.results import Row

# Methods as rows and legend name them, with their colour, marker and line.
METHODS = (
    ("hubbub, 67 silos", "hubbub, 67 silos", 0, "-"),
    ("hubbub, 4 silos", "hubbub, 4 silos", 1, "-"),
    ("pooled twins, 4 sites", "twins of 4 sites, pooled", 3, ":"),
    ("AIM", "AIM, trusted curator", 2, "--"),
    ("MST", "MST, trusted curator", 4, "--"),
)
MEASURES = (
    ("tvd", "mean total variation of pairs", "held_out"),
    ("auc", "AUC on real records", "real_auc"),
)


def draw(rows: Sequence[Row], tables: Sequence[str], path: Path) -> None:
    """A panel for each table, its total variation above and its AUC below.

    Args:
        rows: of both experiments.
        tables: in the order of the panels.
        path: of the picture.
    """
    figure, axes = panels(len(tables), rows=len(MEASURES), width=3.3, height=3.2)
    for number, panel in enumerate(axes):
        measure, words, real = MEASURES[number // len(tables)]
        table = tables[number % len(tables)]
        mine = [row for row in rows if row["table"] == table]
        for method, name, look, line in METHODS:
            points = [
                (float(row["epsilon"]), float(row[measure]))
                for row in mine
                if row["method"] == method
            ]
            curve(panel, spreads(points), look, name, line=line)
        level = sum(float(row[real]) for row in mine) / max(len(mine), 1)
        panel.axhline(level, color="#888888", linewidth=1.2, label="real records")
        panel.set_xscale("log")
        plain_ticks(panel.xaxis, sorted({float(row["epsilon"]) for row in mine}))
        if measure == "tvd":
            panel.set_title(table)
            panel.set_ylim(bottom=0)
        else:
            panel.set_xlabel("epsilon")
        if number % len(tables) == 0:
            panel.set_ylabel(words)
    axes[0].legend(fontsize=7)
    save(figure, path)
