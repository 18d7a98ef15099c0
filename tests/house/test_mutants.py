"""The list of mutants: each row is of a line that is there, and of tests that are."""

from __future__ import annotations

from pathlib import Path

from mutants.run import listed, staleness

ROOT = Path(__file__).parents[2]


def test_every_row_is_of_a_text_that_stands_once_in_its_file() -> None:
    assert [(row.rule, why) for row in listed() if (why := staleness(row))] == []


def test_every_row_names_tests_that_are_there() -> None:
    named = {name.partition("[")[0] for row in listed() for name in row.killed_by}
    parts = [name.partition("::") for name in named]
    assert [
        name
        for name, (file, _, test) in zip(named, parts, strict=True)
        if f"def {test.rpartition('::')[2]}(" not in (ROOT / file).read_text(encoding="utf-8")
    ] == []
