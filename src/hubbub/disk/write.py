"""Files that are there as a whole or not at all, and are still there after a crash.

Who may read a file is what its writer means, whatever the umask: everybody may read what is meant
for others (`PUBLIC`), and its owner alone what is not (`PRIVATE`).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PUBLIC, PRIVATE = 0o644, 0o600


def fresh(path: Path, *, mode: int = PUBLIC) -> BinaryIO:
    """A new file, without a buffer, in the place of whatever is there; no link is followed.

    The folder may be a stranger's, whose links point at files of whoever looks into it.
    """
    path.unlink(missing_ok=True)
    return _made(path, os.O_WRONLY | os.O_EXCL, mode)


def appending(path: Path, *, mode: int = PUBLIC) -> BinaryIO:
    """A file to be written to at its end, without a buffer; made if it is not there."""
    return _made(path, os.O_WRONLY | os.O_APPEND, mode)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that a file stands for; the system frees it when the process ends.

    Raises:
        BlockingIOError: somebody holds it.
    """
    with appending(path, mode=PRIVATE) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def make_private(path: Path) -> None:
    """Make an empty file that its owner alone may read, unless there is something."""
    try:
        _made(path, os.O_WRONLY | os.O_EXCL, PRIVATE).close()
    except FileExistsError:
        return


def _made(path: Path, how: int, mode: int) -> BinaryIO:
    """A file that is open for writing; if it is new, just these may use it."""
    try:
        descriptor = os.open(path, how | os.O_CREAT | os.O_EXCL, mode)
        os.fchmod(descriptor, mode)  # the umask may allow more than is meant, or less
    except FileExistsError:
        if how & os.O_EXCL:
            raise
        descriptor = os.open(path, how | os.O_CREAT, mode)
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


def write_bytes(path: Path, content: bytes, *, durable: bool = True, mode: int = PUBLIC) -> None:
    """Write a file all at once or not at all.

    Args:
        path: the file, replaced if it is there.
        content: all of it.
        durable: it is on disk when this returns; else it may be lost with the power.
        mode: who may read it: `PUBLIC` or `PRIVATE`.
    """
    part = path.with_name(path.name + ".part")
    try:
        with fresh(part, mode=mode) as file:
            write_all(file, content)
            if durable:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def write_text(path: Path, text: str, *, durable: bool = True, mode: int = PUBLIC) -> None:
    """Write a text file all at once or not at all."""
    write_bytes(path, text.encode(), durable=durable, mode=mode)
