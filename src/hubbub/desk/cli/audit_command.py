"""`hubbub audit`: canaries through a study's training, and the lower bound that they show."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.errors import UserError
from hubbub.core.number_format import at_least, at_most
from hubbub.core.planning.study_plan import plan, steps_of
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.audit_result import remedy, write_audit
from hubbub.desk.cli.terminal import add_command, argument, bar, emit, say, table, writing

if TYPE_CHECKING:
    from hubbub.learning.audit.audit import Audit


def add_commands(commands: Any) -> None:
    """Register the command."""
    add_command(
        commands,
        "audit",
        "attack a study's training with canaries: a lower bound on epsilon, to compare "
        "with the guarantee",
        _audit,
        argument("study", "the study's TOML file; no silo's data is read", Path),
        argument("--runs", "trainings to simulate; default: as the study says", int),
        argument(
            "--canaries", "canaries in each of them, at most 10000; default: as the study says", int
        ),
        argument("--confidence", "of the lower bound; default 0.95", float, default=0.95),
        argument(
            "--out",
            "also write the result to this file, for --audit of hubbub run and hubbub serve",
            Path,
        ),
    )


def _audit(options: argparse.Namespace) -> int:
    from hubbub.learning.audit.audit import audit
    from hubbub.learning.audit.power import size_of

    study, out = Study.load(options.study), options.out
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise UserError(f"expected --out to be a file in a folder that exists, got {out}; name one")
    runs, _ = size_of(plan(study), options.runs, options.canaries, options.confidence)
    steps = max(runs, 0) * steps_of(study)
    with bar("audit", steps, quiet=options.json, lines="step") as progress:
        result = audit(
            study,
            runs=runs,
            canaries=options.canaries,
            confidence=options.confidence,
            progress=progress.reach,
        )
    try:
        emit(result.to_dict()) if options.json else _show_audit(study, result)
    finally:  # hours of work must not go with whoever stops reading
        if out is not None:
            with writing(out):
                write_audit(out, result.to_dict())
    return int(result.contradicted)


def _show_audit(study: Study, found: Audit) -> None:
    """The audit as a table for people, and what follows from it."""
    rates = found.rates
    measured = f"measured in them, at least ({found.confidence:.6g} confidence)"
    table(
        f"{study.name}: epsilon against the {found.plan.stated.adversary} "
        f"(delta {study.privacy.delta:g}, {study.privacy.relation})",
        ("", ""),
        [
            ("promised", at_most(found.promised)),
            ("of which the training's sums may reveal", at_most(found.audited)),
            (measured, at_least(found.lower)),
            (f'right guesses of "{found.side}"', _share(rates.true, rates.positives)),
            (f'wrong guesses of "{found.side}"', _share(rates.false, rates.negatives)),
        ],
    )
    seen = found.seen
    if seen.numbers:
        small = 100 * seen.small / seen.numbers
        say(f"masked vectors: {small:.3f} % of their numbers small; 6.25 expected")
    if seen.matrices:
        say(f"matrices of projections: {seen.repeated} of {seen.matrices} repeat the one before")
    if seen.lists:
        say(f"shuffled token lists: the same in all steps in {seen.kept} of {seen.lists} runs")
    say(f"{found.runs} runs of {found.canaries} canaries in {found.seconds:.0f} s")
    if found.contradicted:
        more = "CONTRADICTED: more was measured than these sums may reveal"
        say(f"{more}; {remedy(found.confidence)}")
    else:
        say("not contradicted; this proves nothing, and more runs give a sharper test")


def _share(part: int, whole: int) -> str:
    """A rate, with what it is made of."""
    return f"{part} of {whole} ({100 * part / max(whole, 1):.2f} %)"
