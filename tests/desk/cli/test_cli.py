"""The command line: what it prints, its exit codes, and how it refuses bad input.

Most commands run inside this process; what only a process can show (pipes, tracebacks of the
interpreter) starts one.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import resources
from math import isfinite
from pathlib import Path

import pytest

import hubbub
from hubbub import Study
from hubbub.core.ledger.privacy_ledger import Cap, Ledger
from hubbub.desk.cli import bench_command, comparison_commands, terminal
from hubbub.desk.cli.main import EXAMPLES, main
from hubbub.learning.datasets import wheel
from hubbub.learning.runs.baselines import BASELINES

HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")
MODES = ("federated", *BASELINES)
MECHANISM = ("--sample-rate", ".2", "--steps", "5")
PARSER = importlib.import_module("hubbub.desk.cli.main")._parser()


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """Runs a command in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        try:
            code = main([str(one) for one in arguments])
        except SystemExit as stop:  # argparse ends --help like this
            code = stop.code
        said = capsys.readouterr()
        return Done(code=code, out=said.out, err=said.err)

    return run


@pytest.fixture
def ask(command):
    """Runs a command with --json and returns its object, and nothing else must be printed."""

    def run(*arguments: object, code: int = 0) -> dict:
        done = command(*arguments, "--json")
        assert (done.code, done.err) == (code, "")
        assert done.out.endswith("\n")
        assert done.out.count("\n") == 1
        found = json.loads(done.out, parse_constant=pytest.fail)  # NaN is no JSON
        assert isinstance(found, dict)
        return found

    return run


def text(**replaced: str) -> str:
    """The heart study with few steps and much epsilon; `replaced` exchanges lines by their key."""
    found = HEART
    for key, value in ({"steps": "5", "epsilon": "8.0"} | replaced).items():
        line = next(line for line in HEART.splitlines() if line.startswith(f"{key} ="))
        found = found.replace(line, f"{key} = {value}")
    return found


