"""What is to be said of a run, an answer or a model: once, for all forms in which it is read.

A `Sheet` holds sentences, tables and figures as values and knows no form. What it is about makes it
(`answers`, `run_result`, `paper.manuscript`; of values that a query releases, what is registered
under their name in `hubbub.renderers`); a renderer sets it: as lines or HTML here, on a terminal in
`cli.terminal`, in the files of a paper in `paper.formats`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass

from hubbub.desk.report import charts
from hubbub.desk.report.markup import Html, figure, table, tag

_LONG, _LONGER = 12, 40  # rows that are folded away, beside a figure and without one
_MANY = 3  # tables of a sheet; of more each is folded away


@dataclass(frozen=True)
class Table:
    """A table of text."""

    head: tuple[str, ...]  # names of the columns
    rows: tuple[tuple[str, ...], ...]  # as many cells each; the first says what the row is about
    caption: str = ""  # what it shows; without one, the sheet's title does
    name: str = ""  # for files
    words: tuple[int, ...] = (0,)  # places of columns, from 0, that hold words; others hold numbers
    # whether a figure of the sheet shows the same, so that a page leaves it out
    is_drawn: bool = False
    notes: tuple[str, ...] = ()  # sentences below it


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption."""

    chart: Html  # an `svg` element
    words: str  # what it shows, a sentence or two
    height: float  # of it; `charts.WIDTH` wide
    name: str = ""  # for files
    points: Table | None = None  # what it is drawn from


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What is to be said of one thing."""

    title: str  # what it is about
    name: str = ""  # what people called it
    # what follows, the first thing first; a full stop is the renderer's
    sentences: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()  # what else should be known, which the shortest forms leave out


@dataclass(frozen=True, kw_only=True)
class SheetOfModel:
    """What is to be said of a model's scores.

    Args:
        sheet: all of them.
        telling: the name and value of the first score, and a remark; empty where there is none.
        next_step: what to do with the model, or about it.
        methods: sentences for a paper; empty where there is no score.
    """

    sheet: Sheet
    telling: tuple[str, str, str] | tuple[()] = ()
    next_step: str
    methods: str = ""


def full(clause: str) -> str:
    """A clause as a sentence.

    >>> full("nobody knows"), full("Nobody knows.")
    ('Nobody knows.', 'Nobody knows.')
    """
    return f"{clause[:1].upper()}{clause[1:]}{'' if clause.endswith('.') else '.'}"


def lines_of(sheet: Sheet) -> list[str]:
    """The sheet as lines of text: title, sentences, and tables with columns below each other."""
    lines = [f"{sheet.name}: {sheet.title}" if sheet.name else sheet.title, *sheet.sentences]
    for part in sheet.tables:
        rows = [part.head, *part.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines


def table_html(shown: Table, caption: str = "") -> Html:
    """A table on a page."""
    numeric = [place for place in range(len(shown.head)) if place not in shown.words]
    return table(caption or shown.caption, shown.head, shown.rows, numeric=numeric)


def drawn(shown: Figure, caption: str = "") -> Html:
    """A figure on a page, which styles it; its points are folded away."""
    more = [_folded(shown.points, "The same in numbers")] if shown.points else []
    return figure(shown.chart, caption or shown.words, *more)


def picture(shown: Figure) -> Html:
    """A figure as a picture of its own, so that its style is not a notebook's."""
    file = b64encode(charts.alone(shown.chart, shown.height).encode()).decode()
    return tag("img", src=f"data:image/svg+xml;base64,{file}", alt=shown.words, width=charts.WIDTH)


def html_of(sheet: Sheet, figure_html: Callable[[Figure], Html] = drawn) -> list[Html]:
    """The sheet but for its title: sentences, figures, tables, of which long ones are folded."""
    parts = [tag("p", full(words)) for words in sheet.sentences]
    if sheet.figures:
        parts.append(tag("div", *map(figure_html, sheet.figures), class_="figures"))
    most = _LONG if sheet.figures else _LONGER
    for part in (part for part in sheet.tables if not part.is_drawn):
        is_long = len(sheet.tables) > _MANY or len(part.rows) > most
        parts.append(_folded(part, part.caption) if is_long else table_html(part))
    return parts + [tag("p", full(words)) for words in sheet.notes]


def _folded(shown: Table, words: str) -> Html:
    """A table that is shown to who asks for it."""
    return tag("details", tag("summary", words), table_html(shown))
