"""Checks of privacy parameters: one sentence that names the argument, the value and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf, isfinite
from numbers import Integral, Real

from hubbub.core.errors import EffortError, StudyError

LEAST_DELTA = 1e-15
LEAST_EPSILON = 0.001  # for which noise is found
MOST_STEPS = 10_000_000
MOST_EPSILON = 50.0  # that may be asked for
MOST_LOSS = 500.0  # at which delta is looked at
MOST_DIMENSION = 2**40
RELATIONS = ("add-remove", "substitute")
SAMPLINGS = ("poisson", "without-replacement", "full-batch")


def real(name: str, value: object) -> float:
    """A finite real number that is not a bool."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise StudyError(f"expected {name} to be a finite number, got {value!r}; pass a number")
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        number = inf
    if not isfinite(number):
        raise StudyError(f"expected {name} to be a finite number, got {number!r}; pass a number")
    return number


def whole(name: str, value: object, *, least: int, most: int) -> int:
    """An integer within [least, most]."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise StudyError(f"expected {name} to be a whole number, got {value!r}; pass an int")
    if not least <= int(value) <= most:
        raise StudyError(
            f"expected {name} between {least} and {most}, got {value}; choose one in that range"
        )
    return int(value)


def within(
    name: str,
    value: object,
    *,
    least: float,
    most: float,
    remedy: str = "choose one in that range",
) -> float:
    """A number within [least, most]."""
    number = real(name, value)
    if not least <= number <= most:
        raise StudyError(
            f"expected {name} between {least:g} and {most:g}, got {number:g}; {remedy}"
        )
    return number


def positive(name: str, value: object) -> float:
    """A finite number above zero."""
    number = real(name, value)
    if number <= 0:
        raise StudyError(f"expected {name} > 0, got {number:g}; pass a positive number")
    return number


def noise(value: object) -> float:
    """A noise multiplier sigma / C."""
    number = positive("noise_multiplier", value)
    remedy = "check that it is sigma / C with C the clipping norm"
    return within("noise_multiplier", number, least=1e-3, most=1e6, remedy=remedy)


def rate(value: object) -> float:
    """A sampling rate in (0, 1]."""
    remedy = "pass the probability with which a record is in a batch"
    return within("sample_rate", value, least=1e-9, most=1, remedy=remedy)


def delta(value: object) -> float:
    """A delta in [1e-15, 1)."""
    number = real("delta", value)
    if not LEAST_DELTA <= number < 1:
        raise StudyError(
            f"expected delta between {LEAST_DELTA:g} and 1, got {number:g}; "
            "choose one well below 1 / (number of records)"
        )
    return number


def epsilon(value: object, *, least: float = 0.0, most: float = MOST_EPSILON) -> float:
    """An epsilon in [least, most]."""
    number = real("epsilon", value)
    remedy = "larger values promise nothing" if number > least else "choose a larger one"
    return within("epsilon", number, least=least, most=most, remedy=remedy)


def sampling(value: object) -> str:
    """How batches are drawn."""
    return choice("sampling", value, SAMPLINGS)


def choice(name: str, value: object, options: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in options:
        words = ", ".join(repr(option) for option in options)
        raise StudyError(f"expected {name} to be one of {words}, got {value!r}; choose one of them")
    return value


# How much work an account may take, where somebody else has chosen its numbers.
#
# A study of a few lines may ask for minutes of convolutions. Whoever makes an account for a
# stranger sets a limit; the numerics say what they are about to do before they do it. The unit is a
# point: of a grid, a window or a mixture, about a microsecond of one core. No clock is looked at,
# so that the same account is refused everywhere. Without a limit nothing is counted.

_left: ContextVar[list[float] | None] = ContextVar("_left", default=None)


@contextmanager
def limited(points: float | None) -> Iterator[None]:
    """Let all accounts inside take so many points together; None: as many as they need.

    Inside another limit that one stays.
    """
    token = _left.set(_left.get() or (None if points is None else [points]))
    try:
        yield
    finally:
        _left.reset(token)


def spend(points: float) -> None:
    """Say that so many points are about to be worked on.

    Raises:
        EffortError: they are more than are left; nor is anything granted after that.
    """
    left = _left.get()
    if left is None:
        return
    left[0] -= points
    if left[0] < 0:
        raise EffortError(
            "expected an account that is made within the work that was allowed for it, got one "
            "that needs more; allow for more if you trust whoever chose its numbers"
        )
