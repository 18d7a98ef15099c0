"""The command line that all experiments share: where results go, what is left to do, how far it is.

This file knows how runs are repeated and shown; what one measures is a function that it is given.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.results import RESULTS, Table, note, text

_SMALL = Path(tempfile.gettempdir()) / "hubbub-experiments"

# Called with a share of a run that is done, from 0 to 1.
Shown = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every experiment is told."""

    small: bool
    out: Path
    runs: int
    named: argparse.Namespace


def parser_of(description: str) -> argparse.ArgumentParser:
    """A parser with the options of every experiment."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a variant of seconds, on other data")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--runs", type=int, default=5, help="at most so many runs of each point")
    return parser


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> Options:
    """What was asked; a small variant writes beside nothing that is kept."""
    named = parser.parse_args(arguments)
    out = named.out or (_SMALL if named.small else RESULTS)
    return Options(small=named.small, out=out, runs=named.runs, named=named)


def fill(
    table: Table,
    keys: Sequence[Mapping[str, object]],
    measure: Callable[[int, Shown], Mapping[str, object]],
    *,
    module: str,
    arguments: Sequence[str] | None,
    **beside: str,
) -> None:
    """Measure what the table lacks, row by row; a row is in the file before the next is begun.

    Args:
        table: to be filled.
        keys: of the wanted rows, in the order in which they are made.
        measure: gives the columns besides those of a key, by the key's number.
        module: of the experiment, for the file that says how the table was made.
        arguments: of its command line; those of the process if None.
        beside: what else to write into that file.
    """
    missing = table.missing(keys)
    if not missing:
        return
    given = sys.argv[1:] if arguments is None else arguments
    note(table.path.with_suffix(".jsonl"), module, given, **beside)
    with _bar(len(missing)) as bar:
        task = bar.add_task(table.path.stem, total=len(missing), note="")
        for done, number in enumerate(missing):
            name = " ".join(text(part) for part in keys[number].values())

            def shown(share: float, done: int = done, name: str = name) -> None:
                bar.update(task, completed=done + share, note=name)

            shown(0)
            start = time.perf_counter()
            row = {**keys[number], **measure(number, shown)}
            table.append(row)
            if not bar.console.is_terminal:
                found = ", ".join(f"{key} {text(value)}" for key, value in row.items())
                bar.console.print(f"{found} ({time.perf_counter() - start:.0f} s)", soft_wrap=True)
        bar.update(task, completed=len(missing), note="")


def stepwise(shown: Shown, steps: int) -> Callable[[int, Mapping[str, Any]], None]:
    """The progress of a training of so many steps, as `hubbub.run` calls it."""
    return lambda step, _row: shown(step / steps)


def _bar(total: int) -> Progress:
    """A bar with a count, the name of what runs, and the time left; lines where there is none."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed:.1f}}/{total}"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
