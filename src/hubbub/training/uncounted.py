"""What is learned in memory beside what other ledgers count, or none: who does so is told.

Each release keeps its own promise. Two that no common ledger adds up promise less together, and
nobody sees how much. The names of silos are remembered for as long as the program runs, with where
their ledgers are, and nothing of their records; whether two silos of one name hold the same records
is not known here.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

from hubbub.errors import UncountedWarning

_SHOWN = 5  # names
_ledgers_of: dict[str, set[Path | str | None]] = {}


def warn_if_uncounted(ledgers: Mapping[str, Path | str | None]) -> None:
    """Warn where a silo was asked before and these ledgers do not hold it; call before it is asked.

    Args:
        ledgers: by each silo's name their folder, or what stands for one in memory; None: no ledger
            is kept.
    """
    apart = []
    for name, here in ledgers.items():
        known = _ledgers_of.setdefault(name, set())
        if known - {here} or (here is None and known):
            apart.append(name)
        known.add(here)
    if apart:
        counted = all(ledgers[name] is not None for name in apart)
        warnings.warn(
            "expected one folder of ledgers over all that is learned from "
            f"{_few(apart)}, found that something was learned before which "
            f"{'this one does not count' if counted else 'no ledger counts'}: each is a "
            "release of its own and their epsilons add up; state out beside the others each time, "
            "unless these are other records, or public ones",
            UncountedWarning,
            stacklevel=3,
        )


def _few(names: list[str]) -> str:
    """Names, of many only the first, and how many more."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
