"""The trade-off between epsilon and delta as a picture: an SVG file that any browser shows."""

from __future__ import annotations

from math import floor, log10
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub
from hubbub.cli.output import writing

Array = NDArray[np.float64]

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM, _TOP = 640, 420, 78, 24, 56, 52
_POINTS = 200
_LEAST_DELTA, _LOWEST = 1e-12, -16.0
_TICKS = 6


def write_curve(path: Path, mechanism: dict[str, Any], delta: float, epsilon: float) -> None:
    """Write delta against epsilon, from delta 1 down to 1e-12; the asked-for point is marked."""
    curve = hubbub.trade_off(**mechanism)
    seen = int(np.sum(curve.delta > _LEAST_DELTA))
    last = float(curve.epsilon[min(seen, curve.epsilon.size - 1)])
    if epsilon > last:
        last = min(1.1 * epsilon, 50.0)
        curve = hubbub.trade_off(**mechanism, epsilons=np.linspace(0, last, _POINTS))
    lowest = max(log10(min(max(delta, 1e-30), _LEAST_DELTA)), _LOWEST)
    points = list(zip(curve.epsilon.tolist(), curve.delta.tolist(), strict=True))
    with writing(path):
        path.write_text(_picture(points, last, lowest, epsilon, delta), encoding="utf-8")


def _picture(
    points: list[tuple[float, float]], last: float, lowest: float, epsilon: float, delta: float
) -> str:
    """The SVG text: epsilon from 0 to `last`, log10 of delta from 0 down to `lowest`."""

    def x(level: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * level / last

    def y(value: float) -> float:
        share = log10(max(value, 10**lowest)) / lowest
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * share

    inside = [(level, value) for level, value in points if level <= last and value > 10**lowest]
    curve = " ".join(f"{x(level):.1f},{y(value):.1f}" for level, value in inside)
    ground, middle = _HEIGHT - _BOTTOM, (_TOP + _HEIGHT - _BOTTOM) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        *_across([(x(tick), f"{tick:.3g}") for tick in _round_numbers(last)]),
        *_down([(y(10.0**power), f"1e{power}" if power else "1") for power in _powers(lowest)]),
        f'<path d="M{_LEFT},{_TOP} V{ground} H{_WIDTH - _RIGHT}" fill="none" stroke="black"/>',
        f'<polyline points="{curve}" fill="none" stroke="#0b62a4" stroke-width="2"/>',
        f'<circle cx="{x(epsilon):.1f}" cy="{y(delta):.1f}" r="5" fill="#c0392b"/>',
        f'<text x="{_LEFT}" y="20">No mechanism with this noise is above the curve (certified '
        "upper bound).</text>",
        f'<text x="{_LEFT}" y="38" fill="#c0392b">Dot: epsilon {epsilon:.4g} at delta '
        f"{delta:.4g}</text>",
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 12}" text-anchor="middle">'
        "epsilon (smaller is more private)</text>",
        f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">'
        "delta (logarithmic)</text>",
    ]
    return "\n".join([*parts, "</svg>"])


def _round_numbers(last: float) -> Array:
    """Ticks of epsilon at multiples of 1, 2 or 5, at most seven of them."""
    power = 10.0 ** floor(log10(last / _TICKS))
    step = next(power * lead for lead in (1, 2, 5, 10) if power * lead * _TICKS >= last)
    return np.asarray(step * np.arange(floor(last / step + 1e-9) + 1))


def _powers(lowest: float) -> range:
    """Powers of ten for the ticks of delta, at most seven of them."""
    return range(0, int(lowest) - 1, -max(1, -(int(lowest) // _TICKS)))


def _across(ticks: list[tuple[float, str]]) -> list[str]:
    """Lines and words of the epsilon axis."""
    ground = _HEIGHT - _BOTTOM
    return [
        f'<path d="M{at:.1f},{_TOP} V{ground}" stroke="#ddd"/>'
        f'<text x="{at:.1f}" y="{ground + 18}" text-anchor="middle">{word}</text>'
        for at, word in ticks
    ]


def _down(ticks: list[tuple[float, str]]) -> list[str]:
    """Lines and words of the delta axis."""
    return [
        f'<path d="M{_LEFT},{at:.1f} H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{word}</text>'
        for at, word in ticks
    ]
