"""`hubbub verify` and `hubbub report`: a finished run, checked by anybody and shown to people."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hubbub.assurance import Finding, check
from hubbub.cli.output import add_json, bar, emit, say, table
from hubbub.errors import UserError


def add_commands(commands: Any) -> None:
    """Register the commands."""
    words = "check a run, or its evidence alone: what holds, what does not, what is on trust"
    verify = commands.add_parser("verify", help=words, description=words)
    verify.add_argument("path", type=Path, help="folder of a run, or a file evidence.json")
    verify.set_defaults(command=_verify)
    words = "write the report of a run anew"
    report = commands.add_parser("report", help=words, description=words)
    report.add_argument("folder", type=Path, help="folder of a run")
    report.set_defaults(command=_report)
    for parser in (verify, report):
        add_json(parser)


def _verify(options: argparse.Namespace) -> int:
    path: Path = options.path
    if not path.exists():
        raise UserError(f"expected a run's folder or evidence at {path}, found nothing there")
    found = _folder(path, quiet=options.json) if path.is_dir() else check(path)
    holds = all(one.holds for one in found)
    if options.json:
        emit({"path": str(path), "holds": holds, "findings": [one._asdict() for one in found]})
    else:
        _show(path, found)
    return 0 if holds else 1


def _folder(path: Path, *, quiet: bool) -> list[Finding]:
    """All findings about a run; its sums are made again, which takes as long as it is long."""
    from hubbub.assurance.verification import steps_of, verify

    with bar(f"verifying {path}", steps_of(path), quiet=quiet) as progress:
        return verify(path, progress.advance)


def _show(path: Path, found: Sequence[Finding]) -> None:
    table(f"{path}", ("claim", "stands"), [(one.claim, _short(one)) for one in found])
    for one in found:
        if not one.holds:
            say(f"{one.claim}? {one.verdict}")
    counts = Counter(_short(one) for one in found)
    say(", ".join(f"{number} {verdict}" for verdict, number in counts.items()))


def _short(one: Finding) -> str:
    return one.verdict if one.holds else "WRONG"


def _report(options: argparse.Namespace) -> int:
    from hubbub.training import write_report

    path = write_report(options.folder)
    if options.json:
        emit({"report": str(path)})
    else:
        say(f"written: {path}")
    return 0
