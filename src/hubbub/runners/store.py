"""The run folder: what a run leaves on disk, and in which order.

    study.toml          what was asked for
    plan.json           what followed from it
    metrics.jsonl       one row per evaluation
    model.safetensors   the trained model
    report.html         for people

Metrics are appended as they come. The other files are written under another name and then moved
into place, so that none is ever half there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hubbub import learning
from hubbub.errors import UserError
from hubbub.plan import Plan
from hubbub.report import render


def fresh_folder(folder: Path, plan: Plan) -> Path:
    """Make the folder of a new run and put the study and the plan into it.

    Raises:
        UserError: it holds something already, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UserError(
                f"expected an empty or new folder for the run, got {folder} with files in it; "
                "choose another --out"
            )
        write_text(folder / "study.toml", plan.study.as_toml())
        write_text(folder / "plan.json", plan.json())
    except OSError as error:
        raise UserError(
            f"expected a folder that can be written, got {folder}: {error.strerror}; "
            "choose another --out"
        ) from None
    return folder


def append_metrics(folder: Path, row: Mapping[str, float]) -> None:
    """Add a row to the metrics, so that an interrupted run keeps what it knew."""
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(dict(row)) + "\n")


def write(
    folder: Path,
    plan: Plan,
    model: Any,
    metrics: Sequence[Mapping[str, float]],
    baseline: str | None,
    comparison: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Put the results of a finished run into its folder, beside the metrics."""
    header = {"study": plan.study.id.hex(), "kind": plan.study.model.kind}
    learning.save_model(folder / "model.safetensors", model, header)
    page = render(plan.as_json(), metrics, baseline=baseline, comparison=comparison or {})
    write_text(folder / "report.html", page)


def write_text(path: Path, text: str) -> None:
    """Write a file all at once or not at all."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
