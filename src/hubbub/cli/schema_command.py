"""`hubbub schema`: which keys a study's file has, as a JSON schema that editors read."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hubbub.cli.output import add_command, emit, say, writing
from hubbub.disk import write_text
from hubbub.study import json_schema


def add_commands(commands: Any) -> None:
    """Register the command."""
    words = "print the JSON schema of a study's file, for editors"
    parser = add_command(commands, "schema", words, _schema)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it there")


def _schema(options: argparse.Namespace) -> int:
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
