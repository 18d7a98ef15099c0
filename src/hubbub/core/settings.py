"""One table of the study file, read key by key; whatever is wrong is refused in one sentence.

A refusal quotes what it found: short, on one line, spelled as in the file. Nothing here knows what
any key means.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from math import isfinite, log10
from typing import Any, TypeVar, dataclass_transform, get_type_hints

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
                # What a study asks, packages may add.
                away = "remove it" if name else "remove it, or install the package that reads it"
                remedy = f"did you mean {close[0]}?" if close else away
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


# The keys of a study's tables: each is annotated once, where the class of its table has a field.
#
# From its `Key` follow how it is read and refused (`read`), the table on the page docs/study.md
# (`page`), the docstring of the class (`settings`), and the JSON schema (`schema`). What a value
# must be in view of other keys, the file of its table says in a reader of its own. `Privacy` in
# study/parties.py is an example.

T = TypeVar("T")
Reader = Callable[[Section, str, Any], Any]
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a table."""

    says: str  # what it does, in Markdown
    values: str  # what it may be, in Markdown
    schema: Mapping[str, Any]  # the same as a JSON schema
    reader: Reader | None = None  # by a section, its name and its default; None: no key alone says
    later: bool = False  # whether it came after study ids were pinned: at its default it is in none
    default: str = ""  # how the page writes its default; empty: as the field has it

    def read(self, section: Section, name: str, default: object) -> Any:
        """The value under a name, or the default; None: it must be there."""
        if self.reader is None:
            raise TypeError(f"{name} has no reader")
        if default is not None and name not in section:
            return default  # it may stand for none, out of the range of what is stated
        return self.reader(section, name, default)

    def shown_default(self, value: object) -> str:
        """How the page writes the default, a field's or `MISSING`."""
        if self.default or value is MISSING:
            return self.default or "required"
        return "none" if value in (None, "", ()) else f"`{_literal(value)}`"


Keys = dict[str, tuple[Key, object]]
NAME = "NAME"  # in a dotted name, in place of any name that a user chooses
_KEYS: dict[type, Keys] = {}


def number(
    least: float,
    most: float,
    says: str,
    *,
    above: bool = False,
    values: str = "",
    default: str = "",
) -> Key:
    """A number from `least` to `most`, or above `least`."""
    range_in_words = f"above {_plain(least)}, to {_plain(most)}" if above else _range(least, most)
    low = "exclusiveMinimum" if above else "minimum"
    return Key(
        says=says,
        values=values or range_in_words,
        schema={"type": "number", low: least, "maximum": most},
        reader=lambda section, key, value: section.number(
            key, value, least=least, most=most, open_low=above
        ),
        default=default,
    )


def whole(least: int, most: int, says: str, *, values: str = "", default: str = "") -> Key:
    """A whole number from `least` to `most`."""
    return Key(
        says=says,
        values=values or _range(least, most),
        schema={"type": "integer", "minimum": least, "maximum": most},
        reader=lambda section, key, value: section.whole(key, value, least=least, most=most),
        default=default,
    )


def one_of(*options: str, says: str, default: str = "") -> Key:
    """One of a few words."""
    return Key(
        says=says,
        values=", ".join(f'`"{option}"`' for option in options),
        schema={"enum": list(options)},
        reader=lambda section, key, value: section.text(key, value, options=options),
        default=default,
    )


def text(says: str, values: str = "text", *, pattern: str = "", default: str = "") -> Key:
    """A text."""
    return Key(
        says=says,
        values=values,
        schema={"type": "string", **({"pattern": pattern} if pattern else {})},
        reader=Section.text,
        default=default,
    )


def truth(says: str) -> Key:
    """True or false."""
    return Key(
        says=says, values="`true`, `false`", schema={"type": "boolean"}, reader=Section.truth
    )


def texts(says: str, values: str = "list of texts", *, default: str = "") -> Key:
    """A list of texts."""
    schema = {"type": "array", "items": {"type": "string"}}
    return Key(says=says, values=values, schema=schema, reader=Section.texts, default=default)


def wholes(longest: int, says: str, values: str) -> Key:
    """A list of positive whole numbers."""
    return Key(
        says=says,
        values=values,
        schema={"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": longest},
        reader=lambda section, key, _: section.wholes(key, longest=longest),
    )


def numbers(says: str, values: str, *, default: str = "") -> Key:
    """A list of finite numbers."""
    schema = {"type": "array", "items": {"type": "number"}, "maxItems": 1000}
    return Key(says=says, values=values, schema=schema, reader=Section.numbers, default=default)


def table(says: str, values: str = "table", *, default: str = "") -> Key:
    """A table with keys of its own, which another class or file has."""
    return Key(says=says, values=values, schema={"type": "object"}, default=default)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(kind: type[T]) -> type[T]:
    """A frozen dataclass of a table, whose docstring says what its fields are.

    A field is annotated with its `Key`, or with a text if the file has no such key.
    """
    settings_class = dataclass(frozen=True, kw_only=True)(kind)
    _KEYS[settings_class], said = _annotated(settings_class)
    lines = (
        textwrap.fill(f"{name}: {words}", 88, subsequent_indent="    ") for name, words in said
    )
    doc = inspect.cleandoc(kind.__doc__ or "")
    end = min(doc.find(part) % (len(doc) + 1) for part in ("\n\nRaises:", "\n\n>>>"))
    args = textwrap.indent("\n".join(lines), "    ")
    settings_class.__doc__ = f"{doc[:end]}\n\nArgs:\n{args}{doc[end:]}\n"
    return settings_class


