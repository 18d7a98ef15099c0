"""What the terminal shows of statistics: what will be answered, and what was."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubbub.cli.output import say, table
from hubbub.disk import json_value, read_bytes
from hubbub.estimation import Expectation
from hubbub.planning import Plan, expected_answers
from hubbub.report import curves_of, table_of, test_words


def expected_to_dict(made: Plan) -> dict[str, Any]:
    """What is expected of each statistic, as plain values."""
    return {
        name: {
            "errors": dict(one.errors),
            "sentence": one.sentence,
            "answered": one.answered,
        }
        for name, one in expected_answers(made).items()
    }


def show_expected(made: Plan) -> None:
    """What will be said of each statistic, before any record is touched."""
    study = made.study
    if study.statistics is None:
        return
    expected = expected_answers(made)
    rows = [
        (one.name, one.kind, *_foreseen(expected.get(one.name)))
        for one in study.statistics.questions
    ]
    table("Statistics, before any record is touched", _HEAD, rows, texts=len(_HEAD))


_HEAD = ("statistic", "kind", "answered", "expected standard error, noise and chance together")


def _foreseen(expected: Expectation | None) -> tuple[str, str]:
    """Whether something will be answered, and how well."""
    if expected is None:
        return "not known", "state data.records, the public number of records"
    return ("yes" if expected.answered else "no"), expected.sentence


def read_answers(folder: Path) -> dict[str, Any]:
    """The answers in the folder of a run as plain values, by name; none if it asked nothing."""
    from hubbub.assurance import ANSWERS  # which takes long to import

    path = folder / ANSWERS
    return dict(json_value(read_bytes(path))["statistics"]) if path.is_file() else {}


def show_answers(statistics: Mapping[str, Mapping[str, Any]]) -> None:
    """All answers as tables, tests and notes.

    Args:
        statistics: answers as plain values, by name.
    """
    for name, answer in statistics.items():
        title = f"{name}: {answer['title']}"
        found = None if answer["refusal"] else table_of(answer)
        if found is not None:
            table(f"{title} ({100 * answer['confidence']:g} % intervals)", found.head, found.rows)
        elif answer["refusal"]:
            say(f"{title}: not answered: {answer['refusal']}")
        if (curves := curves_of(answer)) is not None:
            table(f"{title}, over time", curves.head, curves.rows)
        for one in answer["tests"]:
            say(f"{name}: {test_words(one)}")
        for note in answer["notes"]:
            say(f"{name}: {note}")
