"""One table of the study file, read key by key; whatever is wrong is refused in one sentence.

A `Section` knows types and ranges, and how to say what was expected, what was found and what to do.
A refusal quotes what it found: short, on one line, spelled as in the file. Nothing here knows what
any key means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any

from hubbub.core.errors import StudyError

_MOST_LISTED, _MOST_NUMBERS = 10**7, 1000
# What people call keys elsewhere.
_MEANT = {
    "outcome": "target",
    "label": "target",
    "y": "target",
    "features": "columns",
    "epochs": "steps",
    "batch_size": "batch",
    "lr": "optimizer",
    "learning_rate": "optimizer",
    "max_grad_norm": "clip_norm",
    "clients": "silos",
    "sites": "silos",
    "patient_id": "patient",
    "rows": "records",
    "clip": "clip_norm",
    "on": "covariates",
}
_CLOSE = 0.7  # how like a key a word must be before it is offered
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def key_of(key: str) -> str:
    """A key as it is written in TOML."""
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def shown(value: object) -> str:
    """A value of the file, shortened, for an error message; what no terminal shows is escaped."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    plain = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
    return shortened(plain, 80)


def shortened(text: str, longest: int) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def is_number(value: object) -> bool:
    """Whether a value is a finite number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_whole(value: object) -> bool:
    """Whether a value is a whole number, which true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


class Section:
    """One table of the file; every read checks a key, and unknown keys are refused at once.

    A default is the one that the settings' class has; None means that the key must be there.
    """

    def __init__(self, name: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        self.name, self.content, self.known = name, table, known
        for key in table:
            if key not in known:
                meant = [_MEANT[key]] if _MEANT.get(key) in known else []
                close = meant or get_close_matches(key, known, n=1, cutoff=_CLOSE)
                remedy = f"did you mean {close[0]}?" if close else "remove it"
                raise StudyError(
                    f"expected one of the keys {', '.join(known)} in {self.title}, "
                    f"got {key_of(key)} = {shown(table[key])}; {remedy}"
                )

    def __contains__(self, key: str) -> bool:
        return key in self.content

    @property
    def title(self) -> str:
        """The table as it is called in a sentence."""
        return f"[{self.name}]" if self.name else "the study"

    def path(self, key: str) -> str:
        """The dotted name of a key."""
        return f"{self.name}.{key}" if self.name else key

    def table(self, key: str) -> dict[str, Any]:
        """A table within this one."""
        value = self.content.get(key)
        if not isinstance(value, dict):
            found = "nothing" if value is None else shown(value)
            remedy = "add one" if value is None else "write it as a table of keys and values"
            if isinstance(value, list) and value and isinstance(value[0], str):
                remedy = f"say what each is: {{ {key_of(value[0])} = ... }}"
            raise StudyError(f"expected a table [{self.path(key)}], got {found}; {remedy}")
        return value

    def inner(self, key: str, known: tuple[str, ...]) -> Section | None:
        """A table within this one that may be absent, with its known keys."""
        return Section(self.path(key), self.table(key), known) if key in self else None

    def number(
        self, key: str, default: float | None, *, least: float, most: float, open_low: bool = False
    ) -> float:
        """A number from `least` to `most`, or above `least`."""
        value = self._value(key, default, "a number")
        good = _is_whole(value) or isinstance(value, float)
        if not good or not (least <= value <= most) or (open_low and value == least):
            low = f"above {least:g}" if open_low else f"from {least:g}"
            raise self.refusal(key, f"a number {low} to {most:g}", "choose one in that range")
        return float(value) + 0.0  # -0.0 is 0.0

    def whole(self, key: str, default: int | None, *, least: int, most: int) -> int:
        """A whole number from `least` to `most`."""
        value: int = self._value(key, default, "a whole number")
        if not _is_whole(value) or not least <= value <= most:
            wanted = f"a whole number from {least} to {most}"
            raise self.refusal(key, wanted, "choose one in that range")
        return value

    def text(self, key: str, default: str | None, *, options: tuple[str, ...] = ()) -> str:
        """A text, one of the options if there are any."""
        value = self._value(key, default, "a text")
        if not isinstance(value, str) or (options and value not in options):
            wanted = "one of " + ", ".join(f'"{o}"' for o in options) if options else "a text"
            raise self.refusal(key, wanted, "choose one of them" if options else "put it in quotes")
        return value

    def truth(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._value(key, default, "true or false")
        if not isinstance(value, bool):
            raise self.refusal(key, "true or false", "write one of them")
        return value

    def texts(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """A list of texts."""
        value = self.content.get(key, list(default))
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refusal(key, "a list of texts", 'write it like ["a", "b"]')
        return tuple(value)

    def wholes(self, key: str, *, longest: int) -> tuple[int, ...]:
        """A list of positive whole numbers, empty if absent."""
        value = self.content.get(key, [])
        good = isinstance(value, list) and len(value) <= longest
        if not good or not all(_is_whole(item) and 0 < item <= _MOST_LISTED for item in value):
            wanted = f"a list of at most {longest} positive whole numbers up to {_MOST_LISTED}"
            raise self.refusal(key, wanted, "write it like [64, 64]")
        return tuple(value)

    def numbers(self, key: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """A list of at most 1000 finite numbers."""
        values = self.content.get(key, list(default))
        good = isinstance(values, list) and len(values) <= _MOST_NUMBERS
        if not good or not all(map(is_number, values)):
            raise self.refusal(key, "a list of numbers", "write it like [0.5, 0.5]")
        return tuple(float(value) + 0.0 for value in values)

    def absent(self, key: str, why: str) -> None:
        """Refuse the key: it would be ignored without a word."""
        if key in self.content:
            raise self.refusal(key, f"absent {why}", "remove it")

    def refusal(self, key: str, expected: str, remedy: str) -> StudyError:
        """The sentence that refuses the value of a key."""
        found = shown(self.content[key]) if key in self.content else "nothing"
        return StudyError(f"expected {self.path(key)} to be {expected}, got {found}; {remedy}")

    def _value(self, key: str, default: Any, what: str) -> Any:
        if key not in self.content and default is None:
            raise StudyError(
                f"expected the key {self.path(key)}, {what}, got nothing; add it to {self.title}"
            )
        return self.content.get(key, default)
