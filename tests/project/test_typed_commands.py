"""What README and tutorial have a reader type works as it is written, in the order of the page."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEW = "patient,age,sex,systolic,smoker\nn1,52,F,120,no\nn2,71,M,140,yes\n"
INSTALLS = ("python3 -m venv", "pip install", "make ")  # `make demo` and `make test` do the same
# By page: its commands of hubbub, and what they leave behind for the reader.
PAGES = {
    "README.md": (3, ["study.toml", "runs/first/report.html"]),
    "docs/tutorial.md": (
        6,
        ["study.toml", "runs/first/report.html", "runs/ledgers/north.sqlite", "scores.csv"],
    ),
}


def typed(page: str) -> list[str]:
    """The lines of a page's blocks that a reader types, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"(?ms)^```(?:console)?\n(.*?)^```", text))
    lines = [line.removeprefix("$ ").split(" #")[0].strip() for line in blocks.splitlines()]
    return [line for line in lines if line and not line.startswith(INSTALLS)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_types_nothing_but_hubbub_and_what_installs_it(page: str) -> None:
    commands = [shlex.split(line) for line in typed(page)]
    assert len(commands) == PAGES[page][0]
    assert {Path(words[0]).name for words in commands} == {"hubbub"}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_run_as_a_page_types_them(page: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "new.csv").write_text(NEW, encoding="utf-8")
    for line in typed(page):
        words = [sys.executable, "-m", "hubbub", *shlex.split(line)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        # 1: what a run with hashed transcripts cannot show, `hubbub verify` says
        assert done.returncode in ((0, 1) if " verify " in line else (0,)), (line, done.stderr)
        assert not re.search(r"\bwrong\b", done.stdout), (line, done.stdout)
    assert [name for name in PAGES[page][1] if not (tmp_path / name).exists()] == []
