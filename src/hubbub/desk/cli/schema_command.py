"""`hubbub schema`: the words of a study's file, and what a study's columns mean."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hubbub.core.disk import write_text
from hubbub.core.errors import UserError
from hubbub.core.study.study import Study
from hubbub.core.study.study_file import json_schema
from hubbub.core.tabular.cells import csv_text
from hubbub.desk.cli.terminal import add_command, argument, emit, say, table, writing
from hubbub.site.data_dictionary import HEAD, data_dictionary


def add_commands(commands: Any) -> None:
    """Register the command."""
    add_command(
        commands,
        "schema",
        "print the JSON schema of a study's file, for editors; or a study's data dictionary",
        _schema,
        argument(
            "what",
            "data STUDY: the meaning of each column of a study",
            nargs="*",
            metavar="data STUDY",
        ),
        argument("--out", "write it there", Path, metavar="FILE"),
    )


def _schema(options: argparse.Namespace) -> int:
    if options.what:
        return _data(options)
    if options.out is None:
        if options.json:
            emit(json_schema())
        else:
            sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
        return 0
    with writing(options.out):
        write_text(options.out, json.dumps(json_schema(), indent=2) + "\n")
    if options.json:
        emit({"schema": str(options.out)})
    else:
        say(f'wrote {options.out}; "#:schema {options.out.name}" as a study\'s first line names it')
    return 0


def _data(options: argparse.Namespace) -> int:
    """The data dictionary: on the screen, or as CSV."""
    if len(options.what) != 2 or options.what[0] != "data":
        raise UserError(
            "expected hubbub schema alone, or hubbub schema data study.toml for the data "
            f"dictionary of a study, got {' '.join(options.what)!r}; name one study's file"
        )
    study = Study.load(options.what[1])
    rows = [column.row() for column in data_dictionary(study)]
    if options.out is not None:
        with writing(options.out):
            write_text(options.out, csv_text([HEAD, *rows]))
    if options.json:
        emit({"columns": [dict(zip(HEAD, row, strict=True)) for row in rows]})
    elif options.out is not None:
        say(
            f"wrote {options.out}; it contains nothing from any record, so you can give it to "
            "every site"
        )
    else:
        table(f"{study.name}: the meaning of its columns", HEAD, rows, texts=len(HEAD))
    return 0