@pytest.fixture
def study(tmp_path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(text())
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with a run of the study and the ledgers beside it."""
    home = tmp_path_factory.mktemp("trained")
    hubbub.run(Study.parse(text()), home / "run")
    return home


@pytest.fixture
def ledger(trained, tmp_path) -> Path:
    """A copy of a ledger with five entries, and of its key."""
    for name in ("hungary.sqlite", "hungary.sqlite.key"):
        shutil.copy(trained / "ledgers" / name, tmp_path / name)
    return tmp_path / "hungary.sqlite"


# Answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["data"], ["data", "a.toml", "b.toml"], ["keys"]])
def test_a_schema_of_what_is_no_study_says_what_to_type(words, capsys):
    assert main(["schema", *words]) == 2
    said = capsys.readouterr().err
    assert "hubbub schema data study.toml" in said
    assert f"got {' '.join(words)!r}" in said


def test_epsilon_prints_a_certified_interval(ask):
    found = ask("epsilon", "--noise-multiplier", "1.5", "--delta", "1e-5", *MECHANISM)
    assert found.keys() >= {"lower", "upper", "seconds"}
    bound = hubbub.epsilon(noise_multiplier=1.5, delta=1e-5, sample_rate=0.2, steps=5)
    assert (found["lower"], found["upper"]) == (bound.lower, bound.upper)
    assert found["seconds"] > 0


def test_epsilon_takes_relation_and_sampling_to_the_accountant(ask):
    options = ("--noise-multiplier", "2", "--delta", "1e-5", "--steps", "3")
    two = ask("epsilon", *options, "--relation", "substitute", "--sampling", "full-batch")
    bound = hubbub.epsilon(
        noise_multiplier=2.0, delta=1e-5, sample_rate=1.0, steps=3, relation="substitute",
        sampling="full-batch",
    )  # fmt: skip
    assert two["upper"] == bound.upper
    assert two["upper"] > ask("epsilon", *options, "--sampling", "full-batch")["upper"]


def test_delta_prints_a_certified_interval(ask):
    found = ask("delta", "--noise-multiplier", "1.5", "--epsilon", ".5", *MECHANISM)
    assert found.keys() >= {"lower", "upper", "seconds"}
    bound = hubbub.delta(noise_multiplier=1.5, epsilon=0.5, sample_rate=0.2, steps=5)
    assert (found["lower"], found["upper"]) == (bound.lower, bound.upper)


def test_noise_prints_a_multiplier_that_keeps_epsilon(ask):
    found = ask("noise", "--epsilon", "2", "--delta", "1e-5", *MECHANISM)
    assert found.keys() >= {"noise_multiplier", "epsilon_upper", "seconds"}
    assert 0 < found["epsilon_upper"] <= 2
    again = hubbub.epsilon(
        noise_multiplier=found["noise_multiplier"], delta=1e-5, sample_rate=0.2, steps=5
    )
    assert again.lower <= 2
    assert again.upper == pytest.approx(2, rel=1e-2)  # and does not waste it


@pytest.mark.slow
def test_plan_prints_what_the_design_of_the_study_means(ask, study):
    found = ask("plan", study)
    wanted = {"noise_multiplier", "share_sigma", "word_bits", "upload_bytes_per_step", "epsilon"}
    assert found.keys() >= wanted
    rows = found["epsilon"]
    assert all(row.keys() >= {"adversary", "colluding_silos", "epsilon"} for row in rows)
    assert {row["colluding_silos"] for row in rows} == {0, 1, 2, 3}
    stated = next(row for row in rows if row["adversary"] == "aggregator + 1 silo")
    assert 7.9 < stated["epsilon"] <= 8
    assert found["word_bits"] in (16, 32, 64)
    assert found.pop("own_code") == []
    assert found == json.loads(json.dumps(hubbub.plan(Study.load(study)).to_dict()))


@pytest.mark.slow
def test_plan_looks_at_the_ledgers_that_a_run_would_charge(ask, command, study, tmp_path):
    assert "ledgers" not in ask("plan", study)
    ask("run", study, "--out", "runs/one")
    found = ask("plan", study)["ledgers"]
    assert found.keys() == set(Study.load(study).parties.names)
    ask("run", study, "--out", "runs/two")
    again = ask("plan", study)["ledgers"]
    for name, one in found.items():
        # A study that is over already would be run once more.
        assert 7.9 < one["spent"] <= 8 < one["after"] < 16
        assert one["words"] == "no cap"
        assert one["after"] == pytest.approx(again[name]["spent"], rel=2e-3)
    other = tmp_path / "other.toml"
    ask("budget", "set", "runs/ledgers/hungary.sqlite", "--epsilon", 9, "--delta", "1e-5")
    moved = ask("plan", _renamed(study, other), "--ledgers", "runs/ledgers")["ledgers"]
    assert all(8 < one["spent"] * 1.1 < one["after"] < 25 for one in moved.values())
    assert "of 9: will be refused" in moved["hungary"]["words"]
    said = command("plan", other, "--ledgers", "runs/ledgers").out
    assert "Total spent by these records" in said
    nowhere = command("plan", study, "--ledgers", tmp_path)
    assert (nowhere.code, nowhere.out) == (2, "")
    assert "expected ledgers of" in nowhere.err


def _renamed(study: Path, other: Path) -> Path:
    """The same study under another name."""
    found = Study.load(study)
    table = found.as_toml().replace(f'name = "{found.name}"', 'name = "again"')
    other.write_text(table)
    return other


@pytest.mark.slow
def test_run_prints_where_it_wrote_and_what_it_promises(ask, study, tmp_path):
    found = ask("run", study, "--out", tmp_path / "run")
    assert found.keys() >= {"out", "final", "epsilon", "delta", "seconds"}
    assert Path(found["out"]) == tmp_path / "run"
    assert (tmp_path / "run" / "report.html").is_file()
    assert (tmp_path / "ledgers" / "hungary.sqlite").is_file()
    assert 7.9 < found["epsilon"] <= 8
    assert found["final"]["step"] == 5
    assert 0.5 < found["final"]["auc"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("baseline", BASELINES)
def test_run_takes_a_baseline(ask, study, baseline):
    found = ask("run", study, "--out", "run", "--baseline", baseline)
    assert (found["epsilon"] is None) == (baseline == "non-private")
    assert isfinite(found["final"]["loss"])


@pytest.mark.slow
def test_run_makes_a_folder_of_its_own_below_runs(ask, study, tmp_path):
    one, two = ask("run", study)["out"], ask("run", study)["out"]
    assert one != two
    assert {Path(one).name, Path(two).name, "ledgers"} == {p.name for p in Path("runs").iterdir()}
    assert Study.load(Path(one) / "study.toml").id == Study.load(study).id


@pytest.mark.slow
def test_run_writes_the_ledgers_where_it_is_told(ask, study):
    ask("run", study, "--out", "run", "--ledgers", "books/mine")
    assert ask("ledger", "verify", "books/mine/hungary.sqlite")["entries"] == 5
    assert not Path("ledgers").exists()


@pytest.fixture
def short_demo(monkeypatch):
    """Nothing can be fetched, and the many silos train for two steps."""
    text = comparison_commands.study_text

    def shortened(file):
        return text(file).replace("steps = 10", "steps = 2")

    monkeypatch.setattr(comparison_commands, "study_text", shortened)
    monkeypatch.setattr(wheel, "pinned", lambda *_: None)
    monkeypatch.setenv("HUBBUB_DATA", "nowhere")


@pytest.mark.slow
@pytest.mark.usefixtures("short_demo")
def test_demo_compares_every_mode_and_leaves_the_study_that_was_run(ask):
    found = ask("demo", "--splits", "1", "--out", "demo")
    plan = json.loads((Path(found["out"]) / "plan.json").read_text())
    assert Study.load(Path(found["out"]) / "study.toml").id.hex() == plan["study_id"]
    assert found.keys() >= {"auc", "epsilon", "delta", "seconds"}
    assert found["auc"].keys() == set(MODES)
    # Far below what they reach (0.86 to 0.90); a hospital alone may well learn nothing.
    assert all(0.6 < found["auc"][mode] <= 1 for mode in MODES if mode != "alone")
    assert 0 < found["auc"]["alone"] <= 1
    assert (0.49 < found["epsilon"] <= 0.5, found["delta"]) == (True, 1e-5)
    page = (Path(found["out"]) / "report.html").read_text()
    assert all(f"{value:.3f}" in page for value in found["auc"].values())
    assert found["many"]["auc"].keys() == set(MODES) - {"alone"}
    assert found["many"]["adversary"] == "aggregator + 5 silos"
    assert (Path(found["many"]["out"]) / "report.html").exists()
    assert found["statistics"]["baseline"]["rows"]
    assert "Quantiles of age" in Path("demo/statistics/report.html").read_text()


@pytest.mark.slow
def test_ledger_show_prints_what_was_spent(ask, ledger):
    found = ask("ledger", "show", ledger)
    assert found["entries"] == 5
    assert found["studies"] == {Study.parse(text()).id.hex(): 5}
    assert found["epsilon"] == pytest.approx(8, rel=1e-2)
    assert found["cap"] is None
    assert len(found["head"]) == 64
    stricter = ask("ledger", "show", ledger, "--delta", "1e-8", "--relation", "substitute")
    assert (stricter["delta"], stricter["relation"]) == (1e-8, "substitute")
    assert stricter["epsilon"] is None or stricter["epsilon"] > found["epsilon"]


def test_ledger_verify_says_intact(ask, ledger):
    assert ask("ledger", "verify", ledger) == {"entries": 5, "intact": True}


def test_ledger_verify_knows_an_older_copy_by_a_head_noted_before(ask, command, ledger):
    noted = ask("ledger", "show", ledger)["head"]
    assert ask("ledger", "verify", ledger, "--head", noted)["intact"]
    database = sqlite3.connect(ledger)
    database.execute("DELETE FROM rows WHERE number = 5")
    database.commit()
    database.close()
    assert ask("ledger", "verify", ledger)["entries"] == 4
    done = command("ledger", "verify", ledger, "--head", noted)
    assert_one_sentence(done, 1)
    assert "older copy" in done.err


@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_ledger_export_is_json_either_way(command, ledger, flag):
    done = command("ledger", "export", ledger, *flag)
    found = json.loads(done.out)
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    assert [one["round"] for one in found["entries"]] == [1, 2, 3, 4, 5]
    assert {one["sampling"] for one in found["entries"]} == {"poisson"}


def test_budget_set_is_kept(ask, ledger):
    cap = {"epsilon": 9.0, "delta": 1e-6, "relation": "substitute", "studies": "adaptive"}
    options = ("--epsilon", "9", "--delta", "1e-6", "--relation", "substitute")
    assert ask("budget", "set", ledger, *options) == {"cap": cap}
    assert ask("ledger", "show", ledger)["cap"] == cap
    assert ask("ledger", "verify", ledger)["entries"] == 5


def test_a_mistyped_ledger_is_not_made_in_silence(command, tmp_path):
    line = ["budget", "set", "typo.sqlite", "--epsilon", "3", "--delta", "1e-5"]
    done = command(*line)
    assert (done.code, "--new" in done.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "typo.sqlite").touch()  # as a crash leaves it while one is made
    assert "--new" in command(*line).err
    assert command(*line, "--new").code == 0
    assert command(*line).code == 0
    assert command(*line, "--new").code == 2


def test_bench_measures_beside_its_limit(ask, monkeypatch):
    monkeypatch.setattr(bench_command, "_COORDINATES", 3000)
    monkeypatch.setattr(bench_command, "_ROUNDS", 1)
    rows = ask("bench")["results"]
    assert {row["name"] for row in rows} >= {"mask-16", "mask-32", "noise", "round"}
    for row in rows:
        assert row.keys() >= {"name", "value", "unit", "limit", "ratio"}
        assert row["value"] > 0
        assert row["ratio"] == pytest.approx(row["value"] / row["limit"])


# For people -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "at"), [("epsilon", "--delta"), ("delta", "--epsilon")])
def test_numbers_for_people_are_those_of_the_json_rounded_outward(command, ask, name, at):
    options = (name, "--noise-multiplier", "1.5", at, "1e-5", *MECHANISM)
    found, done = ask(*options), command(*options)
    assert done.code == 0
    words = re.search(r"is between (\S+) and (\S+) at", done.out).groups()
    lower, upper = map(float, words)
    assert lower <= found["lower"] <= found["upper"] <= upper
    assert (lower, upper) == pytest.approx((found["lower"], found["upper"]), rel=1e-5)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "3"])
def test_the_noise_that_people_read_is_no_less_than_what_was_calibrated(command, ask, epsilon):
    options = ("noise", "--epsilon", epsilon, "--delta", "1e-5", *MECHANISM)
    exact, done = ask(*options)["noise_multiplier"], command(*options)
    (words,) = re.findall(r"noise multiplier (\S+) ", done.out)
    assert exact <= float(words) <= exact * (1 + 1e-5)


def test_a_delta_near_the_least_number_is_rounded_outward_too(command):
    """Of so small a number no last digit is a number of its own."""
    done = command(
        "delta",
        "--noise-multiplier",
        "1",
        "--epsilon",
        "38.55",
        "--sample-rate",
        "1",
        "--steps",
        "1",
    )
    assert done.code == 0
    assert "is between 1.100882e-318 and" in done.out


def test_plan_names_every_adversary_and_marks_the_promised_one(command, ask, study, monkeypatch):
    monkeypatch.setattr(terminal._out, "width", 300)
    shown = command("plan", study)
    assert (shown.code, shown.err) == (0, "")
    plain = " ".join(shown.out.split())
    for row in ask("plan", study)["epsilon"]:
        assert row["adversary"] in plain
    assert plain.count("the study's guarantee") == 1


@pytest.mark.parametrize("epsilon", ["49.9", "50.0"])
def test_an_epsilon_that_cannot_be_certified_is_refused_by_the_largest_that_can(
    command, tmp_path, epsilon
):
    (tmp_path / "study.toml").write_text(text(epsilon=epsilon))
    done = command("plan", "study.toml")
    assert_one_sentence(done, 2)
    most = re.search(r"expected privacy.epsilon of at most (\d+) for this study", done.err)[1]
    (tmp_path / "study.toml").write_text(text(epsilon=f"{most}.0"))
    assert command("plan", "study.toml").code == 0


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs an endless file")
def test_a_study_that_never_ends_is_refused_at_once(command):
    assert_one_sentence(command("plan", "/dev/zero"), 2)


@pytest.mark.slow
def test_commands_for_people_print_a_line_and_succeed(command, study, ledger, monkeypatch):
    monkeypatch.setattr(bench_command, "_COORDINATES", 3000)
    monkeypatch.setattr(bench_command, "_ROUNDS", 1)
    for arguments in (
        ("delta", "--noise-multiplier", "1.5", "--epsilon", ".5", *MECHANISM),
        ("noise", "--epsilon", "2", "--delta", "1e-5", *MECHANISM),
        ("run", study, "--out", "run"),
        ("ledger", "show", ledger),
        ("ledger", "verify", ledger),
        ("budget", "set", ledger, "--epsilon", "9", "--delta", "1e-5"),
        ("audit", study, "--runs", "2", "--canaries", "9"),
        ("bench",),
    ):
        done = command(*arguments)
        assert done.code == 0, arguments
        lines = done.err.splitlines()  # of progress, where the machine is slow
        assert all(": step " in line for line in lines), arguments
        assert done.out.strip(), arguments


@pytest.mark.slow
@pytest.mark.usefixtures("short_demo")
def test_the_demo_for_people_shows_the_comparison(command, monkeypatch):
    monkeypatch.setattr(terminal._out, "width", 300)
    done = command("demo", "--splits", "1", "--out", "demo")
    assert done.code == 0
    assert all(": run " in line for line in done.err.splitlines())  # no terminal shows a bar
    for words in (
        "no trusted party",
        "each hospital alone",
        "without privacy",
        "the study's guarantee",
        "cannot be downloaded here",
        "60 practices together",
    ):
        assert words in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("epsilon", ("--noise-multiplier", "2", "--delta", "1e-5")),
        ("delta", ("--noise-multiplier", "2", "--epsilon", "1.5")),
        ("delta", ("--noise-multiplier", "2", "--epsilon", "40")),
        ("noise", ("--epsilon", "1.5", "--delta", "1e-5")),
    ],
)
def test_the_plot_is_a_picture_with_the_asked_for_point(command, tmp_path, name, point):
    picture = tmp_path / "curve.svg"
    assert (
        command(name, *point, "--steps", "1", "--sampling", "full-batch", "--plot", picture).code
        == 0
    )
    drawn = picture.read_text()
    assert drawn.startswith("<svg")
    assert drawn.rstrip().endswith("</svg>")
    assert (drawn.count("<polyline"), drawn.count("<circle")) == (4, 1)  # two in the legend
    assert "from above" in drawn
    assert "from below" in drawn
    assert not re.search(r"href|url\(|<script", drawn)  # it loads nothing
    ticks = re.findall(r'<g class="tick-up">.*?<text[^>]*>([^<]+)</text>', drawn)
    assert {"1", "1e-6", "1e-12"} <= set(ticks)
    for words in (">epsilon (", ">delta (", f"{point[-2][2:]} {float(point[-1]):.4g}"):
        assert words in drawn
    across, down = (
        float(one) for one in re.search(r'<circle cx="(\S+)" cy="(\S+)"', drawn).groups()
    )
    paths = re.findall(r'points="([^"]+)"', drawn)[:2]
    both = [[tuple(map(float, at.split(","))) for at in path.split()] for path in paths]
    curve = both[0]
    for above, below in zip(*both, strict=False):  # which may leave the picture a point sooner
        assert above == pytest.approx(below, abs=2)  # of a Gaussian step both sides are one
    assert all(72 <= x <= 442 and 44 <= y <= 284 for x, y in [*curve, (across, down)])
    if name != "delta" or point[-1] != "40":  # there the curve has left the picture
        nearest = min(curve, key=lambda at: abs(at[0] - across))
        assert nearest == pytest.approx((across, down), abs=4)


@pytest.mark.parametrize("name", ["epsilon", "delta", "noise"])
def test_the_help_says_what_is_plotted(command, name):
    said = " ".join(command(name, "--help").out.split())
    assert "--plot FILE.svg also write the curve of delta against epsilon" in said


def test_version(command):
    assert command("--version") == Done(code=0, out=f"hubbub {hubbub.__version__}\n", err="")


# The answer is no -----------------------------------------------------------------------------


def assert_one_sentence(done: Done, code: int) -> None:
    assert (done.code, done.out) == (code, ""), done.err
    assert done.err.startswith("hubbub: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_a_refused_budget_is_a_no(command, study):
    with Ledger(Path("ledgers/hungary.sqlite")) as book:
        book.set_cap(Cap(epsilon=0.1, delta=1e-5, relation="add-remove"))
    done = command("run", study, "--out", "run", "--json")
    assert_one_sentence(done, 1)
    assert "0.1" in done.err


def test_an_altered_ledger_is_a_no_and_names_the_row(command, ledger):
    database = sqlite3.connect(ledger)
    database.execute("UPDATE rows SET text = replace(text, 'poisson', 'none') WHERE number = 3")
    database.commit()
    database.close()
    done = command("ledger", "verify", ledger, "--json")
    assert_one_sentence(done, 1)
    assert "row 3" in done.err


def test_a_ledger_with_a_row_taken_out_is_a_no(command, ledger):
    database = sqlite3.connect(ledger)
    database.execute("DELETE FROM rows WHERE number = 2")
    database.commit()
    database.close()
    assert_one_sentence(command("ledger", "verify", ledger), 1)


def test_interrupting_is_a_no_without_a_traceback(command, study, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("hubbub.learning.runs.run_study.run", interrupt)
    done = command("run", study, "--json")
    assert_one_sentence(done, 130)
    assert "nothing was charged" in done.err


@pytest.mark.parametrize(("name", "stays"), [("plan", False), ("compare", True)])
def test_only_what_charges_says_so_when_it_is_interrupted(command, study, monkeypatch, name, stays):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Study, "load", interrupt)
    done = command(name, study)
    assert_one_sentence(done, 130)
    assert ("charges already in the ledgers stay" in done.err) == stays


def test_a_full_disk_is_told_in_words_and_by_the_file(command, study, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device", "runs/x")

    monkeypatch.setattr(Study, "load", full)
    done = command("plan", study)
    assert_one_sentence(done, 2)
    assert "got: runs/x: No space left on device; check the disk" in done.err


def test_the_status_of_a_party_that_has_not_begun_says_what_to_start(command, tmp_path):
    done = command("status", tmp_path)
    assert_one_sentence(done, 2)
    assert "hubbub join or hubbub serve has run" in done.err
    assert main(["status", "--json"]) == 2  # of the usual folder, which is not there


def test_the_status_names_its_values_in_words(command, tmp_path):
    status = {"party": "north", "time": time.time(), "connected": False, "unconnected": "no relay"}
    (tmp_path / "status.json").write_text(json.dumps(status))
    shown = command("status", tmp_path).out
    assert "why not connected" in shown
    assert "written, seconds ago" in shown
    assert "unconnected" not in shown


def test_interrupting_while_libraries_are_read_is_a_sentence():
    """Which takes a second on a busy machine: the first thing that a hasty user meets."""
    hasty = (
        "import sys\n"
        "class Hasty:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'numpy': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Hasty())\n"
        "from hubbub.__main__ import program; program()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", hasty], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hubbub: interrupted\n")


# Bad input ------------------------------------------------------------------------------------


EPSILON = "epsilon --noise-multiplier 1 --delta 1e-5 --steps 3"
BAD_VALUES = (
    "epsilon --noise-multiplier nan --delta 1e-5 --steps 3",
    "epsilon --noise-multiplier inf --delta 1e-5 --steps 3",
    "epsilon --noise-multiplier -1 --delta 1e-5 --steps 3",
    "epsilon --noise-multiplier 0 --delta 1e-5 --steps 3",
    "epsilon --noise-multiplier 1e-9 --delta 1e-5 --steps 3",
    "epsilon --noise-multiplier 1 --delta nan --steps 3",
    "epsilon --noise-multiplier 1 --delta 0 --steps 3",
    "epsilon --noise-multiplier 1 --delta 1.5 --steps 3",
    "epsilon --noise-multiplier 1 --delta 1e-5 --steps 0",
    "epsilon --noise-multiplier 1 --delta 1e-5 --steps -3",
    "epsilon --noise-multiplier 1 --delta 1e-5 --steps 99999999999999999999999",
    f"{EPSILON} --sample-rate 0",
    f"{EPSILON} --sample-rate 1.01",
    f"{EPSILON} --sample-rate nan",
    f"{EPSILON} --sampling full-batch --sample-rate .5",
    f"{EPSILON} --sampling full-batch --plot no/such/folder/curve.svg",
    f"{EPSILON} --sampling full-batch --plot folder",
    "delta --noise-multiplier 1 --epsilon nan --steps 3",
    "delta --noise-multiplier 1 --epsilon -2 --steps 3",
    "noise --epsilon 0 --delta 1e-5 --steps 3",
    "noise --epsilon nan --delta 1e-5 --steps 3",
    "noise --epsilon 1 --delta -1 --steps 3",
    "plan absent.toml",
    "plan folder",
    "plan bytes",
    "plan not-toml",
    "plan empty",
    "plan nan",
    "plan typo",
    "plan no-such-data",
    "run absent.toml",
    "run folder",
    "run not-toml",
    "run no-such-data",
    "run bad-option",
    "run bad-optimizer",
    "run cnn-of-rows",
    "run study.toml --baseline psychic",
    "run study.toml --out full",
    "run study.toml --out study.toml",
    "run study.toml --out study.toml/below",
    "run study.toml --device tpu",
    "keygen north --home keys --passphrase-fd -1",
    "keygen north --home keys --passphrase-fd 99999999999999999999",
    "demo --splits 0",
    "demo --splits -1",
    "demo --splits 1 --out full",
    "ledger show absent.sqlite",
    "ledger show folder",
    "ledger verify absent.sqlite",
    "ledger export absent.sqlite",
    "ledger show ledger.sqlite --delta nan",
    "ledger show ledger.sqlite --delta 2",
    "ledger verify ledger.sqlite --head abc",
    "ledger verify ledger.sqlite --head abcd",
    "budget set ledger.sqlite --epsilon nan --delta 1e-5",
    "budget set ledger.sqlite --epsilon -1 --delta 1e-5",
    "budget set ledger.sqlite --epsilon 1 --delta 0",
)
BAD_LINES = (
    "",
    "nosuch",
    "--nosuch",
    "epsilon",
    "epsilon --noise-multiplier 1 --steps 3",
    "epsilon --noise-multiplier one --delta 1e-5 --steps 3",
    "epsilon --noise-multiplier 1 --delta 1e-5 --steps 1.5",
    f"{EPSILON} --relation swap",
    f"{EPSILON} --sampling bernoulli",
    f"{EPSILON} --nosuch 1",
    f"{EPSILON} more",
    "delta --noise-multiplier 1 --steps 3",
    "noise --epsilon 1 --steps 3",
    "plan",
    "plan study.toml another.toml",
    "run",
    "run study.toml --out",
    "demo --splits many",
    "ledger",
    "ledger nosuch ledger.sqlite",
    "ledger show",
    "budget",
    "budget set ledger.sqlite --epsilon 1",
    "bench --nosuch",
)


@pytest.fixture
def shelf(tmp_path) -> Path:
    """What the bad command lines name."""
    (tmp_path / "study.toml").write_text(text())
    (tmp_path / "folder").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00study")
    (tmp_path / "not-toml").write_text("[study\nname = ")
    (tmp_path / "empty").write_text("")
    (tmp_path / "nan").write_text(text(epsilon="nan"))
    (tmp_path / "typo").write_text(text(steps="5\nstepz = 4"))
    (tmp_path / "no-such-data").write_text(text(source='"no.such.module:records"'))
    (tmp_path / "bad-option").write_text(text(records="736\noptions = { nosuch = 1 }"))
    (tmp_path / "bad-optimizer").write_text(text(optimizer='{ name = "sgd", lr = 1, beta1 = 0.5 }'))
    (tmp_path / "cnn-of-rows").write_text(text(kind='"cnn"'))
    Ledger(tmp_path / "ledger.sqlite").close()
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["", " --json"])
@pytest.mark.parametrize("line", BAD_VALUES)
def test_a_bad_value_is_one_sentence_and_exit_code_2(command, shelf, line, flag):
    done = command(*f"{line}{flag}".split())
    assert_one_sentence(done, 2)
    assert "expected " in done.err
    assert len(done.err) < 400


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_command_line_is_one_sentence_and_exit_code_2(command, shelf, line):
    done = command(*line.split())
    assert_one_sentence(done, 2)


@pytest.mark.parametrize("line", ["plan locked", "run locked", "ledger show locked"])
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_one_sentence(command, shelf, line):
    (shelf / "locked").touch(mode=0)
    assert_one_sentence(command(*line.split()), 2)


@pytest.mark.parametrize("line", ["ledger show study.toml", "ledger verify study.toml"])
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(command, shelf, line):
    done = command(*line.split())
    assert_one_sentence(done, 1)  # it might be a ledger that was damaged
    assert (shelf / "study.toml").read_text() == text()


@pytest.mark.parametrize(
    "line", ["ledger show empty", "ledger verify empty", "ledger export empty"]
)
def test_looking_at_an_empty_file_does_not_make_it_a_ledger(command, shelf, line):
    done = command(*line.split())
    assert done.code in (1, 2)
    assert (shelf / "empty").read_bytes() == b""


@pytest.mark.parametrize(
    "line",
    [
        "run no-such-data",
        "run bad-option",
        "run cnn-of-rows",
        "run study.toml --baseline psychic",
        "run study.toml --device tpu",
        "run study.toml --device cuda:99",
    ],
)
def test_a_refused_run_leaves_no_folder(command, shelf, line):
    before = sorted(shelf.iterdir())
    command(*line.split())
    assert sorted(shelf.iterdir()) in (before, sorted([*before, shelf / "runs"]))
    assert not list(shelf.glob("runs/*"))


def test_a_file_where_the_runs_should_go_is_one_sentence(command, shelf):
    (shelf / "runs").write_text("mine")
    assert_one_sentence(command("run", "study.toml"), 2)


# Help -----------------------------------------------------------------------------------------


def parsers(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()):
    """Every command's parser with the words that lead to it."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from parsers(inner, (*path, name))


ALL = list(parsers(PARSER))


def test_every_command_of_the_readme_is_there():
    names = {path[0] for path, _ in ALL if path}
    wanted = "demo plan run audit epsilon delta noise ledger budget bench"
    assert names >= set(wanted.split())
    assert {path[1] for path, _ in ALL if len(path) == 2} >= {"show", "verify", "export", "set"}


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=" ".join)
def test_help_works_and_names_every_option(command, path):
    done = command(*path, "--help")
    assert (done.code, done.err) == (0, "")
    parser = dict(ALL)[path]
    for action in parser._actions:
        assert all(option in done.out for option in action.option_strings)


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=" ".join)
def test_help_describes_the_command_and_every_option(path):
    parser = dict(ALL)[path]
    assert parser.description
    silent = [
        action.dest
        for action in parser._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert silent == []


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=" ".join)
def test_help_ends_with_an_example_that_can_be_typed(path):
    parser = dict(ALL)[path]
    assert parser.format_help().endswith(f"\n\nexample: {EXAMPLES[parser.prog]}\n")
    words = shlex.split(EXAMPLES[parser.prog])
    assert words[: 1 + len(path)] == ["hubbub", *path]
    assert PARSER.parse_args(words[1:]).command