def keys_of(kind: type) -> Keys:
    """The keys of a class's table, each with its default, or `MISSING`.

    A key that is only another way to write a field stands in a mapping in the field's annotation.
    """
    return _KEYS[kind]


def _annotated(kind: type) -> tuple[Keys, list[tuple[str, str]]]:
    """The keys that a class annotates, in the order of a page, and what it says of its fields."""
    noted = {name: one for name, one in kind.__annotations__.items() if "Annotated[" in str(one)}
    some = type("_", (), {"__annotations__": noted, "__module__": kind.__module__})
    hints = get_type_hints(some, include_extras=True)
    plain = {name: one.__origin__ for name, one in hints.items()}
    kind.__annotations__ |= plain
    kind.__init__.__annotations__ |= plain  # type: ignore[misc]  # so that `help` shows types alone
    keys: Keys = {}
    said = []
    for field in fields(kind):
        for note in getattr(hints.get(field.name), "__metadata__", ()):
            if isinstance(note, Mapping):
                keys |= {name: (key, MISSING) for name, key in note.items()}
            elif isinstance(note, Key):
                keys[field.name] = (note, field.default)
                said.append((field.name, _unlinked(note.says)))
            else:
                said.append((field.name, str(note)))
    return keys, said


def section_of(kind: type, name: str, content: Mapping[str, Any]) -> Section:
    """The section that is read as a class; a key that it does not have is refused."""
    return Section(name, content, tuple(keys_of(kind)))


def read(
    kind: type[T], name: str, content: Mapping[str, Any], /, **readers: Callable[[Section], Any]
) -> T:
    """The class of a table as a study's file states it; `readers` read what depends on other keys.

    StudyError: a key is unknown or missing, or a value is out of its range.
    """
    section = section_of(kind, name, content)
    values = {field: reader(section) for field, reader in readers.items()}
    for field in fields(kind):  # type: ignore[arg-type]
        key, default = keys_of(kind).get(field.name, (None, MISSING))
        if field.name not in values and key and key.reader is not None:
            stated = None if default is MISSING else default
            values[field.name] = key.read(section, field.name, stated)
    return kind(**values)


def read_key(kind: type, section: Section, name: str, *, required: bool = False) -> Any:
    """One key of a class's table, by its annotation; required: whatever default it has."""
    key, default = keys_of(kind)[name]
    return key.read(section, name, None if required or default is MISSING else default)


def read_inner(kind: type[T], section: Section, name: str) -> T | None:
    """A table within this one as a class; None if it is absent."""
    return read(kind, section.path(name), section.table(name)) if name in section else None


def schema(keys: Keys, **inner: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of a table with these keys; `inner` has those of tables within it."""
    properties = {
        name: {**key.schema, **inner.get(name, {}), "description": _unlinked(key.says)}
        for name, (key, _) in keys.items()
    }
    required = [
        name for name, (key, value) in keys.items() if key.shown_default(value) == "required"
    ]
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def page(keys: Keys) -> str:
    """The table of a page: keys, values, defaults, what each does."""
    rows = [
        f"| `{name}` | {key.values} | {key.shown_default(value)} | {key.says} |"
        for name, (key, value) in keys.items()
    ]
    return "\n".join(["| key | value | default | what it does |", "|---|---|---|---|", *rows])


def listed(keys: Mapping[str, Key]) -> Keys:
    """Keys of a table that no class has, without a default but for what they say of it."""
    return {name: (key, MISSING) for name, key in keys.items()}


def _unlinked(said: str) -> str:
    """Markdown without its links."""
    return _LINK.sub(r"\1", said)


def later(key: Key) -> Key:
    """The key, which came after study ids were pinned: a study that leaves it out keeps its id."""
    return replace(key, later=True)


def canonical(value: Any) -> Any:
    """Settings as plain values, every default written out but those of later keys."""
    if isinstance(value, tuple):
        return [canonical(one) for one in value]
    if not is_dataclass(value):
        return value
    keys = _KEYS.get(type(value), {})
    stated = {field.name: getattr(value, field.name) for field in fields(value)}
    left_out = {name for name, (key, at) in keys.items() if key.later and stated[name] == at}
    return {name: canonical(one) for name, one in stated.items() if name not in left_out}


def stated(value: Any) -> dict[str, Any]:
    """What differs from the defaults of settings, by key, as a table that is read back as them."""
    values = ((field, getattr(value, field.name)) for field in fields(value))
    return {field.name: _as_table(at) for field, at in values if at != field.default}


def _as_table(value: Any) -> Any:
    """Settings within others and pairs of a name and a value as tables."""
    if is_dataclass(value):
        return stated(value)
    pairs = isinstance(value, tuple) and all(
        isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) for one in value
    )
    return dict(value) if pairs and value else value


def _range(least: float, most: float) -> str:
    return f"{_plain(least)} to {_plain(most)}"


def _plain(value: float) -> str:
    """A bound as a page writes it: 1,000, 10^9."""
    exponent = log10(abs(value)) if value else 0.0
    if abs(exponent) > 6.5 and exponent == round(exponent):
        return f"{'−' if value < 0 else ''}10^{round(exponent)}"
    return f"{value:,g}" if value % 1 else f"{int(value):,}"


def _literal(value: object) -> str:
    """A default as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
