"""The report of a run from the files in its folder, so that it can be written again at any time.

This file reads plain values and hands them to `page`; what is not there is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hubbub.core.disk import json_value, write_bytes
from hubbub.core.errors import HubbubError, IntegrityError, UserError
from hubbub.core.runs.run_folder import REPORT
from hubbub.core.study.ask import asks
from hubbub.core.verification.evidence.claims import check_content
from hubbub.core.verification.evidence.collecting import FILE
from hubbub.core.verification.evidence.evidence_file import SPENDING, load, read_whole
from hubbub.core.verification.replay.checking import altered_files
from hubbub.desk.report.arrangements import ArrangementTable, ReportedRun
from hubbub.desk.report.page import render
from hubbub.desk.report.paper import manuscript
from hubbub.desk.report.sheet import Sheet
from hubbub.estimation.queries.statistics_query import ANSWERS
from hubbub.learning.queries.training_ask import SCORES

COMPARISON = "comparison.json"
_MOST_ROWS = 100_000  # of metrics; a run has some twenty, or one for every step
_MALFORMED = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError),
    *(StopIteration, RecursionError),
)


def write_report(
    folder: Path,
    *,
    beside: Sequence[Path] = (),
    seconds: float | None = None,
    thorough: bool = False,
) -> Path:
    """Write `report.html` into the folder of a run, from what lies there.

    Args:
        folder: of the run, with study, plan and metrics, and how its arrangements compare if
            `comparison.json` is there.
        beside: folders of other runs, to show side by side with this one.
        seconds: that the run took, if known; what the last row of the metrics says if None.
        thorough: make accounts again that take long, too, as for a run of one's own.
    """
    for planned in (folder, *beside):
        if not (planned / "plan.json").is_file():
            raise UserError(
                f"expected the folder of a run at {planned}, found no plan.json in it; "
                "name the folder given to --out"
            )
    with as_written(folder, *beside):
        page = _page(folder, beside, seconds, thorough).encode()
    write_bytes(folder / REPORT, page)
    return folder / REPORT


@contextmanager
def as_written(*folders: Path) -> Iterator[None]:
    """What is read of runs is what runs write, or it was altered."""
    try:
        yield
    except HubbubError:
        raise
    except _MALFORMED as error:
        raise IntegrityError(
            f"expected the files in {', '.join(map(str, folders))} as a run writes them, "
            f"found something else ({type(error).__name__}); restore them from a backup"
        ) from None


def paper_of(folder: Path) -> Sheet:
    """What a paper prints of a run, from the files in its folder."""
    evidence, tables = folder / FILE, ("statistics", "validation", "coefficients")
    for altered in altered_files(folder, load(evidence)) if evidence.exists() else ():
        raise IntegrityError(f"expected that {altered.claim}, {altered.verdict}")
    statistics, validation, coefficients = (_answer_to(folder, table) for table in tables)
    promised = statistics or validation or coefficients
    if promised is None:
        raise UserError(
            "expected the folder of a run with statistics, a validation or coefficients, "
            f"found no {ANSWERS} in {folder}; name the folder given to --out"
        )
    return manuscript.manuscript_of(
        statistics or promised | {"statistics": {}},
        validation=validation,
        coefficients=coefficients,
        plan=_optional(folder / "plan.json", None),
    )


def _answer_to(folder: Path, table: str) -> Any:
    """What a run says of what a table of its study asks; None where it says nothing of it."""
    files = (folder / (ask.answers or ask.files[-1]) for ask in asks() if ask.tables[0] == table)
    return next((_optional(path, None) for path in files), None)


def _page(folder: Path, beside: Sequence[Path], seconds: float | None, thorough: bool) -> str:
    run = _run(folder)
    metrics = run.metrics
    compared = _optional(folder / COMPARISON, None)
    content = load(folder / FILE) if (folder / FILE).exists() else None
    findings = check_content(content, thorough=thorough) if content else []
    findings += altered_files(folder, content) if content else []
    names = [ask.answers for ask in asks() if ask.answers]
    files = (_optional(folder / name, {"statistics": {}})["statistics"] for name in names)
    statistics = {name: one for answers in files for name, one in answers.items()}
    if seconds is None and metrics:
        seconds = metrics[-1].get("seconds")
    return render(
        run.plan,
        metrics,
        baseline=run.baseline,
        comparison=None if compared is None else ArrangementTable.from_dict(compared),
        beside=[run, *map(_run, beside)] if beside else [],
        parts=content["silos"] if content else (),
        checked=[(one.claim, one.verdict) for one in findings],
        audit=content.get("audit") if content else None,
        attempts=content["epsilon"]["attempts"] if content else None,
        seconds=seconds,
        statistics=statistics,
        spending=_optional(folder / SPENDING, None),
        scores=_optional(folder / SCORES, {}),
        validation=_answer_to(folder, "validation"),
    )


def _run(folder: Path) -> ReportedRun:
    return ReportedRun(
        folder=folder.resolve().name,
        plan=_json(folder / "plan.json"),
        metrics=_rows(folder / "metrics.jsonl"),
        baseline=_json(folder / "run.json")["baseline"],
    )


def _optional(path: Path, missing: Any) -> Any:
    """What a JSON file holds, or something else where there is no such file."""
    return _json(path) if path.is_file() else missing


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    text = read_whole(path)
    if text.count(b"\n") > _MOST_ROWS:
        raise ValueError("more rows than a chart can show")
    return [_parsed(path, line) for line in text.decode().splitlines()]


def _json(path: Path) -> Any:
    return _parsed(path, read_whole(path).decode())


def _parsed(path: Path, text: str) -> Any:
    try:
        return json_value(text)
    except ValueError:
        raise IntegrityError(
            f"expected JSON in {path}, found something else; restore it from a backup"
        ) from None
