"""Every command that takes a study or a run, over every kind of study: an answer or a sentence."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from tests.estimation.asking.made_up import COLUMNS, KINDS, SILOS, table_of_study, write_silos

import hubbub
from hubbub import learning
from hubbub.core.errors import UncountedWarning
from hubbub.desk.cli.main import main
from hubbub.site.network.folder_files import read_roster

NO_MODEL_HERE = {"compare", "rehearse", "audit", "predict", "export", "run --baseline"}


def _model(**changes: dict[str, Any]) -> dict[str, Any]:
    """A study that trains, on the same files as one that only asks."""
    table = table_of_study(Path())
    del table["statistics"]
    columns = {name: dict(one) for name, one in COLUMNS.items() if name != "died"}
    columns["sex"]["default"] = "male"
    table["data"] |= {"target": "died", "classes": ["no", "yes"], "columns": columns}
    table["data"] |= {"capacity": 450, "test": "test.csv"}
    table |= {"model": {"kind": "logistic"}, "training": {"steps": 2, "sample_rate": 0.5}}
    for title, keys in changes.items():
        table[title] = table.get(title, {}) | keys
    return table


JOINT = {"sampling": "without-replacement", "sample_rate": 0.5}
STUDIES: dict[str, dict[str, Any]] = {
    "statistics alone": table_of_study(Path(), q=KINDS["table"], kept=KINDS["cox on numbers"]),
    "a model": _model(),
    "a model and statistics": _model(
        statistics={"epsilon": 3.0, "q": {"kind": "histogram", "column": "age", "bins": 4}}
    ),
    "evaluated and standardised": _model(
        training={"evaluate": {"every": 1, "epsilon": 1.0}},
        data={"standardise": {"epsilon": 1.0}},
    ),
    "nodes and drop-outs": _model(parties={"compute_nodes": 2, "dropouts": 1}),
    "projected": _model(
        training={
            "projection": 3,
            "projection_kind": "layers",  # the kind that is soonest planned
            "optimizer": {"name": "sgd", "lr": 0.1},
        }
    ),
    "joint batches": _model(
        training=JOINT,
        privacy={"relation": "substitute"},
        data={"counts": [400, 400, 400], "capacity": 400},
    ),
    "correlated noise": _model(
        training={
            "steps": 4,
            "sample_rate": 0.25,
            "noise": "correlated",
            "bands": 2,
            "optimizer": {"name": "sgd", "lr": 0.1},
        }
    ),
    "an amount": _model(
        data={"target": {"column": "months", "kind": "numeric", "low": 0, "high": 60}}
    ),
}
del STUDIES["joint batches"]["training"]["sample_rate"]
STUDIES["joint batches"]["training"]["batch"] = 600
_AMOUNT = STUDIES["an amount"]["data"]
del _AMOUNT["classes"], _AMOUNT["columns"]["months"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with files, keys and a study of a kind, by the kind's name."""
    home = tmp_path_factory.mktemp("commands")
    write_silos(home)
    shutil.copy(home / "north.csv", home / "test.csv")
    roles = {"agg": "aggregator", **dict.fromkeys(SILOS, "silo")}
    roles |= dict.fromkeys(("node-1", "node-2"), "node")
    for name, role in roles.items():
        assert main(["keygen", name, "--role", role, "--home", str(home / "keys" / name)]) == 0
    rosters = {}
    for nodes in (0, 2):
        everybody = list(roles)[: 1 + len(SILOS) + nodes]
        files = [str(home / "keys" / name / "identity.toml") for name in everybody]
        path = home / f"roster-{nodes}.toml"
        assert main(["roster", *files, "--out", str(path)]) == 0
        rosters[nodes] = read_roster(path).digest.hex()

    @cache
    def made(kind: str) -> Path:
        folder, table = home / kind.replace(" ", "-"), STUDIES[kind]
        shutil.copytree(home / "keys" / SILOS[0], folder / "home")
        for path in (*home.glob("*.csv"), *home.glob("roster-*.toml")):
            shutil.copy(path, folder)
        table["data"]["files"] = "{name}.csv"
        (folder / "study.toml").write_text(tomli_w.dumps(table))
        roster = rosters[table["parties"].get("compute_nodes", 0)]
        apart = table | {"parties": table["parties"] | {"roster": roster}}
        (folder / "apart.toml").write_text(tomli_w.dumps(apart))
        return folder

    return made


