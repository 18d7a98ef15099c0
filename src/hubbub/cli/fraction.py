"""`hubbub fraction`: how far malicious records raise the effective sampling fraction.

The paper's figure on sampling without replacement, one panel for each batch: its way of counting,
a quantile that is exceeded with a probability called slack, beside ours, the exact mixture over the
number of honest records in the batch (docs/privacy.md P10). The mixture is no single fraction; what
is drawn is the fraction that would cost the same epsilon with nobody malicious.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.optimize import brentq

from hubbub.cli.output import Bar, add_json, bar, emit, number, say, table
from hubbub.errors import StudyError, UserError
from hubbub.privacy import (
    Composition,
    Step,
    honest_rate,
    parameters,
    release,
    release_with_malicious,
)
from hubbub.report.figures import amount
from hubbub.report.markup import Html, tag
from hubbub.report.scales import Scale, linear

_SLACKS = (0.0, 1e-15, 1e-10, 1e-5)
_BATCHES = (500, 2500)
_SHARES = (0.0, 0.01, 0.1, 0.25, 0.5)  # of all records; where the table and the mixture are taken
_CURVE_POINTS = 51
_CELLS = 64  # the mixture is taken to so many rates, upwards: an upper bound still, and quicker
_MOST_BATCHES, _MOST_SLACKS = 4, 5

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


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked for all panels."""

    records: int
    slacks: tuple[float, ...]
    noise_multiplier: float
    steps: int
    delta: float


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """The mixture at one number of malicious records: its epsilon, and the fraction that has it."""

    malicious: int
    epsilon: float
    rate: float


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One batch: for each slack a curve of (malicious records, fraction), and the mixture."""

    batch: int
    curves: tuple[tuple[tuple[int, float], ...], ...]
    mixture: tuple[Mixed, ...]


def add_commands(commands: Any) -> None:
    """Register the command."""
    words = "effective sampling fraction without replacement, against malicious records"
    parser: argparse.ArgumentParser = commands.add_parser(
        "fraction", help=words, description=f"{words[0].upper()}{words[1:]}."
    )
    parser.add_argument("--records", type=int, default=50_000, help="n, over all silos")
    parser.add_argument("--batch", type=int, nargs="+", default=_BATCHES, help="one or more")
    parser.add_argument(
        "--slack",
        type=float,
        nargs="+",
        default=_SLACKS,
        help="probabilities, in one step, of more honest records in the batch than are counted",
    )
    parser.add_argument("--noise-multiplier", type=float, default=2.0, help="sigma / C; mixture")
    parser.add_argument("--steps", type=int, default=1250, help="for the mixture")
    parser.add_argument("--delta", type=float, default=1e-5, help="for the mixture")
    parser.add_argument("--out", type=Path, metavar="FILE.svg", help="also draw it, as an SVG file")
    add_json(parser)
    parser.set_defaults(command=_fraction)


def _fraction(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    asked = _question(options)
    batches = _some("--batch", options.batch, _MOST_BATCHES)
    with bar("mixtures", len(batches) * len(_SHARES), quiet=options.json) as shown:
        panels = [panel(asked, _batch(asked, batch), shown) for batch in batches]
    if options.out:
        _write(options.out, picture(asked, panels))
    if options.json:
        emit(_content(asked, panels) | {"seconds": time.perf_counter() - start})
    else:
        _show(asked, panels)
        if options.out:
            say(f"drawn in {options.out}")
    return 0


def panel(asked: Question, batch: int, shown: Bar) -> Panel:
    """All curves of one batch."""
    most = _malicious(asked, _SHARES[-1])
    across = sorted({round(most * k / (_CURVE_POINTS - 1)) for k in range(_CURVE_POINTS)})
    curves = (
        tuple((m, quantile_rate(asked.records, batch, m, slack)) for m in across)
        for slack in asked.slacks
    )
    return Panel(batch=batch, curves=tuple(curves), mixture=_mixture(asked, batch, shown))


def quantile_rate(records: int, batch: int, malicious: int, slack: float) -> float:
    """The paper's effective fraction; without slack all of the batch counts as honest."""
    honest = records - malicious
    if not slack:
        return min(batch, honest) / honest
    return honest_rate(records=records, batch=batch, malicious=malicious, slack=slack)


def _mixture(asked: Question, batch: int, shown: Bar) -> tuple[Mixed, ...]:
    found = []
    for malicious in sorted({_malicious(asked, share) for share in _SHARES}):
        found.append(_mixed(asked, batch, malicious))
        shown.advance(f"batch {batch}")
    return tuple(found)


