"""Where data is kept that is not shipped: downloads, and features that were made of records."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """`$HUBBUB_DATA`, or `~/.cache/hubbub` without it."""
    return Path(os.environ.get("HUBBUB_DATA") or Path.home() / ".cache" / "hubbub")
