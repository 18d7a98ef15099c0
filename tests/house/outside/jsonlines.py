"""A source from outside the tree: cells from lines of JSON, one object for each row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from hubbub.core.errors import DataError
from hubbub.core.settings import later, settings, text
from hubbub.core.study.cell_stream import Cells, CellStream, texts_of
from hubbub.core.study.data import Data
from hubbub.core.study.source import TableSource


@settings
class Lines:
    """Where they are."""

    lines: Annotated[str, later(text("Each silo's file.", "path with `{name}`"))] = ""


class JsonLines(TableSource):
    """One file for each silo."""

    Settings = Lines

    def columns(self, data: Data) -> Sequence[str]:
        return (data.patient, *data.targets, *(column.name for column in data.columns))

    def stream(self, data: Data, party: str, folder: Path) -> CellStream:
        path = folder / data.request.lines.replace("{name}", party)
        pieces = partial(_pieces, path, self.columns(data))
        return CellStream(origin=path.name, pieces=pieces, ordered=True)


def _pieces(path: Path, columns: Sequence[str]) -> Iterator[Cells]:
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        cells = {name: texts_of([row.get(name) for row in rows]) for name in columns}
    except (OSError, ValueError, AttributeError):  # whose words may quote a cell
        raise DataError(f"expected lines of JSON in {path.name}, found others; mend it") from None
    yield cells
