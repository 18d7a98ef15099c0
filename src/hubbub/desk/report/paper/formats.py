"""A manuscript as HTML, LaTeX, CSV and, with python-docx, as a Word document."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hubbub.core.errors import UserError, with_extra
from hubbub.core.tabular.csv_text import csv_text
from hubbub.desk.report import markup
from hubbub.desk.report.answer_tables import TextTable
from hubbub.desk.report.paper.figure_files import figure_file
from hubbub.desk.report.paper.manuscript import Manuscript, PaperTable

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


def written(paper: Manuscript, kind: str) -> Mapping[str, bytes]:
    """The files of a manuscript in one of the formats, by name.

    Raises:
        UserError: what a format needs is not installed.
    """
    if kind == "csv":
        return {
            **{f"{table.name}.csv": _csv(table).encode() for table in paper.tables},
            "methods.txt": f"{paper.methods}\n".encode(),
        }
    if kind == "docx":
        return {"tables.docx": _docx(paper)}
    if kind == "latex":
        return {"tables.tex": _latex(paper).encode()}
    return {"tables.html": _html(paper).encode()}


def _csv(one: PaperTable) -> str:
    """A table, its caption and notes in lines of their own."""
    rows = [[one.caption], list(one.table.head), *map(list, one.table.rows)]
    return csv_text([*rows, *([note] for note in one.notes)])


def _html(paper: Manuscript) -> str:
    tables = [
        part
        for number, one in enumerate(paper.tables, 1)
        for part in (
            markup.table(
                f"Table {number}. {one.caption}",
                one.table.head,
                [[_INDENT.sub("\u2003", row[0]), *row[1:]] for row in one.table.rows],
                numeric=range(1, len(one.table.head)),
            ),
            *(markup.tag("p", f"{_capital(note)}.") for note in one.notes),
        )
    ]
    figures = [
        markup.figure(one.figure.chart, f"Figure {number}. {one.figure.words}")
        for number, one in enumerate(paper.figures, 1)
    ]
    head = markup.tag(
        "head",
        markup.tag("meta", charset="utf-8"),
        markup.tag("title", f"{paper.study} – tables"),
        markup.style(),
    )
    whole = [markup.tag("h1", paper.study), markup.tag("p", paper.methods), *tables, *figures]
    body = markup.tag("body", markup.tag("main", markup.join(whole, "\n")))
    return f"<!DOCTYPE html>\n{markup.tag('html', head, body, lang='en').text}\n"


def _latex(paper: Manuscript) -> str:
    """Tables with booktabs, and figures that `--figures pdf` writes beside them."""
    lines = ["% needs \\usepackage{booktabs,graphicx}", _escaped(paper.methods), ""]
    for table in paper.tables:
        columns = "l" + "r" * (len(table.table.head) - 1)
        lines += [
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{_escaped(table.caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _cells(table.table.head),
            r"\midrule",
            *map(_cells, table.table.rows),
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\footnotesize {_escaped(_capital(note))}." for note in table.notes),
            r"\end{table}",
            "",
        ]
    for drawn in paper.figures:
        lines += [
            r"\begin{figure}",
            rf"\includegraphics[width=\linewidth]{{{drawn.name}.pdf}}",
            rf"\caption{{{_escaped(drawn.figure.words)}}}",
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


def _docx(paper: Manuscript) -> bytes:
    try:
        import docx
        from docx.shared import Inches
    except ImportError:
        raise UserError(
            f"expected python-docx for a Word document, found none; {with_extra('paper')}"
        ) from None
    document: Any = docx.Document()
    document.add_heading(markup.printable(paper.study), level=1)
    document.add_paragraph(markup.printable(paper.methods))
    for number, one in enumerate(paper.tables, 1):
        caption = markup.printable(f"Table {number}. {one.caption}")
        document.add_paragraph(caption, style="Caption")
        _word_table(document, one.table)
        for note in one.notes:
            document.add_paragraph(markup.printable(f"{_capital(note)}."))
    for number, drawn in enumerate(paper.figures, 1):
        picture = io.BytesIO(figure_file(drawn.figure, "png"))
        document.add_picture(picture, width=Inches(_INCHES))
        words = markup.printable(f"Figure {number}. {drawn.figure.words}")
        document.add_paragraph(words, style="Caption")
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def _word_table(document: Any, table: TextTable) -> None:
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


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
