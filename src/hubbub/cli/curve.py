"""The trade-off between epsilon and delta as a picture: an SVG file that any browser shows."""

from __future__ import annotations

from math import log10
from pathlib import Path
from typing import Any

import numpy as np

import hubbub
from hubbub.errors import UserError

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 420, 70, 50, 40
_POINTS = 25


def write_curve(path: Path, mechanism: dict[str, Any], delta: float, epsilon: float) -> None:
    """Write delta against epsilon, from 0 to twice the given epsilon, which is marked."""
    levels = np.linspace(0.0, max(2 * epsilon, 1e-3), _POINTS)
    levels = levels[levels <= 50]
    deltas = [hubbub.delta(epsilon=float(e), **mechanism).upper for e in levels]
    try:
        path.write_text(_picture(levels.tolist(), deltas, epsilon, delta), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"expected a file that can be written, got {path}: {error.strerror}"
        ) from None


def _picture(levels: list[float], deltas: list[float], epsilon: float, delta: float) -> str:
    """The SVG text: a logarithmic delta axis from 1 down to a tenth of the given delta."""
    lowest = log10(delta) - 1

    def x(level: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 20) * level / levels[-1]

    def y(value: float) -> float:
        share = log10(max(value, 10**lowest)) / lowest
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * share

    curve = " ".join(f"{x(e):.1f},{y(d):.1f}" for e, d in zip(levels, deltas, strict=True))
    floor = _HEIGHT - _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<path d="M{_LEFT},{_TOP} V{floor} H{_WIDTH - 20}" fill="none" stroke="black"/>',
        f'<polyline points="{curve}" fill="none" stroke="#0b62a4" stroke-width="2"/>',
        f'<circle cx="{x(epsilon):.1f}" cy="{y(delta):.1f}" r="5" fill="#c0392b"/>',
        f'<text x="{_LEFT}" y="22">delta against epsilon (certified upper bound); '
        f"dot: epsilon {epsilon:.4g} at delta {delta:g}</text>",
        f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 10}" text-anchor="middle">epsilon</text>',
        f'<text x="16" y="{_HEIGHT / 2}" transform="rotate(-90 16 {_HEIGHT / 2})">delta</text>',
    ]
    parts += [
        f'<text x="{x(tick):.1f}" y="{floor + 18}" text-anchor="middle">{tick:.3g}</text>'
        for tick in np.linspace(0, levels[-1], 6)
    ]
    parts += [
        f'<text x="{_LEFT - 6}" y="{y(10.0**power) + 4:.1f}" text-anchor="end">1e{power}</text>'
        for power in range(0, int(lowest) - 1, -max(1, int(-lowest) // 6))
    ]
    return "\n".join([*parts, "</svg>"])
