"""Claims of other libraries beside certified brackets: `python -m benchmarks.conformance`.

Each library is asked from outside, as its users would, at the version that is installed; what ran
is accounted by `hubbub.epsilon`, or attacked where the account is not the question. A claim below
the bracket is *understated*: whoever believed it promised too much. *Within* and *overstated* are
safe; *far overstated* is more than half above, which is another mechanism or a very loose account.
Batches of a fixed size are left out: their bracket is proven from above only.

    pip install opacus==1.6.0 dp-accounting==0.6.0 flwr==1.42.0 jax-privacy==2.0.0

A library that is not installed says so. `--write` puts the table into results.md beside this file.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import hubbub
from benchmarks.conformance.claim import UNDERSTATED, Claim

LIBRARIES = {
    "opacus": "opacus_claims",
    "dp-accounting": "dp_accounting_claims",
    "flwr": "flower_claims",
    "jax-privacy": "jax_privacy_claims",
}
RESULTS = Path(__file__).parent / "results.md"
HEAD = ("library", "what ran", "claimed", "at least", "at most", "verdict", "known")


def main() -> int:
    """Print the table; 1 if a claim is understated."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", choices=LIBRARIES, nargs="+", default=list(LIBRARIES))
    options.add_argument("--write", action="store_true", help="write results.md")
    chosen = options.parse_args()
    found: list[Claim] = []
    missing: list[str] = []
    for name in chosen.only:
        try:
            found += importlib.import_module(f"benchmarks.conformance.{LIBRARIES[name]}").claims(
                f"{name} {version(name)}"
            )
        except (PackageNotFoundError, ModuleNotFoundError) as error:
            missing.append(f"{name}: not installed ({error})")
    print(table(found))
    print("\n".join(missing), file=sys.stderr)
    if chosen.write:
        RESULTS.write_text(page(found, missing), encoding="utf-8")
    return int(any(one.verdict == UNDERSTATED for one in found))


def table(found: Sequence[Claim]) -> str:
    """Claims as a Markdown table, those first that are unsafe."""
    order = sorted(found, key=lambda one: one.verdict != UNDERSTATED)
    rows = [HEAD, tuple("---" for _ in HEAD), *(one.row for one in order)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page(found: Sequence[Claim], missing: Sequence[str]) -> str:
    """The whole page."""
    words = (__doc__ or "").split("\n\n", 1)[1]
    ran = f"hubbub {hubbub.__version__}, Python {platform.python_version()}."
    return "\n".join(
        [
            "# Claims of other libraries",
            "",
            "`OMP_NUM_THREADS=1 python -m benchmarks.conformance --write` has written this page: "
            + ran,
            "",
            words,
            table(found),
            *["", *missing],
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
