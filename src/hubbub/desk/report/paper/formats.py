"""A paper as HTML, LaTeX, CSV and, with python-docx, as a Word document."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

from hubbub.core.errors import UserError, with_extra
from hubbub.core.tabular.cells import csv_text
from hubbub.desk.report import charts, markup
from hubbub.desk.report.sheet import Figure, Sheet, Table, drawn, full, table_html

# Figures as files of their own: SVG as it is, PDF and PNG drawn from its elements.
#
# A chart is a small part of SVG: lines, polygons, rectangles, circles, and text. PDF and PNG need
# matplotlib, which draws the same elements at the same places, a unit of the chart being a point.

FIGURES = ("svg", "pdf", "png")
_DPI = 300
_LENGTHS = ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height")
_ANCHORS = {"end": "right", "middle": "center"}


def figure_file(figure: Figure, kind: str) -> bytes:
    """A figure as a file of a kind of `FIGURES`."""
    if kind == "svg":
        return charts.alone(figure.chart, figure.height).encode()
    try:
        from matplotlib.figure import Figure as Drawn
    except ImportError:
        raise UserError(
            f"expected matplotlib for a figure as {kind.upper()}, found none; take svg, or "
            f"{with_extra('paper')}"
        ) from None
    page: Any = Drawn(figsize=(charts.WIDTH / 72, figure.height / 72))
    axes = page.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, charts.WIDTH)
    axes.set_ylim(figure.height, 0)
    axes.axis("off")
    # The text was made here, by `markup.tag`.
    _draw(axes, ET.fromstring(figure.chart.text), "#000000", dashed=False)  # noqa: S314
    out = io.BytesIO()
    undated = {"CreationDate": None} if kind == "pdf" else {"Software": None}
    page.savefig(out, format=kind, dpi=_DPI, metadata=undated)
    return out.getvalue()


def _draw(axes: Any, element: ET.Element, colour: str, *, dashed: bool) -> None:
    from matplotlib.patches import Circle, Rectangle

    kind = element.get("class", "")
    if kind.startswith("series-"):
        number = int(kind.removeprefix("series-"))
        colour, dashed = charts.SERIES[number], number == 1
    numbers = {name: float(value) for name, value in element.items() if name in _LENGTHS}
    pairs = [pair.split(",") for pair in element.get("points", "").split()]
    x, y = ([float(pair[way]) for pair in pairs] for way in (0, 1))
    stroke, width, dashes = charts.STROKES.get(kind, (colour, 2.0, "--" if dashed else "-"))
    match element.tag:
        case "line":
            x, y = ([numbers[f"{way}1"], numbers[f"{way}2"]] for way in "xy")
            axes.plot(x, y, color=stroke, linewidth=width, linestyle=dashes)
        case "polyline":
            axes.plot(x, y, color=stroke, linewidth=width, linestyle=dashes)
        case "polygon":
            axes.fill(x, y, color=colour, alpha=0.16, linewidth=0)
        case "rect":
            is_bar = kind == "bar"
            patch = Rectangle(
                (numbers["x"], numbers["y"]),
                numbers["width"],
                numbers["height"],
                facecolor=charts.SERIES[0] if is_bar else "none",
                edgecolor="none" if is_bar else stroke,
                alpha=0.7 if is_bar else 1.0,
            )
            axes.add_patch(patch)
        case "circle":
            filled = charts.SERIES[0] if kind == "first" else colour
            axes.add_patch(Circle((numbers["cx"], numbers["cy"]), numbers["r"], color=filled))
        case "text":
            turned = 90 if element.get("transform", "").startswith("rotate(-90") else 0
            axes.text(
                numbers["x"],
                numbers["y"],
                element.text or "",
                color=colour,
                fontsize=13,
                ha=_ANCHORS.get(element.get("text-anchor", ""), "left"),
                va="center" if turned else "baseline",
                rotation=turned,
                weight="bold" if kind == "strong" else "normal",
                parse_math=False,
            )
    for inner in element:
        _draw(axes, inner, colour, dashed=dashed)


FORMATS = ("html", "docx", "latex", "csv")
_INDENT = re.compile("^  ")  # of a class below the name of its column
_INCHES, _POINTS = 6.0, 12  # width of a figure in a document, and an indent
_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "[": "{[}",  # or a row that begins with one is an argument of the line before it
    "*": "{*}",
    "<": r"$<$",
    ">": r"$>$",
    "–": "--",
    "−": "$-$",
}


def written(paper: Sheet, kind: str) -> Mapping[str, bytes]:
    """The files of a paper in one of the formats, by name."""
    if kind == "csv":  # a table with its caption and notes in lines of their own
        tables = {}
        for table in paper.tables:
            rows = [[table.caption], list(table.head), *map(list, table.rows)]
            text = csv_text([*rows, *([note] for note in table.notes)])
            tables[f"{table.name}.csv"] = text.encode()
        return {**tables, "methods.txt": "\n".join([*paper.sentences, ""]).encode()}
    if kind == "docx":
        return {"tables.docx": _docx(paper)}
    if kind == "latex":
        return {"tables.tex": _latex(paper).encode()}
    return {"tables.html": _html(paper).encode()}


def _html(paper: Sheet) -> str:
    parts = [
        markup.tag("h1", paper.title),
        *(markup.tag("p", sentence) for sentence in paper.sentences),
    ]
    for number, table in enumerate(paper.tables, 1):
        rows = tuple((_INDENT.sub("\u2003", first), *others) for first, *others in table.rows)
        parts.append(table_html(replace(table, rows=rows), f"Table {number}. {table.caption}"))
        parts += [markup.tag("p", full(note)) for note in table.notes]
    for number, figure in enumerate(paper.figures, 1):
        parts.append(drawn(replace(figure, points=None), f"Figure {number}. {figure.words}"))
    return markup.document(f"{paper.title} – tables", parts)


def _latex(paper: Sheet) -> str:
    """Tables with booktabs, and figures that `--figures pdf` writes beside them."""
    lines = ["% needs \\usepackage{booktabs,graphicx}", *map(_escaped, paper.sentences), ""]
    for table in paper.tables:
        columns = "l" + "r" * (len(table.head) - 1)
        lines += [
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{_escaped(table.caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _cells(table.head),
            r"\midrule",
            *map(_cells, table.rows),
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\footnotesize {_escaped(full(note))}" for note in table.notes),
            r"\end{table}",
            "",
        ]
    for figure in paper.figures:
        lines += [
            r"\begin{figure}",
            rf"\includegraphics[width=\linewidth]{{{figure.name}.pdf}}",
            rf"\caption{{{_escaped(figure.words)}}}",
            r"\end{figure}",
            "",
        ]
    return "\n".join(lines)


def _cells(row: Iterable[str]) -> str:
    shown = [(r"\quad " if _INDENT.match(cell) else "") + _escaped(cell) for cell in row]
    return " & ".join(shown) + r" \\"


def _escaped(text: str) -> str:
    """In one line, as an empty one ends what it stands in."""
    return "".join(_SPECIAL.get(sign, sign) for sign in " ".join(markup.printable(text).split()))


def _docx(paper: Sheet) -> bytes:
    try:
        import docx
        from docx.shared import Inches
    except ImportError:
        raise UserError(
            f"expected python-docx for a Word document, found none; {with_extra('paper')}"
        ) from None
    document: Any = docx.Document()
    document.add_heading(markup.printable(paper.title), level=1)
    for sentence in paper.sentences:
        document.add_paragraph(markup.printable(sentence))
    for number, table in enumerate(paper.tables, 1):
        caption = markup.printable(f"Table {number}. {table.caption}")
        document.add_paragraph(caption, style="Caption")
        _word_table(document, table)
        for note in table.notes:
            document.add_paragraph(markup.printable(full(note)))
    for number, figure in enumerate(paper.figures, 1):
        picture = io.BytesIO(figure_file(figure, "png"))
        document.add_picture(picture, width=Inches(_INCHES))
        words = markup.printable(f"Figure {number}. {figure.words}")
        document.add_paragraph(words, style="Caption")
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def _word_table(document: Any, table: Table) -> None:
    """Names of columns are a heading that each page repeats; numbers stand to the right."""
    from docx.enum.text import WD_ALIGN_PARAGRAPH
    from docx.oxml import OxmlElement
    from docx.shared import Pt

    grid = document.add_table(rows=0, cols=len(table.head), style="Light List")
    for row in (table.head, *table.rows):
        for place, (cell, text) in enumerate(zip(grid.add_row().cells, row, strict=True)):
            cell.text = markup.printable(_INDENT.sub("", text))
            (paragraph,) = cell.paragraphs
            if place:
                paragraph.alignment = WD_ALIGN_PARAGRAPH.RIGHT
            elif _INDENT.match(text):
                paragraph.paragraph_format.left_indent = Pt(_POINTS)
    first = grid.rows[0]._tr  # noqa: SLF001 (python-docx has no other way to it)
    first.get_or_add_trPr().append(OxmlElement("w:tblHeader"))
