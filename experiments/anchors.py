"""The tables of docs/experiments.md, written from the results.

    python -m experiments.anchors

What others report is in `results/anchors.csv`, with its sources; hubbub's numbers are those of the
summaries of `foundation`, `linear_probe`, `correlated_noise` and `joining`. A raised digit is the
number of runs where it is not three.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.foundation import NOBODY, OPACUS, TRUSTED
from experiments.results import RESULTS, rows_of

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"
_RAISED = {1: "¹", 2: "²", 3: ""}
SMALL = {
    "xrays": "chest x-rays, frozen Lite2",
    "spam": "spam mails, frozen",
    "reviews": "reviews, frozen",
    "reviews-lora": "reviews, adapters",
}

Line = tuple[Any, ...]  # words, and in the end accuracies by epsilon


def plain(accuracy: float) -> str:
    """Three digits, and a fourth where all others are nines."""
    return f"{accuracy:.{4 if accuracy > 0.99 else 3}f}".removeprefix("0")


def summary(name: str, **wanted: str) -> dict[str, str]:
    """Means of a summary's rows, by epsilon, as the page has them."""
    return {
        row["epsilon"]: plain(float(row["accuracy_mean"])) + _RAISED[int(row["runs"])]
        for row in rows_of(RESULTS / f"{name}_summary.csv")
        if all(row[column] == value for column, value in wanted.items())
    }


def table(heads: Sequence[str], epsilons: Sequence[str], lines: Iterable[Line]) -> list[str]:
    """A table with a column for each epsilon, without lines that have none."""
    cells = [
        (*line, *(found.get(epsilon, "") for epsilon in epsilons))
        for *line, found in lines
        if found
    ]
    top = ((*heads, *epsilons), ["---"] * (len(heads) + len(epsilons)))
    return ["|" + "|".join(map(str, row)) + "|" for row in (*top, *cells)]


def frozen(name: str, by: str, silos: str) -> dict[str, str]:
    """Hubbub's or Opacus' means on features of public networks."""
    return summary("foundation", set=name, by=by, silos=silos)


def images() -> list[str]:
    """The table of CIFAR-10."""
    groups: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows_of(RESULTS / "anchors.csv"):
        key = (row["public_data"], row["method"], row["trusted"])
        groups.setdefault(key, {})[row["epsilon"]] = plain(float(row["accuracy"]))
    *published, web = [(*key, accuracies) for key, accuracies in groups.items()]
    probe = summary("linear_probe", scored="test", by="rehearsal", floor="0.2")
    banded = summary("correlated_noise", colluders="0", noise="correlated", by="simulation")
    conv = ("CIFAR-100", "hubbub, two convolutions", "nobody", {"1": probe["1"], **banded})
    lite = [
        ("ImageNet-1k", f"hubbub, frozen Lite2, {silos} silos", who, frozen("cifar10", by, silos))
        for silos, by, who in (
            ("8", TRUSTED, "a curator"),
            ("8", NOBODY, "nobody"),
            ("32", NOBODY, "nobody"),
        )
    ]
    heads = ("public data", "CIFAR-10, accuracy at epsilon", "trusted")
    return table(heads, ("1", "2", "4", "8"), [*published, conv, *lite, web])


def small() -> list[str]:
    """The table of texts and x-rays; a curator has that epsilon, Opacus hubbub's noise."""
    ways = {
        (NOBODY, "8"): "nobody trusted, 8 silos",
        (NOBODY, "32"): "nobody trusted, 32 silos",
        (TRUSTED, "8"): "a curator",
        (OPACUS, "8"): "Opacus, noise of 8 silos",
    }
    lines = [
        (title, way, frozen(name, *key))
        for name, title in SMALL.items()
        for key, way in ways.items()
    ]
    return table(("records, accuracy at epsilon", "by"), ("1", "4"), lines)


def joining() -> list[str]:
    """The table of joining on the heart data: mean AUC, with the least and the largest."""
    ways = {
        "alone": "each alone",
        "local-dp": "local DP",
        "hubbub": "hubbub, T = 1",
        "trusted": "trusted",
    }
    cells: dict[str, dict[str, str]] = {}
    for row in rows_of(RESULTS / "joining_summary.csv"):
        if row["data"] == "heart" and row["method"] in ways:
            mean, *ends = (
                f"{float(row[f'auc_{end}']):.3f}" for end in ("mean", "least", "largest")
            )
            cells.setdefault(row["epsilon"], {})[ways[row["method"]]] = f"{mean} ({'–'.join(ends)})"
    return table(("epsilon",), tuple(ways.values()), cells.items())


def written(page: str) -> str:
    """The page with its tables as the results have them."""
    for name, rows in (("images", images()), ("small", small()), ("joining", joining())):
        head, start, rest = page.partition(f"<!-- anchors: {name} -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        page = "".join((head, start, "\n", "\n".join(rows), "\n\n", end, tail))
    return page


def main() -> None:
    """Write the tables into the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
