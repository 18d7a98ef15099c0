"""Images and arrays by a manifest: each with its label, and its hash."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from hubbub import manifest_records
from hubbub.core.errors import DataError

NAME = "Quackenbush"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def listed(folder: Path, names: list[str], labels: str = "ab") -> Path:
    """A manifest of some files, whose labels take turns."""
    rows = [
        f"{name},{labels[k % len(labels)]},{digest(folder / name)},p{k // 2}"
        for k, name in enumerate(names)
    ]
    path = folder / "manifest.csv"
    path.write_text("\n".join(["path,label,sha256,patient", *rows]) + "\n")
    return path


@pytest.fixture
def arrays(tmp_path: Path) -> list[str]:
    names = [f"{NAME}-{k}.npy" for k in range(6)]
    for k, name in enumerate(names):
        np.save(tmp_path / name, np.full((2, 3), k, dtype=np.float64))
    return names


def test_a_manifest_gives_each_file_its_place_and_label(tmp_path: Path, arrays: list[str]):
    records = manifest_records(listed(tmp_path, arrays), classes=["a", "b"])
    assert records.inputs.shape == (6, 2, 3)
    assert records.inputs[:, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert records.targets.tolist() == [0, 1, 0, 1, 0, 1]
    assert records.units == 6
    many = manifest_records(listed(tmp_path, arrays, "abc"), classes=["a", "b", "c"], patients=True)
    assert many.targets.dtype == np.int64
    assert many.units == 3


def test_images_become_numbers_from_0_to_1(tmp_path: Path):
    image = pytest.importorskip("PIL.Image")
    for name, mode, colour in (("x.png", "RGB", (255, 0, 51)), ("y.png", "RGB", (0, 0, 0))):
        image.new(mode, (4, 3), colour).save(tmp_path / name)
    records = manifest_records(listed(tmp_path, ["x.png", "y.png"]), classes=["a", "b"])
    assert records.inputs.shape == (2, 3, 3, 4)
    assert records.inputs[0, :, 0, 0].tolist() == pytest.approx([1, 0, 0.2])


def test_a_file_that_is_not_the_manifests_is_refused_without_its_name(
    tmp_path: Path, arrays: list[str]
):
    path = listed(tmp_path, arrays)
    good = path.read_text()
    np.save(tmp_path / arrays[3], np.zeros((2, 3)))
    spoilt = {
        "another file": good,
        "no file": good.replace(arrays[3], f"{NAME}-9.npy"),
        "another label": listed(tmp_path, arrays).read_text().replace(",b,", f",{NAME},"),
        "no column": good.replace("sha256", "md5"),
        "no rows": "path,label,sha256\n",
    }
    np.save(tmp_path / arrays[4], np.zeros((5, 5)))
    spoilt["another shape"] = listed(tmp_path, arrays).read_text()
    for why, text in spoilt.items():
        path.write_text(text)
        with pytest.raises(DataError, match="expected") as raised:
            manifest_records(path, classes=["a", "b"])
        assert NAME not in str(raised.value), why
        assert raised.value.__context__ is None
