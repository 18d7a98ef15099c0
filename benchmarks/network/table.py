"""Results as CSV, with the command that made them and the versions that it used."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.result_table import write_table
from hubbub import VERSION

RESULTS = Path(__file__).parents[1] / "results"


def write(name: str, rows: Sequence[Any], command: str, *, fresh: bool) -> None:
    """Put rows, which are dataclasses, into results/NAME.csv: anew, or after other commands' rows.

    What the same command has put there before is measured anew, and goes.
    """
    plain = [{**_rounded(asdict(one)), **_about(command)} for one in rows]
    write_table(RESULTS / f"{name}.csv", plain, of=None if fresh else "command")


def _about(command: str) -> dict[str, Any]:
    versions = {
        "hubbub": VERSION,
        "nats-py": version("nats-py"),
        "torch": version("torch"),
        "python": platform.python_version(),
    }
    said = " ".join(f"{what} {which}" for what, which in versions.items())
    return {
        "load": round(os.getloadavg()[0], 1),
        "command": f"python -m benchmarks.network {command}",
        "versions": said,
    }


def _rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}
