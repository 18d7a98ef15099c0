"""Renderers from outside the tree: what a run says, in plain text and in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hubbub.desk.report.run_result import sheets_of


def in_text(result: Any) -> str:
    return f"{result.plan.study.name} at epsilon {result.epsilon:.3g}"


def in_markdown(result: Any) -> str:
    """Whatever sheets a run has: this knows none of its kinds."""
    lines = []
    for sheet in sheets_of(result):
        lines += [f"# {sheet.title}", *sheet.sentences]
        for table in sheet.tables:
            lines.append(f"*{table.caption}*")
            lines += [" | ".join(row) for row in (table.head, *table.rows)]
        lines += [f"![{figure.words}]({figure.name}.svg)" for figure in sheet.figures]
        lines += sheet.notes
    return "\n\n".join(lines)


def write_report(folder: Path, **_: Any) -> Path:
    (folder / "report.txt").write_text("a run\n", encoding="utf-8")
    return folder / "report.txt"
