"""Why a study file could not be read, in words."""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from hubbub.core.section import shortened


def syntax_fault(error: ValueError, text: str) -> str:
    """Why a text could not be read as TOML."""
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"a syntax error: {shortened(str(error), 200)}"
    if "digits" not in str(error):
        return str(error)
    # Python refuses to read whole numbers of thousands of digits.
    digits = [max(map(len, re.findall(r"\d+", line)), default=0) for line in text.split("\n")]
    return f"too long a number in line {1 + digits.index(max(digits))}"


def read_fault(error: Exception) -> str:
    """Why a file could not be read."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return "it is not a path"


def file_remedy(path: Path) -> str:
    """What to do about a file that could not be read: which one beside it may be meant."""
    names: list[str] = []
    with suppress(OSError, ValueError):
        names = [one.name for one in path.parent.iterdir() if one.suffix == ".toml"]
    close = [name for name in get_close_matches(path.name, names, n=1) if name != path.name]
    return f"did you mean {path.with_name(close[0])}?" if close else "check the path"
