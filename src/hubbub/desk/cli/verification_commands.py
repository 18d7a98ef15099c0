"""What lets others believe a run: `verify` and `report`."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from hubbub.core.errors import UserError
from hubbub.core.verification.evidence.claims import check
from hubbub.core.verification.evidence.evidence_file import Finding
from hubbub.desk.cli.terminal import add_command, answer, argument, bar, emit, say, table


def add_commands(commands: Any) -> None:
    """Register the commands."""
    add_command(
        commands,
        "verify",
        "check a run, or its evidence alone: what is proven, what is wrong, what cannot be checked",
        _verify,
        argument("path", "folder of a run, or a file evidence.json", Path),
        argument(
            "--thorough",
            "also recompute accounts that take long; use it if you trust whoever chose the study",
            bool,
        ),
    )
    add_command(
        commands,
        "report",
        "write the report of a run again",
        _report,
        argument("folder", "folder of a run", Path),
        argument(
            "--with RUN",
            "folders of other runs, such as baselines of the same study, to show side by side",
            Path,
            nargs="+",
            default=[],
        ),
    )


def _verify(options: argparse.Namespace) -> int:
    path: Path = options.path
    if not path.exists():
        raise UserError(
            f"expected a run's folder or evidence at {path}, found nothing; check the path"
        )
    if path.is_dir():
        findings = verified(path, quiet=options.json, thorough=options.thorough)
    else:
        findings = check(path, thorough=options.thorough)
    holds = all(finding.holds for finding in findings)
    complete = all(finding.is_checked for finding in findings)
    if options.json:
        plain = [finding._asdict() for finding in findings]
        emit({"path": str(path), "holds": holds, "complete": complete, "findings": plain})
        return 0 if holds and complete else 1
    short = [finding.verdict if finding.holds else "WRONG" for finding in findings]
    claims = [finding.claim for finding in findings]
    table(f"{path}", ("claim", "verdict"), list(zip(claims, short, strict=True)))
    for finding in findings:
        if not finding.holds:
            say(f"{finding.claim}? {finding.verdict}")
        if not finding.is_checked:
            words = "not checked: it would take long; --thorough does it all the same"
            say(f"{finding.claim}? {words}")
    say(", ".join(f"{count} {verdict}" for verdict, count in Counter(short).items()))
    return 0 if holds and complete else 1


def verified(path: Path, *, quiet: bool, thorough: bool = False) -> list[Finding]:
    """All findings about a run; its sums are made again, which takes as long as it is long."""
    from hubbub.core.verification.replay.checking import steps_of, verify

    with bar(f"verifying {path}", steps_of(path), quiet=quiet) as progress:
        return verify(path, progress.advance, thorough=thorough)


def _report(options: argparse.Namespace) -> int:
    from hubbub.desk.report.report_of_run import write_report

    path = write_report(options.folder, beside=getattr(options, "with"))
    answer(options, {"report": str(path)}, f"written: {path}")
    return 0
