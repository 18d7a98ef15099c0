"""What no honest study needs: endless texts and numbers, unprintable characters, deep nesting.

They are refused before anything else is looked at, so that every later sentence is short and can be
shown on a terminal, and so that no later program meets a number that it cannot hold. What would
take long to parse is refused before that, by `hubbub.core.disk`. This file knows no key of a study.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.section import key_of, shown

_MOST_LEVELS, _MOST_KEY, _MOST_TEXT, _MOST_WHOLE = 8, 100, 1000, 2**63 - 1


def check_size(table: Mapping[str, Any], long_texts: Mapping[str, int]) -> None:
    """Refuse keys, texts, whole numbers and depths that could spoil a later sentence or program.

    Args:
        table: a study's file.
        long_texts: by dotted name the keys whose texts may have several lines, and how many letters
            they may have.
    """
    left: list[tuple[str, Any, int]] = [("", table, 1)]
    while left:  # not a recursion, which a deep table would exhaust
        path, value, level = left.pop()
        _check_value(path, value, long_texts)
        if isinstance(value, Mapping | list) and level > _MOST_LEVELS:
            raise StudyError(
                f"expected at most {_MOST_LEVELS} levels of tables and lists, "
                f"got more in {path}; remove it"
            )
        left += [(inner, entry, level + 1) for inner, entry in _entries(path, value)]


def _check_value(path: str, value: object, long_texts: Mapping[str, int]) -> None:
    """Refuse a number or a text that is too long."""
    if isinstance(value, int) and abs(value) > _MOST_WHOLE:
        raise StudyError(
            f"expected {path} to fit into 64 bits, got a number of {value.bit_length()} bits; "
            "choose a smaller one"
        )
    if not isinstance(value, str):
        return
    most = long_texts.get(path, _MOST_TEXT)
    line = value.replace("\n", " ") if path in long_texts else value
    if not _is_printable(line, most):
        raise StudyError(
            f"expected {path} to be at most {most} printable characters, "
            f"got {shown(value)}; shorten or correct it"
        )


def _entries(path: str, value: object) -> list[tuple[str, Any]]:
    """What a table or a list holds, each with its dotted name."""
    if isinstance(value, Mapping):
        return [(_path(path, key), inner) for key, inner in value.items()]
    return [(path, inner) for inner in value] if isinstance(value, list) else []


def _path(path: str, key: object) -> str:
    """The dotted name of a key, which must be short and printable."""
    if not isinstance(key, str) or not _is_printable(key, _MOST_KEY):
        raise StudyError(
            f"expected keys of at most {_MOST_KEY} printable characters in "
            f"{f'[{path}]' if path else 'the study'}, got {shown(key)}; rename or remove it"
        )
    return f"{path}.{key_of(key)}" if path else key_of(key)


def _is_printable(text: str, longest: int) -> bool:
    """One line without control characters, not too long."""
    return len(text) <= longest and text.isprintable()
