"""The rows of an experiment: a CSV that grows by a row for each finished run, and how it was made.

A run whose key is in the file is not made again, so an experiment goes on where it was stopped.
This file knows columns and keys; it must not know what is measured.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import hubbub

RESULTS = Path(__file__).parent / "results"
_LIBRARIES = ("numpy", "scipy", "cryptography", "torch", "matplotlib")

Row = dict[str, str]


def rows_of(path: Path) -> list[Row]:
    """The rows of a CSV file with a head."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True, kw_only=True)
class Table:
    """A CSV file of one row per run.

    Args:
        path: the file; made with its first row.
        key: the columns that name a run.
        columns: all of them, in order.
    """

    path: Path
    key: tuple[str, ...]
    columns: tuple[str, ...]

    def rows(self) -> list[Row]:
        """All rows so far."""
        return rows_of(self.path) if self.path.exists() else []

    def missing(self, keys: Iterable[Mapping[str, object]]) -> list[int]:
        """Numbers of the runs, out of these, that have no row yet."""
        done = {self._name(row) for row in self.rows()}
        return [number for number, key in enumerate(keys) if self._name(key) not in done]

    def append(self, row: Mapping[str, object]) -> None:
        """Add a row, which is in the file when this returns."""
        if set(row) != set(self.columns):
            raise ValueError(f"expected the columns {self.columns}, got {tuple(row)}; name them so")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not self.path.exists()
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerow({name: text(value) for name, value in row.items()})

    def _name(self, row: Mapping[str, object]) -> tuple[str, ...]:
        return tuple(text(row[column]) for column in self.key)


def summarise(
    table: Table,
    by: Sequence[str],
    of: Sequence[str],
    more: Callable[[Row], Row] | None = None,
) -> None:
    """Write number of runs, mean, least and largest of some columns, beside the table.

    Args:
        table: whose rows are gathered, of those that have all of these columns.
        by: columns that are the same in all runs of a point.
        of: columns that are summarised.
        more: columns that follow from those of `by`.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in table.rows():
        if all(row[column] for column in of):
            groups.setdefault(tuple(row[column] for column in by), []).append(row)
    found = []
    for key, rows in sorted(groups.items()):
        line = {**dict(zip(by, key, strict=True)), "runs": text(len(rows))}
        for column in of:
            values = [float(row[column]) for row in rows]
            line[f"{column}_mean"] = text(sum(values) / len(values))
            line[f"{column}_least"], line[f"{column}_largest"] = (
                text(min(values)),
                text(max(values)),
            )
        found.append(line | (more(line) if more else {}))
    if not found:
        return
    path = table.path.with_name(f"{table.path.stem}_summary.csv")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


def text(value: object) -> str:
    """A cell: six significant digits of a number that is not whole."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def note(path: Path, module: str, arguments: Sequence[str], **beside: str) -> None:
    """Add the command, the time and the versions to a file of JSON lines.

    Args:
        path: the file.
        module: of the experiment.
        arguments: of its command line.
        beside: what else decides the result.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {
        "command": shlex.join(["python", "-m", module, *arguments]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "hubbub": hubbub.__version__,
        "hubbub_source_sha256": _source(),
        **{name: found for name in _LIBRARIES if (found := _installed(name))},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        **beside,
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(said) + "\n")


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _source() -> str:
    """SHA-256 over hubbub's Python files, which says more than a version in development."""
    digest, root = hashlib.sha256(), Path(str(sys.modules["hubbub"].__file__)).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
