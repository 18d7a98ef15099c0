"""The contract of a renderer: what a run says, shown alike whenever it is shown, and no more."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.learning.runs.result import Result
from hubbub.learning.runs.run_study import run
from hubbub.testing.asks import made_up_silos, study_table
from hubbub.testing.laws import completing, hold, opened_by, trying

RENDERERS = ("text", "notebook", "page", "folder")
# What a stranger may call a study or a category, and what of it must not stand as it is.
_HOSTILE = "<script>alert(1)</script>&'\""
_MARKUP = "<script>alert(1)"
# What a page would load: of its styles, and attributes of its elements.
_STYLE_LOADS = re.compile(r"@import|url\((?!\s*[\"']?(?:#|data:))", re.IGNORECASE)
_LOADED = ("src", "srcset", "poster", "background", "data", "href", "xlink:href")
_FOLLOWED = ("a", "area")  # whose links load nothing until a reader follows them
_NETWORK = ("socket.connect", "subprocess.Popen")


def check_renderer(renderer: Callable[..., Any], kind: str) -> None:
    """Hold a renderer, registered or not, to what readers of a run rely on.

    Laws:
        1. It shows the same run alike, whenever that is shown, and leaves its files as they are.
        2. What strangers call things is text on a page, and never a part of it.
        3. A page loads nothing, and making it connects to nothing.
        4. A run whose questions were refused is shown, as is one without answers or evidence.

    Args:
        renderer: the function.
        kind: what it is registered as: "text", "notebook", "page" or "folder".

    Raises:
        AssertionError: it breaks a law; the sentence says which, and how to mend it.
    """
    hold(
        "a renderer is of a kind that is asked for", kind in RENDERERS, kind, "choose another name"
    )
    with trying(renderer), _runs() as results:
        for what, result in results.items():
            shown = _shown(renderer, kind, result, what)
            hold(
                f"{kind} shows {what} alike whenever it is shown",
                shown == _shown(renderer, kind, result, what),
                "another text the second time",
                "take no time, place or random number into it",
            )
            hold(
                f"{kind} shows something of {what}",
                shown.strip(),
                "an empty text",
                "say at least what was run",
            )
            if kind == "text":
                continue
            page = _Page(shown)
            hold(
                f"what strangers call things is text in {kind}",
                _MARKUP not in shown and not page.torn,
                f"{_MARKUP!r} as it was given, or quotes that end an attribute",
                "escape every text by html.escape, names of columns and categories too",
            )
            hold(
                f"{kind} loads nothing",
                not page.loads,
                ", ".join(page.loads)[:80],
                "put styles and pictures into the page itself",
            )


class _Page(HTMLParser):
    """What a page would load, and whether a quote in a text has ended one of its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loads, self.torn = _STYLE_LOADS.findall(page), False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            self.torn |= not name.replace("-", "").replace(":", "").isalnum()
            is_inside = value is None or value.startswith(("#", "data:"))
            if name in _LOADED and tag not in _FOLLOWED and not is_inside:
                self.loads.append(f"{value} in <{tag}>")


def _shown(renderer: Callable[..., Any], kind: str, result: Result, what: str) -> str:
    """What a renderer makes of a run, in a copy of its folder."""
    texts: list[str] = []
    assert result.folder is not None, "it was run in a folder"  # noqa: S101
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "run"
        shutil.copytree(result.folder, folder)
        copied, said = replace(result, folder=folder), _said(result)
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

        def work() -> None:
            if kind == "folder":
                texts.append(Path(renderer(folder)).read_text(encoding="utf-8"))
            elif kind == "page":
                made = renderer(replace(copied, folder=None), Path(home) / "page.html")
                texts.append(Path(made).read_text(encoding="utf-8"))
            else:
                text = renderer(copied)
                hold(f"{kind} is a text", isinstance(text, str), repr(text), "return a string")
                texts.append(text)

        with completing(f"{kind} shows {what}", "leave out what is not there"):
            reached = opened_by(work)
        hold(
            f"{kind} connects to nothing",
            not any(one.startswith(_NETWORK) for one in reached),
            "; ".join(one for one in reached if one.startswith(_NETWORK)),
            "read the run's folder alone",
        )
        changed = [
            path
            for path, content in before.items()
            if not path.exists() or path.read_bytes() != content
        ]
        hold(
            f"{kind} leaves what a run has written",
            all(path.name.startswith("report.") for path in changed),
            f"{', '.join(path.name for path in changed)} changed",
            "write a file of its own",
        )
        hold(
            f"{kind} leaves a result as it is",
            said == _said(result),
            "other answers after it",
            "work on a copy",
        )
        return texts[0].replace(str(home), "")


def _said(result: Result) -> str:
    return json.dumps({name: answer.to_dict() for name, answer in result.statistics.items()})


@contextmanager
def _runs() -> Iterator[dict[str, Result]]:
    """A run with answers and refusals under hostile names, and what may be left of its folder."""
    home, result = _hostile_run()
    assert result.folder is not None, "it was run in a folder"  # noqa: S101
    with tempfile.TemporaryDirectory() as other:
        bare = Path(other) / "bare"
        shutil.copytree(result.folder, bare)
        for name in ("statistics.json", "sums.json", "evidence.json", "spending.json"):
            (bare / name).unlink(missing_ok=True)
        shutil.rmtree(bare / "tables", ignore_errors=True)
        yield {
            "a run with hostile names": result,
            "a run without answers": replace(result, folder=bare, statistics={}, spending=None),
        }
    del home


@cache  # a second, for as many renderers as there are
def _hostile_run() -> tuple[Any, Result]:
    home = tempfile.TemporaryDirectory()
    columns = [
        Column(name=f"age {_HOSTILE}", low=20, high=90),
        Column(name="sex", categories=(f"f {_HOSTILE}", "m")),
    ]
    asked = {
        "ages": {"kind": "histogram", "column": columns[0].name, "bins": 2},
        "<b>sexes": {"kind": "table", "columns": ["sex"]},
        "few": {"kind": "quantiles", "column": columns[0].name, "bins": 60, "weight": 0.001},
    }
    with made_up_silos(columns) as folder:
        content = study_table(folder, columns, {"statistics": asked}, {})
        content["study"] = {"name": _HOSTILE, "transcript": "full"}
        content["privacy"]["epsilon"] = 1.0
        content["data"].pop("records")  # so that what noise hides is asked all the same
        return home, run(Study.from_table(content), Path(home.name) / "run")
