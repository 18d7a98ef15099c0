"""`hubbub audit`: how much of its epsilon a study's code is seen to tell, beside the promise."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.assurance import remedy, write_audit
from hubbub.cli.output import add_json, bar, emit, number, say, table, writing
from hubbub.errors import UserError
from hubbub.study import Study

if TYPE_CHECKING:
    from hubbub.assurance.audit import Audit

_WORDS = "look for canaries in a study's training: a lower bound on epsilon, beside the promise"
_OUT = "also write what was found to this file, for --audit of hubbub run and hubbub serve"


def add_commands(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("audit", help=_WORDS, description=_WORDS)
    parser.add_argument("study", type=Path, help="the study's TOML file; no silo's data is read")
    parser.add_argument("--runs", type=int, default=20, help="trainings to play; default 20")
    parser.add_argument(
        "--canaries", type=int, default=5000, help="in each of them, at most 10000; default 5000"
    )
    parser.add_argument(
        "--confidence", type=float, default=0.95, help="of the lower bound; default 0.95"
    )
    parser.add_argument("--out", type=Path, help=_OUT)
    add_json(parser)
    parser.set_defaults(command=_audit)


def _audit(options: argparse.Namespace) -> int:
    from hubbub.assurance.audit import audit

    study, out = Study.load(options.study), options.out
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise UserError(f"expected --out to be a file in a folder that exists, got {out}; name one")
    steps = max(options.runs, 0) * study.training.steps
    with bar("auditing", steps, quiet=options.json) as progress:
        found = audit(
            study,
            runs=options.runs,
            canaries=options.canaries,
            confidence=options.confidence,
            progress=progress.reach,
        )
    try:
        if options.json:
            emit(found.to_dict())
        else:
            _show(study, found)
    finally:  # hours of work must not go with whoever stops reading
        if out is not None:
            with writing(out):
                write_audit(out, found.to_dict())
    return int(found.contradicted)


def _show(study: Study, found: Audit) -> None:
    """The audit as a table for people, and what follows from it."""
    rates = found.rates
    table(
        f"{study.name}: epsilon against the {found.plan.stated.adversary} "
        f"(delta {study.privacy.delta:g}, {study.privacy.relation})",
        ("", ""),
        [
            ("promised", number(found.promised)),
            ("of which the training's sums may tell", number(found.audited)),
            (f"seen in them, at least ({found.confidence:.6g} confidence)", number(found.lower)),
            (f'"{found.side}", said of so many rightly', _share(rates.true, rates.positives)),
            ("and of so many wrongly", _share(rates.false, rates.negatives)),
        ],
    )
    say(f"{found.runs} runs of {found.canaries} canaries in {found.seconds:.0f} s")
    if found.contradicted:
        say(f"CONTRADICTED: more was seen than these sums may tell; {remedy(found.confidence)}")
    else:
        say("not contradicted; that proves nothing, and more runs look more closely")


def _share(part: int, whole: int) -> str:
    """A rate, with what it is made of."""
    return f"{part} of {whole} ({100 * part / max(whole, 1):.2f} %)"
