"""The CSV file of a benchmark: a row for each measurement, and the machine that it is of."""

from __future__ import annotations

import csv
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any


def write_table(path: Path, rows: Sequence[Any]) -> None:
    """Write the rows anew, mappings or dataclasses; what a row lacks is left empty.

    A row that names no machine is of this one.
    """
    here = machine()
    plain = [dict(row if isinstance(row, Mapping) else asdict(row)) for row in rows]
    plain = [row | {"machine": row.get("machine") or here} for row in plain]
    columns = dict.fromkeys(name for row in plain for name in row)
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(columns), restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(plain)


def machine() -> str:
    """The processor's name, as Linux tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
