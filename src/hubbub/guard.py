"""Reading files that anybody may have made: ordinary, not too large, not too many values.

A file of a few bytes must not cost minutes or gigabytes, whatever it holds. So a file is opened
only if it is an ordinary one (to open a pipe would wait for whoever writes to it), is read up to a
stated size, and is counted before it is parsed. What is refused here is an `OSError` or a
`ValueError` in a few words; whoever reads knows what was expected, and says so.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, BinaryIO

MOST_BYTES = 1 << 24  # of a study, a roster, a note: all that people look at
# Of JSON and TOML: a value of a few letters takes up to a few hundred bytes once it is read.
_MOST_VALUES = 1_000_000
_MOST_ENTRIES = 400_000  # of TOML, whose reader takes some ten microseconds for each
_MOST_PARTS = 32  # of a dotted key, for which the reader's time and memory grow with the square
_KEY = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"""(?<![\w"'-]){_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{{_MOST_PARTS}}}""")
_NO_WAITING = getattr(os, "O_NONBLOCK", 0)


def open_ordinary(path: Path) -> BinaryIO:
    """An ordinary file, open to be read.

    Raises:
        OSError: it cannot be opened, or is a pipe, a device or a folder.
    """
    descriptor = os.open(path, os.O_RDONLY | _NO_WAITING)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "no ordinary file there")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path, *, most: int = MOST_BYTES) -> bytes:
    """All of an ordinary file.

    Raises:
        OSError: as for `open_ordinary`, or it has more than `most` bytes.
    """
    with open_ordinary(path) as file:
        if os.fstat(file.fileno()).st_size <= most:
            content = file.read(most + 1)  # some files say that they are empty, and never end
            if len(content) <= most:
                return content
    raise OSError(0, f"more than {most} bytes")


def read_text(path: Path, *, most: int = MOST_BYTES) -> str:
    """All of an ordinary file of UTF-8, its line ends as Python knows them.

    Raises:
        OSError: as for `read_bytes`.
        UnicodeDecodeError: it is no text.
    """
    text = read_bytes(path, most=most).decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def json_value(text: bytes | str) -> Any:
    """JSON in which every name stands once and every number is one.

    Of a name that stands twice, readers differ in which they believe.

    Raises:
        ValueError: it is not that, or has more values or levels than anybody needs.
    """
    marks: tuple[Any, ...] = ("[", "{", ",") if isinstance(text, str) else (b"[", b"{", b",")
    if sum(map(text.count, marks)) > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES} values")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refused)
    except RecursionError:
        raise ValueError("nested too deep") from None


def toml_table(text: str) -> dict[str, Any]:
    """The table of a TOML text.

    Raises:
        ValueError: it is none, or has more entries, levels or parts of a key than anybody needs;
            `tomllib.TOMLDecodeError` where it is a matter of syntax.
    """
    if sum(map(text.count, "=,[{")) > _MOST_ENTRIES:
        raise ValueError(f"more than {_MOST_ENTRIES} entries")
    if long := _LONG_KEY.search(text):
        line = 1 + text.count("\n", 0, long.start())
        raise ValueError(f"a key of more than {_MOST_PARTS} parts in line {line}")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("lists or tables nested too deep to read") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object; ValueError if one stands twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
