"""Sources keep the contract that one from outside keeps; broken ones do not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.house.outside import jsonlines
from tests.house.outside.jsonlines import JsonLines
from tests.site.sql.databases import database

from hubbub.core.errors import DataError
from hubbub.core.settings import Section
from hubbub.core.study.cell_stream import CellStream
from hubbub.core.study.data import Data
from hubbub.core.study.source import sources
from hubbub.site.sql.sql_keys import SqlSource
from hubbub.testing import check_source

COLUMNS = {"age": {"low": 20, "high": 100}, "ward": {"categories": ["surgery", "nephrology"]}}
DATA: dict[str, Any] = {"patient": "who", "most_per_patient": 1, "columns": COLUMNS}
LINES = {**DATA, "lines": "{name}.jsonl"}
CELLS = {
    "who": [f"patient-{k}" for k in range(20)],
    "age": ["" if k == 7 else f"{30 + k}.125" for k in range(20)],
    "ward": ["surgery", "nephrology"] * 10,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [dict(zip(CELLS, row, strict=True)) for row in zip(*CELLS.values(), strict=True)]
    (tmp_path / "north.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return tmp_path


def test_a_source_from_outside_keeps_the_contract_and_is_forgotten_again(folder: Path) -> None:
    check_source(JsonLines, LINES, folder, CELLS)
    assert "checked" not in sources()


def test_a_database_keeps_the_contract(tmp_path: Path) -> None:
    with database(tmp_path, "duckdb") as opened:
        opened.execute("CREATE TABLE visits (who VARCHAR, age DOUBLE, ward VARCHAR)")
        rows = [[cell or None for cell in row] for row in zip(*CELLS.values(), strict=True)]
        opened.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows)
    query = {"query": "SELECT who, age, ward FROM visits", "tables": {"visits": "who"}}
    check_source(SqlSource, {**DATA, **query}, tmp_path, CELLS)


class Unread(JsonLines):
    def read(self, section: Section) -> Any:
        return jsonlines.Lines(lines="{name}.jsonl")


class Unwritten(JsonLines):
    def written(self, request: Any) -> dict[str, Any]:
        return {}


class Curious(JsonLines):
    def read(self, section: Section) -> Any:
        list(Path().iterdir())
        return super().read(section)


class Scanning(JsonLines):
    def read(self, section: Section) -> Any:
        with os.scandir() as there:
            list(there)
        return super().read(section)


class Changed(JsonLines):
    """Other pieces than are there."""

    def piece(self, cells: dict[str, list[Any]]) -> dict[str, Any]:
        return cells

    def stream(self, data: Data, party: str, folder: Path) -> CellStream:
        sound = super().stream(data, party, folder)

        def pieces() -> Iterator[Any]:
            for cells in sound.pieces():
                yield self.piece({name: list(texts) for name, texts in cells.items()})

        return replace(sound, pieces=pieces)


class Lacking(Changed):
    def piece(self, cells: dict[str, list[Any]]) -> dict[str, Any]:
        return {"who": cells["who"], "age": cells["age"]}


class Ragged(Changed):
    def piece(self, cells: dict[str, list[Any]]) -> dict[str, Any]:
        return {**cells, "age": cells["age"][1:]}


class Untexted(Changed):
    def piece(self, cells: dict[str, list[Any]]) -> dict[str, Any]:
        return {**cells, "age": [text or None for text in cells["age"]]}


class Turned(Changed):
    def piece(self, cells: dict[str, list[Any]]) -> dict[str, Any]:
        return {name: texts[::-1] for name, texts in cells.items()}


class Fading(Changed):
    """Gives fewer rows whenever they are read."""

    read_before = 0

    def piece(self, cells: dict[str, list[Any]]) -> dict[str, Any]:
        type(self).read_before += 1
        return {name: texts[self.read_before :] for name, texts in cells.items()}


class Raising(JsonLines):
    """Lets its reader's own error out."""

    def stream(self, data: Data, party: str, folder: Path) -> CellStream:
        path = folder / data.request.lines.replace("{name}", party)

        def pieces() -> Iterator[Any]:
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            yield {name: [row[name] for row in rows] for name in CELLS}

        return CellStream(origin=path.name, pieces=pieces, ordered=True)


class Quoting(JsonLines):
    def stream(self, data: Data, party: str, folder: Path) -> CellStream:
        sound = super().stream(data, party, folder)

        def pieces() -> Iterator[Any]:
            for cells in sound.pieces():
                if len(cells["who"]) < 20:
                    raise DataError(
                        f"expected 20 rows in {sound.origin}, the last is {cells['who']}"
                    )
                yield cells

        return replace(sound, pieces=pieces)


class Headed(Quoting):
    """Quotes the last cell where a file does not begin as it should."""

    def stream(self, data: Data, party: str, folder: Path) -> CellStream:
        sound = JsonLines().stream(data, party, folder)

        def pieces() -> Iterator[Any]:
            for cells in sound.pieces():
                if cells["who"][0] != "patient-0":
                    raise DataError(f"expected another head, the last row is {cells['who'][-1]}")
                yield cells

        return replace(sound, pieces=pieces)


class Bursting(Changed):
    def piece(self, cells: dict[str, list[Any]]) -> dict[str, Any]:
        raise ZeroDivisionError


class Telling(JsonLines):
    def stream(self, data: Data, party: str, folder: Path) -> CellStream:
        sound = super().stream(data, party, folder)
        return replace(sound, origin="rows from patient-0 on")


BROKEN: dict[type[JsonLines], str] = {
    Unread: r"a wrong value of data\.lines is refused",
    Unwritten: "written as it is read",
    Curious: "nothing is opened while a study is read",
    Scanning: "nothing is opened while a study is read",
    Lacking: "each piece has the columns",
    Ragged: "rows with a text in every cell",
    Untexted: "rows with a text in every cell",
    Turned: "gives the cells that are there",
    Fading: "the same cells whenever they are read",
    Raising: "refused by a DataError or a UserError",
    Quoting: "no cell is in a sentence",
    Headed: "no cell is in a sentence",
    Bursting: "nothing of Bursting raises while it is tried, found ZeroDivisionError",
    Telling: "no cell is in a sentence",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_source_that_breaks_a_law_is_refused_by_that_law(
    kind: type[JsonLines], folder: Path
) -> None:
    with pytest.raises(AssertionError, match=BROKEN[kind]):
        check_source(kind, LINES, folder, CELLS)
