"""Images and arrays by a manifest, with a model of one's own: in `fit`, and among machines."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hubbub
from hubbub.core.errors import DataError
from hubbub.core.study.foreign_code import source_hash
from hubbub.core.verification.replay.checking import verify
from network.consortium import Consortium, table

SILOS = ("north", "south", "west")
PARTIES = (*SILOS, "test")
CODE = """
from pathlib import Path
from torch import nn
from hubbub import manifest_records

FOLDER = Path({folder!r})

def records(party):
    return manifest_records(FOLDER / party / "manifest.csv", classes=["well", "ill"])

class Network(nn.Module):
    def __init__(self, planes, outputs):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(planes, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(16, outputs),
        )

    def forward(self, images):
        return self.layers(images).squeeze(-1)

def network(inputs, outputs):
    return Network(inputs[0], outputs)
"""


def lay(folder: Path, seed: int, count: int = 40) -> None:
    """Images, the ill ones brighter on the left, and their manifest."""
    folder.mkdir(parents=True)
    draw, rows = np.random.default_rng(seed), ["path,label,sha256"]
    for place in range(count):
        image = draw.uniform(-0.2, 0.2, (1, 8, 8)).astype(np.float32)
        image[:, :, :4] += 1.0 if place % 2 else -1.0
        np.save(folder / f"{place}.npy", image)
        digest = hashlib.sha256((folder / f"{place}.npy").read_bytes()).hexdigest()
        rows.append(f"{place}.npy,{'ill' if place % 2 else 'well'},{digest}")
    (folder / "manifest.csv").write_text("\n".join(rows) + "\n")


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of records and a network, and each party's images."""
    for seed, party in enumerate(PARTIES):
        lay(tmp_path / "images" / party, seed)
    path = tmp_path / "code" / "scans.py"
    path.parent.mkdir()
    path.write_text(CODE.format(folder=str(tmp_path / "images")))
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.delitem(sys.modules, "scans", raising=False)
    return path


def asked() -> dict[str, Any]:
    """A study of them, with so large an epsilon that what is learned shows.

    A step's noise is .95 of what one image may add, beside some sixty images that agree: in every
    trial all of the test's were ranked rightly, where .9 is asked for.
    """
    made = table(SILOS, model={"kind": "python:scans:network", "inputs": [1, 8, 8]})
    made["data"] = {"source": "python:scans:records", "records": 120}
    made["training"] = {"steps": 12, "sample_rate": 0.5, "optimizer": {"name": "adam", "lr": 0.1}}
    made["privacy"] = {"epsilon": 30.0, "delta": 1e-5}
    names = ("python:scans:network", "python:scans:records")
    made["study"]["code"] = {name: source_hash(name) for name in names}
    return made


@pytest.mark.slow
def test_images_by_a_manifest_are_learned_among_machines(tmp_path: Path, code: Path) -> None:
    parties = Consortium.gather(tmp_path, asked())
    result = parties.serve()
    assert result.final["step"] == 12
    assert result.final["auc"] > 0.9
    assert all(finding.holds for finding in verify(tmp_path / "run"))


@pytest.mark.slow
def test_a_silo_whose_images_are_others_stays_away_without_a_name(
    tmp_path: Path, code: Path
) -> None:
    parties = Consortium.gather(tmp_path, asked())
    np.save(tmp_path / "images" / "south" / "3.npy", np.zeros((1, 8, 8), dtype=np.float32))
    with pytest.raises(hubbub.core.errors.HubbubError) as raised:
        parties.serve()
    assert "3.npy" not in "".join([str(raised.value), *parties.said])


@pytest.mark.slow
def test_images_by_a_manifest_are_learned_in_fit(tmp_path: Path, code: Path) -> None:
    from scans import Network, records  # type: ignore[import-not-found]

    read = {party: records(party) for party in PARTIES}
    silos = {name: (read[name].inputs, read[name].targets) for name in SILOS}
    result = hubbub.fit(
        silos,
        epsilon=30,
        model=Network(1, 1),
        test=(read["test"].inputs, read["test"].targets),
        steps=12,
        sample_rate=0.5,
        optimizer={"name": "adam", "lr": 0.1},
    )
    assert result.final["auc"] > 0.9
    with pytest.raises(DataError, match="out of"):
        hubbub.manifest_records(tmp_path / "images" / "north" / "manifest.csv", classes=["a", "b"])
