"""Files that are there as a whole or not at all, and are still there after a crash."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

PUBLIC, SECRET = 0o644, 0o600  # who may read a file, whatever the umask


def fresh(path: Path, mode: int | None = None) -> BinaryIO:
    """A new file, without a buffer, in the place of whatever is there; no link is followed.

    The folder may be a stranger's, whose links point at files of whoever looks into it.

    Args:
        path: the file.
        mode: who may read it; what the umask leaves if None.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(path, flags, 0o666 if mode is None else SECRET)
    if mode is not None:
        os.fchmod(descriptor, mode)
    return os.fdopen(descriptor, "wb", buffering=0)


def write_all(file: BinaryIO, content: bytes | memoryview) -> None:
    """All of it into a file without a buffer: a disk that is nearly full takes a part."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def sync_folder(folder: Path) -> None:
    """Have a new name on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(
    path: Path, content: bytes, *, durable: bool = True, mode: int | None = None
) -> None:
    """Write a file all at once or not at all.

    Args:
        path: the file, replaced if it is there.
        content: all of it.
        durable: it is on disk when this returns; else it may be lost with the power.
        mode: who may read it; what the umask leaves if None.
    """
    part = path.with_name(path.name + ".part")
    try:
        with fresh(part, mode) as file:
            write_all(file, content)
            if durable:
                os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def write_text(path: Path, text: str, *, durable: bool = True, mode: int | None = None) -> None:
    """Write a text file all at once or not at all."""
    write_bytes(path, text.encode(), durable=durable, mode=mode)
