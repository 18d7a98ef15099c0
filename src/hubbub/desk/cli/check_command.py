"""`hubbub check`: all that is wrong with a study's files, at once.

It reads records, on this machine only, and prints what it finds to whoever has the files.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hubbub.core.disk import write_text
from hubbub.core.errors import UserError
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.desk.cli.drafting_commands import MISFITS, list_faults
from hubbub.desk.cli.terminal import add_command, answer, emit, say, writing
from hubbub.desk.drafting.draft_files import mapping_draft
from hubbub.desk.drafting.table_check import checked, read_site
from hubbub.learning.queries.training_query import about_own_code


def add_commands(commands: Any) -> None:
    """Register the command."""
    words = "list all that is wrong with a study's files, at once"
    check = add_command(commands, "check", words, _check)
    check.add_argument("study", type=Path, help="the study's TOML file")
    check.add_argument("--silo", metavar="NAME", help="only the file of this silo")
    check.add_argument(
        "--data", type=Path, default=Path(), metavar="DIR", help="where the files are; default here"
    )
    words = "write what one silo may have to map there, to be looked through"
    check.add_argument("--mapping", type=Path, metavar="FILE", help=words)


def _check(options: argparse.Namespace) -> int:
    study = Study.load(options.study)
    notes = about_own_code(study)
    if not options.json:
        for note in notes:
            say(f"note: {note}")
    if not study.data.is_declared:
        words = f"the records come from {study.data.source}, which only a run calls"
        result = {"faults": [], "files": False, "notes": notes}
        answer(options, result, f"{words}: there is no file to check")
        return 0
    if options.mapping is not None:
        return _write_mapping(options, study)
    names = list(_names(study, options.silo))
    faults = checked(study, names, options.data)
    refused = sum(fault.refused for fault in faults)
    if options.json:
        listed = [fault.to_dict() for fault in faults]
        emit({"faults": listed, "files": True, "refused": refused, "notes": notes})
    else:
        list_faults(faults)
        fine = f"a run can read the files of {', '.join(names)}"
        wrong = "a run refuses these files; this list"
        if study.data.is_asked:  # no cell keeps a silo away (P31)
            wrong = f"{MISFITS}; mend or map them (--mapping); this list"
        say(f"{wrong} may quote cells, so it is for your own eyes" if refused else fine)
    return 2 if refused else 0


def _write_mapping(options: argparse.Namespace, study: Study) -> int:
    """A first mapping of one silo, from its cells."""
    if options.silo is None or options.mapping.exists():
        raise UserError(
            "expected --silo and a new file with --mapping, got no silo or a file that is there; "
            "name another"
        )
    table = read_site(study, next(_names(study, options.silo)), options.data)
    text = mapping_draft(table, options.silo, study.data)
    with writing(options.mapping):
        write_text(options.mapping, text)
    what = "look through it; it stays here" if text else "nothing seems to need one: it is empty"
    answer(options, {"mapping": str(options.mapping)}, f"wrote {options.mapping}; {what}")
    return 0


def _names(study: Study, silo: str | None) -> Iterator[str]:
    """Whose files are read."""
    known = (*study.parties.names, *([silo_records.TEST] if study.data.test else []))
    if silo is None:
        yield from known
    elif silo in known:
        yield silo
    else:
        raise UserError(
            f"expected --silo to be one of {', '.join(known)}, got {silo!r}; choose one of them"
        )