@pytest.mark.parametrize("path", [p for p, inner in ALL if inner.get_default("command")])
def test_every_command_takes_json(path):
    assert any("--json" in action.option_strings for action in dict(ALL)[path]._actions)


@pytest.mark.parametrize(
    ("line", "command_help", "meant"),
    [
        (f"{EPSILON} --rate 1", "hubbub epsilon --help", "--sample-rate"),
        (f"{EPSILON} --noise-multiplyer 1", "hubbub epsilon --help", "--noise-multiplier"),
        ("budget set l.sqlite --epsilon 1 --delta 1e-5 --now", "hubbub budget set --help", "--new"),
        ("plan study.toml another.toml", "hubbub plan --help", ""),
    ],
)
def test_an_option_that_is_not_known_points_to_the_help_of_its_command(
    command, line, command_help, meant
):
    done = command(*line.split())
    assert_one_sentence(done, 2)
    assert done.err.endswith(f"; see {command_help}\n")
    assert f"(did you mean {meant}?)" in done.err or not meant


@pytest.mark.parametrize("value", ["", "1"])
def test_no_color_leaves_nothing_bold_either(monkeypatch, value):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", value)
    file = io.StringIO()
    terminal.console(file=file, force_terminal=True).print("[bold red]word[/]")
    assert ("\x1b" in file.getvalue()) == (not value)


