"""Whether plain values are those that follow from a study.

Other machines may calibrate to other last digits, so numbers agree if they agree to six.
"""

from __future__ import annotations

from math import isclose
from typing import Any

CLOSE = 1e-6


def difference(found: Any, made: Any, where: str = "it") -> str:
    """Where two plain values first differ by more than last digits; "" if nowhere."""
    if isinstance(found, dict) and isinstance(made, dict):
        if set(found) != set(made):
            odd = min(map(str, set(found) ^ set(made)))
            return f"{where} has or lacks {odd!r}, unlike what follows from the study"
        pairs = ((found[key], made[key], key) for key in made)
    elif isinstance(found, list) and isinstance(made, list | tuple) and len(found) == len(made):
        pairs = (
            (a, b, f"{where} {k}") for k, (a, b) in enumerate(zip(found, made, strict=True), 1)
        )
    elif _is_number(found) and _is_number(made):
        counted = isinstance(made, int)
        same = (
            found == made and isinstance(found, int)
            if counted
            else isclose(found, made, rel_tol=CLOSE)
        )
        return "" if same else f"{where} is {found!r}, {made!r} follows from the study"
    else:
        same = type(found) is type(made) and found == made
        return "" if same else f"{where} is {found!r}, {made!r} follows from the study"
    return next((said for one in pairs if (said := difference(*one))), "")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
