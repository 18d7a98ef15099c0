"""Files that are there as a whole or not at all, and are still there after a crash."""

from __future__ import annotations

import os
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file all at once or not at all; it is on disk when this returns."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name too
    finally:
        os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Write a text file all at once or not at all."""
    write_bytes(path, text.encode())
