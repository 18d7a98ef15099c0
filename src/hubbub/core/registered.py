"""What packages register: kinds of asks, of sources and the like, each under a name of its own.

A package that cannot be used is refused by its name, whatever it needed: to leave it out without a
word would give a study another meaning here than elsewhere. So are two of one name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import Any, ParamSpec, TypeVar

from hubbub.core.errors import UserError

P = ParamSpec("P")
T = TypeVar("T")
_FORGET: list[Callable[[], None]] = []
_STANDING: dict[EntryPoint, Any] = {}  # what stands in for a package, while it is tried


def remembered(function: Callable[P, T]) -> Callable[P, T]:
    """A function whose values follow from what is installed, each computed once."""
    cached = cache(function)
    _FORGET.append(cached.cache_clear)
    return cached  # type: ignore[return-value]  # whose types say that it takes anything


def forget() -> None:
    """Look again at what is installed, as at a start."""
    for clear in _FORGET:
        clear()


@contextmanager
def standing_in(group: str, name: str, given: Any) -> Iterator[None]:
    """Something that no package registers is found under a name of a group of entry points.

    One of that name that is installed is not found meanwhile.
    """
    point = EntryPoint(name=name, value=f"{type(given).__module__}:{name}", group=group)
    _STANDING[point] = given
    forget()
    try:
        yield
    finally:
        del _STANDING[point]
        forget()


@remembered  # every installed package is looked at
def registered(group: str) -> Mapping[str, EntryPoint]:
    """By name what is registered under a group, nothing of it imported yet.

    UserError: two packages register one name.
    """
    standing = {point.name: point for point in _STANDING if point.group == group}
    points: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        if (other := points.setdefault(point.name, point)) is not point:
            raise UserError(
                f"expected one package to register {point.name} under {group}, found two, "
                f"{_package(other)} and {_package(point)}; uninstall one of them"
            )
    return points | standing


@remembered  # every installed package is read
def packages() -> Mapping[str, str]:
    """Name and version of each package but hubbub that registers something."""
    return {
        package.name: package.version
        for package in distributions()
        if any(point.group.startswith("hubbub.") for point in package.entry_points)
        and package.name != "hubbub"  # last, as it is read out of a long file
    }


def loaded(point: EntryPoint, use: Callable[[Any], Any] = lambda given: given) -> Any:
    """What a package has registered, as its first use gives it.

    UserError: a package other than hubbub cannot be imported, or used.
    """
    try:
        return use(_STANDING[point] if point in _STANDING else point.load())
    except Exception as error:
        if point.value.startswith("hubbub."):
            raise  # an extra is missing, of which others speak
        raise UserError(
            f"expected {_package(point)} to give {point.name} to {point.group}, got "
            f"{type(error).__name__}: {error}; bring the package up to date or uninstall it"
        ) from error


def _package(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"{point.dist.name} ({point.value})"
