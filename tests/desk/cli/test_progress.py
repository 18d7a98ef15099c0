"""What `hubbub run` says while it runs, whose epsilon it names, and what Ctrl-C leaves."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from html import unescape
from importlib import resources
from pathlib import Path

import pytest

from hubbub.desk.cli.main import main
from hubbub.desk.cli.terminal import Bar, Lines, bar
from hubbub.desk.report.arrangements import UNCHARGED_BASELINE

HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")
# Where these tests run in the background, the signal may be ignored.
HEEDS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
MAIN = "import sys; from hubbub.desk.cli.main import main; sys.exit(main())"
START = [sys.executable, "-c", f"{HEEDS}; {MAIN}"]
WHO = {
    "trusted": "against those who see only models; hubbub's epsilon is against the aggregator "
    "together with 1 silo",
    "local-dp": "against everybody but the silo itself; hubbub's epsilon is",
    "alone": "against those who see a silo's model; hubbub's epsilon is",
    "non-private": "no epsilon: this baseline adds no noise",
}


def a_study(folder: Path, steps: int = 5) -> Path:
    path = folder / "study.toml"
    asked = HEART.replace("steps = 60", f"steps = {steps}").replace("epsilon = 0.5", "epsilon = 8")
    path.write_text(asked)
    return path


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def told(total: int, seconds: float, steps: list[int], note: str = "") -> list[str]:
    """The lines of steps that take so long each."""
    clock, said = Clock(), list[str]()
    lines = Lines("a study", total, said.append, clock)
    for step in steps:
        clock.now += seconds
        lines.reach(step, note)
    return said


def test_what_advances_by_one_is_told_too_where_there_is_no_terminal(capsys) -> None:
    """Comparisons and rehearsals take minutes, and would be silent in a log."""
    with bar("a comparison", 3, quiet=False, lines="run") as progress:
        for _ in range(3):
            progress.advance()
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("a comparison: run 1 of 3")
    assert last == "a comparison: run 3 of 3"
    with bar("a comparison", 3, quiet=True, lines="run") as progress:
        progress.advance()
    assert capsys.readouterr().err == ""


def test_every_tenth_has_a_line_with_what_is_left() -> None:
    said = told(200, 0.5, [*range(1, 201)], "epsilon 0.1, auc 0.8")
    assert len(said) == 10
    assert said[0] == "a study: step 20 of 200, epsilon 0.1, auc 0.8, about 90 s left"
    assert said[-1] == "a study: step 200 of 200, epsilon 0.1, auc 0.8"


def test_every_minute_has_a_line_too() -> None:
    said = told(1000, 30.0, [*range(1, 21)])
    assert [line.split(",")[0] for line in said] == [
        f"a study: step {k} of 1000" for k in range(3, 21, 2)
    ]
    assert said[-1].endswith("about 490 min left")


def test_a_resumed_run_begins_where_it_stood() -> None:
    said = told(100, 1.0, [*range(55, 101)])
    assert said[0] == "a study: step 60 of 100, about 40 s left"
    assert len(said) == 5


def test_models_that_are_trained_one_after_another_are_counted() -> None:
    said = told(10, 1.0, [*range(1, 11), *range(1, 11)])
    assert len(said) == 20
    assert said[10] == "a study, model 2: step 1 of 10"
    assert said[14] == "a study, model 2: step 5 of 10, about 5 s left"


@pytest.mark.slow
def test_without_a_terminal_lines_go_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(a_study(tmp_path)), "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert [line.split(", ")[0][-11:] for line in lines] == [f"step {k} of 5" for k in range(1, 6)]
    assert "epsilon 8.0" in lines[-1] or "epsilon 7.9" in lines[-1]
    assert "AUC 0." in lines[-1]
    assert "against the aggregator together with 1 silo" in said.out
    assert "step 1 of 5" not in said.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("evaluate", "words"),
    [
        ("", "not evaluated: the study has no public test records"),
        ("evaluate = { every = 2, epsilon = 1.0 }", "held-back accuracy 0."),
    ],
)
def test_a_run_says_how_good_its_model_is_or_why_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], evaluate: str, words: str
) -> None:
    for name in ("north", "south", "west"):
        cells = "".join(f"{20 + k % 60},{'yes' if k % 60 > 30 else 'no'}\n" for k in range(400))
        (tmp_path / f"{name}.csv").write_text(f"age,died\n{cells}")
    (tmp_path / "study.toml").write_text(f"""
study.name = "own"
parties = {{ names = ["north", "south", "west"], colluders = 1 }}
data.files = "{tmp_path}/{{name}}.csv"
data.target = "died"
data.positive = ["yes"]
data.negative = ["no"]
data.columns.age = {{ low = 20, high = 80 }}
model.kind = "logistic"
privacy = {{ epsilon = 8.0, delta = 1e-5 }}
[training]
steps = 2
sampling = "full-batch"
{evaluate}
""")
    assert main(["run", str(tmp_path / "study.toml"), "--out", str(tmp_path / "run")]) == 0
    assert words in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("baseline", WHO)
def test_a_baseline_names_itself_and_the_adversary_of_its_epsilon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], baseline: str
) -> None:
    out = ["--out", str(tmp_path / "run"), "--baseline", baseline]
    assert main(["run", str(a_study(tmp_path)), *out]) == 0
    said = capsys.readouterr()
    assert "baseline “" in said.out
    assert WHO[baseline] in said.out
    assert UNCHARGED_BASELINE in " ".join(said.out.split())
    assert UNCHARGED_BASELINE in unescape((tmp_path / "run" / "report.html").read_text())
    assert "baseline “" in said.err
    assert ("epsilon" in said.err) == (baseline != "non-private")


@pytest.mark.slow
def test_json_is_all_that_is_printed_and_names_the_adversary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = a_study(tmp_path)
    assert main(["run", str(study), "--out", str(tmp_path / "one"), "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["baseline"], found["adversary"]) == (None, "aggregator + 1 silo")
    assert said.err == ""
    more = ["--baseline", "non-private", "--json"]
    assert main(["run", str(study), "--out", str(tmp_path / "two"), *more]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["baseline"], found["adversary"]) == ("non-private", None)


def interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> str:
    """What is said when Ctrl-C comes after the first step."""

    def reach(self: Bar, done: int, note: str = "") -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Bar, "reach", reach)
        assert main(arguments) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.slow
def test_ctrl_c_names_the_folder_and_the_command_that_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, out = a_study(tmp_path), tmp_path / "a run"
    said = interrupted(monkeypatch, capsys, ["run", str(study), "--out", str(out)])
    assert f"is in {out};" in said
    again = shlex.split(said.partition("continue with: hubbub ")[2])
    assert again == ["run", "--resume", str(out)]
    assert main(again) == 0
    assert "5 steps" in capsys.readouterr().out


def test_ctrl_c_of_a_baseline_does_not_promise_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["--out", str(tmp_path / "run"), "--baseline", "trusted"]
    said = interrupted(monkeypatch, capsys, ["run", str(a_study(tmp_path)), *more])
    assert "--resume" not in said
    assert "run it again from the start" in said


@pytest.mark.slow
def test_a_real_sigint_ends_a_process_with_130_and_the_command_that_goes_on(tmp_path: Path) -> None:
    study = a_study(tmp_path, steps=400)
    with subprocess.Popen(
        [*START, "run", str(study), "--json", "--out", "mine"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        metrics = tmp_path / "mine" / "metrics.jsonl"
        while not metrics.exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, "")
    assert err.count("\n") == 1
    assert err.endswith("continue with: hubbub run --resume mine\n")
