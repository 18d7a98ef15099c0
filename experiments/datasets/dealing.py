"""Which part of a data set is meant by "silo-3" or "test", where a public rule deals the records.

A study that only says `silos = N` calls them silo-1 to silo-N. This file knows names and options,
no records.
"""

from __future__ import annotations

from hubbub.core.errors import StudyError

TEST = -1


def part_of(party: str, silos: int) -> int:
    """The number of a silo from 0, or `TEST`.

    >>> part_of("silo-3", 4), part_of("test", 4)
    (2, -1)

    Raises:
        StudyError: neither, or `silos` is out of range.
    """
    check_options(silos=(silos, 1, 10**6))
    names = {f"silo-{number + 1}": number for number in range(silos)} | {"test": TEST}
    if party not in names:
        raise StudyError(
            f"expected 'test' or a silo out of silo-1 to silo-{silos}, found {party!r}; set "
            "data.options.silos to the number of silos, and leave parties.names out"
        )
    return names[party]


def check_options(**options: tuple[object, int, int]) -> None:
    """Refuse a value that is no whole number or not from its least to its most."""
    for name, (value, least, most) in options.items():
        if type(value) is not int or not least <= value <= most:
            raise StudyError(
                f"expected data.options.{name} to be a whole number from {least} to {most}, found "
                f"{value!r}; choose one"
            )
