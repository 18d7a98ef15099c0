"""The report of a run from the files in its folder, so that it can be written again at any time.

This file reads plain values and hands them to `report`; what is not there is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubbub.assurance import FILE, check_content, load, read_whole
from hubbub.disk import json_value, write_bytes
from hubbub.errors import IntegrityError, UserError
from hubbub.report import render

REPORT = "report.html"
COMPARISON = "comparison.json"


def write_report(
    folder: Path,
    *,
    comparison: Mapping[str, Mapping[str, float]] | None = None,
    seconds: float | None = None,
    thorough: bool = False,
) -> Path:
    """Write `report.html` into the folder of a run, from what lies there.

    Args:
        folder: of the run, with study, plan and metrics.
        comparison: with the baselines; what `comparison.json` holds if None.
        seconds: that the run took, if known; what the last row of the metrics says if None.
        thorough: make accounts again that take long, too, as for a run of one's own.

    Raises:
        UserError: there is no run in the folder.
        IntegrityError: a file in it was altered.
    """
    if not (folder / "plan.json").is_file():
        raise UserError(
            f"expected the folder of a run at {folder}, found no plan.json in it; name the folder "
            "that --out named"
        )
    try:
        page = _page(folder, comparison, seconds, thorough).encode()
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise IntegrityError(
            f"expected plan, metrics, comparison and evidence in {folder} as a run writes them, "
            f"found something else ({type(error).__name__}); restore them from a backup"
        ) from None
    write_bytes(folder / REPORT, page)
    return folder / REPORT


def _page(
    folder: Path,
    comparison: Mapping[str, Mapping[str, float]] | None,
    seconds: float | None,
    thorough: bool,
) -> str:
    """The page, from what lies in the folder."""
    plan = _json(folder / "plan.json")
    metrics = _rows(folder / "metrics.jsonl")
    content = load(folder / FILE) if (folder / FILE).exists() else None
    found = check_content(content, thorough=thorough) if content else []
    if seconds is None and metrics:
        seconds = metrics[-1].get("seconds")
    return render(
        plan,
        metrics,
        baseline=_optional(folder / "run.json", {}).get("baseline"),
        comparison=comparison or _optional(folder / COMPARISON, {}),
        parts=content["silos"] if content else (),
        checked=[(one.claim, one.verdict) for one in found],
        audit=content.get("audit") if content else None,
        attempts=content["epsilon"]["attempts"] if content else None,
        seconds=seconds,
    )


def _optional(path: Path, missing: dict[str, Any]) -> dict[str, Any]:
    """A JSON object, or something else where there is no such file."""
    found: dict[str, Any] = _json(path) if path.is_file() else missing
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [_parsed(path, line) for line in read_whole(path).decode().splitlines()]


def _json(path: Path) -> Any:
    return _parsed(path, read_whole(path).decode())


def _parsed(path: Path, text: str) -> Any:
    try:
        return json_value(text)
    except ValueError:
        raise IntegrityError(
            f"expected JSON in {path}, found something else; restore it from a backup"
        ) from None
