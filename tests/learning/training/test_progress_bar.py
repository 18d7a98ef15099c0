"""`progress` of `fit`, `run` and `resume`: a function, a bar, nothing, or a bar in a notebook."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

import hubbub
from hubbub.core.errors import StudyError


def silo(seed: int):
    inputs = np.random.default_rng(seed).uniform(-1, 1, (60, 3)).astype(np.float32)
    return inputs, (inputs[:, 0] > 0).astype(np.float32)


SILOS = {"north": silo(1), "south": silo(2), "east": silo(3)}
SHORT = {"epsilon": 8.0, "steps": 3, "test": silo(4)}


class ZMQInteractiveShell:
    """What IPython calls the shell of a notebook."""


class Handle:
    """A place in a notebook."""

    def __init__(self, shown) -> None:
        self.shown = shown

    def update(self, page, *, raw) -> None:
        assert raw
        self.shown.append(page["text/html"])


@pytest.fixture
def notebook(monkeypatch):
    """A notebook that remembers all that was shown in it."""
    shown: list[str] = []

    def display(page, *, raw, display_id):
        assert raw
        assert display_id
        assert "of 3 steps" in page["text/plain"]
        shown.append(page["text/html"])
        return Handle(shown)

    shell, shows = ModuleType("IPython"), ModuleType("IPython.display")
    shell.get_ipython = ZMQInteractiveShell
    shows.display = display
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", shows)
    return shown


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hubbub.core.errors.UncountedWarning")
@pytest.mark.parametrize("progress", [None, True])
def test_a_notebook_shows_a_bar_that_every_step_redraws(notebook, progress):
    hubbub.fit(SILOS, **SHORT, name="<b>", progress=progress)
    assert [f'value="{step}" max="3"' in page for step, page in enumerate(notebook)] == [True] * 4
    assert "&lt;b&gt;: 3 of 3 steps, epsilon 7.9" in notebook[-1]
    assert "AUC" in notebook[-1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hubbub.core.errors.UncountedWarning")
def test_nothing_is_shown_where_it_is_not_wanted(notebook):
    hubbub.fit(SILOS, **SHORT, progress=False)
    steps: list[int] = []
    hubbub.fit(SILOS, **SHORT, progress=lambda step, _: steps.append(step))
    assert (notebook, steps) == ([], [1, 2, 3])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hubbub.core.errors.UncountedWarning")
def test_a_terminal_shows_a_bar_on_stderr_if_asked(capsys):
    hubbub.fit(SILOS, **SHORT)
    assert capsys.readouterr() == ("", "")
    hubbub.fit(SILOS, **SHORT, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fit: 3 of 3 steps" in err


@pytest.mark.filterwarnings("ignore::hubbub.core.errors.UncountedWarning")
def test_what_is_no_progress_is_refused_before_anything_is_charged(tmp_path):
    with pytest.raises(StudyError, match="True, False or a function"):
        hubbub.fit(SILOS, **SHORT, progress="yes", out=tmp_path / "run")
    assert not (tmp_path / "ledgers").exists()
