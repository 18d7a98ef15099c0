"""The tables of docs/experiments.md beside what others report, written from the results.

    python -m experiments.anchors

What others report is in `results/anchors.csv`, with its sources; hubbub's numbers are those of the
summaries of `foundation`, `linear_probe` and `correlated_noise`. A raised digit is the number of
runs where it is not three.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from experiments.foundation import NOBODY, OPACUS, TRUSTED
from experiments.results import RESULTS, rows_of

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"
EPSILONS = ("1", "2", "4", "8")
_RAISED = {1: "¹", 2: "²", 3: ""}
TEXTS = {
    "spam": "spam mails, frozen",
    "reviews": "reviews, frozen",
    "reviews-lora": "reviews, adapters",
}


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


def line(cells: Iterable[str]) -> str:
    """A line of a table."""
    return "|" + "|".join(cells) + "|"


def images() -> list[str]:
    """The table of CIFAR-10."""
    groups: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows_of(RESULTS / "anchors.csv"):
        key = (row["public_data"], row["method"], row["trusted"])
        groups.setdefault(key, {})[row["epsilon"]] = plain(float(row["accuracy"]))
    published = [(*key, accuracies) for key, accuracies in groups.items()]
    probe = summary("linear_probe", scored="test", by="rehearsal", floor="0.2")
    banded = summary("correlated_noise", colluders="0", noise="correlated", by="simulation")
    lite = [
        ("ImageNet-1k", f"hubbub, frozen Lite2, {silos} silos", who, frozen("cifar10", by, silos))
        for silos, by, who in (
            ("8", TRUSTED, "a curator"),
            ("8", NOBODY, "nobody"),
            ("32", NOBODY, "nobody"),
        )
    ]
    conv = ("CIFAR-100", "hubbub, two convolutions", "nobody", {"1": probe["1"], **banded})
    ordered = [*published[:-1], conv, *lite, published[-1]]
    return [
        line(("public data", "CIFAR-10, accuracy at epsilon", "trusted", *EPSILONS)),
        line(["---"] * (3 + len(EPSILONS))),
        *(
            line((data, method, who, *(found.get(epsilon, "") for epsilon in EPSILONS)))
            for data, method, who, found in ordered
        ),
    ]


def frozen(name: str, by: str, silos: str) -> dict[str, str]:
    """Hubbub's or Opacus' means on features of public networks."""
    return summary("foundation", set=name, by=by, silos=silos)


def texts() -> list[str]:
    """The table of texts: nobody trusted, a curator at that epsilon, Opacus with hubbub's noise."""
    columns = [(epsilon, by) for epsilon in ("1", "4") for by in (NOBODY, TRUSTED, OPACUS)]
    names = {NOBODY: "nobody trusted", TRUSTED: "a curator", OPACUS: "Opacus"}
    return [
        line(("8 silos", *(f"{epsilon}: {names[by]}" for epsilon, by in columns))),
        line(["---"] * (1 + len(columns))),
        *(
            line((title, *(frozen(name, by, "8").get(epsilon, "") for epsilon, by in columns)))
            for name, title in TEXTS.items()
        ),
    ]


def written(page: str) -> str:
    """The page with both tables as the results have them."""
    for name, rows in (("images", images()), ("texts", texts())):
        head, start, rest = page.partition(f"<!-- anchors: {name} -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        page = "".join((head, start, "\n", "\n".join(rows), "\n\n", end, tail))
    return page


def main() -> None:
    """Write both tables into the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
