"""What all suites share: how a broken law is told, and what is opened while code runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.registered import standing_in
from hubbub.core.settings import stated
from hubbub.core.tabular.column import Column

# What no key of a study can be: a reader that passes it over would pass over a mistake as well.
_STRANGE: tuple[Any, ...] = ([[["?"]]], {"?": {"?": "?"}})
_CODE = (".py", ".pyc", ".so", ".pyi", ".pth")
_LISTS = ("os.listdir", "os.scandir")  # a Python lists folders by one or the other
_REACHES_OUT = ("open", "sqlite3.connect", "socket.connect", "subprocess.Popen", *_LISTS)
_watchers: list[Callable[[str, tuple[Any, ...]], None]] = [lambda *_: None]


def hold(law: str, holds: object, found: str, mend: str) -> None:
    """Refuse what breaks a law by an AssertionError: which, what was found, how to mend it."""
    if not holds:
        raise AssertionError(f"expected that {law}, found {found}; {mend}")


def too_often(hits: int, number: int, chance: float, alarm: float = 1e-6) -> bool:
    """Whether so many hits of independent trials come with a probability of `alarm` at most."""
    from scipy.special import bdtrc  # which takes long to import

    return bool(bdtrc(hits - 1, number, chance) <= alarm)


@contextmanager
def completing(law: str, mend: str) -> Iterator[None]:
    """The same where a law is that something can be done at all."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(
            f"expected that {law}, found {type(error).__name__}: {error}; {mend}"
        ) from error


def trying(kind: object) -> AbstractContextManager[None]:
    """Whatever else is raised while a kind is tried breaks its contract, too."""
    name = getattr(kind, "__name__", type(kind).__name__)
    law = f"nothing of {name} raises while it is tried"
    return completing(law, "mend it where the traceback ends")


@contextmanager
def installed(group: str, kind: object, registered: Mapping[str, object]) -> Iterator[str]:
    """A kind is found as if a package registered it, if none does; under which name."""
    there = [name for name, other in registered.items() if type(other) is type(kind)]
    with nullcontext() if there else standing_in(group, "checked", lambda: kind):
        yield there[0] if there else "checked"


def as_declared(column: Column) -> dict[str, Any]:
    """A column as a study declares it."""
    return {key: value for key, value in stated(column).items() if key != "name"}


def check_keys(
    name: str,
    table: dict[str, Any],
    read: Callable[[dict[str, Any]], object],
    keys: Collection[str] | None = None,
) -> None:
    """Each of these keys, or of all, is read, and named where it is refused; `table` is sound."""
    for key in [key for key in table if keys is None or key in keys]:
        for content in (
            {other: value for other, value in table.items() if other != key},
            *({**table, key: strange} for strange in _STRANGE),
        ):
            refusal = _refusal(read, content, f"{name}.{key}")
            hold(
                f"{name}.{key} is named where it is missing or of a wrong type",
                refusal is None or key in refusal or (key not in content and f"{name}." in refusal),
                f"the sentence {refusal!r}",
                "raise `section.refusal(key, ...)`, which names it",
            )
            hold(
                f"a wrong value of {name}.{key} is refused",
                refusal is not None or key not in content,
                f"that {content.get(key)!r} is read",
                "read every key of the table by the methods of its section",
            )
    strange = {**table, "no-such-key": 1}
    hold(
        f"an unknown key of {name} is refused by its name",
        "no-such-key" in (_refusal(read, strange, name) or ""),
        "that it is passed over",
        "name all keys that the kind has in `keys`, and read them from a `Section`",
    )


def _refusal(
    read: Callable[[dict[str, Any]], object], content: dict[str, Any], name: str
) -> str | None:
    """The sentence that refuses a table; None if it is read."""
    try:
        read(content)
    except StudyError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(
            f"expected that {name} is refused by a StudyError, found {type(error).__name__}: "
            f"{error}; read it by the methods of its section"
        ) from error
    return None


def opened_by(work: Callable[[], object]) -> list[str]:
    """What some work opens, connects to or starts, but the code of modules."""
    seen: list[str] = []

    def note(event: str, details: tuple[Any, ...]) -> None:
        place = str(details[0]) if details else ""
        if event in _REACHES_OUT and not place.endswith(_CODE):
            seen.append(f"{event} of {place}")

    _watch()
    _watchers.append(note)
    try:
        work()
    finally:
        _watchers.pop()
    return seen


@cache
def _watch() -> None:
    """Python lets nobody take such a hook away again; it does nothing while nobody watches."""
    sys.addaudithook(lambda *event: _watchers[-1](*event))  # noqa: PLW0108
