"""How far a training is, for whoever started it from a program: a bar in a notebook or a terminal.

What `progress` may be: a function is called after every step; True shows a bar, False nothing; None
shows one in a notebook, where people wait in front of it. This file knows steps and metrics, which
are published; it must not know records.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.planning.study_queries import steps_of
from hubbub.core.runs.loop import Progress
from hubbub.core.study.study import Study
from hubbub.learning.metric_words import in_brief

_NOTEBOOK = "ZMQInteractiveShell"  # what IPython calls the shell of a notebook


@contextmanager
def telling(progress: bool | Progress | None, study: Study) -> Iterator[Progress]:
    """What to call after every step of a study, until it is over.

    Args:
        progress: see above.
        study: what is run.

    Raises:
        StudyError: `progress` is neither a function nor a truth value.
    """
    if callable(progress):
        yield progress
    elif progress is not None and not isinstance(progress, bool):
        raise StudyError(
            "expected progress to be True, False or a function of a step and its metrics, got "
            f"{type(progress).__name__}; leave it out"
        )
    elif (show := _notebook_display()) and progress is not False:
        yield _NotebookBar(study.name, steps_of(study), show)
    elif progress:
        with _terminal_bar(study.name, steps_of(study)) as bar:
            yield bar
    else:
        yield _tell_nobody


def _tell_nobody(*_: object) -> None:
    """Nobody to tell."""


def _notebook_display() -> Callable[..., Any] | None:
    """What shows something in the notebook that this program runs in; None where there is none."""
    shells: Any = sys.modules.get("IPython")
    shell = shells.get_ipython() if shells is not None else None
    if type(shell).__name__ != _NOTEBOOK:
        return None
    from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

    return display  # type: ignore[no-any-return,unused-ignore]


class _Page:
    """What a notebook shows: HTML, and a line where there is no HTML."""

    def __init__(self, html: str, words: str) -> None:
        self._html, self._words = html, words

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return self._words


class _NotebookBar:
    """A bar in a notebook, which every step redraws in its place."""

    def __init__(self, title: str, total: int, show: Callable[..., Any]) -> None:
        self._title, self._total = title, total
        self._shown = show(self._page(0, {}), display_id=True)

    def __call__(self, step: int, row: Mapping[str, float]) -> None:
        """So many steps are done."""
        if self._shown is not None:
            self._shown.update(self._page(step, row))

    def _page(self, step: int, row: Mapping[str, float]) -> _Page:
        words = _words(self._title, step, self._total, row)
        bar = f'<progress value="{step}" max="{self._total}"></progress>'
        return _Page(f"<div>{bar} {escape(words)}</div>", words)


@contextmanager
def _terminal_bar(title: str, total: int) -> Iterator[Progress]:
    """A bar on stderr; where that is no terminal, nothing but a line in the end."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(_words(title, 0, total, {}), total=total)

        def told(step: int, row: Mapping[str, float]) -> None:
            bars.update(task, completed=step, description=_words(title, step, total, row))

        yield told


def _words(title: str, step: int, total: int, row: Mapping[str, float]) -> str:
    """A study, its steps, and the newest metrics."""
    epsilon = [f"epsilon {row['epsilon']:.3f}"] if "epsilon" in row else []
    return ", ".join([f"{title}: {step} of {total} steps", *epsilon, *in_brief(row)])
