"""Code that somebody's run folder names does not run, unless it is known here or trusted aloud."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import hubbub
from hubbub import Study
from hubbub.core.errors import StudyError
from hubbub.core.study import foreign_code
from hubbub.core.study.foreign_code import source_hash
from hubbub.desk.cli.main import main
from hubbub.site.network.party_folder import PartyFolder

HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")
NAME = "python:factory_of_strangers:made"
CODE = """
import torch
open({mark!r}, "w").close()

def made(inputs, outputs):
    return torch.nn.Sequential(torch.nn.Linear(26, 1), torch.nn.Flatten(0))
"""


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once the factory's module has run."""
    found = tmp_path / "ran"
    (tmp_path / "factory_of_strangers.py").write_text(CODE.format(mark=str(found)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "factory_of_strangers", raising=False)
    return found


def a_study(*, pinned: bool = True) -> Study:
    text = HEART.replace('kind = "logistic"', f'kind = "{NAME}"\ninputs = [26]')
    text = text.replace("steps = 60", "steps = 2")
    if pinned:
        stated = f'code = {{ "{NAME}" = "{source_hash(NAME)}" }}'
        text = text.replace("[study]\n", f"[study]\n{stated}\n")
    return Study.parse(text)


def came_from_elsewhere(mark: Path) -> None:
    """As on the machine of somebody who was handed the folder, and has run nothing of it."""
    shutil.rmtree("state")
    mark.unlink(missing_ok=True)
    sys.modules.pop("factory_of_strangers", None)


@pytest.fixture
def folder(mark: Path) -> Path:
    """A finished run of a stranger's, and a table to score."""
    hubbub.run(a_study(), "run")
    assert mark.exists()
    header = ",".join(["age", "sex"])
    Path("new.csv").write_text(f"{header}\n50,male\n")
    came_from_elsewhere(mark)
    return Path("run")


@pytest.fixture
def stopped(mark: Path) -> Path:
    """A run of a stranger's that was interrupted."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hubbub.run(a_study(), "run", progress=stop)
    came_from_elsewhere(mark)
    return Path("run")


def refused(capsys: pytest.CaptureFixture[str], *typed: object) -> None:
    assert main([*map(str, typed)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("hubbub: expected code that was approved or run by this user before")
    assert NAME in said
    assert "--trust-code" in said
    assert said.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [("predict", "run", "new.csv"), ("export", "run", "--onnx", "a.onnx")]
)
def test_a_command_that_needs_the_module_says_whose_code_it_would_run(
    folder, mark, capsys, command
) -> None:
    refused(capsys, *command)
    assert not mark.exists()
    main([*command, "--trust-code"])
    assert mark.exists()


@pytest.mark.slow
def test_load_runs_what_is_trusted_and_still_compares_its_hash(folder, mark) -> None:
    with pytest.raises(StudyError, match="trust_code=True"):
        hubbub.load(folder)
    assert not mark.exists()
    code = Path("factory_of_strangers.py")
    honest = code.read_text()
    code.write_text(honest + "# another line\n")
    with pytest.raises(StudyError, match=r"as study\.code says, found"):
        hubbub.load(folder, trust_code=True)
    assert not mark.exists()
    code.write_text(honest)
    trained = hubbub.load(folder, trust_code=True)
    assert trained.predict(np.zeros((2, 26), np.float32)).shape == (2,)
    with pytest.raises(StudyError, match="trust_code=True"):
        hubbub.load(folder)  # once is not for ever


@pytest.mark.slow
def test_a_module_that_is_handed_over_needs_no_code(folder, mark) -> None:
    torch = pytest.importorskip("torch")
    own = torch.nn.Sequential(torch.nn.Linear(26, 1), torch.nn.Flatten(0))
    hubbub.load(folder, model=own)
    assert not mark.exists()


@pytest.mark.slow
def test_a_run_of_strangers_is_not_gone_on_with_unless_trusted(stopped, mark, capsys) -> None:
    refused(capsys, "run", "--resume", "run")
    with pytest.raises(StudyError, match="trust_code=True"):
        hubbub.resume(stopped)
    assert not mark.exists()
    assert main(["run", "--resume", "run", "--trust-code"]) == 0
    assert mark.exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "report", "status"])
def test_commands_that_only_look_run_nothing(folder, mark, command) -> None:
    main([command, "run"])
    assert not mark.exists()


@pytest.mark.slow
def test_what_this_user_has_run_is_known_until_it_is_another(mark) -> None:
    hubbub.run(a_study(pinned=False), "run")
    assert hubbub.load("run").shape == (26,)
    with Path("factory_of_strangers.py").open("a") as file:
        file.write("# another line\n")
    mark.unlink()
    with pytest.raises(StudyError, match="trust_code=True"):
        hubbub.load("run")
    assert not mark.exists()


def test_what_this_user_has_approved_is_known_until_it_is_withdrawn(mark) -> None:
    from hubbub.site.network.folder_files import roster_of

    names = (*Study.parse(HEART).parties.names, "aggregator")
    homes = [
        PartyFolder.made(Path(name), name, "aggregator" if name == "aggregator" else "silo")
        for name in names
    ]
    roster = roster_of([one.keys.identity for one in homes])
    text = a_study().toml.replace("[parties]", f'[parties]\nroster = "{roster.digest.hex()}"')
    study = Study.parse(text)
    homes[0].approve(study, roster)
    assert foreign_code.knows(NAME, source_hash(NAME))
    homes[0].withdraw(study.id)
    assert not foreign_code.knows(NAME, source_hash(NAME))


Forgery = Callable[[Path, Path], None]
FORGERIES: dict[str, Forgery] = {
    "a link": lambda path, other: path.symlink_to(other),
    "a file that others may write": lambda path, other: other.rename(path).chmod(0o666),
    "a folder that others may write": lambda path, other: (
        other.rename(path),
        path.parent.chmod(0o777),
    )[0],
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_others_can_have_put_there_makes_no_code_known(mark, forgery) -> None:
    foreign_code.note(NAME, "00")
    assert foreign_code.knows(NAME, "00")
    (path,) = Path("state/hubbub/code").iterdir()
    path.rename("other")
    FORGERIES[forgery](path.absolute(), Path("other").absolute())
    assert not foreign_code.knows(NAME, "00")


@pytest.mark.slow
def test_approvals_that_lie_beside_a_strangers_run_make_nothing_known(folder, mark) -> None:
    approved = Path("hubbub-home/approved")
    approved.mkdir(parents=True)
    (approved / "a.code").write_text(f'{{"{NAME}": "{source_hash(NAME)}"}}')
    with pytest.raises(StudyError, match="trust_code=True"):
        hubbub.load(folder)
    assert not mark.exists()
