"""H_a of the pairs of docs/privacy.md P1 in closed form, for one step; it knows no hubbub."""

from __future__ import annotations

from collections.abc import Callable
from math import log, log1p

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

HockeyStick = Callable[[float], float]


def removal(rate: float, shift: float) -> HockeyStick:
    """H_a of (1 - q) N(0) + q N(m) against N(0)."""

    def value(a: float) -> float:
        if log(a) <= log1p(-rate) if rate < 1 else False:
            return 1 - a  # every outcome's ratio is above a
        ratio = log((a - (1 - rate)) / rate)
        edge = ratio / shift + shift / 2
        return float((1 - rate - a) * norm.sf(edge) + rate * norm.sf(edge - shift))

    return value


def swapped(one: HockeyStick) -> HockeyStick:
    """H_a of the pair the other way round."""
    return lambda a: 1 - a + a * one(1 / a)


def exchange(rate: float, shift: float) -> HockeyStick:
    """H_a of (1 - q) N(0) + q N(m) against (1 - q) N(0) + q N(-m)."""

    def value(a: float) -> float:
        def loss(x: float) -> float:
            up, down = shift * x - shift**2 / 2, -shift * x - shift**2 / 2
            return float(
                np.logaddexp(log1p(-rate), log(rate) + up)
                - np.logaddexp(log1p(-rate), log(rate) + down)
            )

        edge = brentq(lambda x: loss(x) - log(a), -200.0, 200.0, xtol=1e-14)
        return float(
            (1 - rate) * (1 - a) * norm.sf(edge)
            + rate * (norm.sf(edge - shift) - a * norm.sf(edge + shift))
        )

    return value


def replaced(rate: float, shift: float) -> HockeyStick:
    """P1's fifth row: that of removal from a = 1 on, its mirror image below."""
    above = removal(rate, shift)
    return lambda a: above(a) if a >= 1 else swapped(above)(a)


def mixed(weights: list[float], parts: list[HockeyStick]) -> HockeyStick:
    return lambda a: sum(w * one(a) for w, one in zip(weights, parts, strict=True))
