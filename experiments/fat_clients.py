"""What pairwise masks cost a step, by the number of silos and the degree of the mask graph.

    python -m experiments.fat_clients [--small] [--runs 5]

The paper's figure "fold_increase_fat" (Appendix C): model `1m`, MNIST dealt to 2 to 100 silos, 400
records in a step however many silos there are, medians of five runs. Its "group size" is here the
degree of the mask graph, the number of others with which a silo shares masks. Folds are those of
thin_clients.py, on one thread: time of a step through the real protocol over that of a step with
the same work and nothing hidden.

A regular graph of a small degree is safe only against few colluding silos (docs/privacy.md P4). The
column `most_colluders` says against how many for certain, whenever they are corrupted. A plan takes
the complete graph for up to 100 silos: the others here are running times and nothing else.

The paper's way is one Blake2 digest of 4 bytes a number and mask. It is timed on a part of one mask
and multiplied by the numbers and by the degree; the table says how many and by what.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.secure_sum import paper

from experiments.command import Shown, fill, options_of, parser_of
from experiments.medians import medians, runs_of, summarise_medians
from experiments.results import Row, Table
from experiments.step_times import APART, Case, compared, paths_of, processor_seconds

STEPS = 1  # a step of 100 silos on the complete graph is long, and so is its set-up
COMPLETE = "complete"
SILOS, DEGREES = (2, 5, 10, 20, 50, 100), (4, 8, 16)
SMALL_SILOS, SMALL_DEGREES = (2, 6, 8), (2,)
SMALL = Case(silos=0, hidden=(8,), records=80, rate=0.2)
KEY = ("silos", "graph", "run")
FOLDS = ("fold_wall", "fold_cpu", "fold_path", "fold_blake2_cpu", "fold_blake2_path")
SECONDS = ("clear_wall", "wall", "clear_cpu", "cpu", "clear_path", "path")
PARTS = ("clear_silo", "silo", "clear_aggregator", "aggregator")
MASKING = ("masking_ms", "blake2_masking_ms")
BLAKE2 = ("blake2_coordinates_timed", "blake2_masks_timed", "blake2_multiplied_by")
COLUMNS = (
    *KEY,
    "degree",
    "most_colluders",
    "coordinates",
    "word_bits",
    "images",
    "steps",
    *MASKING,
    *FOLDS,
    *SECONDS,
    *PARTS,
    *BLAKE2,
    "setup_seconds",
    "load",
)


@dataclass(frozen=True, kw_only=True)
class Point:
    """So many silos on the complete graph (degree 0 here) or on one of a fixed degree."""

    silos: int
    regular: int = 0

    @property
    def degree(self) -> int:
        """With how many others a silo shares masks."""
        return self.regular or self.silos - 1

    @property
    def graph(self) -> str:
        """Its name in the table."""
        return str(self.regular) if self.regular else COMPLETE

    @property
    def most_colluders(self) -> int:
        """The most whom this graph bears for certain, besides one that looks on (P4).

        Without drop-outs. On the complete graph one honest silo more must be left.
        """
        return (self.regular or self.silos) - 2


def points(silos: Iterable[int], degrees: Sequence[int]) -> list[Point]:
    """All points; a regular graph needs more silos than neighbours and itself."""
    return [
        Point(silos=one, regular=degree)
        for one in silos
        for degree in (0, *degrees)
        if degree < one - 1
    ]


def measured(base: Case, point: Point, shown: Shown) -> Mapping[str, object]:
    """One run."""
    case = replace(base, silos=point.silos, degree=point.degree)
    found = compared(case, STEPS, (1,), shown)
    clear, masked, apart = found.clear, found.masked[1], found.masked[APART]
    round_parameters = found.ready.round_parameters
    timed = min(paper.SAMPLE, round_parameters.dimension)
    digests = processor_seconds(lambda: paper.pair_mask(timed))
    multiplied = point.degree * round_parameters.dimension / timed
    blake2 = digests * multiplied
    return {
        "degree": point.degree,
        "most_colluders": point.most_colluders,
        "coordinates": round_parameters.dimension,
        "word_bits": round_parameters.word_bits,
        "images": found.images,
        "steps": STEPS,
        "masking_ms": 1e3 * found.mask_stream,
        "blake2_masking_ms": 1e3 * blake2,
        "fold_wall": masked.wall / clear.wall,
        "fold_cpu": masked.cpu / clear.cpu,
        "fold_path": apart.path / clear.path,
        "fold_blake2_cpu": (clear.cpu + point.silos * blake2) / clear.cpu,
        "fold_blake2_path": (clear.path + blake2) / clear.path,
        "clear_wall": clear.wall,
        "wall": masked.wall,
        "clear_cpu": clear.cpu,
        "cpu": masked.cpu,
        **paths_of(clear, apart),
        "blake2_coordinates_timed": timed,
        "blake2_masks_timed": 1,
        "blake2_multiplied_by": multiplied,
        "setup_seconds": found.setup,
        "load": os.getloadavg()[0],
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """The masks of a silo, a step of all silos in one process, and the slowest path of a step."""
    from experiments.drawing import curve, panels, plain_ticks, save

    figure, axes = panels(3, width=5.6, height=5.4)
    drawn = (
        ("masking_ms", "blake2_masking_ms", "processor time for the masks of one silo, ms"),
        ("fold_cpu", "fold_blake2_cpu", "time of a step, over that of the clear step"),
        ("fold_path", "fold_blake2_path", "time of a step, over that of the clear step"),
    )
    titles = ("one silo's masks", "all parties on one core", "each party a core of its own")
    fixed = {row["graph"] for row in rows} - {COMPLETE}
    graphs = [COMPLETE, *sorted(fixed, key=int)]
    for one, (ours, blake2, label), title in zip(axes, drawn, titles, strict=True):
        for column, way, line in ((ours, "hubbub", "-"), (blake2, "Blake2*", "--")):
            for look, name in enumerate(graphs):
                mine = [row for row in rows if row["graph"] == name]
                pairs = [(float(row["silos"]), float(row[column])) for row in mine]
                known = "complete graph" if name == COMPLETE else f"{name} others each"
                hollow = {} if way == "hubbub" else {"markerfacecolor": "white"}
                curve(one, medians(pairs), look, f"{way}, {known}", line=line, **hollow)
        one.set_xscale("log")
        one.set_yscale("log")
        plain_ticks(one.xaxis, sorted({int(row["silos"]) for row in rows}))
        one.set_xlabel("silos")
        one.set_ylabel(label)
        one.set_title(title, fontsize=10)
    plain_ticks(axes[0].yaxis, [10.0**power for power in range(-3, 6)])
    for one in axes[1:]:
        one.axhline(1, color="#000000", linewidth=1, linestyle=":")
        plain_ticks(one.yaxis, (1, 2, 5, 10, 30, 100, 300, 1000, 3000, 10000))
    part, whole = int(rows[0]["blake2_coordinates_timed"]), int(rows[0]["coordinates"])
    axes[1].set_xlabel(
        f"silos\n* timed on {part:,} of {whole:,} numbers of one mask, and multiplied"
    )
    title = runs_of(rows, KEY[:2])
    axes[2].legend(fontsize=9, loc="center left", bbox_to_anchor=(1.02, 0.5), title=title)
    save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    base = SMALL if options.small else Case(silos=0)
    wanted = points(*((SMALL_SILOS, SMALL_DEGREES) if options.small else (SILOS, DEGREES)))
    runs = 1 if options.small else options.runs
    pairs = [(point, run) for point in wanted for run in range(1, runs + 1)]
    table = Table(path=options.out / "fat_clients.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        [{"silos": point.silos, "graph": point.graph, "run": run} for point, run in pairs],
        lambda number, shown: measured(base, pairs[number][0], shown),
        module="experiments.fat_clients",
        arguments=arguments,
    )
    by = ("silos", "graph", "degree", "most_colluders", "coordinates", "word_bits", "images")
    summarise_medians(table, (*by, *BLAKE2), (*MASKING, *FOLDS, *SECONDS, *PARTS))
    draw(table.rows(), options.out / "fat_clients.png")


if __name__ == "__main__":
    main()
