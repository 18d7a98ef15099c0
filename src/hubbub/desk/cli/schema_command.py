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
from hubbub.desk.cli.terminal import add_command, answer, argument, emit, table, writing
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
        argument("--out FILE", "write it there", Path),
    )


def _schema(options: argparse.Namespace) -> int:
    out: Path | None = options.out
    if options.what and (len(options.what) != 2 or options.what[0] != "data"):
        raise UserError(
            "expected hubbub schema alone, or hubbub schema data study.toml for the data "
            f"dictionary of a study, got {' '.join(options.what)!r}; name one study's file"
        )
    title, rows = "", list[tuple[str, ...]]()
    content: dict[str, Any] = json_schema()
    written: dict[str, Any] = {"schema": str(out)}
    text = json.dumps(content, indent=2) + "\n"
    about = f'"#:schema {out and out.name}" as a study\'s first line names it'
    if options.what:  # the data dictionary
        study = Study.load(options.what[1])
        title, rows = study.name, [column.row() for column in data_dictionary(study)]
        text = csv_text([HEAD, *rows])
        content = written = {"columns": [dict(zip(HEAD, row, strict=True)) for row in rows]}
        about = "it contains nothing from any record, so you can give it to every site"
    if out is not None:
        with writing(out):
            write_text(out, text)
        answer(options, written, f"wrote {out}; {about}")
    elif options.json:
        emit(content)
    elif options.what:
        table(f"{title}: the meaning of its columns", HEAD, rows, texts=len(HEAD))
    else:
        sys.stdout.write(text)
    return 0
