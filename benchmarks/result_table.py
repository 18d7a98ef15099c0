"""The CSV file of a benchmark: a row for each measurement, and the machine that it is of."""

from __future__ import annotations

import csv
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any


def write_table(
    path: Path, rows: Sequence[Any], *, of: str | None = None, order: Sequence[str] = ()
) -> None:
    """Write the rows, mappings or dataclasses, each as one of this machine, by `of` in `order`.

    Rows that stand there already go; with a column `of`, those alone that share a value of it with
    a new row. What a row lacks is left empty.
    """
    plain = [dict(row if isinstance(row, Mapping) else asdict(row)) for row in rows]
    plain = [row | {"machine": machine()} for row in plain]
    if of and path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            new = {str(row[of]) for row in plain}
            plain = [row for row in csv.DictReader(file) if row[of] not in new] + plain
    if of and order:
        plain.sort(key=lambda row: order.index(str(row[of])))
    columns = dict.fromkeys(name for row in plain for name in row)
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(columns), restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(plain)


@cache
def machine() -> str:
    """The processor's name, as Linux tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
