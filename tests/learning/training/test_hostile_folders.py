"""Every command on a stranger's run folder, whatever lies in it, ends soon and in a sentence."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hubbub import learning
from hubbub.core.errors import HubbubError, IntegrityError
from hubbub.core.tabular.records import Standardisation
from hubbub.desk.cli.main import main
from hubbub.desk.report.report_of_run import write_report
from hubbub.learning import datasets
from hubbub.learning.runs.run_study import run
from hubbub.learning.runs.trained_model import load
from run.finished import a_study

ASKED = (("[data]\n", "[data]\nstandardise = { epsilon = 0.1, bound = 5.0 }\n"),)
COMMANDS = {
    "verify": ("done", ["verify", "{}"]),
    "report": ("done", ["report", "{}"]),
    "status": ("done", ["status", "{}"]),
    "predict": ("done", ["predict", "{}", "{}/../new.csv"]),
    "run --resume": ("half", ["run", "--resume", "{}"]),
}
# What of a run's folder a command reads, or writes; of a pattern the first that is there.
_RUN = ("study.toml", "plan.json", "run.json", "metrics.jsonl", "transcript", "transcript/*.frames")
_END = ("evidence.json", "statistics.json", "comparison.json", "report.html", "report.html.part")
ENTRIES = {
    "verify": (*_RUN, "model.safetensors", "evidence.json", "standardisation.json", "audit.json"),
    "report": ("plan.json", "run.json", "metrics.jsonl", *_END),
    "status": ("status.json", "events.jsonl", "run.json"),
    "predict": ("study.toml", "model.safetensors", "standardisation.json"),
    "run --resume": (
        *(*_RUN, "lock", "checkpoints", "checkpoints/*.safetensors", "standardisation.json"),
        *("audit.json", "model.safetensors.part", "tables"),
    ),
}


def a_socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # its name may not be long
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(path.name)
    os.chdir(before)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": a_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to(path.parent / "elsewhere"),
    "link out of the folder": lambda path: path.symlink_to(path.parents[1] / "new.csv"),
    "folder": lambda path: (path.mkdir(), (path / "a").touch()),
    "junk": lambda path: path.write_bytes(b"\xff(" * 500),
    "nothing in it": Path.touch,
    "brackets": lambda path: path.write_text("[" * 10_000),
    "a file with a hole": lambda path: (path.touch(), os.truncate(path, 2**40)),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and one that was interrupted."""
    home = tmp_path_factory.mktemp("hostile")
    run(a_study(steps=3, changes=ASKED), home / "done")

    def stop(step: int, _: object) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(a_study(steps=3, changes=ASKED), home / "half", progress=stop)
    names = [column.name for column in datasets.HEART_COLUMNS]
    (home / "new.csv").write_text(",".join(names) + "\n")
    return home


@pytest.fixture(autouse=True)
def nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What would wait for ever fails instead; and what is written beside the run, is seen."""
    there = tmp_path / "here"
    there.mkdir()
    monkeypatch.chdir(there)

    def late(*_: object) -> None:
        raise KeyboardInterrupt("it waits for ever")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    assert not list(there.iterdir())


def copied(runs: Path, which: str, home: Path) -> Path:
    """A copy of a run's folder, and of its ledgers, which may be spoilt."""
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(runs / which, home / "run")
    shutil.copy(runs / "new.csv", home)
    if which == "half":
        shutil.copytree(runs / "ledgers", home / "ledgers")
        notes = json.loads((home / "run" / "run.json").read_text())
        notes["ledgers"] = str(home / "ledgers")
        (home / "run" / "run.json").write_text(json.dumps(notes))
    return home / "run"


def spoilt(folder: Path, entry: str, kind: str) -> None:
    path = next(iter(folder.glob(entry)), folder / entry)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    KINDS[kind](path)


def said_in_a_sentence(capsys: pytest.CaptureFixture[str], command: str, folder: Path) -> int:
    code = main([one.format(folder) for one in COMMANDS[command][1]])
    error = capsys.readouterr().err
    if code == 2 or error:
        told = [line for line in error.splitlines() if not line.startswith("resuming")]
        assert len(told) == (code != 0), error
        assert all(line.startswith("hubbub: expected ") for line in told), error
    assert code in (0, 1, 2)
    return code


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links of POSIX")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_lies_in_the_place_of_a_file_is_refused_or_passed_over(
    runs, tmp_path, capsys, command, kind
) -> None:
    for entry in ENTRIES[command]:
        folder = copied(runs, COMMANDS[command][0], tmp_path / "copy")
        whole = (tmp_path / "copy" / "new.csv").read_bytes()
        spoilt(folder, entry, kind)
        said_in_a_sentence(capsys, command, folder)
        assert not (folder / "elsewhere").exists(), entry
        assert (tmp_path / "copy" / "new.csv").read_bytes() == whole, entry


