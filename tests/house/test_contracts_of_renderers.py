"""Every renderer keeps the contract that one from outside keeps; broken ones do not."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

import pytest
from tests.house.outside import plain_text

from hubbub.core.registered import registered
from hubbub.core.runs.renderers import ENTRY_POINTS
from hubbub.testing import check_renderer
from hubbub.testing.renderers import RENDERERS


@pytest.mark.parametrize("kind", RENDERERS)
def test_a_renderer_keeps_its_contract(kind: str) -> None:
    check_renderer(registered(ENTRY_POINTS)[kind].load(), kind)


def test_renderers_from_outside_keep_the_contract() -> None:
    check_renderer(plain_text.in_text, "text")
    check_renderer(plain_text.in_markdown, "text")
    check_renderer(plain_text.write_report, "folder")


COUNT = itertools.count()


def counting(result: Any) -> str:
    return f"{next(COUNT)}"


def silent(result: Any) -> str:
    return ""


def unescaped(result: Any) -> str:
    return f"<p>{result.plan.study.name}</p>"


def loading(result: Any) -> str:
    return f'<img src="https://example.org/logo.png">{escape(result.plan.study.name)}'


def styled(result: Any) -> str:
    return "<style>@import 'https://example.org/style.css';</style>"


def calling(result: Any) -> str:
    with suppress(OSError), socket.socket() as line:
        line.settimeout(0.01)
        line.connect(("127.0.0.1", 9))
    return "shown"


def lacking(result: Any) -> str:
    return str(result.statistics["ages"].title)


def overwriting(folder: Path, **_: Any) -> Path:
    (folder / "plan.json").write_text("{}", encoding="utf-8")
    return plain_text.write_report(folder)


def quoting(result: Any) -> str:
    return f"<p title='{escape(result.plan.study.name, quote=False)}'>a run</p>"


def choosing(result: Any) -> str:
    return '<img srcset="https://example.org/logo.png 2x">'


def painting(result: Any) -> str:
    return '<svg><image href="https://example.org/logo.png"/><a href="https://example.org"/></svg>'


def unspoken(result: Any) -> None:
    return None


def hoping(result: Any) -> str:
    return "".join(answer.rows[0].quantity for answer in result.statistics.values())


def turning(result: Any) -> str:
    """Puts answers back in another order."""
    taken = [result.statistics.popitem() for _ in range(len(result.statistics))]
    result.statistics.update(taken)
    return "shown"


def deleting(folder: Path, **_: Any) -> Path:
    (folder / "plan.json").unlink()
    return plain_text.write_report(folder)


BROKEN: dict[Callable[..., Any], tuple[str, str]] = {
    counting: ("notebook", "alike whenever it is shown"),
    silent: ("text", "shows something"),
    unescaped: ("notebook", "what strangers call things is text"),
    loading: ("notebook", "loads nothing"),
    styled: ("notebook", "loads nothing"),
    calling: ("text", "connects to nothing"),
    lacking: ("text", "shows a run without answers"),
    overwriting: ("folder", "leaves what a run has written"),
    deleting: ("folder", "leaves what a run has written"),
    quoting: ("notebook", "what strangers call things is text"),
    choosing: ("notebook", "loads nothing, found https://example.org/logo.png 2x in <img>"),
    painting: ("notebook", "loads nothing, found https://example.org/logo.png in <image>; put"),
    unspoken: ("text", "is a text"),
    # Refused as long as noise of some 3,000 leaves 240 records below five deviations: to 1e-6.
    hoping: ("text", "shows a run with hostile names, found IndexError"),
    turning: ("text", "leaves a result as it is"),
}


@pytest.mark.parametrize("renderer", BROKEN, ids=lambda renderer: renderer.__name__)
def test_a_renderer_that_breaks_a_law_is_refused_by_that_law(renderer: Callable[..., Any]) -> None:
    kind, law = BROKEN[renderer]
    with pytest.raises(AssertionError, match=law):
        check_renderer(renderer, kind)
