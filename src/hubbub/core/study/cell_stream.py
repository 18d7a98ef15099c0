"""Cells that come piece by piece: what every source gives that may be larger than memory.

Beside it stand what every site has: tables in parts, and its `mapping.toml`, by which its columns
become the study's, row by row, at the site alone (docs/howto/mapping.md). What a cell becomes
follows from that cell and this file alone, so a person's rows stay that person's (docs/privacy.md
P31). A cell that does not fit is left as it is, for the study to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from hubbub.core.disk import open_ordinary, read_text, toml_table
from hubbub.core.errors import DataError, UserError, with_extra
from hubbub.core.settings import Section
from hubbub.core.tabular.cells import canonical, cells_of, is_in_proportion, number_in, text_of
from hubbub.core.tabular.column import Column

Cells = Mapping[str, Sequence[str]]
FILE = "mapping.toml"
_KEYS = ("from", "decimal", "factor", "offset", "spellings", "date")
_ENDS = (".parquet", ".arrow", ".feather")
_ROWS = 20_000  # at once
_COMMA_FIRST = str.maketrans(",.", ".,")


@dataclass(frozen=True, kw_only=True)
class CellStream:
    """One silo's cells, piece by piece.

    Args:
        origin: what sentences call it.
        pieces: reads them from the beginning: by column the texts of some rows, "" for a gap.
        ordered: whether rows have an order that is theirs, as lines of a file do.
    """

    origin: str
    pieces: Callable[[], Iterator[Cells]] = field(repr=False)
    ordered: bool


def texts_of(values: Sequence[object]) -> list[str]:
    """The texts of a column's values, alike for all engines: truth values are 1 and 0.

    Each from its own value alone: values that Python holds equal, such as 0.0 and -0.0, may be
    several people's.
    """
    return [str(int(value)) if isinstance(value, bool) else text_of(value) for value in values]


def parts_stream(folder: Path) -> CellStream:
    """The rows of all Parquet or Arrow files of a folder, in the order of their names.

    DataError: there are none, or pyarrow is not installed; reading them, that one is damaged or has
    other columns than the first.
    """
    paths = sorted(path for path in folder.glob("*") if path.suffix.lower() in _ENDS)
    if not paths:
        raise DataError(
            f"expected parts that end in {', '.join(_ENDS)} in {folder.resolve()}, found none; put "
            "them there"
        )
    return CellStream(
        origin=folder.name, pieces=partial(_part_pieces, paths, folder.name), ordered=True
    )


def _part_pieces(paths: list[Path], origin: str) -> Iterator[Cells]:
    header: set[str] = set()
    for path in paths:
        for cells in _part(path):
            header = header or set(cells)
            if set(cells) != header:
                raise DataError(
                    f"expected the same columns in all parts of {origin}, found others in "
                    f"{path.name}; write it anew"
                )
            yield cells


def _part(path: Path) -> Iterator[Cells]:
    """The pieces of one file; whatever its reader says may quote a cell, and is not passed on."""
    reading = _reader(path)
    with suppress(Exception), open_ordinary(path) as file:
        yield from reading(file)
        return
    raise DataError(
        f"expected a readable part {path.name}, found it damaged or too densely packed; write it "
        "anew"
    )


def _reader(path: Path) -> Callable[[Any], Iterator[Cells]]:
    try:
        import pyarrow.ipc as ipc
        import pyarrow.parquet as parquet
    except ImportError:
        raise DataError(
            f"expected pyarrow to read {path.name}, found that it is not installed; "
            f"{with_extra('parquet')}"
        ) from None

    def parquet_cells(file: Any) -> Iterator[Cells]:
        size = file.seek(0, 2)
        opened = parquet.ParquetFile(file, thrift_string_size_limit=size + 1)
        if not is_in_proportion(opened.metadata, len(opened.schema_arrow.names), size):
            raise ValueError(path.name)
        for batch in opened.iter_batches(_ROWS, use_threads=False):
            yield cells_of(batch)

    def arrow_cells(file: Any) -> Iterator[Cells]:
        opened = ipc.open_file(file)
        for place in range(opened.num_record_batches):
            batch = opened.get_batch(place)
            for start in range(0, batch.num_rows, _ROWS):
                yield cells_of(batch.slice(start, _ROWS))

    return parquet_cells if path.suffix.lower() == ".parquet" else arrow_cells


@dataclass(frozen=True, kw_only=True)
class ColumnMapping:
    """How one column of the study comes from a site's."""

    source: str  # the site's own name of it
    decimal: str = "."  # the site's decimal sign
    factor: float = 1.0  # a number becomes number * factor + offset
    offset: float = 0.0
    spellings: tuple[tuple[str, str], ...] = ()  # the site's, and the study's
    # How the site writes dates, hours too, as `strptime` reads them; empty: it has none
    date: str = ""
    gaps: frozenset[str] = frozenset()  # the study's spellings that mean missing, canonical

    def cell(self, text: str) -> str:
        """What a cell becomes.

        >>> glucose = ColumnMapping(source="g", decimal=",", factor=18.0, gaps=frozenset({"-9"}))
        >>> glucose.cell("5,5"), glucose.cell("-9,0")
        ('99.0', '-9.0')
        """
        if not text:
            return text
        spellings = {canonical(of_site): of_study for of_site, of_study in self.spellings}
        if (spelled := spellings.get(canonical(text))) is not None:
            return spelled
        if self.date:
            with suppress(ValueError):
                moment = datetime.strptime(text, self.date)  # noqa: DTZ007 (a zone where it has one)
                return moment.isoformat().removesuffix("T00:00:00")
        # Both signs change places: 1.234 is a thousand there, and must not become one and a bit.
        plain = text.translate(_COMMA_FIRST) if self.decimal == "," else text
        number = number_in(plain)
        if number is None:  # for the study to refuse, unless it would take it for another number
            return text if number_in(text) is None else plain
        as_is = (self.factor, self.offset) == (1.0, 0.0) or canonical(plain) in self.gaps
        return plain if as_is else repr(number * self.factor + self.offset)