def ask(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command, typed in a folder."""
    monkeypatch.chdir(folder)
    return main(command.split())


def alone(folder: Path, home: Path) -> Path:
    """A folder's study and files in another one: no other test's ledgers are beside them."""
    files = [path for path in folder.iterdir() if path.suffix in (".csv", ".toml", ".py")]
    for path in files:
        shutil.copy(path, home)
    return home


def finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of the folder's study."""
    if not (folder / "run").exists():
        assert ask("run study.toml --out run --json", folder, monkeypatch) == 0
    return folder / "run"


BEFORE = {
    "plan": "plan study.toml",
    "plan --json": "plan study.toml --json",
    "check": "check study.toml",
    "approve": "approve apart.toml --roster ROSTER --home home --yes",
    "approve --json": "approve apart.toml --roster ROSTER --home home --yes --json",
    "audit": "audit study.toml --runs 2 --canaries 20 --confidence 0.999999",
    "compare": "compare study.toml --repeats 1 --baselines trusted --out compared",
    "rehearse": "rehearse study.toml",
    "check --silo": "check study.toml --silo north",
}
AFTER = {
    "verify": "verify run",
    "verify evidence": "verify run/evidence.json --json",
    "report": "report run",
    "dossier": "dossier run --fill written.toml",
    "ledger show": "ledger show ledgers/north.sqlite",
    "ledger verify": "ledger verify ledgers/north.sqlite",
    "ledger export": "ledger export ledgers/north.sqlite",
    "ledger head": "ledger head ledgers/north.sqlite --json",
    "predict": "predict run north.csv",
    "export": "export run --onnx model.onnx",
    "budget": "budget set ledgers/north.sqlite --epsilon 9 --delta 1e-5",
    "ledger show after": "ledger show ledgers/north.sqlite --json",
    "run --baseline": "run study.toml --out baseline --baseline trusted",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", STUDIES)
@pytest.mark.parametrize("command", BEFORE)
def test_every_command_answers_for_every_kind_of_study(
    command: str,
    kind: str,
    place: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = place(kind)
    nodes = STUDIES[kind]["parties"].get("compute_nodes", 0)
    typed = BEFORE[command].replace("ROSTER", f"roster-{nodes}.toml")
    code, said = ask(typed, folder, monkeypatch), capsys.readouterr()
    refused = kind == "statistics alone" and command in NO_MODEL_HERE
    assert code == (2 if refused else 0), said.err
    if refused:
        assert "statistics only" in said.err
        assert said.err.count("\n") == 1
    else:
        assert said.out


@pytest.mark.slow
@pytest.mark.parametrize("kind", STUDIES)
@pytest.mark.parametrize("command", AFTER)
def test_every_command_answers_for_a_run_of_every_kind(
    command: str,
    kind: str,
    place: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = place(kind)
    finished(folder, monkeypatch)
    capsys.readouterr()
    code, said = ask(AFTER[command], folder, monkeypatch), capsys.readouterr()
    why = "statistics" if kind == "statistics alone" and command in NO_MODEL_HERE else ""
    if command == "export" and not why and find_spec("onnxscript") is None:
        why = "pip install onnx"
    assert code == (2 if why else 0), (said.out, said.err)
    if why:
        assert said.err.count("\n") == 1
        assert why in said.err


@pytest.mark.slow
@pytest.mark.parametrize("kind", STUDIES)
def test_an_interrupted_run_of_every_kind_goes_on_and_holds(
    kind: str,
    place: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = alone(place(kind), tmp_path)
    monkeypatch.chdir(folder)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hubbub.run(hubbub.Study.load("study.toml"), "stopped", ledgers="own", progress=stop)
    assert ask("run --resume stopped --json", folder, monkeypatch) == 0
    assert ask("verify stopped", folder, monkeypatch) == 0
    assert ask("ledger verify own/north.sqlite", folder, monkeypatch) == 0
    capsys.readouterr()


@pytest.mark.slow
def test_files_have_one_ledger_wherever_results_go(
    place: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = alone(place("an amount"), tmp_path)
    finished(folder, monkeypatch)
    capsys.readouterr()
    before = spent(folder, monkeypatch, capsys)
    assert ask("run study.toml --out elsewhere/run --json", folder, monkeypatch) == 0
    assert "counted" not in capsys.readouterr().err
    assert not (folder / "elsewhere" / "ledgers").exists()
    assert spent(folder, monkeypatch, capsys) > before
    apart = "run study.toml --out apart/run --ledgers apart/own --json"
    assert ask(apart, folder, monkeypatch) == 0
    assert "no ledger counts their sum" in capsys.readouterr().err


@pytest.mark.slow
def test_files_have_one_ledger_by_every_door_and_under_no_other_silos_name(
    place: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = alone(place("an amount"), tmp_path)
    monkeypatch.chdir(folder)
    study = hubbub.Study.load("study.toml")
    hubbub.run(study, "first/run")
    hubbub.run(study, "second/run")
    assert not (folder / "second" / "ledgers").exists()
    names = {name: f"{name}x" for name in study.parties.names}
    text = (folder / "study.toml").read_text()
    for name, other in names.items():
        text = text.replace(f'"{name}"', f'"{other}"')
        (folder / f"{other}.csv").symlink_to(f"{name}.csv")
    renamed = hubbub.Study.parse(text)
    assert renamed.parties.names == (*names.values(),)
    with pytest.warns(UncountedWarning, match="no ledger counts their sum"):
        hubbub.run(renamed, "third/run")


def spent(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> int:
    """How many rows a ledger has that stands beside the first run."""
    assert ask("ledger verify ledgers/north.sqlite --json", folder, monkeypatch) == 0
    return int(json.loads(capsys.readouterr().out)["entries"])


@pytest.mark.slow_cases("")
@pytest.mark.parametrize("more", ["", " --json", " --out scores.csv"])
def test_scores_that_are_no_numbers_are_no_prediction(
    more: str,
    place: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = place("a model")
    broken = folder / "broken"
    if not broken.exists():
        shutil.copytree(finished(folder, monkeypatch), broken)
        module = hubbub.load(broken).module
        header = learning.load_model(broken / "model.safetensors", module)
        next(module.parameters()).data.fill_(float("nan"))
        learning.save_model(broken / "model.safetensors", module, header)
    capsys.readouterr()
    assert ask(f"predict broken north.csv{more}", folder, monkeypatch) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "expected finite predictions" in said.err
    assert not (folder / "scores.csv").exists()


@pytest.mark.slow
def test_python_runs_the_command_line_by_the_packages_name() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "hubbub", "--version"], capture_output=True, text=True, check=True
    )
    assert hubbub.__version__ in said.stdout
