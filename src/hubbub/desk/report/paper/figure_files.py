"""Figures as files of their own: SVG as it is, PDF and PNG drawn from its elements.

A chart is a small part of SVG: lines, polygons, rectangles, circles, paths of straight lines, and
text. Colours are those of the page on paper; PDF and PNG need matplotlib, which draws the same
elements at the same places, a unit of the chart being a point.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

from hubbub.core.errors import UserError, with_extra
from hubbub.desk.report import charts, ink
from hubbub.desk.report.answer_figures import Figure

FIGURES = ("svg", "pdf", "png")
_DPI = 300
_STEP = re.compile(r"([MmHhVvLlz])([^MmHhVvLlz]*)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def figure_file(figure: Figure, kind: str) -> bytes:
    """A figure as a file of a kind of `FIGURES`.

    Raises:
        UserError: matplotlib is not installed, which PDF and PNG need.
    """
    if kind == "svg":
        return charts.alone(figure.chart, figure.height).encode()
    try:
        from matplotlib.figure import Figure as Drawn
    except ImportError:
        raise UserError(
            f"expected matplotlib for a figure as {kind.upper()}, found none; take svg, or "
            f"{with_extra('paper')}"
        ) from None
    drawn: Any = Drawn(figsize=(charts.WIDTH / 72, figure.height / 72))
    axes = drawn.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, charts.WIDTH)
    axes.set_ylim(figure.height, 0)
    axes.axis("off")
    # The text was made here, by `markup.tag`.
    _draw(axes, ET.fromstring(figure.chart.text), "#000000", dashed=False)  # noqa: S314
    out = io.BytesIO()
    undated = {"CreationDate": None} if kind == "pdf" else {"Software": None}
    drawn.savefig(out, format=kind, dpi=_DPI, metadata=undated)
    return out.getvalue()


def _draw(axes: Any, element: ET.Element, colour: str, *, dashed: bool) -> None:
    """An element and all in it."""
    kind = element.get("class", "")
    if kind.startswith("series-"):
        number = int(kind.removeprefix("series-"))
        colour, dashed = ink.SERIES[number], number == 1
    if element.tag in _DRAWN:
        _DRAWN[element.tag](axes, element, colour, "--" if dashed else "-")
    for inner in element:
        _draw(axes, inner, colour, dashed=dashed)


def _line(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    own, width, dashes = ink.STROKES.get(element.get("class", ""), (colour, 1.0, "-"))
    x, y = ([_length(element, f"{way}{end}") for end in (1, 2)] for way in "xy")
    axes.plot(x, y, color=own, linewidth=width, linestyle=dashes)


def _polyline(axes: Any, element: ET.Element, colour: str, dashes: str) -> None:
    x, y = zip(*_points(element), strict=True)
    axes.plot(x, y, color=colour, linewidth=2, linestyle=dashes)


def _polygon(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    x, y = zip(*_points(element), strict=True)
    axes.fill(x, y, color=colour, alpha=0.16, linewidth=0)


def _rectangle(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    from matplotlib.patches import Rectangle

    corner = _length(element, "x"), _length(element, "y")
    sides = _length(element, "width"), _length(element, "height")
    bar = element.get("class") == "bar"
    own, alpha = (ink.SERIES[0], 0.7) if bar else (colour, 1.0)
    axes.add_patch(Rectangle(corner, *sides, color=own, alpha=alpha, linewidth=0))


def _circle(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    from matplotlib.patches import Circle

    own = ink.SERIES[0] if element.get("class") == "first" else colour
    place = _length(element, "cx"), _length(element, "cy")
    axes.add_patch(Circle(place, _length(element, "r"), color=own))


def _path(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    own, width, dashes = ink.STROKES.get(element.get("class", ""), (colour, 1.5, "-"))
    for piece in _pieces(element.get("d", "")):
        x, y = zip(*piece, strict=True)
        axes.plot(x, y, color=own, linewidth=width, linestyle=dashes)


def _text(axes: Any, element: ET.Element, colour: str, _: str) -> None:
    turned = 90 if element.get("transform", "").startswith("rotate(-90") else 0
    anchor = {"end": "right", "middle": "center"}.get(element.get("text-anchor", ""), "left")
    axes.text(
        _length(element, "x"),
        _length(element, "y"),
        element.text or "",
        color=colour,
        fontsize=13,
        ha=anchor,
        va="center" if turned else "baseline",
        rotation=turned,
        weight="bold" if element.get("class") == "strong" else "normal",
        parse_math=False,
    )


_DRAWN = {
    "line": _line,
    "polyline": _polyline,
    "polygon": _polygon,
    "rect": _rectangle,
    "circle": _circle,
    "path": _path,
    "text": _text,
}


def _length(element: ET.Element, name: str) -> float:
    return float(element.get(name, "0"))


def _points(element: ET.Element) -> list[tuple[float, float]]:
    pairs = (word.split(",") for word in element.get("points", "").split())
    return [(float(x), float(y)) for x, y in pairs]


def _pieces(path: str) -> Iterator[list[tuple[float, float]]]:
    """The straight lines of a path; only M, H, V, L and z, large or small, occur."""
    x = y = 0.0
    piece: list[tuple[float, float]] = []
    for step, text in _STEP.findall(path):
        numbers = [float(one) for one in _NUMBER.findall(text)]
        if step == "z":
            piece.append(piece[0])
            continue
        if step in "Mm" and len(piece) > 1:
            yield piece
        way = step.lower()
        pairs = (
            [(number, 0.0) if way == "h" else (0.0, number) for number in numbers]
            if way in "hv"
            else list(zip(numbers[::2], numbers[1::2], strict=True))
        )
        for place, (right, down) in enumerate(pairs):
            if step.islower():
                x, y = x + right, y + down
            else:
                x, y = (right if way != "v" else x), (down if way != "h" else y)
            piece = [(x, y)] if way == "m" and place == 0 else [*piece, (x, y)]
    if len(piece) > 1:
        yield piece
