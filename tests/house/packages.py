"""Packages of others, as pip would install them, in the process of a test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hubbub.core.registered import forget

OUTSIDE = Path(__file__).parent / "outside"


def install(folder: Path, name: str, points: str, *modules: str) -> None:
    """A package of this name with its entry points, and copies of modules in `OUTSIDE`."""
    for module in modules:
        shutil.copy(OUTSIDE / f"{module}.py", folder)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(points)


@contextmanager
def found_in(folder: Path) -> Iterator[None]:
    """Packages in a folder are found, and what was found before is forgotten, as at a start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        forget()
        yield
    forget()
