"""`--epsilon` and `--set`: a study with other values, for a trial that changes no file.

A trial is another study, under another name and id. Run, it is charged like any other.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import Any

from hubbub.core.disk import read_text, toml_table
from hubbub.core.errors import UserError
from hubbub.core.settings import shown
from hubbub.core.study.study import Study

_LONGEST = 200  # letters of a study's name


def add_trial_options(parser: argparse.ArgumentParser) -> None:
    """Register the options."""
    parser.add_argument("--epsilon", metavar="EPSILON", help="in place of the study's, for a trial")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another value for a trial, such as training.steps=100; may stand several times",
    )


def is_trial(options: argparse.Namespace) -> bool:
    """Whether another value was asked for."""
    return options.epsilon is not None or bool(options.set)


def load(path: Path, options: argparse.Namespace) -> Study:
    """The study in a file, or a trial of it with other values.

    Raises:
        UserError: what is set is no key and value.
        StudyError: the study cannot be read, or takes no such value.
    """
    study = Study.load(path)
    if not is_trial(options):
        return study
    table = toml_table(read_text(path).removeprefix("\ufeff"))
    asked = [] if options.epsilon is None else [f"privacy.epsilon={options.epsilon}"]
    asked += options.set
    for one in asked:
        _put(table, one)
    if options.epsilon is not None:
        _drop_smaller_cap(table["privacy"])
    if table["study"]["name"] == study.name:
        said = ", ".join(one.replace("=", " = ", 1) for one in asked)
        table["study"]["name"] = f"{study.name}, trial of {said}"[:_LONGEST]
    return Study.from_table(table)


def _drop_smaller_cap(privacy: dict[str, Any]) -> None:
    """Forget a cap that is below epsilon: a proposal for later; what ledgers allow counts anyway.

    Raises:
        UserError: epsilon is no number.
    """
    epsilon, cap = privacy["epsilon"], privacy.get("cap", 0)
    if not isinstance(epsilon, int | float):
        raise UserError(
            f"expected a number after --epsilon, got {shown(epsilon)}; write for example 0.5"
        )
    if isinstance(cap, int | float) and cap < epsilon:
        privacy.pop("cap", None)


def words(study: Study, path: Path) -> str:
    """What people are told of a trial."""
    return (
        f"a trial, “{study.name}”: {path} is as it was; what a run of it costs is charged, and the "
        "charges add up"
    )


def _put(table: dict[str, Any], asked: str) -> None:
    """Put a value where a dotted key leads."""
    key, sign, text = asked.partition("=")
    *above, last = (part.strip() for part in key.split("."))
    if not sign or not above or not all((*above, last)):
        raise UserError(
            f"expected --set KEY=VALUE with a table's key, such as training.steps=100, got "
            f"{shown(asked)}; write it so"
        )
    inner = table
    for part in above:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UserError(
                f"expected --set to name a key of a table, got {shown(key)}, and {part} is none; "
                "set the whole of it"
            )
    inner[last] = _value(text.strip())


def _value(text: str) -> Any:
    """A value as a study's file has it; a text may stand without its quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
