"""What parties are called after their files, and the one pattern that leads to all of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from hubbub.core.study.parties import is_name, is_reserved

_ENDS = (".csv", ".parquet", "/")
_LETTER = re.compile(r"[a-zA-Z0-9]")


def party_names(paths: Sequence[Path]) -> tuple[tuple[str, ...], str]:
    """Names that are allowed and differ, and the pattern with {name} that leads to the files.

    >>> party_names([Path("data/silo-north.csv"), Path("data/silo-south.csv")])
    (('north', 'south'), 'data/silo-{name}.csv')
    >>> party_names([Path("Nord Süd.csv"), Path("b.csv")])
    (('nord-sud', 'b'), '')

    Args:
        paths: of the files.

    Returns:
        A name for each file, and the pattern; empty where the files' names fit none.
    """
    texts = [path.as_posix() + "/" * path.is_dir() for path in paths]
    before, after = _shared(texts)
    names = [text[len(before) : len(text) - len(after)] for text in texts]
    fits = all(text.endswith(_ENDS) for text in texts) and after.endswith(_ENDS)
    if fits and _are_good(names):
        return tuple(names), f"{before}{{name}}{after}"
    return _made_up([path.stem for path in paths]), ""


def _are_good(names: Sequence[str]) -> bool:
    """Whether parties can be called so."""
    allowed = all(is_name(name) and not is_reserved(name) for name in names)
    return allowed and len(set(names)) == len(names)


def _shared(texts: Sequence[str]) -> tuple[str, str]:
    """What all paths begin and end with, up to where a word begins or ends."""
    if len(set(texts)) == 1:
        if texts[0].endswith("/"):
            folder = texts[0][:-1].rpartition("/")[0]
            return f"{folder}/" if folder else "", "/"
        folder, _, file = texts[0].rpartition("/")
        return f"{folder}/" if folder else "", "." + file.rpartition(".")[2]
    before = _alike(texts)
    while before and _LETTER.match(before[-1]):
        before = before[:-1]
    after = _alike([text[len(before) :][::-1] for text in texts])[::-1]
    while after and _LETTER.match(after[0]):
        after = after[1:]
    return before, after


def _alike(texts: Sequence[str]) -> str:
    """What all texts begin with."""
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in same)


def _made_up(stems: Sequence[str]) -> tuple[str, ...]:
    """Names as near to those of the files as parties can have."""
    names: list[str] = []
    for number, stem in enumerate(stems, 1):
        plain = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode().lower()
        name = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:50]
        usable = is_name(name) and not is_reserved(name) and name not in names
        names.append(name if usable else f"silo-{number}")
    return tuple(names)
