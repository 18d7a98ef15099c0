"""The contract of a source of records: its keys of a study, its cells, and what its errors say."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from hubbub.core.errors import HubbubError
from hubbub.core.study.cell_stream import CellStream
from hubbub.core.study.data import Data
from hubbub.core.study.source import ENTRY_POINTS, TableSource, sources
from hubbub.core.study.study import Study
from hubbub.testing.laws import check_keys, completing, hold, installed, opened_by, trying

_NOWHERE = "no-such-silo"
_TELLING = 4  # letters of a cell that no sentence has by chance


def check_source(
    source: TableSource | type[TableSource],
    data: Mapping[str, Any],
    folder: Path,
    cells: Mapping[str, Sequence[str]],
    *,
    party: str = "north",
) -> None:
    """Hold a source with cells, registered or not, to what a study and a silo rely on.

    The files in the folder are damaged while it is tried, and put back.

    Laws:
        1. Its keys of `[data]` are read, written and read again to the same study; missing keys,
           unknown ones and wrong types are refused by name. Reading a study opens nothing.
        2. It gives every column that the study declares, rows complete, in the same order whenever
           they are read where it says that they have one, and each cell as text, "" if missing.
        3. What cannot be read is refused by an error of hubbub; neither that nor what prints a
           stream shows a cell.

    Args:
        source: the class, or one of it.
        data: the table `[data]` of a study, without `source` where it is not registered.
        folder: the silo's own, with what the source reads.
        cells: that are there, by column: the texts of all rows, in order if they have one.
        party: the silo.

    Raises:
        AssertionError: it breaks a law; the sentence says which, and how to mend it.
    """
    with trying(source), ExitStack() as standing:
        source = source() if isinstance(source, type) else source
        name = standing.enter_context(installed(ENTRY_POINTS, source, sources()))
        content = {**data, "source": data.get("source", name)}
        study = _reads(source, content)
        with completing("a silo's cells are opened", "mend `stream`, or hand over its folder"):
            stream = source.stream(study.data, party, folder)
        _gives(stream, study.data, cells)
        _refuses(source, study.data, party, folder, cells)


def _study(data: Mapping[str, Any]) -> Study:
    """A study of these records that asks for how they are spread."""
    numeric = [key for key, column in data["columns"].items() if "low" in column]
    asked: dict[str, Any] = {"kind": "table"}
    if numeric:
        asked = {"kind": "histogram", "column": numeric[0], "bins": 2}
    return Study.from_table(
        {
            "study": {"name": "checked"},
            "parties": {"names": ["north", "south", "east"], "colluders": 1},
            "data": {**data},
            "privacy": {"epsilon": 8.0, "delta": 1e-5},
            "statistics": {"spread": asked},
        }
    )


def _reads(source: TableSource, data: dict[str, Any]) -> Study:
    with completing("a study of the source is read", "mend `read`, or the table of the suite"):
        study = _study(data)
    with completing("what the source is asked is written as it is read", "mend `written`"):
        again = Study.parse(study.changed(name=study.name).as_toml())
    hold(
        "a study has one id, however what its source is asked is written",
        study.id == again.id == _study(dict(reversed(data.items()))).id,
        "several",
        "let `written` give every key as `read` reads it",
    )
    check_keys("data", data, _study, keys=source.own_keys())
    opened = opened_by(partial(_study, data))
    hold(
        "nothing is opened while a study is read",
        not opened,
        "; ".join(opened[:3]),
        "open what is named in `stream`, at the silo that has approved it",
    )
    return study


def _gives(stream: CellStream, data: Data, cells: Mapping[str, Sequence[str]]) -> None:
    """The cells that are there, the same whenever they are read."""
    first, second = (_rows(stream, cells) for _ in range(2))
    wanted = list(zip(*cells.values(), strict=True))
    declared = {column.name for column in data.columns} | {*filter(None, [data.patient])}
    hold(
        "the suite was handed every column that the study declares",
        declared <= cells.keys(),
        f"none of {', '.join(sorted(declared - cells.keys()))}",
        "add their cells",
    )
    if not stream.ordered:  # as a database gives them
        first, second, wanted = (sorted(rows) for rows in (first, second, wanted))
    hold(
        "a source gives the same cells whenever they are read",
        first == second,
        f"{len(second)} rows after {len(first)}, or others",
        "read from the beginning in `pieces`; `ordered` says that rows have a place",
    )
    hold(
        "a source gives the cells that are there",
        first == wanted,
        f"{len(first)} of {len(wanted)} rows, {(Counter(first) & Counter(wanted)).total()} alike",
        "give each value's text by `texts_of`, in the order of the rows",
    )


def _rows(stream: CellStream, cells: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for piece in stream.pieces():
        hold(
            "each piece has the columns of the study",
            cells.keys() <= piece.keys(),
            f"the columns {', '.join(piece)}",
            "give every column in every piece",
        )
        hold(
            "each piece has rows with a text in every cell",
            len({len(piece[name]) for name in cells}) == 1
            and all(isinstance(text, str) for name in cells for text in piece[name]),
            "columns of other lengths, or values that are no text",
            'give as many texts in each column, "" for a missing cell',
        )
        rows += zip(*(piece[name] for name in cells), strict=True)
    return rows


def _refuses(
    source: TableSource, data: Data, party: str, folder: Path, cells: Mapping[str, Sequence[str]]
) -> None:
    """An error of hubbub, and no cell in it, whatever is missing or damaged."""
    telling = {text for text in itertools.chain(*cells.values()) if len(text) >= _TELLING}

    def check(who: str, why: str) -> None:
        try:
            stream = source.stream(data, who, folder)
            shown = f"{stream!r} {stream.origin}"
            for _ in stream.pieces():
                pass  # what is damaged may still be rows
        except HubbubError as error:
            shown = f"{error} {error!r} {error.__cause__!r}"
            shown += "" if error.__suppress_context__ else f" {error.__context__!r}"
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the wrong one)
            raise AssertionError(
                f"expected that {why} is refused by a DataError or a UserError, found "
                f"{type(error).__name__}; catch what a reader raises, and raise a DataError that "
                "names the place `from None`"
            ) from None
        told = sorted(text for text in telling if text in shown)
        hold(
            "no cell is in a sentence, or in what prints a stream",
            not told,
            f"{told[0] if told else ''!r} where {why} was refused",
            "name the place, column and row, and raise `from None`",
        )

    check(party, "what is there")
    check(_NOWHERE, "a silo of which nothing is there")
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        content = path.read_bytes()
        middle = len(content) // 2
        fewer = b"\n".join(content.split(b"\n")[:-1])
        headless = content.partition(b"\n")[2]
        no_text = (b"\xff\x00" + content, content[:-3] + b'{"\xfe')
        for damaged in (content[:middle], fewer, headless, *no_text):
            path.write_bytes(damaged)
            try:
                check(party, f"a damaged {path.name}")
            finally:
                path.write_bytes(content)
