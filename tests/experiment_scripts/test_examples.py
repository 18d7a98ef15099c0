"""The examples run as they stand, and the site is made of the pages without a warning."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hubbub.core.number_format import at_most

ROOT = Path(__file__).parents[2]
WARDS = tuple(ROOT / "examples" / f"{name}.csv" for name in ("north", "south", "west"))
FOLLOWUP = ROOT / "examples" / "followup.py"
PAPER = ROOT / "examples" / "paper.py"
SCRIPTS = sorted(set((ROOT / "examples").glob("*.py")) - {FOLLOWUP, PAPER})
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
COMMAND = "import sys; from hubbub.desk.cli.main import main; sys.exit(main())"
NEW = "patient,age,sex,systolic,smoker\nn1,71,F,162,yes\nn2,34,M,118,no\n"


def python(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """A Python process elsewhere, which finds this hubbub."""
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    words = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        words, cwd=folder, env=found, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    assert "epsilon" in python(script, folder=tmp_path).stdout


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(notebook: Path, tmp_path: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    python("-c", code, folder=tmp_path)


@pytest.mark.slow
def test_the_page_of_statistics_can_be_followed(tmp_path: Path) -> None:
    """Its commands, in order, on the made-up clinics."""
    python(FOLLOWUP, folder=tmp_path)
    page = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    commands = re.findall(r"(?m)^\$ hubbub (.+)$", page)
    assert len(commands) == 4
    for command in commands:
        python("-c", COMMAND, *shlex.split(command), folder=tmp_path)
    run = tmp_path / "runs" / "followup"
    assert json.loads((run / "statistics.json").read_text())["statistics"]["hazards"]["rows"]
    assert (run / "tables" / "survival-curves.csv").exists()
    assert (run / "paper" / "survival.pdf").exists()


@pytest.mark.slow
def test_a_whole_paper_can_be_made_of_one_study(tmp_path: Path) -> None:
    """Its commands, in order: seven questions, a model and its validation at epsilon 2."""
    pytest.importorskip("docx")
    pytest.importorskip("matplotlib")
    python(PAPER, folder=tmp_path)
    for command in re.findall(r"(?m)^    hubbub (.+)$", PAPER.read_text(encoding="utf-8")):
        python("-c", COMMAND, *shlex.split(command), folder=tmp_path)
    run = tmp_path / "runs" / "paper"
    answers = json.loads((run / "statistics.json").read_text())["statistics"]
    assert len(answers) == 7
    assert [name for name, answer in answers.items() if answer["refusal"]] == []
    assert json.loads((run / "validation.json").read_text())["refusal"] == ""
    written = {path.name for path in (run / "paper").iterdir()}
    assert {"tables.html", "tables.docx", "tables.tex", "methods.txt"} <= written
    for name in ("flow", "survival", "causes", "hazards", "calibration"):
        assert {f"{name}.svg", f"{name}.pdf", f"{name}.png"} <= written
    assert f"epsilon {at_most(2.0)}," in (run / "paper" / "methods.txt").read_text()


def commands_of(page: str) -> list[str]:
    """Every command of hubbub in a page's blocks, from the page's own path to the program on."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"(?ms)^```(?:console)?\n(.*?)^```", text))
    return re.findall(r"(?m)^(?:\$ |\.venv/bin/)hubbub (.+)$", blocks)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "count"), [("README.md", 3), ("docs/tutorial.md", 6)])
def test_a_first_page_can_be_followed(page: str, count: int, tmp_path: Path) -> None:
    """Its commands, in order, on the example files; a reader brings only `new.csv`."""
    (tmp_path / "examples").mkdir()
    for path in WARDS:
        shutil.copy(path, tmp_path / "examples")
    (tmp_path / "new.csv").write_text(NEW, encoding="utf-8")
    commands = commands_of(page)
    assert len(commands) == count
    for command in commands:
        python("-c", COMMAND, *shlex.split(command), folder=tmp_path)
    assert (tmp_path / "runs" / "first" / "report.html").exists()
    scores = tmp_path / "scores.csv"
    assert not scores.exists() or len(scores.read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.slow
def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="make docs installs it")
    words = ("-m", "sphinx", "--fail-on-warning", "-q", ROOT / "docs", tmp_path / "site")
    python(*words, folder=tmp_path)
    page = (tmp_path / "site" / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "--baseline" in page
    table = (tmp_path / "site" / "privacy.html").read_text(encoding="utf-8")
    assert 'id="p4"' in table
    formulas = (tmp_path / "site" / "privacy" / "noise_shares.html").read_text(encoding="utf-8")
    assert 'id="p4"' in formulas
    assert formulas.count("<math") > 300
    keys = (tmp_path / "site" / "study.html").read_text(encoding="utf-8")
    assert "most_per_patient" in keys
    assert 'href="privacy/sampling.html#p19"' in keys
    notebook = (tmp_path / "site" / "howto" / "notebook.html").read_text(encoding="utf-8")
    assert "epsilon 2.00 at delta 1e-05" in notebook  # what a cell gave


def test_every_command_and_option_is_on_the_page_of_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    made = importlib.import_module("commands")
    text, parser = "\n".join(made.written(made.parser())), made.parser()
    missing = [name for name in made.families(parser) if f"## `hubbub {name}`" not in text]
    assert missing == []
    for option in ("--baseline", "--resume", "--sample-rate", "--witness", "--home"):
        assert f"`{option}" in text


def test_links_are_turned_to_where_things_are_on_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    links = importlib.import_module("links")
    page = ROOT / "docs" / "project" / "security.md"

    def turned(text: str) -> str:
        return str(links.on_the_site(text, ROOT / "SECURITY.md", page))

    assert turned("[a](docs/privacy.md#p4)") == "[a](../privacy/noise_shares.md#p4)"
    assert turned("[a](docs/privacy.md)") == "[a](../privacy.md)"
    assert turned("[a](README.md)") == "[a](../index.md)"
    assert turned("[deploy](deploy)") == "deploy (`deploy`)"
    assert turned("[a](https://nats.io) [b](#x)") == "[a](https://nats.io) [b](#x)"
    assert turned('<a id="p1"></a>') == "(p1)="
