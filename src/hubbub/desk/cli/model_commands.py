"""`predict` and `export`: what a trained model is good for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubbub.core.disk import write_text
from hubbub.core.errors import UserError
from hubbub.core.tabular.cells import csv_text
from hubbub.desk.cli.terminal import TRUST_WORDS, add_command, answer, emit, writing


def add_commands(commands: Any) -> None:
    """Register the commands."""
    words = "score new rows with the model of a finished run"
    scored = add_command(commands, "predict", words, _predict)
    scored.add_argument("run", type=Path, help="folder of the run, or of a silo's model")
    scored.add_argument("table", type=Path, help="CSV or Parquet file with the study's columns")
    scored.add_argument("--trust-code", action="store_true", help=TRUST_WORDS)
    scored.add_argument("--out", type=Path, help="CSV file for the scores; stdout if left out")
    words = "write the model of a finished run for other programs"
    exported = add_command(commands, "export", words, _export)
    exported.add_argument("run", type=Path, help="folder of the run, or of a silo's model")
    exported.add_argument("--trust-code", action="store_true", help=TRUST_WORDS)
    exported.add_argument("--onnx", type=Path, required=True, help="ONNX file to write")


def _predict(options: argparse.Namespace) -> int:
    from hubbub.learning.runs.trained_model import load, predictions

    if options.out is not None and options.out.resolve() == options.table.resolve():
        raise UserError(
            f"expected another file for the scores than their table, got {options.out} for both; "
            "name another with --out"
        )
    trained = load(options.run, trust_code=options.trust_code)
    columns = predictions(trained, options.table)
    if options.out is not None:
        with writing(options.out):
            write_text(options.out, _csv(columns))
    content = {"rows": len(columns["row"]), "classes": trained.classes, "columns": columns}
    if options.json:
        emit(content if options.out is None else {**content, "out": str(options.out)})
    elif options.out is None:
        sys.stdout.write(_csv(columns))
    else:
        answer(options, {}, f"{len(columns['row'])} rows scored; written to {options.out}")
    return 0


def _csv(columns: Mapping[str, list[Any]]) -> str:
    """A CSV text with a header."""
    return csv_text([list(columns), *zip(*columns.values(), strict=True)])


def _export(options: argparse.Namespace) -> int:
    from hubbub.learning.runs.trained_model import load

    if options.onnx.suffix != ".onnx":
        raise UserError(f"expected a file that ends in .onnx, got {options.onnx}; rename it")
    trained = load(options.run, trust_code=options.trust_code)
    with writing(options.onnx):
        trained.to_onnx(options.onnx)
    answer(
        options,
        {"onnx": str(options.onnx), "classes": trained.classes, "shape": trained.shape},
        f"written to {options.onnx}: features of shape {('n', *trained.shape)}, as the study "
        "encodes them, give the scores of " + (" and ".join(trained.classes)),
    )
    return 0
