"""Public weights from an installed package: by their hash, and without running its code."""

from __future__ import annotations

import hashlib
import importlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hubbub import Study
from hubbub.core.errors import IntegrityError, StudyError
from hubbub.core.tabular.records import Records
from hubbub.learning import through_frozen
from hubbub.learning.parameters import read_pinned
from hubbub.learning.study.model import Frozen

NAME = "package:some_public_weights/models/net.pth"
RECORDS = Records(
    inputs=np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32),
    targets=np.zeros(5, np.float32),
)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU())


class Malicious:
    """What a plain unpickling would run."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {Path.home() / 'was-run'}",)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that must not be imported, and the file of weights in it."""
    folder = tmp_path / "some_public_weights"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('the package was run')")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    torch.manual_seed(0)
    torch.save(network().state_dict(), folder / "models" / "net.pth")
    return folder / "models" / "net.pth"


def frozen_of(path: Path, **changed: str) -> Frozen:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    known = {"weights": NAME, "sha256": digest, "module": f"python:{__name__}:network"}
    return Frozen(**known | changed)


def test_features_are_those_of_the_weights_in_the_package(package: Path) -> None:
    features = through_frozen(frozen_of(package), RECORDS).inputs
    module = network()
    module.load_state_dict(torch.load(package, weights_only=True))
    with torch.no_grad():
        expected = torch.cat([module(row[None]) for row in torch.from_numpy(RECORDS.inputs)])
    np.testing.assert_allclose(features, expected.numpy(), rtol=1e-5, atol=1e-6)
    assert features.any()


def test_another_file_and_a_package_that_is_not_there_are_refused(package: Path) -> None:
    frozen = frozen_of(package)
    package.write_bytes(package.read_bytes() + b"\0")
    with pytest.raises(IntegrityError, match="SHA-256"):
        through_frozen(frozen, RECORDS)
    missing = frozen_of(package, weights="package:nobody_has_this/net.pth")
    with pytest.raises(IntegrityError, match="not installed here; install it"):
        through_frozen(missing, RECORDS)


@pytest.mark.parametrize("content", [Malicious(), {"a": Malicious()}, [torch.ones(2)], {"a": 3}])
def test_a_file_that_holds_more_than_tensors_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: object
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "net.pth"
    torch.save(content, path)
    with pytest.raises(IntegrityError, match="expected tensors in"):
        read_pinned(path, hashlib.sha256(path.read_bytes()).hexdigest())
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    "weights", ["package:../net.pth", "package:some/../net.pth", "package:net.pth", "net.pkl"]
)
def test_a_path_that_leaves_its_package_is_refused(weights: str) -> None:
    with pytest.raises(StudyError, match=r"model.frozen.weights"):
        Study.parse(f"""
            [study]
            name = "features"
            [parties]
            silos = 4
            [data]
            source = "python:somewhere:records"
            [model]
            kind = "logistic"
            inputs = [3]
            frozen = {{ weights = "{weights}", sha256 = "{64 * "0"}" }}
            [training]
            steps = 2
            sample_rate = 0.5
            [privacy]
            epsilon = 1.0
        """)
