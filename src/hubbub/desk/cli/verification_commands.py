"""`hubbub audit`, `verify` and `report`: what lets others believe a run, checked and shown."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.errors import UserError
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.audit_result import remedy, write_audit
from hubbub.core.verification.evidence.claims import check
from hubbub.core.verification.evidence.evidence_file import Finding
from hubbub.desk.cli.terminal import add_command, answer, bar, emit, number, say, table, writing

if TYPE_CHECKING:
    from hubbub.learning.audit.audit import Audit

_AUDIT = "look for canaries in a study's training: a lower bound on epsilon, beside the promise"
_OUT = "also write what was found to this file, for --audit of hubbub run and hubbub serve"
_THOROUGH = "also make accounts again that take long, if you trust whoever chose the study"
_WITH = "folders of other runs, such as baselines of the same study, to show side by side"
_VERIFY = "check a run, or its evidence alone: what holds, what does not, what is not verifiable"


def add_commands(commands: Any) -> None:
    """Register the commands."""
    verify = add_command(commands, "verify", _VERIFY, _verify)
    verify.add_argument("path", type=Path, help="folder of a run, or a file evidence.json")
    verify.add_argument("--thorough", action="store_true", help=_THOROUGH)
    report = add_command(commands, "report", "write the report of a run anew", _report)
    report.add_argument("folder", type=Path, help="folder of a run")
    report.add_argument("--with", type=Path, nargs="+", default=[], metavar="RUN", help=_WITH)
    audit = add_command(commands, "audit", _AUDIT, _audit)
    audit.add_argument("study", type=Path, help="the study's TOML file; no silo's data is read")
    audit.add_argument("--runs", type=int, help="trainings to play; by the study if left out")
    audit.add_argument(
        "--canaries", type=int, help="in each of them, at most 10000; by the study if left out"
    )
    audit.add_argument(
        "--confidence", type=float, default=0.95, help="of the lower bound; default 0.95"
    )
    audit.add_argument("--out", type=Path, help=_OUT)


def _verify(options: argparse.Namespace) -> int:
    path: Path = options.path
    if not path.exists():
        raise UserError(
            f"expected a run's folder or evidence at {path}, found nothing there; check the path"
        )
    thorough = options.thorough
    if path.is_dir():
        findings = _folder(path, thorough=thorough, quiet=options.json)
    else:
        findings = check(path, thorough=thorough)
    holds, complete = all(one.holds for one in findings), all(one.is_checked for one in findings)
    if options.json:
        plain = [one._asdict() for one in findings]
        told = {"path": str(path), "holds": holds, "complete": complete, "findings": plain}
        emit(told)
    else:
        _show_findings(path, findings)
    return 0 if holds and complete else 1


def _folder(path: Path, *, thorough: bool, quiet: bool) -> list[Finding]:
    """All findings about a run; its sums are made again, which takes as long as it is long."""
    from hubbub.core.verification.replay.checking import steps_of, verify

    with bar(f"verifying {path}", steps_of(path), quiet=quiet) as progress:
        return verify(path, progress.advance, thorough=thorough)


def _show_findings(path: Path, found: Sequence[Finding]) -> None:
    table(f"{path}", ("claim", "stands"), [(one.claim, _short(one)) for one in found])
    for one in found:
        if not one.holds:
            say(f"{one.claim}? {one.verdict}")
        if not one.is_checked:
            say(f"{one.claim}? not checked: it would take long; --thorough does it all the same")
    counts = Counter(_short(one) for one in found)
    say(", ".join(f"{number} {verdict}" for verdict, number in counts.items()))


def _short(one: Finding) -> str:
    return one.verdict if one.holds else "WRONG"


def _report(options: argparse.Namespace) -> int:
    from hubbub.desk.report.report_of_run import write_report

    path = write_report(options.folder, beside=getattr(options, "with"))
    answer(options, {"report": str(path)}, f"written: {path}")
    return 0


def _audit(options: argparse.Namespace) -> int:
    from hubbub.core.planning.study_plan import plan, steps_of
    from hubbub.learning.audit.audit import audit
    from hubbub.learning.audit.power import size_of

    study, out = Study.load(options.study), options.out
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise UserError(f"expected --out to be a file in a folder that exists, got {out}; name one")
    runs, _ = size_of(plan(study), options.runs, options.canaries, options.confidence)
    steps = max(runs, 0) * steps_of(study)
    with bar("auditing", steps, quiet=options.json) as progress:
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
    seen = found.seen
    if seen.numbers:
        small = 100 * seen.small / seen.numbers
        say(f"masked vectors: {small:.3f} % of their numbers small; 6.25 expected")
    if seen.matrices:
        say(f"matrices of projections: {seen.repeated} of {seen.matrices} as in the step before")
    if seen.lists:
        say(f"shuffled token lists: kept for all steps in {seen.kept} of {seen.lists} runs")
    say(f"{found.runs} runs of {found.canaries} canaries in {found.seconds:.0f} s")
    if found.contradicted:
        say(f"CONTRADICTED: more was seen than these sums may tell; {remedy(found.confidence)}")
    else:
        say("not contradicted; that proves nothing, and more runs look more closely")


def _share(part: int, whole: int) -> str:
    """A rate, with what it is made of."""
    return f"{part} of {whole} ({100 * part / max(whole, 1):.2f} %)"
