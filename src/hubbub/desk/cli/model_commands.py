"""What a run's model is used for: `predict` and `export`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from hubbub.core.disk import write_text
from hubbub.core.errors import UserError
from hubbub.core.tabular.cells import csv_text
from hubbub.desk.cli.terminal import TRUST_CODE, add_command, answer, argument, emit, writing


def add_commands(commands: Any) -> None:
    """Register the commands."""
    model = argument("run", "folder of the run, or of a silo's model", Path)
    add_command(
        commands,
        "predict",
        "score new rows with the model of a finished run",
        _predict,
        model,
        argument("table", "CSV or Parquet file with the study's columns", Path),
        TRUST_CODE,
        argument("--out", "CSV file for the scores; default: standard output", Path),
    )
    words = "write the model of a finished run in a format for other programs"
    onnx = argument("--onnx", "ONNX file to write", Path, required=True)
    add_command(commands, "export", words, _export, model, TRUST_CODE, onnx)


def _predict(options: argparse.Namespace) -> int:
    from hubbub.learning.runs.trained_model import load, predictions

    out = options.out
    if out is not None and out.resolve() == options.table.resolve():
        raise UserError(
            f"expected different files for the scores and for their table, got {out} for "
            "both; name another with --out"
        )
    trained = load(options.run, trust_code=options.trust_code)
    columns = predictions(trained, options.table)
    text = csv_text([list(columns), *zip(*columns.values(), strict=True)])
    rows = len(columns["row"])
    content = {"rows": rows, "classes": trained.classes, "columns": columns}
    if out is not None:
        with writing(out):
            write_text(out, text)
        content["out"] = str(out)
        answer(options, content, f"{rows} rows scored; written to {out}")
    elif options.json:
        emit(content)
    else:
        sys.stdout.write(text)
    return 0


def _export(options: argparse.Namespace) -> int:
    from hubbub.learning.runs.trained_model import load

    if options.onnx.suffix != ".onnx":
        raise UserError(f"expected a file that ends in .onnx, got {options.onnx}; rename it")
    trained = load(options.run, trust_code=options.trust_code)
    with writing(options.onnx):
        trained.to_onnx(options.onnx)
    classes = trained.classes  # of two, the second has the score
    of = " and ".join(classes[len(classes) == 2 :]) or "the study's target"
    answer(
        options,
        {"onnx": str(options.onnx), "classes": classes, "shape": trained.shape},
        f"written to {options.onnx}: features of shape {('n', *trained.shape)}, as the study "
        f"encodes them, give the scores of {of}",
    )
    return 0
