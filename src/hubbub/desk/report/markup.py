"""Elements of the page, built so that text cannot get in unescaped.

A plain `str` among the children of an element, or as an attribute's value, is text from anywhere
and is escaped; only `Html`, which `tag` makes from it, is passed on as it is. This file knows HTML
and nothing about studies.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

_CONTROL = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MANY = 7  # columns, beyond which they are written smaller
_WITHOUT_CONTENT = {"meta", "img"}


@dataclass(frozen=True)
class Html:
    """Markup that is safe to put into a page."""

    text: str


Content = Html | str


def tag(name: str, /, *children: Content, **attributes: str | float) -> Html:
    """One element; `class_` and `aria_label` are spelled `class` and `aria-label` in the page.

    Guarantees:
        1. Children and attribute values that are plain text appear as text, whatever they hold.

    Example:
        >>> tag("p", "1 < 2, ", tag("b", "always"), class_="note").text
        '<p class="note">1 &lt; 2, <b>always</b></p>'
    """
    opening = "".join([name, *map(_attribute, attributes, attributes.values())])
    if name in _WITHOUT_CONTENT:
        return Html(f"<{opening}>")
    return Html(f"<{opening}>{join(children).text}</{name}>")


def join(parts: Iterable[Content], between: str = "") -> Html:
    """Several parts, one after another."""
    return Html(between.join(map(_markup, parts)))


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Content]],
    *,
    numeric: Collection[int] = (),
    marked: Collection[int] = (),
) -> Html:
    """A captioned table whose first column names its rows.

    Columns that are `numeric`, from 0, are set flush right; rows that are `marked` stand out. On a
    narrow screen every row is a block of its own, whose cells say their column.
    """
    kinds = ["number" if column in numeric else "words" for column in range(len(head))]
    column = {"scope": "col", "role": "columnheader"}
    names = zip(head, kinds, strict=True)
    columns = (tag("th", name, **column, class_=kind) for name, kind in names)
    top = tag("tr", *columns, role="row")
    body = []
    for index, row in enumerate(rows):
        kind = "marked" if index in marked else "plain"
        body.append(tag("tr", *_cells(row, head, kinds), role="row", class_=kind))
    parts = (tag("caption", caption), tag("thead", top), tag("tbody", *body))
    # Roles are said, as a block that a narrow screen makes of a row would lose its own. What is
    # wider than the page all the same scrolls in a box.
    width = "wide many" if len(head) > _MANY else "wide"
    return tag("div", tag("table", *parts, role="table"), class_=width)


@cache
def _sheet() -> str:
    return files("hubbub.desk.report").joinpath("style.css").read_text(encoding="utf-8")


@cache
def policy() -> str:
    """The Content-Security-Policy of all pages.

    Guarantees:
        1. Nothing is fetched, run, framed or sent, even if something on a page asked for it; the
           style sheet alone is believed, by its hash.
    """
    digest = b64encode(sha256(_sheet().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def document(title: str, body: Iterable[Content], *, refresh: int = 0) -> str:
    """A page that stands alone, to be stored or sent as UTF-8.

    Args:
        title: for the browser's tab.
        body: what is on it.
        refresh: seconds until the browser asks for it again; never if 0.
    """
    again = [tag("meta", http_equiv="refresh", content=str(refresh))] if refresh else []
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy()),
        *again,
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(_sheet())),
    )
    main = tag("body", tag("main", join(body, "\n")))
    return f"<!DOCTYPE html>\n{tag('html', head, main, lang='en').text}\n"


def figure(drawn: Html, caption: str, *more: Html, class_: str = "") -> Html:
    """A drawing over its caption, and what goes with it."""
    parts = (drawn, tag("figcaption", caption), *more)
    return tag("figure", *parts, class_=class_) if class_ else tag("figure", *parts)


def section(heading: str, *content: Content, class_: str = "") -> Html:
    """A section of the page under its own heading."""
    parts = join([tag("h2", heading), *content], "\n")
    return tag("section", parts, class_=class_) if class_ else tag("section", parts)


def printable(text: str) -> str:
    r"""A text as XML allows it, which SVG and Word documents are: no signs of control.

    >>> printable("a\x00b\n")
    'a\ufffdb\n'
    """
    return _CONTROL.sub("\ufffd", text)


def _cells(row: Sequence[Content], head: Sequence[str], kinds: Sequence[str]) -> list[Html]:
    first, *others = row
    cells = [tag("th", first, scope="row", role="rowheader", class_=kinds[0])]
    return cells + [
        tag("td", _in_pieces(cell, kind), role="cell", class_=kind, data_label=name)
        for cell, name, kind in zip(others, head[1:], kinds[1:], strict=True)
    ]


def _in_pieces(cell: Content, kind: str) -> Content:
    """A number and its interval, each in one piece: where there is no room, a line for each."""
    if kind != "number" or not isinstance(cell, str):
        return cell
    pieces = re.split(r" (?=\()|(?<=;) ", cell)
    return tag("span", join((tag("span", one) for one in pieces), " ")) if pieces[1:] else cell


def _attribute(name: str, value: str | float) -> str:
    shown = value if isinstance(value, str) else f"{value:g}"
    return f' {name.rstrip("_").replace("_", "-")}="{escape(printable(shown))}"'


def _markup(part: Content) -> str:
    return part.text if isinstance(part, Html) else escape(printable(part))
