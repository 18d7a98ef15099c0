"""`sample`: records that are drawn from what a run has learned of all silos together."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from hubbub.core.disk import write_text
from hubbub.core.errors import UserError
from hubbub.desk.cli.terminal import add_command, answer, emit, writing


def add_commands(commands: Any) -> None:
    """Register the command."""
    words = "draw synthetic records from a finished run that was asked for them"
    drawn = add_command(commands, "sample", words, _sample)
    drawn.add_argument("run", type=Path, help="folder of the run")
    drawn.add_argument(
        "--records", type=int, help="how many; as many as the study says if left out"
    )
    drawn.add_argument("--seed", type=int, default=0, help="another number gives other records")
    drawn.add_argument("--out", type=Path, help="CSV file for them; stdout if left out")
    drawn.add_argument(
        "--tables",
        type=int,
        help="so many tables instead, of models with fresh noise, for an analysis whose results "
        "are combined; --out is then their folder",
    )


def _sample(options: argparse.Namespace) -> int:
    from hubbub.estimation.queries.synthesis_query import records_text
    from hubbub.learning.runs.synthesis_in_memory import synthetic

    if options.tables is not None:
        return _tables(options)
    table = synthetic(options.run).draw(options.records, seed=options.seed)
    many = len(next(iter(table.values())))
    if options.out is not None:
        with writing(options.out):
            write_text(options.out, records_text(table))
    content = {"records": many, "seed": options.seed}
    if options.json:
        more = {"columns": table} if options.out is None else {"out": str(options.out)}
        emit(content | more)
    elif options.out is None:
        sys.stdout.write(records_text(table))
    else:
        answer(options, {}, f"{many} synthetic records; written to {options.out}")
    return 0


def _tables(options: argparse.Namespace) -> int:
    """A file for each of several tables."""
    from hubbub.estimation.queries.synthesis_query import records_text
    from hubbub.learning.runs.synthesis_in_memory import synthetic

    many, folder = options.tables, options.out
    if not 5 <= many <= 1000:
        raise UserError(f"expected --tables of 5 to 1,000, got {many}; 20 are enough")
    if folder is None or options.records is not None or options.seed:
        raise UserError(
            "expected --out FOLDER beside --tables, and no --records or --seed: each table has as "
            "many records as there are units; name a folder, leave the others out"
        )
    with writing(folder, "folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(synthetic(options.run).tables(many), 1):
            write_text(folder / f"table-{number}.csv", records_text(table))
    words = f"{many} tables for one analysis of each; written to {folder}"
    answer(options, {"tables": many, "out": str(folder)}, words)
    return 0
