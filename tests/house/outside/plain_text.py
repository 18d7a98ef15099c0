"""Renderers from outside the tree: what a run says, in a line of plain text."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def in_text(result: Any) -> str:
    return f"{result.plan.study.name} at epsilon {result.epsilon:.3g}"


def write_report(folder: Path, **_: Any) -> Path:
    (folder / "report.txt").write_text("a run\n", encoding="utf-8")
    return folder / "report.txt"
