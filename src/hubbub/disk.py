"""Files that are there as a whole or not at all, and are still there after a crash."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def fresh(path: Path) -> BinaryIO:
    """A new file in the place of whatever is there; a link is replaced and not followed.

    The folder may be a stranger's, whose links point at files of whoever looks into it.
    """
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb", buffering=0)


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file all at once or not at all.

    Args:
        path: the file, replaced if it is there.
        content: all of it.
        durable: it is on disk when this returns; else it may be lost with the power.
    """
    part = path.with_name(path.name + ".part")
    with fresh(part) as file:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]
        if durable:
            os.fsync(file.fileno())
    part.replace(path)
    if not durable:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name too
    finally:
        os.close(folder)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a text file all at once or not at all."""
    write_bytes(path, text.encode(), durable=durable)
