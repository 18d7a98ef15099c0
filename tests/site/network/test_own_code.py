"""Code that a study names, among machines: agreed on and approved by its hash."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import StudyError
from hubbub.core.planning.study_plan import plan
from hubbub.core.study.foreign_code import source_hash
from hubbub.site.network.checkup import checkup
from hubbub.site.network.join import Machine
from hubbub.site.network.party_folder import PartyFolder
from network.consortium import Consortium, table

SILOS = ("east", "north", "west")
NAME = "python:clinic.survival:squares"
CODE = """
def squares(outputs, targets):
    return (outputs - targets) ** 2

def worst(targets, predictions):
    return abs(targets - predictions).max()
"""


@pytest.fixture
def clinic(tmp_path, monkeypatch) -> Path:
    """A package with a module in it, whose `__init__` must not run before a run does."""
    package = tmp_path / "code" / "clinic"
    package.mkdir(parents=True)
    mark = tmp_path / "ran"
    (package / "__init__.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    (package / "survival.py").write_text(CODE)
    monkeypatch.syspath_prepend(package.parent)
    for name in ("clinic", "clinic.survival"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return package


def amounts(**changes: Any) -> dict[str, Any]:
    """A study of amounts with a loss and a metric of its own."""
    made = table(
        SILOS,
        model={"loss": NAME, "inputs": [2]},
        training={"metrics": ["python:clinic.survival:worst"]},
    )
    made["data"] = {
        "files": "../{name}.csv",
        "test": "../test.csv",
        "target": {"kind": "numeric", "column": "stay", "low": 0, "high": 10},
        "records": 90,
    }
    names = (NAME, "python:clinic.survival:worst")
    made["study"] |= {"code": {name: source_hash(name) for name in names}} | changes
    return made


def gathered(home: Path, made: dict[str, Any]) -> Consortium:
    """Everybody, with files of records beside their folders."""
    random = np.random.default_rng(0)
    for name in (*SILOS, "test"):
        rows = random.uniform(-1, 1, (30, 2)).round(3).tolist()
        lines = [f"{a},{b},{5 + 3 * a:.3f}\n" for a, b in rows]
        (home / f"{name}.csv").write_text("a,b,stay\n" + "".join(lines))
    return Consortium.gather(home, made)


@pytest.mark.slow
def test_amounts_are_learned_among_machines_with_code_that_all_agreed_on(tmp_path, clinic) -> None:
    parties = gathered(tmp_path, amounts())
    assert not (tmp_path / "ran").exists()
    result = parties.serve()
    assert result.final["step"] == 3
    assert {"rmse", "mae", "worst"} <= set(result.final)
    assert (tmp_path / "ran").exists()


def test_a_silo_whose_source_was_changed_since_it_approved_refuses(tmp_path, clinic) -> None:
    parties = gathered(tmp_path, amounts())
    silo, study = parties.sites["east"], parties.study
    assert silo.study(study.id) == study
    (clinic / "survival.py").write_text(CODE + "# another line\n")
    with pytest.raises(StudyError, match=r"expected the source of python:clinic\.survival:sq"):
        silo.study(study.id)
    with pytest.raises(StudyError, match=r"as study\.code says, found"):
        silo.approve(study, silo.roster)
    (clinic / "survival.py").write_text(CODE)
    assert silo.study(study.id) == study
    (silo.home / "approved" / f"{study.id.hex()}.code").unlink()
    with pytest.raises(StudyError, match="approve the study again"):
        silo.study(study.id)


def test_a_silo_pins_code_that_the_study_leaves_to_each(tmp_path, clinic) -> None:
    made = table(SILOS, data={"source": "python:clinic.survival:records"})
    del made["data"]["target"]
    parties = gathered(tmp_path, made)
    assert not parties.study.code
    (clinic / "survival.py").write_text(CODE + "# another line\n")
    with pytest.raises(StudyError, match="to be the one that was approved"):
        parties.sites["north"].study(parties.study.id)
    assert not (tmp_path / "ran").exists()


def test_a_loss_without_a_hash_is_not_approved(tmp_path, clinic) -> None:
    with pytest.raises(StudyError, match=rf'add code = {{ "{NAME}" = "{source_hash(NAME)}" }}'):
        gathered(tmp_path, amounts(code={}))
    PartyFolder.opened(tmp_path / "east")
    assert not (tmp_path / "ran").exists()


MODELS = """
import torch

class Unrolled(torch.nn.Linear):
    def __init__(self, own):
        super().__init__(2, 2)
        self.own = own

    def forward(self, x):
        for _ in range(int((x != 0).sum(1).max()) if self.own else 3):
            x = super().forward(x)
        return x[:, 0]

def to_its_end(inputs, outputs):
    return Unrolled(True)

def three_times(inputs, outputs):
    return Unrolled(False)

def not_at_all(inputs, outputs):
    return torch.nn.BatchNorm1d(2)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("to_its_end", "does more work for some than for others: the time reveals something"),
        ("three_times", "with the same work for each"),
        ("not_at_all", "expected layers that treat each record alone"),
    ],
)
def test_a_silo_that_approved_a_model_sees_what_its_work_depends_on(
    tmp_path, clinic, factory, says
) -> None:
    (clinic / "models.py").write_text(MODELS)
    kind = f"python:clinic.models:{factory}"
    made = table(SILOS, model={"kind": kind, "inputs": [2]})
    parties = gathered(tmp_path, made)
    (noted,) = [one for one in plan(parties.study).warnings if "the time would reveal it" in one]
    assert kind in noted
    assert not (tmp_path / "ran").exists()
    found = {one.check: one for one in checkup(parties.sites["east"], Machine())}
    assert says in found["model"].found
    assert found["model"].well is (factory != "not_at_all")


def test_a_module_that_is_not_there_has_no_hash(clinic) -> None:
    assert source_hash("python:clinic.nothing:f") == ""
    assert source_hash("python:no_such_clinic.at_all:f") == ""
    assert source_hash("python:builtins:len") == "built-in"
    assert len(source_hash("python:clinic:f")) == 64
