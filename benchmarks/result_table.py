"""The CSV file of a benchmark: a row for each measurement."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any


def write_table(path: Path, rows: Sequence[Any]) -> None:
    """Write the rows anew, mappings or dataclasses; what a row lacks is left empty."""
    plain = [row if isinstance(row, Mapping) else asdict(row) for row in rows]
    columns = dict.fromkeys(name for row in plain for name in row)
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(columns), restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(plain)