# Processes ------------------------------------------------------------------------------------


START = [
    sys.executable,
    "-c",
    "from hubbub.desk.cli.main import program; program()",
]
QUICK = ["epsilon", "--noise-multiplier", "2", "--delta", "1e-5", "--steps", "1"]


def process(*arguments: str, stdout=subprocess.PIPE, unbuffered: bool = False, **set_to: str):
    """A command in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"} | set_to
    if unbuffered:
        environment["PYTHONUNBUFFERED"] = "1"
    return subprocess.run(
        [*START, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        check=False,
    )


def test_a_process_leaves_with_its_code_and_its_words_and_without_freeing_what_it_holds():
    """A stopped service would else free all of torch, a second of a processor."""
    held = (
        "import atexit, sys\n"
        "class Held:\n    def __del__(self): print('freed', flush=True)\n"
        "sys.held = Held()\n"
        "from hubbub.desk.cli.main import program\n"
        "def end(): print('ended')\n"
        "def command(): atexit.register(end); print('said'); return 1\n"
        "import hubbub.desk.cli.main as cli; cli.main = command; program()\n"
    )
    done = subprocess.run([sys.executable, "-c", held], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "said\nended\n", "")


@pytest.mark.slow
def test_a_process_prints_one_object_and_nothing_else():
    done = process(*QUICK, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout).keys() >= {"lower", "upper", "seconds"}
    assert done.stdout.count("\n") == 1


@pytest.mark.slow
def test_a_terminal_of_few_letters_is_shown_tables_all_the_same(trained):
    done = process("verify", str(trained / "run"), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "holds" in done.stdout
    assert done.stdout.isascii()


@pytest.mark.slow
def test_what_a_module_of_ones_own_prints_is_not_on_stdout(command, tmp_path, monkeypatch):
    (tmp_path / "talkative.py").write_text(
        "from hubbub.learning import datasets\n"
        "print('imported')\n"
        "from torch import nn\n"
        "def records(party):\n    print('asked for', party)\n    return datasets.heart(party)\n"
        "class Model(nn.Linear):\n"
        "    def forward(self, rows):\n"
        "        print('forward')\n        return super().forward(rows).squeeze(-1)\n"
        "def model(inputs, outputs):\n    print('built')\n    return Model(inputs[0], 1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "talkative", raising=False)
    own = text(source='"python:talkative:records"').replace("logistic", "python:talkative:model")
    (tmp_path / "own.toml").write_text(own)
    done = command("run", "own.toml", "--json")
    assert done.code == 0
    assert json.loads(done.out)
    assert done.err.startswith("imported\nasked for cleveland\n")
    assert {"built", "forward"} < set(done.err.splitlines())


def test_a_study_that_an_editor_has_begun_with_a_byte_order_mark_is_read(ask, study):
    study.write_bytes(b"\xef\xbb\xbf" + study.read_bytes())
    assert ask("plan", study)["dimension"] == 27


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_a_reader_who_hangs_up_causes_no_noise(flag, unbuffered):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = process(*QUICK, *flag, stdout=writer, unbuffered=unbuffered)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_output_causes_no_traceback(closed):
    line = f"{shlex.join([*START, *QUICK])} {closed}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (closed == "2>&-")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", [False, True])
def test_output_that_cannot_be_written_is_no_success(unbuffered):
    with Path("/dev/full").open("w") as full:
        done = process(*QUICK, "--json", stdout=full, unbuffered=unbuffered)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_accountants_commands_work_without_torch():
    script = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from hubbub.desk.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *QUICK], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "audit"])
def test_training_without_torch_says_what_to_install(name, tmp_path):
    (tmp_path / "study.toml").write_text(text())
    script = "import sys\nsys.modules['torch'] = None\nfrom hubbub.desk.cli.main import main\n"
    script += f"sys.exit(main(['{name}', 'study.toml']))\n"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install '.[learn]'" in done.stderr
    assert done.stderr.count("\n") == 1
