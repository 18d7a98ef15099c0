"""The table `[synthetic]`: which columns synthetic records have, and how they are counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from hubbub.core.errors import StudyError
from hubbub.core.number_format import offered
from hubbub.core.settings import (
    Section,
    canonical,
    key_of,
    later,
    number,
    read_key,
    section_of,
    settings,
    table,
    texts,
    whole,
)
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels, cuts_from
from hubbub.estimation.row_rules import RowRules
from hubbub.estimation.synthesis.design import CodedColumn

_MOST_COLUMNS, _MOST_LEVELS = 60, 32
_BINS = 8


@settings
class AskedSynthesis:
    """Synthetic records: which columns, in which levels, by how many sums."""

    columns: Annotated[
        tuple[CodedColumn, ...],
        texts("Columns of synthetic records; all columns if left out.", default="none"),
    ]
    targets: Annotated[
        tuple[str, ...],
        texts(
            "Columns of most interest, such as the outcome, or time and event: every "
            "other column is counted with each of them.",
            "up to 3 of these columns",
        ),
    ] = ()
    bins: Annotated[
        int,
        whole(2, _MOST_LEVELS - 1, "How many ranges of equal width a numeric column has."),
    ] = _BINS
    cuts: Annotated[
        tuple[tuple[str, tuple[float, ...]], ...],
        table(
            "Break points of numeric columns instead, from the protocol and not from records.",
            "table of rising lists",
            default="none",
        ),
    ] = ()
    sums: Annotated[
        int,
        whole(
            2,
            16,
            "The number of sums: the first one shows what to measure, the others measure "
            "it, with equal parts of the budget. With 3 or more, one may be lost.",
        ),
    ] = 3
    follows: Annotated[
        tuple[tuple[str, str], ...],
        later(
            table(
                "Columns that are computed from others, each by an "
                '[expression](synthetic.md#rules): `total = "first + second"`.',
                "table of expressions",
                default="none",
            )
        ),
    ] = ()
    possible: Annotated[
        tuple[str, ...],
        later(
            texts(
                "What is true in every record, as [expressions](synthetic.md#rules); "
                'records that break one are drawn again: `["age - years_married >= '
                '14"]`.',
                "list of expressions",
            )
        ),
    ] = ()
    records: Annotated[
        int,
        whole(
            0,
            1_000_000,
            "The number of synthetic records to draw; 0: about as many as there are units.",
        ),
    ] = 0
    epsilon: Annotated[
        float,
        number(
            0.001,
            50,
            "The most these may spend of the study's epsilon beside a training or "
            "statistics; required there.",
            default="either",
        ),
    ] = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def rules(self) -> RowRules:
        """What every record keeps."""
        columns = {one.name: one.levels.column for one in self.columns}
        return RowRules(columns=columns, follows=self.follows, possible=self.possible)

    def to_table(self) -> dict[str, Any]:
        """The table that it is read from."""
        part: dict[str, Any] = {
            "columns": list(self.names),
            "bins": self.bins,
            "sums": self.sums,
            "records": self.records,
        }
        part |= {"targets": list(self.targets)} if self.targets else {}
        part |= {"cuts": {name: list(cuts) for name, cuts in self.cuts}} if self.cuts else {}
        part |= {"follows": dict(self.follows)} if self.follows else {}
        part |= {"possible": list(self.possible)} if self.possible else {}
        return part | ({"epsilon": self.epsilon} if self.epsilon else {})

    def canonical(self) -> dict[str, Any]:
        """What all parties agree on: every setting written out."""
        asked = {"targets": [], "cuts": {}, "epsilon": 0.0} | self.to_table()
        asked |= {"follows": list(map(list, self.follows))} if self.follows else {}  # in this order
        return {name: canonical(value) for name, value in asked.items()}


def synthesis_from(
    table: Mapping[str, Any], columns: Mapping[str, Column], *, alone: bool
) -> AskedSynthesis:
    """What the table `[synthetic]` asks for, of these columns.

    Args:
        table: as `tomllib` gives it.
        alone: whether nothing else is asked, so that it has all of epsilon.

    Raises:
        StudyError: it is none, or not of these columns.
    """
    section = section_of(AskedSynthesis, "synthetic", table)
    names = _names(section, columns)
    targets = section.texts("targets", ())
    if len(targets) > 3 or len(set(targets)) < len(targets) or not set(targets) <= set(names):
        raise section.refusal("targets", f"up to 3 of {offered(names)}", "name those")
    if alone:
        section.absent(
            "epsilon", "where nothing else is asked: synthetic records then have all of the study's"
        )
    bins = read_key(AskedSynthesis, section, "bins")
    cuts = _cuts(section, names, columns)
    asked = AskedSynthesis(
        columns=tuple(_coded(columns[name], cuts.get(name), bins) for name in names),
        targets=targets,
        bins=bins,
        cuts=tuple(cuts.items()),
        sums=read_key(AskedSynthesis, section, "sums"),
        follows=_follows(section, names),
        possible=section.texts("possible", ()),
        records=read_key(AskedSynthesis, section, "records"),
        epsilon=0.0 if alone else read_key(AskedSynthesis, section, "epsilon", required=True),
    )
    _ = asked.rules
    return asked


def _follows(section: Section, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Expressions by column."""
    stated = section.table("follows") if "follows" in section else {}
    if not all(name in names and isinstance(text, str) for name, text in stated.items()):
        raise section.refusal(
            "follows", f"expressions for some of {offered(names)}", "correct the table"
        )
    return tuple(stated.items())


def _names(section: Section, columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Which columns, each once."""
    names = section.texts("columns", tuple(columns))
    if not set(names) <= set(columns) or len(set(names)) < len(names):
        raise section.refusal("columns", f"some of {offered(columns)}", "name those, each once")
    if not 2 <= len(names) <= _MOST_COLUMNS:
        raise section.refusal("columns", f"2 to {_MOST_COLUMNS} columns", "name so many")
    many = [name for name in names if len(columns[name].categories) >= _MOST_LEVELS]
    if many:
        raise StudyError(
            f"expected columns of fewer than {_MOST_LEVELS} categories in [synthetic], got "
            f"{many[0]}; leave it out of synthetic.columns, or declare fewer, with other = "
        )
    return names


def _cuts(
    section: Section, names: tuple[str, ...], columns: Mapping[str, Column]
) -> dict[str, tuple[float, ...]]:
    """Break points by column."""
    stated = section.table("cuts") if "cuts" in section else {}
    numeric = [name for name in names if not columns[name].categories]
    if not set(stated) <= set(numeric):
        raise section.refusal("cuts", f"some of {offered(numeric)}", "name numeric columns")
    return {
        name: cuts_from(
            f"{section.path('cuts')}.{key_of(name)}", cuts, *columns[name].bounds, _MOST_LEVELS - 2
        )
        for name, cuts in stated.items()
    }


def _coded(column: Column, cuts: tuple[float, ...] | None, bins: int) -> CodedColumn:
    """A column in its levels."""
    if not column.categories:
        cuts = column.even_cuts(bins) if cuts is None else column.cuts_between(cuts)
    levels = Levels(column=column, cuts=cuts or ())
    return CodedColumn(levels=levels, complete=column.complete)
