"""Claims of other libraries beside certified brackets: `python -m benchmarks.conformance`.

Each library is asked from outside, as its users would, at the version that is installed. First its
accountants, at settings of `brackets.json`, with the same judgement as the plug-in of pytest
`accountant_brackets.py`, which anybody may use on theirs. Then what ran, accounted by
`hubbub.epsilon`, or attacked where the account is not the question. A claim below the bracket is
*understated*: whoever believed it promised too much. *Within* and *overstated* are safe; *far
overstated* is more than half above, which is another mechanism or a very loose account.

    pip install opacus==1.6.0 dp-accounting==0.6.0 autodp==0.2.3.1 prv-accountant==0.2.0
    pip install flwr==1.42.0 jax-privacy==2.0.0

A library that is not installed says so. `--write` puts the tables into results.md beside this file.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import hubbub
from benchmarks.conformance.accountant_brackets import (
    FAR,
    OVERSTATED,
    UNDERSTATED,
    WITHIN,
    brackets,
    judged,
)
from benchmarks.conformance.accountants import ACCOUNTANTS, answered
from benchmarks.conformance.claim import Claim

PAPER = "arXiv 2605.15648"  # whose two mechanisms are here without a library
LIBRARIES = {"opacus": "opacus_claims", "flwr": "flower_claims", PAPER: "averaged_claims"}
RESULTS = Path(__file__).parent / "results.md"
COUNTED = ("library", "accountant", "settings", UNDERSTATED, WITHIN, OVERSTATED, FAR, "none")
HEAD = ("library", "what ran", "claimed", "at least", "at most", "verdict", "known")


def main() -> int:
    """Print the tables; 1 if a claim is understated."""
    options = argparse.ArgumentParser(description=__doc__)
    names = sorted({*LIBRARIES, *ACCOUNTANTS})
    options.add_argument("--only", choices=names, nargs="+", default=names)
    options.add_argument("--every", type=int, default=1, help="of the settings take every N-th")
    options.add_argument("--write", action="store_true", help="write results.md")
    chosen = options.parse_args()
    rows: list[tuple[str, ...]] = []
    found: list[Claim] = []
    missing: list[str] = []
    for name in chosen.only:
        try:
            library = name if name == PAPER else f"{name} {version(name)}"
            if name in ACCOUNTANTS:
                rows += compared(name, library, chosen.every)
            if name in LIBRARIES:
                module = importlib.import_module(f"benchmarks.conformance.{LIBRARIES[name]}")
                found += module.claims(library)
        except (PackageNotFoundError, ModuleNotFoundError) as error:
            missing.append(f"{name}: not installed ({error})")
    print(lined([COUNTED, *rows]), table(found), sep="\n\n")
    print("\n".join(missing), file=sys.stderr)
    if chosen.write:
        RESULTS.write_text(page(rows, found, missing), encoding="utf-8")
    return int(any(one.verdict == UNDERSTATED for one in found))


def compared(package: str, library: str, every: int) -> Iterator[tuple[str, ...]]:
    """How the answers of a package's accountants lie to the brackets, a row for each of them."""
    names, make = ACCOUNTANTS[package]
    mine = brackets("poisson", "gaussian", relation="add-remove")[::every]
    for name in names:
        accountant = make(name)
        answers = [(answered(accountant, bracket), bracket) for bracket in mine]
        counts = Counter(
            "none" if said is None else judged(said, bracket.lower, bracket.upper)
            for said, bracket in answers
        )
        yield (library, name, str(len(mine)), *(str(counts[verdict]) for verdict in COUNTED[3:]))


def lined(rows: Sequence[Sequence[str]]) -> str:
    """Rows, of which the first is the head, as a Markdown table."""
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *others))


def table(found: Sequence[Claim]) -> str:
    """Claims as a Markdown table, those first that are unsafe."""
    order = sorted(found, key=lambda one: one.verdict != UNDERSTATED)
    return lined([HEAD, *(one.row for one in order)])


def page(rows: Sequence[Sequence[str]], found: Sequence[Claim], missing: Sequence[str]) -> str:
    """The whole page."""
    words = (__doc__ or "").split("\n\n", 1)[1]
    ran = f"hubbub {hubbub.__version__}, Python {platform.python_version()}."
    command = " ".join(["python -m benchmarks.conformance", *sys.argv[1:]])
    how = f"`OMP_NUM_THREADS=1 {command}` has written this page: "
    heads = ["# Claims of other libraries", "", how + ran, "", words]
    parts = [lined([COUNTED, *rows]), "", table(found), *["", *missing], ""]
    return "\n".join([*heads, *parts])


if __name__ == "__main__":
    sys.exit(main())
