"""`hubbub tune`: settings of a study's training, chosen on what is public alone."""

from __future__ import annotations

import argparse
import csv
import shlex
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hubbub.core.disk import write_text
from hubbub.core.errors import DataError, UserError
from hubbub.core.study import sources
from hubbub.core.study.study import Study
from hubbub.core.tabular.cell_rule import CellFault
from hubbub.core.tabular.csv_text import csv_text
from hubbub.core.tabular.records import Records
from hubbub.desk.cli.output import (
    add_command,
    bar,
    emit,
    say,
    table,
    writing,
)

if TYPE_CHECKING:
    from hubbub.learning.tuning.tuner import RankedCandidate, Tuned

_SHOWN = 8
_SYNTHETIC = "synthetic.csv"  # of a run that gave a table
_MOST_DRAWS = 1000


def add_commands(commands: Any) -> None:
    """Register the command."""
    words = (
        "choose clip, learning rate and steps on made-up or public records; opens no private file"
    )
    tuned = add_command(commands, "tune", words, _tune)
    tuned.add_argument("study", type=Path, help="the study's TOML file")
    how = tuned.add_mutually_exclusive_group()
    how.add_argument(
        "--made-up", action="store_true", help="on records made from the study's bounds; default"
    )
    how.add_argument(
        "--public", type=Path, metavar="FILE", help="on a file that nobody has to protect"
    )
    how.add_argument(
        "--table",
        type=Path,
        metavar="RUN",
        help="on a synthetic table that was paid for before: a run's folder, or a file",
    )
    tuned.add_argument("--draws", type=int, help="of records, batches and noise; default 6")
    words = "the study with what was chosen; default: beside it, STUDY-tuned.toml"
    tuned.add_argument("--out", type=Path, help=words)
    tuned.add_argument("--replace", action="store_true", help="write over what is there")


def _tune(options: argparse.Namespace) -> int:
    from hubbub.learning.tuning.tuned_text import tuned_text
    from hubbub.learning.tuning.tuner import DRAWS, tune

    study = Study.load(options.study)
    out = options.out or options.study.with_name(f"{options.study.stem}-tuned.toml")
    draws = DRAWS if options.draws is None else options.draws
    if not 2 <= draws <= _MOST_DRAWS:
        raise UserError(
            f"expected --draws from 2 to {_MOST_DRAWS}, got {draws}; 6 tell most settings apart"
        )
    if out.exists() and not options.replace:
        raise UserError(
            f"expected no file {out} yet, found one; name another with --out, or add --replace"
        )
    public = _public(study, options)
    with bar(f"tuning {study.name}", draws, quiet=options.json) as progress:
        tuning = tune(study, public, draws=draws, progress=progress.advance)
    with writing(out):
        write_text(out, tuned_text(study, tuning.better))
    origin = "made-up" if public is None else str(options.public or options.table)
    if options.json:
        emit(
            {
                "out": str(out),
                "records": origin,
                "chosen": tuning.chosen.to_dict(),
                "candidates": [candidate.to_dict() for candidate in tuning.candidates],
            }
        )
    else:
        _show(tuning, origin, out)
    return 0


def _public(study: Study, options: argparse.Namespace) -> Records | None:
    """The public records that were named, read as the study's test set would be."""
    path = options.public or options.table
    if path is None:
        return None
    if options.table and path.is_dir():
        path = path / _SYNTHETIC
        if not path.is_file():
            raise UserError(
                f"expected a synthetic table in {options.table}, found no {_SYNTHETIC}; name a run "
                "that made one, a file of its rows, or try --made-up"
            )
    if not study.data.files:
        raise UserError(
            "expected a study whose records come from files beside a file to choose by, got one "
            "whose records come from elsewhere; try --made-up"
        )
    own = (sources.file_of(study, name, Path()) for name in study.parties.names)
    if any(_is_of(path, one) for one in own if one is not None):
        raise UserError(
            f"expected a file that nobody has to protect, got {path}, which is a silo's: what is "
            "chosen by its records says something of them, and nobody has paid for it; name "
            "another, or try --made-up"
        )
    named = path
    with TemporaryDirectory() as scratch:
        if options.table:
            path = _complete_rows(study, path, Path(scratch) / "table.csv")
        data = replace(study.data, test=str(path.resolve()))
        try:
            return sources.records(replace(study, data=data), sources.TEST)
        except DataError as error:
            raise DataError(str(error).replace(path.name, str(named), 1)) from None


def _is_of(path: Path, own: Path) -> bool:
    """Whether a file is a silo's own, or one of its parts, whatever it is called here."""
    there = path.resolve()
    if own.resolve() in (there, *there.parents) or there in own.resolve().parents:
        return True
    parts = own.iterdir() if own.is_dir() else (own,)
    return path.exists() and any(one.exists() and one.samefile(path) for one in parts)


def _complete_rows(study: Study, path: Path, copied: Path) -> Path:
    """A synthetic table without the sentences above it, and without rows that the study refuses.

    Such a table has gaps where the real records have, and a study need not say what they mean.
    """
    if path.suffix != ".csv" or not path.is_file():
        return path
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = list(csv.reader(dropwhile(lambda line: line.startswith("#"), lines)))
    data, header = study.data, [name.strip() for name in rows[0]] if rows else []
    rules = {column.name: column.rule for column in data.columns if column.name in header}
    checked = [(header.index(name), rule) for name, rule in rules.items()]
    targets = [header.index(name) for name in data.targets if name in header]

    def fits(row: list[str]) -> bool:
        return (
            len(row) == len(header)
            and all(row[place].strip() for place in targets)
            and not any(isinstance(rule(row[place].strip()), CellFault) for place, rule in checked)
        )

    write_text(copied, csv_text([header, *filter(fits, rows[1:])]))
    return copied


def _show(found: Tuned, origin: str, out: Path) -> None:
    """The candidates for people."""
    special = [
        candidate for candidate in found.candidates if candidate.origin or candidate is found.chosen
    ]
    shown = [candidate for candidate in found.candidates[:_SHOWN] if candidate not in special]
    rows = sorted({*shown, *special}, key=lambda one: -one.mean)
    draws = len(found.chosen.explained)
    what = "made-up records" if origin == "made-up" else origin
    table(
        f"{found.study.name}: the best of {len(found.candidates)} candidates on {what}, mean of "
        f"{draws} draws (explained: what a model takes off the loss of knowing nothing)",
        ("", "clip_norm", "lr", "schedule", "steps", "explained"),
        [
            (
                _name(row, found.chosen),
                f"{row.settings.clip_norm:g}",
                f"{row.settings.lr:g}",
                row.settings.schedule,
                str(row.settings.steps),
                f"{row.mean:.3f}",
            )
            for row in rows
        ],
    )
    say(
        "no silo's file was opened, so this has cost nothing; on made-up records the numbers say "
        "which settings suit, not how good the model will be"
    )
    same = found.better.id == found.study.id
    what = "as it was: none is worth another study" if same else "which is another study"
    say(f"written to {out}, {what}; see what it means and train with")
    say(f"    hubbub run {shlex.quote(str(out))}")


def _name(one: RankedCandidate, chosen: RankedCandidate) -> str:
    """What a candidate is, if it is more than that."""
    named = {"study": "the study's", "rule": "the rule's"}.get(one.origin, "")
    return ", ".join(filter(None, ("chosen" if one is chosen else "", named)))
