"""What packages register: kinds of asks, of sources and the like, each under a name of its own.

A package that cannot be used is refused by its name, whatever it needed: to leave it out without a
word would give a study another meaning here than elsewhere. So are two of one name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from hubbub.core.errors import UserError


@cache  # every installed package is looked at
def registered(group: str) -> Mapping[str, EntryPoint]:
    """By name what is registered under a group, nothing of it imported yet.

    Raises:
        UserError: two packages register one name.
    """
    points: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        if (other := points.setdefault(point.name, point)) is not point:
            raise UserError(
                f"expected one package to register {point.name} under {group}, found two, "
                f"{_package(other)} and {_package(point)}; uninstall one of them"
            )
    return points


def loaded(point: EntryPoint, use: Callable[[Any], Any] = lambda given: given) -> Any:
    """What a package has registered, as its first use gives it.

    Raises:
        UserError: a package other than hubbub cannot be imported, or used.
    """
    try:
        return use(point.load())
    except Exception as error:
        if point.value.startswith("hubbub."):
            raise  # an extra is missing, of which others speak
        raise UserError(
            f"expected {_package(point)} to give {point.name} to {point.group}, got "
            f"{type(error).__name__}: {error}; bring the package up to date or uninstall it"
        ) from error


def _package(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"{point.dist.name} ({point.value})"