SiteMapping = Mapping[str, ColumnMapping]


def mapping_of(
    party: str, folder: Path, patient: str, columns: Sequence[Column] = ()
) -> SiteMapping:
    """A silo's mapping; nothing where there is none. A patient's keys stay as they are (P21).

    So do codes that the study's columns count as missing, whatever a site's unit.

    UserError: the file cannot be read as one, or changes the keys of patients.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    table = None
    with suppress(OSError, ValueError):
        table = toml_table(read_text(path))
    site = (table or {}).get(party, {})
    tables = site.values() if isinstance(site, dict) else [None]
    if table is None or not all(isinstance(column, dict) for column in tables):
        raise UserError(
            f"expected a table for each silo and column in {path}, such as [{party}.age], found "
            "something else; fix it"
        )
    mapping = {
        name: _column(Section(f"{party}.{name}", column, _KEYS)) for name, column in site.items()
    }
    if patient in mapping and mapping[patient] != ColumnMapping(source=mapping[patient].source):
        raise UserError(
            f"expected [{party}.{patient}] in {path} to have `from` alone, found more, which may "
            "make one patient of several; remove it, and mend keys at the source"
        )
    gaps = {column.name: frozenset(map(canonical, column.missing)) for column in columns}
    return {
        name: replace(column, gaps=gaps.get(name, column.gaps)) for name, column in mapping.items()
    }


def mapped(cells: Cells, mapping: SiteMapping) -> Cells:
    """Cells as the study names and spells them; a column that is not there is left out."""
    mapped_cells = dict(cells)
    for name, column in mapping.items():
        # A column of the study's name that is not the mapped one has another unit or meaning.
        mapped_cells.pop(name, None)
        if column.source in cells:
            texts: Sequence[str] = cells[column.source]
            cell_of = {text: column.cell(text) for text in set(texts)}
            mapped_cells[name] = [cell_of[text] for text in texts]
    return mapped_cells


def mapped_stream(stream: CellStream, mapping: SiteMapping) -> CellStream:
    """The same, piece by piece."""
    if not mapping:
        return stream
    return replace(stream, pieces=lambda: (mapped(cells, mapping) for cells in stream.pieces()))


def sources_of(names: Sequence[str], mapping: SiteMapping) -> list[str]:
    """The site's names of some columns of the study."""
    return [mapping[name].source if name in mapping else name for name in names]


def _column(section: Section) -> ColumnMapping:
    spellings = section.table("spellings") if "spellings" in section else {}
    if not all(isinstance(spelling, str) for spelling in spellings.values()):
        raise section.refusal("spellings", "a table of texts", 'write { weiblich = "F" }')
    if len(set(map(canonical, spellings))) < len(spellings):
        raise section.refusal("spellings", "a table with each spelling once", "1 and 1.0 are one")
    date = section.text("date", "")
    if "%Z" in date.replace("%%", ""):
        # Python takes the name of a zone, if the machine knows it, and drops what it says.
        wanted, remedy = "a form without %Z", "write %z for +0200, or let the source write UTC"
        raise section.refusal("date", wanted, remedy)
    return ColumnMapping(
        source=section.text("from", section.name.partition(".")[2]),
        decimal=section.text("decimal", ".", options=(".", ",")),
        factor=section.number("factor", 1.0, least=-1e9, most=1e9),
        offset=section.number("offset", 0.0, least=-1e9, most=1e9),
        spellings=tuple(spellings.items()),
        date=date,
    )