@pytest.mark.parametrize(
    "entry", ["lock", "checkpoints", "transcript", "transcript/other", "tables"]
)
def test_a_run_does_not_go_on_through_links(runs, tmp_path, capsys, entry) -> None:
    folder = copied(runs, "half", tmp_path / "copy")
    target = tmp_path / "target"
    target.mkdir()
    path = folder / entry
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    ledgers = [one.read_bytes() for one in sorted((tmp_path / "copy" / "ledgers").glob("*.sqlite"))]
    assert said_in_a_sentence(capsys, "run --resume", folder) == 1
    assert not list(target.iterdir())
    after = [one.read_bytes() for one in sorted((tmp_path / "copy" / "ledgers").glob("*.sqlite"))]
    assert after == ledgers


# Numbers ------------------------------------------------------------------------------------------

VALUES = [10**9, 10**400, -1, 1e308, "<b>", None, [], {}, [[1]]]


def places(plain: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a value; of a list, its first alone."""
    if before:
        yield before
    first = plain[:1] if isinstance(plain, list) else ()
    for key, value in plain.items() if isinstance(plain, dict) else enumerate(first):
        yield from places(value, (*before, key))


def replaced(text: str, place: tuple[Any, ...], value: object) -> str:
    plain = inside = json.loads(text)
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return json.dumps(plain)


@pytest.mark.quick_cases(
    "standardisation.json-predict-'<b>'",
    "standardisation.json-predict-100000000000",
    "standardisation.json-predict-1e+308",
    "standardisation.json-predict-None",
)
@pytest.mark.slow_cases(
    *(f"plan.json-report-{value}" for value in (10**9, -1, [], {})),
    *(f"standardisation.json-run --resume-{value}" for value in (10**9, -1, [], {})),
    *(f"run.json-run --resume-{value}" for value in (-1, 1e308, None, [[1]])),
)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:12])
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("plan.json", "report"),
        ("metrics.jsonl", "report"),
        ("metrics.jsonl", "verify"),
        ("run.json", "report"),
        ("run.json", "run --resume"),
        ("standardisation.json", "predict"),
        ("standardisation.json", "run --resume"),
    ],
)
def test_odd_values_are_refused_or_passed_over(
    runs, tmp_path, capsys, name, command, value
) -> None:
    folder = copied(runs, COMMANDS[command][0], tmp_path / "copy")
    text = (folder / name).read_text()
    text = text.splitlines()[-1] if name.endswith("jsonl") else text
    for place in places(json.loads(text)):
        if command == "run --resume":
            folder = copied(runs, "half", tmp_path / "copy")
        (folder / name).write_text(replaced(text, place, value) + "\n")
        said_in_a_sentence(capsys, command, folder)


def test_a_report_of_more_rows_than_a_chart_can_show_is_refused(runs, tmp_path) -> None:
    folder = copied(runs, "done", tmp_path / "copy")
    (folder / "metrics.jsonl").write_text("{}\n" * 200_000)
    with pytest.raises(IntegrityError, match="as a run writes them"):
        write_report(folder)


def test_a_whole_number_past_all_measure_standardises_nothing(tmp_path) -> None:
    path = tmp_path / "standardisation.json"
    path.write_text(json.dumps({"shift": [10**400], "scale": [1]}))
    with pytest.raises(IntegrityError, match="found something else"):
        Standardisation.read(path, 1)


@pytest.mark.parametrize("shape", ["[]", "[true]", "26", "", "[1e9]", "[" * 5000])
def test_a_model_of_records_without_a_shape_is_refused(runs, tmp_path, shape) -> None:
    torch = pytest.importorskip("torch")
    folder = copied(runs, "done", tmp_path / "copy")
    module = torch.nn.Linear(26, 1)
    learning.save_model(folder / "model.safetensors", module, {"inputs": shape})
    with pytest.raises(IntegrityError, match="to state the shape of a record"):
        load(folder, model=module)


@pytest.mark.parametrize("shape", ["[1000000000000]", f"[{10**400}]", "[3, 4000000, 4000000]"])
def test_a_model_that_states_a_giant_shape_is_refused_before_it_is_made(
    runs, tmp_path, shape
) -> None:
    torch = pytest.importorskip("torch")
    folder = copied(runs, "done", tmp_path / "copy")
    learning.save_model(folder / "model.safetensors", torch.nn.Linear(2, 1), {"inputs": shape})
    with pytest.raises(HubbubError, match="expected"):
        load(folder)
