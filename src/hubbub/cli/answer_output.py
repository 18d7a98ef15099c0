"""What the terminal shows of answered statistics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubbub.cli.output import say, table
from hubbub.disk import json_value, read_bytes
from hubbub.report import curves_of, table_of, test_words


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
