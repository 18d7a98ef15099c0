"""`sample`: records that are drawn from what a run has learned of all silos together."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from hubbub.cli.output import add_command, answer, emit, writing
from hubbub.disk import write_text


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


def _sample(options: argparse.Namespace) -> int:
    from hubbub.queries import records_text
    from hubbub.training import synthetic

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
