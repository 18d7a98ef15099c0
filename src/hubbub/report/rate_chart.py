"""The picture of `hubbub fraction`: a panel for each batch, the paper's curves beside the mixture.

An SVG file of its own, which loads nothing. This file knows what has been computed, and computes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hubbub.privacy.effective_sampling_rate import Panel, Question
from hubbub.report.markup import Html, tag
from hubbub.report.number_format import amount
from hubbub.report.scales import Scale, linear

_WIDTH, _PANEL, _GAP, _LEFT, _TOP, _FOOT, _LINE = 900, 300, 70, 64, 56, 52, 20
# Okabe and Ito's colours, told apart also by their dashes; the last is the mixture.
_STROKES = (
    ("#d55e00", ""),
    ("#0072b2", "10 4"),
    ("#009e73", "2 3"),
    ("#cc79a7", "8 3 2 3"),
    ("#7a5c00", "4 4"),
)
_OURS = "#000000"


def picture(asked: Question, panels: Sequence[Panel]) -> str:
    """The SVG text: panels side by side, two in a row, over one legend."""
    rows = -(-len(panels) // 2)
    height = rows * (_PANEL + _TOP + _FOOT) + _LINE * (len(asked.slacks) + 3)
    parts = [tag("rect", width="100%", height="100%", fill="white")]
    wide = (_WIDTH - 2 * _LEFT - _GAP / 2) / 2 if len(panels) > 1 else _WIDTH - 2 * _LEFT
    for place, one in enumerate(panels):
        left = _LEFT + (place % 2) * (wide + _GAP)
        top = _TOP + (place // 2) * (_PANEL + _TOP + _FOOT)
        parts += _drawn(asked, one, left, top, wide)
    parts += _legend(asked, rows * (_PANEL + _TOP + _FOOT) + _LINE)
    return tag(
        "svg",
        tag("title", "Effective sampling fraction against malicious records"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {height}",
        font_family="sans-serif",
        font_size=13,
    ).text


def _drawn(asked: Question, one: Panel, left: float, top: float, wide: float) -> list[Html]:
    """One panel: axes, the paper's curves, and the mixture on top."""
    rates = [rate for curve in one.curves for _, rate in curve]
    across = linear([0, one.mixture[-1].malicious], left, left + wide, whole=True)
    up = linear([*rates, one.mixture[0].rate], top + _PANEL, top)
    heading = f"batch {one.batch:,} of {asked.records:,}"
    parts = [tag("text", heading, x=left, y=top - 14, font_size=15, font_weight="bold")]
    parts += _axes(across, up)
    for curve, (colour, dashes) in zip(one.curves, _STROKES, strict=False):
        parts.append(_curve(curve, across, up, colour, dashes))
    points = [(at.malicious, at.rate) for at in one.mixture]
    parts.append(_curve(points, across, up, _OURS, "", width=3))
    parts += [
        tag("circle", cx=across.place(m), cy=up.place(rate), r=4.5, fill=_OURS)
        for m, rate in points
    ]
    return parts


def _axes(across: Scale, up: Scale) -> list[Html]:
    """Grid, numbers, and what the axes measure."""
    grid: Callable[..., Html] = lambda **ends: tag("line", stroke="#ddd", **ends)  # noqa: E731
    parts = []
    for tick in up.ticks:
        y = up.place(tick)
        parts.append(grid(x1=across.start, x2=across.end, y1=y, y2=y))
        parts.append(tag("text", amount(tick), x=across.start - 6, y=y + 4, text_anchor="end"))
    for tick in across.ticks:
        x = across.place(tick)
        parts.append(grid(x1=x, x2=x, y1=up.start, y2=up.end))
        parts.append(tag("text", amount(tick), x=x, y=up.start + 18, text_anchor="middle"))
    middle, height = (across.start + across.end) / 2, (up.start + up.end) / 2
    corner = f"M{across.start:g},{up.end:g}V{up.start:g}H{across.end:g}"
    turned = f"rotate(-90 {across.start - 48:g} {height:g})"
    return [
        *parts,
        tag("path", d=corner, fill="none", stroke="black"),
        tag("text", "malicious records", x=middle, y=up.start + 38, text_anchor="middle"),
        tag(
            "text",
            "effective sampling fraction",
            x=across.start - 48,
            y=height,
            text_anchor="middle",
            transform=turned,
        ),
    ]


def _curve(
    points: Sequence[tuple[int, float]],
    across: Scale,
    up: Scale,
    colour: str,
    dashes: str,
    width: float = 2,
) -> Html:
    path = " ".join(f"{across.place(m):.2f},{up.place(rate):.2f}" for m, rate in points)
    looks: dict[str, str | float] = {"stroke": colour, "stroke_width": width}
    return tag("polyline", points=path, fill="none", stroke_dasharray=dashes, **looks)


def _legend(asked: Question, top: float) -> list[Html]:
    """What each line is, in words."""
    lines = [
        (colour, dashes, 2.0, _slack_words(slack, asked.steps))
        for slack, (colour, dashes) in zip(asked.slacks, _STROKES, strict=False)
    ]
    mixture = (
        "exact mixture: the fraction that costs the same epsilon with nobody malicious "
        f"(noise multiplier {asked.noise_multiplier:g}, {asked.steps:,} steps, delta "
        f"{amount(asked.delta)})"
    )
    parts = []
    for row, (colour, dashes, width, words) in enumerate([*lines, (_OURS, "", 3.0, mixture)]):
        y = top + _LINE * row
        looks: dict[str, str | float] = {"stroke": colour, "stroke_width": width}
        looks["stroke_dasharray"] = dashes
        parts.append(tag("line", x1=_LEFT, x2=_LEFT + 44, y1=y, y2=y, **looks))
        parts.append(tag("text", words, x=_LEFT + 54, y=y + 4))
    return parts


def _slack_words(slack: float, steps: int) -> str:
    if not slack:
        return "slack 0: every member of the batch counts as honest"
    return f"slack {amount(slack)}: costs {amount(steps * slack)} of delta over {steps:,} steps"
