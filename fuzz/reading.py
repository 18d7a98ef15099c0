"""How a target turns the fuzzer's bytes into choices, and what it raises when a law is broken.

An input that ends early goes on with zeros, so that every input is a whole one. This file knows no
message and no party.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import TypeVar

import numpy as np

_Item = TypeVar("_Item")


class BrokenLawError(AssertionError):
    """What the code promises did not hold; the fuzzer keeps the input that shows it."""


def hold(law: bool, says: str) -> None:
    """Insist on a law."""
    if not law:
        raise BrokenLawError(says)


class Reader:
    """Choices, read one after the other from an input."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    @property
    def more(self) -> bool:
        """Whether anything is left."""
        return self._place < len(self._data)

    def bytes(self, count: int) -> bytes:
        """The next bytes, filled up with zeros."""
        taken = self._data[self._place : self._place + count]
        self._place += count
        return taken.ljust(count, b"\0")

    def number(self, size: int = 1) -> int:
        """The next whole number, little-endian."""
        return int.from_bytes(self.bytes(size), "little")

    def one_of(self, items: Sequence[_Item]) -> _Item:
        """One of some things, of which there is at least one."""
        return items[self.number() % len(items)]


def likeness(thing: object) -> object:
    """What a party remembers, so that two looks at it can be compared.

    Parties of `protocol.round` are taken apart; what they were given (keys, roster) is frozen.
    """
    if isinstance(thing, np.ndarray):
        return thing.tobytes()
    if isinstance(thing, tuple | list):
        return tuple(likeness(value) for value in thing)
    if isinstance(thing, dict):
        return {key: likeness(value) for key, value in thing.items()}
    frozen = is_dataclass(thing) and thing.__dataclass_params__.frozen
    if type(thing).__module__.startswith("hubbub.core.protocol.round") and not frozen:
        return {key: likeness(value) for key, value in vars(thing).items()}
    return thing
