"""`sample`: records that are drawn from what a run has learned of all silos together."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from hubbub.core.disk import write_text
from hubbub.core.errors import UserError
from hubbub.desk.cli.terminal import add_command, answer, argument, emit, writing


def add_commands(commands: Any) -> None:
    """Register the command."""
    add_command(
        commands,
        "sample",
        "draw synthetic records from a finished run that was asked for them",
        _sample,
        argument("run", "folder of the run", Path),
        argument("--records", "how many; as many as the study says if left out", int),
        argument("--seed", "another number gives other records", int, default=0),
        argument("--out", "CSV file for them; stdout if left out", Path),
        argument(
            "--tables",
            "so many tables instead, of models with fresh noise, for an analysis whose results are "
            "combined; --out is then their folder",
            int,
        ),
    )


def _sample(options: argparse.Namespace) -> int:
    from hubbub.estimation.queries.synthesis_query import records_text
    from hubbub.learning.runs.synthesis_in_memory import synthetic

    out, count = options.out, options.tables
    if count is not None:  # a file for each of several tables
        if not 5 <= count <= 1000:
            raise UserError(f"expected --tables of 5 to 1,000, got {count}; 20 are enough")
        if out is None or options.records is not None or options.seed:
            raise UserError(
                "expected --out FOLDER beside --tables, and no --records or --seed: each table has "
                "as many records as there are units; name a folder, leave the others out"
            )
        with writing(out, "folder"):
            out.mkdir(parents=True, exist_ok=True)
            for number, table in enumerate(synthetic(options.run).tables(count), 1):
                write_text(out / f"table-{number}.csv", records_text(table))
        words = f"{count} tables for one analysis of each; written to {out}"
        answer(options, {"tables": count, "out": str(out)}, words)
        return 0
    table = synthetic(options.run).draw(options.records, seed=options.seed)
    records = len(next(iter(table.values())))
    content = {"records": records, "seed": options.seed}
    if out is not None:
        with writing(out):
            write_text(out, records_text(table))
        words = f"{records} synthetic records; written to {out}"
        answer(options, {**content, "out": str(out)}, words)
    elif options.json:
        emit({**content, "columns": table})
    else:
        sys.stdout.write(records_text(table))
    return 0
