"""Colours and strokes of a chart that is a file of its own, as the page has them on paper."""

from __future__ import annotations

SERIES = ("#1b5e9e", "#a34b08", "#1e7a46", "#8e3b8e", "#a01f3c", "#444444")
STROKES = {  # colour, width and dashes of lines, by class
    "grid": ("#dddddd", 1.0, "-"),
    "edge": ("#444444", 1.0, "-"),
    "outline": ("#444444", 1.0, "-"),
    "limit": ("#000000", 1.0, "--"),
    "whisker first": (SERIES[0], 3.0, "-"),
    "whisker other": ("#000000", 2.0, "-"),
}
STYLE = "\n".join(
    [
        "text { font: 13px sans-serif; fill: #000000 }",
        ".strong { font-weight: 600 }",
        f"circle {{ fill: {SERIES[4]} }}",
        "polyline { fill: none; stroke: currentColor; stroke-width: 2 }",
        ".area { fill: currentColor; opacity: .16 }",
        f".bar, circle.first {{ fill: {SERIES[0]} }}",
        ".bar { opacity: .7 }",
        ".whisker, .outline { fill: none }",
        ".series-1 polyline { stroke-dasharray: 7 3 }",
        *(f".series-{number} {{ color: {colour} }}" for number, colour in enumerate(SERIES)),
        *(
            f".{name.replace(' ', '.')} {{ stroke: {colour}; stroke-width: {width:g}"
            + ("; stroke-dasharray: 5 4 }" if dashes == "--" else " }")
            for name, (colour, width, dashes) in STROKES.items()
        ),
    ]
)
