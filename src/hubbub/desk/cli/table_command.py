"""`table`: what a paper prints of a run: its statistics, and its model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hubbub.core.errors import UserError
from hubbub.desk.cli.terminal import add_command, answer, argument


def add_commands(commands: Any) -> None:
    """Register the command."""
    add_command(
        commands,
        "table",
        "tables and figures of a run, for a paper",
        _table,
        argument("folder", "folder of a run", Path),
        argument("--format", "some of html,docx,latex,csv; default html", default="html"),
        argument("--figures", "also as files: some of svg,pdf,png; default none", default=""),
        argument("--out", 'folder for the files; default "paper" in the run\'s folder', Path),
    )


def _table(options: argparse.Namespace) -> int:
    from hubbub.core.disk import inside, write_bytes
    from hubbub.desk.report.paper.formats import FIGURES, FORMATS, figure_file, written
    from hubbub.desk.report.report_of_run import as_written, paper_of

    formats, kinds = _named(options.format, FORMATS), _named(options.figures, FIGURES)
    with as_written(options.folder):
        paper = paper_of(options.folder)
        files = {name: file for kind in formats for name, file in written(paper, kind).items()}
        for drawn in paper.figures:
            files |= {f"{drawn.name}.{kind}": figure_file(drawn, kind) for kind in kinds}
    out = options.out or inside(options.folder, "paper/tables").parent
    out.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        write_bytes(inside(out, name), file)
    said = {"out": str(out), "files": list(files), "methods": " ".join(paper.sentences)}
    answer(options, said, f"written to {out}: {', '.join(files)}")
    return 0


def _named(text: str, known: tuple[str, ...]) -> list[str]:
    """Words with commas between them, each one of some."""
    named = [word.strip() for word in text.split(",") if word.strip()]
    if strange := [word for word in named if word not in known]:
        raise UserError(f"expected some of {', '.join(known)}, got {strange[0]!r}; correct it")
    return named
