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
        "draw synthetic records from a finished run with [synthetic]",
        _sample,
        argument("run", "folder of the run", Path),
        argument("--records", "number of records; default: as many as the study says", int),
        argument("--seed", "another seed gives other records", int, default=0),
        argument("--out", "CSV file for them; default: standard output", Path),
        argument(
            "--tables",
            "draw this many tables instead, from models with fresh noise, for an "
            "analysis that combines their results; --out is then their folder",
            int,
        ),
    )


def _sample(options: argparse.Namespace) -> int:
    from hubbub.estimation.queries.synthesis_query import records_text
    from hubbub.learning.runs.synthesis_in_memory import synthetic

    out, count = options.out, options.tables
    if count is not None:  # a file for each of several tables
        if not 5 <= count <= 1000:
            raise UserError(f"expected --tables from 5 to 1,000, got {count}; 20 are enough")
        if out is None or options.records is not None or options.seed:
            raise UserError(
                "expected --out FOLDER beside --tables, and no --records or --seed: each table has "
                "as many records as there are units; name a folder, leave the others out"
            )
        with writing(out, "folder"):
            out.mkdir(parents=True, exist_ok=True)
            for number, table in enumerate(synthetic(options.run).tables(count), 1):
                write_text(out / f"table-{number}.csv", records_text(table))
        words = f"{count} tables; analyse each and combine the results; written to {out}"
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
