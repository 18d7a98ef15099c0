"""A paper as HTML, LaTeX, CSV and, with python-docx, as a Word document."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

from hubbub.core.errors import UserError, with_extra
from hubbub.core.tabular.cells import csv_text
from hubbub.desk.report import charts, markup
from hubbub.desk.report.sheet import Figure, Sheet, Table, drawn, full, table_html

# Figures as files of their own: SVG as it is, PDF and PNG drawn from its elements.
#
# A chart is a small part of SVG: lines, polygons, rectangles, circles, paths of straight lines, and
# text. Colours are those of the page on paper; PDF and PNG need matplotlib, which draws the same
# elements at the same places, a unit of the chart being a point.

FIGURES = ("svg", "pdf", "png")
_DPI = 300
_STEP = re.compile(r"([MmHhVvLlz])([^MmHhVvLlz]*)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


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
    kind = element.get("class", "")
    if kind.startswith("series-"):
        number = int(kind.removeprefix("series-"))
        colour, dashed = charts.SERIES[number], number == 1
    if element.tag in _DRAWN:
        _DRAWN[element.tag](axes, element, colour, "--" if dashed else "-")
    for inner in element:
        _draw(axes, inner, colour, dashed=dashed)


def _line(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    own, width, dashes = charts.STROKES.get(element.get("class", ""), (colour, 1.0, "-"))
    x, y = ([_length(element, f"{way}{end}") for end in (1, 2)] for way in "xy")
    axes.plot(x, y, color=own, linewidth=width, linestyle=dashes)


def _polyline(axes: Any, element: ET.Element, colour: str, dashes: str) -> None:
    x, y = zip(*_points(element), strict=True)
    axes.plot(x, y, color=colour, linewidth=2, linestyle=dashes)


def _polygon(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    x, y = zip(*_points(element), strict=True)
    axes.fill(x, y, color=colour, alpha=0.16, linewidth=0)


def _rectangle(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    from matplotlib.patches import Rectangle

    corner = _length(element, "x"), _length(element, "y")
    sides = _length(element, "width"), _length(element, "height")
    bar = element.get("class") == "bar"
    own, alpha = (charts.SERIES[0], 0.7) if bar else (colour, 1.0)
    axes.add_patch(Rectangle(corner, *sides, color=own, alpha=alpha, linewidth=0))


def _circle(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    from matplotlib.patches import Circle

    own = charts.SERIES[0] if element.get("class") == "first" else colour
    place = _length(element, "cx"), _length(element, "cy")
    axes.add_patch(Circle(place, _length(element, "r"), color=own))


def _path(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    own, width, dashes = charts.STROKES.get(element.get("class", ""), (colour, 1.5, "-"))
    for piece in _pieces(element.get("d", "")):
        x, y = zip(*piece, strict=True)
        axes.plot(x, y, color=own, linewidth=width, linestyle=dashes)


def _text(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    turned = 90 if element.get("transform", "").startswith("rotate(-90") else 0
    anchor = {"end": "right", "middle": "center"}.get(element.get("text-anchor", ""), "left")
    axes.text(
        _length(element, "x"),
        _length(element, "y"),
        element.text or "",
        color=colour,
        fontsize=13,
        ha=anchor,
        va="center" if turned else "baseline",
        rotation=turned,
        weight="bold" if element.get("class") == "strong" else "normal",
        parse_math=False,
    )


_DRAWN = {
    "line": _line,
    "polyline": _polyline,
    "polygon": _polygon,
    "rect": _rectangle,
    "circle": _circle,
    "path": _path,
    "text": _text,
}


def _length(element: ET.Element, name: str) -> float:
    return float(element.get(name, "0"))


def _points(element: ET.Element) -> list[tuple[float, float]]:
    pairs = (word.split(",") for word in element.get("points", "").split())
    return [(float(x), float(y)) for x, y in pairs]


def _pieces(path: str) -> Iterator[list[tuple[float, float]]]:
    """The straight lines of a path; only M, H, V, L and z, large or small, occur."""
    x = y = 0.0
    piece: list[tuple[float, float]] = []
    for step, text in _STEP.findall(path):
        numbers = [float(one) for one in _NUMBER.findall(text)]
        if step == "z":
            piece.append(piece[0])
            continue
        if step in "Mm" and len(piece) > 1:
            yield piece
        way = step.lower()
        pairs = (
            [(number, 0.0) if way == "h" else (0.0, number) for number in numbers]
            if way in "hv"
            else list(zip(numbers[::2], numbers[1::2], strict=True))
        )
        for place, (right, down) in enumerate(pairs):
            if step.islower():
                x, y = x + right, y + down
            else:
                x, y = (right if way != "v" else x), (down if way != "h" else y)
            piece = [(x, y)] if way == "m" and place == 0 else [*piece, (x, y)]
    if len(piece) > 1:
        yield piece


FORMATS = ("html", "docx", "latex", "csv")
_INDENT = re.compile("^  ")  # of a class below the name of its column
_INCHES, _POINTS = 6.0, 12  # width of a figure in a document, and an indent
_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{one: f"\\{one}" for one in "&%$#_{}"},
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
        return {
            **tables,
            "methods.txt": "\n".join([*paper.sentences, ""]).encode(),
        }
    if kind == "docx":
        return {"tables.docx": _docx(paper)}
    if kind == "latex":
        return {"tables.tex": _latex(paper).encode()}
    return {"tables.html": _html(paper).encode()}


def _html(paper: Sheet) -> str:
    parts = [markup.tag("h1", paper.title), *(markup.tag("p", said) for said in paper.sentences)]
    for number, one in enumerate(paper.tables, 1):
        rows = tuple((_INDENT.sub("\u2003", first), *others) for first, *others in one.rows)
        parts.append(table_html(replace(one, rows=rows), f"Table {number}. {one.caption}"))
        parts += [markup.tag("p", full(note)) for note in one.notes]
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
    return "".join(_SPECIAL.get(one, one) for one in " ".join(markup.printable(text).split()))


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
    for said in paper.sentences:
        document.add_paragraph(markup.printable(said))
    for number, one in enumerate(paper.tables, 1):
        caption = markup.printable(f"Table {number}. {one.caption}")
        document.add_paragraph(caption, style="Caption")
        _word_table(document, one)
        for note in one.notes:
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
