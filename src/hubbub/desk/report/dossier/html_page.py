"""The dossier as one HTML page that loads nothing and runs nothing."""

from __future__ import annotations

from hubbub.desk.report.dossier.composing import Composed, Dossier, Shown
from hubbub.desk.report.dossier.dossier_opening import (
    OPENING,
    TRUST_TITLE,
    WRONG_TITLE,
    capital,
    counted,
    summed_up,
)
from hubbub.desk.report.dossier.dossier_parts import Heading, Sentence
from hubbub.desk.report.markup import Content, Html, join, style, tag

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def as_html(dossier: Dossier) -> str:
    """The page, to be stored as UTF-8; the same dossier gives the same page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{dossier.study} – hubbub dossier"),
        style(),
    )
    main = tag("main", *_opening(dossier), *_chapters(dossier), *_trusted(dossier))
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', main), lang='en').text}\n"


def _opening(dossier: Dossier) -> list[Html]:
    """Whose run it is, how sentences stand, what is open, what is wrong."""
    parts: list[Content] = [
        tag("p", "hubbub dossier", class_="kicker"),
        tag("h1", tag("bdi", dossier.study)),
        *(tag("p", words) for words in OPENING),
        tag("p", counted(dossier)),
    ]
    contents = (
        tag("li", tag("a", one.title, href=f"#chapter-{number}"), f": {summed_up(one)}")
        for number, one in enumerate(dossier.chapters, 1)
    )
    elements = [tag("header", *parts, tag("ol", *contents))]
    if dossier.wrongs:
        items = (tag("li", claim, class_="alarm") for claim in dossier.wrongs)
        elements.append(
            tag("section", tag("h2", WRONG_TITLE), tag("ul", *items), class_="warnings")
        )
    return elements


def _chapters(dossier: Dossier) -> list[Html]:
    return [
        tag("section", join(_chapter(chapter), "\n"), id=f"chapter-{number}")
        for number, chapter in enumerate(dossier.chapters, 1)
    ]


def _chapter(chapter: Composed) -> list[Content]:
    return [tag("h2", chapter.title), tag("p", chapter.source), *map(_part, chapter.parts)]


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
    name = tag("p", f"by a person: {part.blank.name}", class_="kicker")
    return tag("div", tag("p", tag("b", part.blank.ask)), said, name)


def _trusted(dossier: Dossier) -> list[Html]:
    items = (tag("li", f"{capital(claim)}.") for claim in dossier.trusted)
    return [tag("section", tag("h2", TRUST_TITLE), tag("ul", *items))] if dossier.trusted else []
