"""A site's mapping: how its columns become the study's, row by row, at the site alone.

`mapping.toml` lies beside the records, or beside `sources.toml`, and is never sent. It has a table
for each silo and column of the study:

    [north.glucose]
    from = "Glukose (mmol/l)"          # the site's own name of it
    decimal = ","
    factor = 18.0156                   # then plus `offset`
    [north.sex]
    spellings = { weiblich = "F", "männlich" = "M" }
    [north.came]
    date = "%d.%m.%Y"                  # becomes 2024-05-31

What a cell becomes follows from that cell and this file alone, so a person's rows stay that
person's (docs/privacy.md P31). A cell that does not fit is left as it is, for the study to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from hubbub.core.disk import read_text, toml_table
from hubbub.core.errors import UserError
from hubbub.core.section import Section
from hubbub.core.study.extracts.cell_stream import Cells, CellStream
from hubbub.core.tabular.cell_rule import canonical, number_in

FILE = "mapping.toml"
_KEYS = ("from", "decimal", "factor", "offset", "spellings", "date")


@dataclass(frozen=True, kw_only=True)
class ColumnMapping:
    """How one column of the study comes from a site's.

    Args:
        source: the site's own name of it.
        decimal: the site's decimal sign.
        factor, offset: a number becomes number * factor + offset.
        spellings: by the site's spelling the study's.
        date: how the site writes dates, as `strptime` reads them; empty: it has none.
    """

    source: str
    decimal: str = "."
    factor: float = 1.0
    offset: float = 0.0
    spellings: tuple[tuple[str, str], ...] = ()
    date: str = ""

    def cell(self, text: str) -> str:
        """What a cell becomes.

        >>> ColumnMapping(source="g", decimal=",", factor=18.0).cell("5,5")
        '99.0'
        """
        if not text:
            return text
        known = {canonical(one): other for one, other in self.spellings}
        if (spelled := known.get(canonical(text))) is not None:
            return spelled
        if self.date:
            with suppress(ValueError):
                return datetime.strptime(text, self.date).date().isoformat()  # noqa: DTZ007 (a day)
        plain = text.replace(",", ".") if self.decimal == "," else text
        if (self.factor, self.offset) == (1.0, 0.0):
            return plain if number_in(plain) is not None else text
        number = number_in(plain)
        return text if number is None else repr(number * self.factor + self.offset)


SiteMapping = Mapping[str, ColumnMapping]


def mapping_of(party: str, folder: Path, patient: str) -> SiteMapping:
    """A silo's mapping; nothing where there is none.

    Args:
        party: the silo.
        folder: with the file.
        patient: the study's column of whose a row is, which keeps its keys (docs/privacy.md P21).

    Raises:
        UserError: the file cannot be read as one, or changes the keys of patients.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    table = None
    with suppress(OSError, ValueError):
        table = toml_table(read_text(path))
    own = (table or {}).get(party, {})
    if table is None or not isinstance(own, dict) or not all(map(_is_table, own.values())):
        raise UserError(
            f"expected a table for each silo and column in {path}, such as [{party}.age], found "
            "something else; fix it"
        )
    found = {name: _column(Section(f"{party}.{name}", one, _KEYS)) for name, one in own.items()}
    if patient in found and found[patient] != ColumnMapping(source=found[patient].source):
        raise UserError(
            f"expected [{party}.{patient}] in {path} to have `from` alone, found more, which may "
            "make one patient of several; remove it, and mend keys at the source"
        )
    return found


def mapped(cells: Cells, mapping: SiteMapping) -> Cells:
    """Cells as the study names and spells them; a column that is not there is left out.

    Args:
        cells: of the site.
        mapping: by the study's name of a column.
    """
    mapped_cells = dict(cells)
    for name, one in mapping.items():
        if one.source in cells:
            own: Sequence[str] = cells[one.source]
            known = {text: one.cell(text) for text in set(own)}
            mapped_cells[name] = [known[text] for text in own]
    return mapped_cells


def mapped_stream(stream: CellStream, mapping: SiteMapping) -> CellStream:
    """The same, piece by piece."""
    if not mapping:
        return stream
    return replace(stream, pieces=partial(_pieces, stream, mapping))


def _pieces(stream: CellStream, mapping: SiteMapping) -> Iterator[Cells]:
    return (mapped(cells, mapping) for cells in stream.pieces())


def sources_of(names: Sequence[str], mapping: SiteMapping) -> list[str]:
    """The site's names of some columns of the study."""
    return [mapping[name].source if name in mapping else name for name in names]


def _is_table(one: object) -> bool:
    return isinstance(one, dict)


def _column(section: Section) -> ColumnMapping:
    spellings = section.table("spellings") if "spellings" in section else {}
    if not all(isinstance(spelling, str) for spelling in spellings.values()):
        raise section.refusal("spellings", "a table of texts", 'write { weiblich = "F" }')
    return ColumnMapping(
        source=section.text("from", section.name.partition(".")[2]),
        decimal=section.text("decimal", ".", options=(".", ",")),
        factor=section.number("factor", 1.0, least=-1e9, most=1e9),
        offset=section.number("offset", 0.0, least=-1e9, most=1e9),
        spellings=tuple(spellings.items()),
        date=section.text("date", ""),
    )
