"""The dossier as a docx file, for whoever goes on writing in it. Needs the extra `paper`."""

from __future__ import annotations

from datetime import UTC, datetime
from io import BytesIO
from typing import Any

from hubbub.core.errors import UserError, with_extra
from hubbub.desk.report.dossier.composing import Dossier, Shown
from hubbub.desk.report.dossier.dossier_opening import (
    OPENING,
    TRUST_TITLE,
    WRONG_TITLE,
    capital,
    counted,
)
from hubbub.desk.report.dossier.dossier_parts import Heading, Sentence
from hubbub.desk.report.markup import printable

_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # the same dossier states the same properties


def as_docx(dossier: Dossier) -> bytes:
    """The file's bytes; UserError where python-docx is not installed."""
    try:
        from docx import Document
    except ModuleNotFoundError:
        raise UserError(
            f"expected python-docx to be installed for a docx file; {with_extra('paper')}"
        ) from None
    document = Document()
    document.core_properties.title = printable(f"{dossier.study}: dossier")
    document.core_properties.author = ""
    document.core_properties.created = document.core_properties.modified = _TIME
    _opening(document, dossier)
    for chapter in dossier.chapters:
        document.add_heading(chapter.title, level=1)
        document.add_paragraph(chapter.source)
        for part in chapter.parts:
            _add(document, part)
    _listed(document, TRUST_TITLE, [f"{capital(claim)}." for claim in dossier.trusted])
    out = BytesIO()
    document.save(out)
    return out.getvalue()


def _opening(made: Any, dossier: Dossier) -> None:
    made.add_heading(printable(dossier.study), level=0)
    for words in (*OPENING, counted(dossier)):
        made.add_paragraph(words)
    _listed(made, WRONG_TITLE, list(dossier.wrongs))


def _listed(made: Any, title: str, lines: list[str]) -> None:
    """A titled list, if there is anything in it."""
    if lines:
        made.add_heading(title, level=1)
        for line in lines:
            made.add_paragraph(printable(line), style="List Bullet")


def _add(made: Any, part: Shown) -> None:
    if isinstance(part, Heading):
        made.add_heading(printable(part.title), level=2)
        if part.about:
            made.add_paragraph(part.about)
        return
    paragraph = made.add_paragraph()
    if isinstance(part, Sentence):
        paragraph.add_run(part.ask).bold = True
        paragraph.add_run(printable(f" {part.text} "))
        fields = f": {', '.join(part.fields)}" if part.fields else ""
        paragraph.add_run(f"[{part.standing}{fields}]").italic = True
        return
    paragraph.add_run(part.blank.ask).bold = True
    paragraph.add_run(printable(f" {part.text or '________'} "))
    paragraph.add_run(f"[by a person: {part.blank.name}]").italic = True