def _mixed(asked: Question, batch: int, malicious: int) -> Mixed:
    """The mixture's epsilon, and the fraction with nobody malicious that costs as much."""
    one = release_with_malicious(
        records=asked.records,
        batch=batch,
        malicious=malicious,
        noise_multiplier=asked.noise_multiplier,
        count=asked.steps,
        cells=_CELLS,
    )
    epsilon = Composition([one]).epsilon(asked.delta).upper
    if epsilon > parameters.MOST_EPSILON:
        raise StudyError(
            f"expected epsilon up to {parameters.MOST_EPSILON:g}, got more with batch {batch}; "
            "raise --noise-multiplier or lower --steps"
        )
    rate = batch / asked.records
    worst = quantile_rate(asked.records, batch, malicious, 0.0)
    if malicious and rate < 1 and _alone(asked, rate) < epsilon:
        rate = float(brentq(lambda q: _alone(asked, q) - epsilon, rate, worst, rtol=1e-4))
    return Mixed(malicious=malicious, epsilon=epsilon, rate=rate)


def _alone(asked: Question, rate: float) -> float:
    """Epsilon at a fraction, with nobody malicious."""
    step = Step(
        noise_multiplier=asked.noise_multiplier,
        sample_rate=rate,
        count=asked.steps,
        sampling="without-replacement",
    )
    return Composition([release(step, "substitute")]).epsilon(asked.delta).upper


def _question(options: argparse.Namespace) -> Question:
    slacks = tuple(sorted({parameters.real("slack", one) for one in options.slack}))
    if not all(0 <= slack < 1 for slack in slacks):
        raise StudyError(
            "expected every --slack from 0 to below 1, got another; pass probabilities"
        )
    _some("--slack", slacks, _MOST_SLACKS)
    return Question(
        records=parameters.whole("records", options.records, least=2, most=10**7),
        slacks=slacks,
        noise_multiplier=parameters.noise(options.noise_multiplier),
        steps=parameters.whole("steps", options.steps, least=1, most=parameters.MOST_STEPS),
        delta=parameters.delta(options.delta),
    )


def _some(name: str, values: Sequence[Any], most: int) -> Sequence[Any]:
    if len(values) > most:
        raise UserError(f"expected at most {most} values of {name}, got {len(values)}; ask twice")
    return values


def _batch(asked: Question, batch: int) -> int:
    return parameters.whole("batch", batch, least=1, most=asked.records // 2)


def _malicious(asked: Question, share: float) -> int:
    return int(asked.records * share)


def _content(asked: Question, panels: Sequence[Panel]) -> dict[str, Any]:
    """For machines."""
    return {
        "records": asked.records,
        "noise_multiplier": asked.noise_multiplier,
        "steps": asked.steps,
        "delta": asked.delta,
        "panels": [
            {
                "batch": one.batch,
                "curves": [
                    {
                        "slack": slack,
                        "points": [{"malicious": m, "rate": rate} for m, rate in curve],
                    }
                    for slack, curve in zip(asked.slacks, one.curves, strict=True)
                ],
                "mixture": [
                    {"malicious": at.malicious, "epsilon": at.epsilon, "rate": at.rate}
                    for at in one.mixture
                ],
            }
            for one in panels
        ],
    }


def _show(asked: Question, panels: Sequence[Panel]) -> None:
    """For people: a table for each batch."""
    slacks = [f"slack {amount(slack)}" for slack in asked.slacks]
    for one in panels:
        rows = []
        for at in one.mixture:
            rates = [
                quantile_rate(asked.records, one.batch, at.malicious, slack)
                for slack in asked.slacks
            ]
            texts = [f"{rate:.5f}" for rate in (*rates, at.rate)]
            rows.append([f"{at.malicious:,}", *texts, number(at.epsilon)])
        table(
            f"Effective sampling fraction, batch {one.batch:,} of {asked.records:,} records",
            ["malicious records", *slacks, "mixture", "its epsilon"],
            rows,
        )
    say(
        f"Slack is paid in each of {asked.steps:,} steps out of delta. The mixture pays none: it "
        f"is the fraction whose epsilon, at noise multiplier {asked.noise_multiplier:g} and delta "
        f"{amount(asked.delta)}, is the exact one."
    )


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


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"expected a file that can be written, got {path}: {error.strerror}"
        ) from None
