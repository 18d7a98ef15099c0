"""`hubbub audit`: how much of its epsilon a study's code is seen to tell, beside the claim."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.cli.output import add_json, bar, emit, number, say, table
from hubbub.study import Study

if TYPE_CHECKING:
    from hubbub.auditing import Audit

_WORDS = "look for canaries in a study's training: a lower bound on epsilon, beside the claim"


def add_commands(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("audit", help=_WORDS, description=_WORDS)
    parser.add_argument("study", type=Path, help="the study's TOML file; its data is not read")
    parser.add_argument("--runs", type=int, default=20, help="trainings to play; default 20")
    parser.add_argument(
        "--canaries", type=int, default=5000, help="in each of them, at most 10000; default 5000"
    )
    parser.add_argument(
        "--confidence", type=float, default=0.95, help="of the lower bound; default 0.95"
    )
    add_json(parser)
    parser.set_defaults(command=_audit)


def _audit(options: argparse.Namespace) -> int:
    from hubbub.auditing import audit

    study = Study.load(options.study)
    steps = max(options.runs, 0) * study.training.steps
    with bar("auditing", steps, quiet=options.json) as progress:
        found = audit(
            study,
            runs=options.runs,
            canaries=options.canaries,
            confidence=options.confidence,
            progress=progress.reach,
        )
    if options.json:
        emit(found.as_json())
    else:
        _show(study, found)
    return int(found.contradicted)


def _show(study: Study, found: Audit) -> None:
    """The audit as a table for people, and what follows from it."""
    rates = found.rates
    there = "there" if found.says_heads else "not there"
    table(
        f"{study.name}: epsilon against the {found.plan.stated.adversary} "
        f"(delta {study.privacy.delta:g}, {study.privacy.relation})",
        ("", ""),
        [
            ("promised, at most", number(found.claimed)),
            ("what endless runs would show, at least", number(found.attainable)),
            (f"seen, at least ({100 * found.confidence:g} % confidence)", number(found.lower)),
            (f'said to be "{there}", of canaries that were', _share(rates.true, rates.positives)),
            ("of canaries that were not", _share(rates.false, rates.negatives)),
        ],
    )
    say(f"{found.runs} runs of {found.canaries} canaries in {found.seconds:.0f} s")
    if found.contradicted:
        say("CONTRADICTED: more was seen than is promised; do not train with this installation")
    else:
        say("not contradicted; that proves nothing, and more runs look more closely")


def _share(part: int, whole: int) -> str:
    """A rate, with what it is made of."""
    return f"{part} of {whole} ({100 * part / max(whole, 1):.2f} %)"
