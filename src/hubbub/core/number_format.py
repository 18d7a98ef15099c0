"""How numbers are written on the page: bounds rounded so that they stay true, the rest short.

An upper bound that is rounded to the nearest digit may promise more than was certified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from math import isfinite

Row = Mapping[str, float]  # of the metrics

NO_PROMISE = "over 50: no guarantee"
NOT_KNOWN = "–"
_DIGITS = 3


def at_most(bound: float | None) -> str:
    """An upper bound to three digits, rounded up; None is a bound past what is promised.

    >>> at_most(0.34061), at_most(24.0), at_most(None)
    ('0.341', '24.0', 'over 50: no guarantee')
    """
    if bound is None or not isfinite(bound):
        return NO_PROMISE
    return _rounded(bound, ROUND_CEILING)


def no_less(number: float, digits: int) -> str:
    """A number to so many digits at most, rounded up.

    >>> no_less(1.2345001, 4), no_less(0.5, 6), no_less(1.00000123e-5, 6)
    ('1.235', '0.5', '1.00001e-05')
    """
    return f"{float(_rounded(number, ROUND_CEILING, digits)):.{digits}g}"


def at_least(bound: float) -> str:
    """A lower bound to three digits, rounded down.

    >>> at_least(0.34069), at_least(24.0), at_least(0)
    ('0.340', '24.0', '0')
    """
    return _rounded(bound, ROUND_FLOOR)


def between(lower: float, upper: float) -> str:
    """Both ends of a bound to seven digits of the upper one, rounded so that they stay true.

    >>> between(0.12345678, 0.12345679)
    '0.1234567 and 0.1234568'
    """
    low, high = Decimal(lower), Decimal(upper)
    unit = Decimal(1).scaleb(high.adjusted() - 6)
    low, high = low.quantize(unit, ROUND_FLOOR), high.quantize(unit, ROUND_CEILING)
    return f"{float(low):.7g} and {float(high):.7g}"


def _rounded(bound: float, rounding: str, digits: int = _DIGITS) -> str:
    exact = Decimal(repr(float(bound)))
    if not exact:
        return "0"
    last = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = exact.quantize(min(last, Decimal(1)), rounding=rounding)
    return f"{rounded:.{digits - 1}e}" if rounded < Decimal("0.001") else f"{rounded:f}"


def score(value: float | None) -> str:
    """A metric between 0 and 1, to three places."""
    return NOT_KNOWN if value is None else f"{value:.3f}"


def amount(value: float | None) -> str:
    """Any other number, to four digits.

    >>> amount(1e-05), amount(31921), amount(11.08664)
    ('1e-5', '31,921', '11.09')
    """
    if value is None:
        return NOT_KNOWN
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    mantissa, exponent, power = f"{value:.4g}".partition("e")
    return f"{mantissa}e{int(power)}" if exponent else mantissa


def chance(probability: float) -> str:
    """A small probability for people, rounded up.

    >>> chance(1e-05), chance(3e-06)
    ('1 in 100,000', '1 in 333,333')
    """
    return f"1 in {int(1 / probability * (1 + 1e-9)):,}"


def size(count: float | None) -> str:
    """A number of bytes in the largest unit that leaves at least one of it.

    >>> size(192), size(2_500_000)
    ('192 bytes', '2.5 MB')
    """
    if count is None:
        return "not known before the model is"
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.3g} {unit}"
    return f"{count:g} bytes"


def duration(seconds: float) -> str:
    """A time in the unit that reads best.

    >>> duration(0.0123), duration(75), duration(3 * 3600 + 120)
    ('12.3 ms', '75 s', '3 h 2 min')
    """
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def finite(row: Mapping[str, float], key: str) -> float | None:
    """A value of a row, unless it is missing or not a number."""
    value = row.get(key)
    return None if value is None or not isfinite(value) else float(value)


def several(count: int, noun: str) -> str:
    """A number of things, in the plural where there are several."""
    return f"{amount(count)} {noun}" if count == 1 else f"{amount(count)} {noun}s"


def few(names: Sequence[str], most: int = 3) -> str:
    """Names in a line: the first ones, and how many more.

    >>> few(["ann", "bob"]), few(["ann", "bob", "cyn", "dan", "eve"])
    ('ann, bob', 'ann, bob, cyn and 2 more')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def offered(names: Iterable[str]) -> str:
    """The names that a refusal offers, in a line: a dozen of them, and how many more."""
    return few([*names], 12)


def listed(reasons: Mapping[str, str]) -> str:
    """What is said of each name, in a line: what is said of several, once.

    >>> listed({"ann": "away", "bob": "full", "cyn": "away"})
    'ann, cyn: away; bob: full'
    """
    names: dict[str, list[str]] = {}
    for name, why in reasons.items():
        names.setdefault(why, []).append(name)
    return "; ".join(f"{', '.join(those)}: {why}" for why, those in names.items())
