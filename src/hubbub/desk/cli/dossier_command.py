"""`hubbub dossier`: one document about a run for those who have to decide."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubbub.core.disk import write_bytes
from hubbub.core.errors import IntegrityError, UserError
from hubbub.core.number_format import several
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.claims import check
from hubbub.core.verification.evidence.collecting import FILE
from hubbub.core.verification.evidence.evidence_file import load
from hubbub.desk.cli.terminal import add_command, argument, emit, say, writing
from hubbub.desk.cli.verification_commands import verified
from hubbub.desk.report.dossier.composing import compose, draft_of, read_written
from hubbub.desk.report.dossier.facts import Facts
from hubbub.desk.report.dossier.written_files import as_docx, as_html

# What people are given of a run, beside a model.
_ANSWERS = (
    *("statistics.json", "synthetic.json", "synthetic.csv"),
    *("validation.json", "coefficients.json"),
)
_FORMATS = {".html": lambda dossier: as_html(dossier).encode(), ".docx": as_docx}


def add_commands(commands: Any) -> None:
    """Register the command."""
    add_command(
        commands,
        "dossier",
        "write what a run's evidence shows, for those who decide: DPIA annex, hazards, model card",
        _dossier,
        argument("path", "folder of a run, or a file evidence.json", Path),
        argument(
            "--out", "file to write, .html or .docx; default dossier.html in the folder", Path
        ),
        argument(
            "--fill",
            "TOML file with people's answers, one for each open question; drafted if it "
            "does not exist",
            Path,
        ),
    )


def _dossier(options: argparse.Namespace) -> int:
    path: Path = options.path
    folder = path if path.is_dir() else path.parent
    out: Path = options.out or folder / "dossier.html"
    if out.suffix not in _FORMATS:
        raise UserError(f"expected --out to end with .html or .docx, got {out}")
    written = _written(options.fill)
    dossier = compose(facts_of(path, quiet=options.json), written)
    content = _FORMATS[out.suffix](dossier)
    with writing(out):
        write_bytes(out, content)
    if options.json:
        said = [
            {key: getattr(sentence, key) for key in ("ask", "text", "standing", "fields")}
            for sentence in dossier.sentences
        ]
        shown = {"sentences": said, "open": dossier.open, "wrong": dossier.wrongs}
        emit({"dossier": str(out), **shown})
        return int(bool(dossier.wrongs))
    for claim in dossier.wrongs:
        say(f"does not hold: {claim}")
    say(", ".join(f"{number} sentences {name}" for name, number in sorted(dossier.counts.items())))
    if dossier.open:
        left = several(len(dossier.open), "answer")
        where = options.fill or "a file that --fill FILE drafts"
        say(f"{left} still needed from people: write them into {where}")
    say(f"written: {out}")
    return int(bool(dossier.wrongs))


def facts_of(path: Path, *, quiet: bool) -> Facts:
    """What was found of a run, from its folder or its evidence alone."""
    evidence = path / FILE if path.is_dir() else path
    if not evidence.is_file():
        raise UserError(f"expected evidence at {evidence}, found none; only a finished run has it")
    content = load(evidence)
    findings = verified(path, quiet=quiet) if path.is_dir() else check(evidence)
    about_study = [finding for finding in findings if "study" in finding.about]
    if not about_study or not all(finding.holds for finding in about_study):
        wrong = next((finding for finding in findings if not finding.holds), None)
        why = "it is not about a study" if wrong is None else f"{wrong.claim}: {wrong.verdict}"
        raise IntegrityError(f"expected evidence to make a dossier from, got something else: {why}")
    asked = json.loads(Study.parse(content["study"]["toml"]).canonical)
    frames = sum(session["frames"] for session in content["transcripts"])
    answers = {name: content["files"][name] for name in _ANSWERS if name in content["files"]}
    replay = {"model": content["model"], "frames": frames, "answers": answers}
    return Facts(
        values={**content, "asked": asked, "replay": replay},
        # What stands for the study's text stands for its keys, too.
        findings=[
            (own.claim, own.verdict, (*own.about, "asked") if "study" in own.about else own.about)
            for own in findings
        ],
    )


def _written(path: Path | None) -> Mapping[str, str]:
    """What people have written; a draft is made of a file that is missing."""
    if path is None:
        return {}
    if not path.exists():
        with writing(path):
            path.write_text(draft_of(), encoding="utf-8")
        return {}
    try:
        return read_written(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"expected a text file at {path}, got: {error}") from None
