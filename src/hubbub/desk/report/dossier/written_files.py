"""The dossier as one HTML page that loads nothing and runs nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from io import BytesIO
from typing import Any

from hubbub.core.errors import UserError, with_extra
from hubbub.core.number_format import several
from hubbub.desk.report.dossier.composing import Dossier, Heading, Sentence, Shown
from hubbub.desk.report.markup import Content, Html, document, join, printable, tag
from hubbub.desk.report.sheet import full

# What stands before the chapters, whatever they are drawn as.

OPENING = (
    (
        "Each sentence cites the parts of the run's evidence that support it. “hubbub verify” "
        "found each of them to be re-derived (recomputed and found equal) or signed (by the party "
        "it concerns, or by the aggregator). A statement that nothing supports is marked “not "
        "shown”. Questions that only a person can answer are left blank, each under a name."
    ),
    (
        "The dossier draws no legal conclusion and gives no advice: the person who decides "
        "does that, and signs."
    ),
)
WRONG_TITLE = "What does not hold"
TRUST_TITLE = "What no evidence shows, and has to be trusted"


def counted(dossier: Dossier) -> str:
    """How many sentences stand how, and how many blanks are open."""
    counts = ", ".join(f"{number} {name}" for name, number in sorted(dossier.counts.items()))
    left = several(len(dossier.open), "answer")
    return f"Study id {dossier.study_id}. Sentences: {counts}. Still needed from people: {left}."


def as_html(dossier: Dossier) -> str:
    """The page, to be stored as UTF-8; the same dossier gives the same page."""
    # Whose run it is, how sentences stand, what is open, what is wrong.
    opening: list[Content] = [
        tag("p", "hubbub dossier", class_="kicker"),
        tag("h1", tag("bdi", dossier.study)),
        *(tag("p", words) for words in OPENING),
        tag("p", counted(dossier)),
    ]
    contents = []
    for number, chapter in enumerate(dossier.chapters, 1):
        left = several(len(chapter.open), "answer")
        held = several(len(chapter.sentences), "sentence")
        held += f", {left} still needed" if chapter.open else ""
        link = tag("a", chapter.title, href=f"#chapter-{number}")
        contents.append(tag("li", link, f": {held}"))
    elements = [tag("header", *opening, tag("ol", *contents))]
    if dossier.wrongs:
        wrongs = tag("ul", *(tag("li", claim, class_="alarm") for claim in dossier.wrongs))
        elements.append(tag("section", tag("h2", WRONG_TITLE), wrongs, class_="warnings"))
    for number, chapter in enumerate(dossier.chapters, 1):
        parts = [tag("h2", chapter.title), tag("p", chapter.source), *map(_part, chapter.parts)]
        elements.append(tag("section", join(parts, "\n"), id=f"chapter-{number}"))
    if dossier.trusted:
        items = (tag("li", full(claim)) for claim in dossier.trusted)
        elements.append(tag("section", tag("h2", TRUST_TITLE), tag("ul", *items)))
    return document(f"{dossier.study} – hubbub dossier", elements)


def _part(part: Shown) -> Html:
    if isinstance(part, Heading):
        about = [tag("p", part.about)] if part.about else []
        return tag("div", tag("h3", part.title), *about)
    if isinstance(part, Sentence):
        standing = tag("p", part.standing, class_="kicker")
        if part.fields:
            members = tag("p", ", ".join(part.fields))
            standing = tag("details", tag("summary", part.standing), members, class_="kicker")
        return tag("div", tag("p", tag("b", part.ask), " ", part.text), standing)
    said: Content = tag("p", part.text) if part.text else tag("p", tag("i", "To be written."))
    name = tag("p", f"to be answered by a person: {part.name}", class_="kicker")
    return tag("div", tag("p", tag("b", part.ask)), said, name)


# The dossier as a docx file, for whoever goes on writing in it. Needs the extra `paper`.

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
    document.add_heading(printable(dossier.study), level=0)
    for words in (*OPENING, counted(dossier)):
        document.add_paragraph(words)
    _listed(document, WRONG_TITLE, list(dossier.wrongs))
    for chapter in dossier.chapters:
        document.add_heading(chapter.title, level=1)
        document.add_paragraph(chapter.source)
        for part in chapter.parts:
            _add(document, part)
    _listed(document, TRUST_TITLE, [*map(full, dossier.trusted)])
    out = BytesIO()
    document.save(out)
    return out.getvalue()


def _listed(made: Any, title: str, lines: list[str]) -> None:
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
    paragraph.add_run(part.ask).bold = True
    paragraph.add_run(printable(f" {part.text or '________'} "))
    paragraph.add_run(f"[to be answered by a person: {part.name}]").italic = True
