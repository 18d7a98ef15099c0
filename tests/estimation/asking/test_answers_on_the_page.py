"""What the report shows of answers: names of columns, and numbers at risk where counted."""

from __future__ import annotations

import re
from typing import Any

from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.desk.report.answers import sheet_of
from hubbub.desk.report.markup import join
from hubbub.desk.report.sheet import html_of


def survival(**curve: Any) -> dict[str, Any]:
    """An answer with one curve over 0, 9, ... 36 months."""
    x = (0.0, 9.0, 18.0, 27.0, 36.0)
    y = (1.0, 0.9, 0.8, 0.7, 0.6)
    whole = dict.fromkeys(("low", "high", "band_low", "band_high"), y)
    at_risk = (1299.0, 1180.0, 900.0, 640.0, 410.0)
    made = {"name": "", "column": "months", "x": x, "y": y, "at_risk": at_risk, **whole, **curve}
    return {
        "kind": "survival",
        "title": "Survival",
        "confidence": 0.95,
        "rows": [],
        "curves": [made],
        "tests": [],
        "notes": [],
        "refusal": "",
    }


def page_of(answer: dict[str, Any]) -> str:
    return join(html_of(sheet_of("os", answer))).text


def test_numbers_at_risk_stand_under_the_times_at_which_they_were_counted() -> None:
    """1,299 at 0 months had stood under 5, as the last edge before it."""
    page = page_of(survival())
    ticks = re.findall(r'x="([\d.]+)" y="[\d.]+" text-anchor="middle">([\d.]+)</text>', page)
    counts = re.findall(
        r'x="([\d.]+)" y="[\d.]+" text-anchor="middle" class="risk">([\d,]+)<', page
    )
    times = dict(ticks)
    shown = {times[x]: number for x, number in counts}
    known = {"0": "1,299", "9": "1,180", "18": "900", "27": "640", "36": "410"}
    assert len(shown) >= 4
    assert shown.items() <= known.items()


def test_the_axis_is_named_after_the_column() -> None:
    assert ">months<" in page_of(survival())


def test_a_curve_goes_straight_from_edge_to_edge() -> None:
    (line,) = re.findall(
        r'data-name="all"[^>]*>(?:<g class="marks"></g>)?<polyline points="([^"]*)"',
        page_of(survival()),
    )
    assert len(line.split()) == 5


def test_ranges_do_not_overlap() -> None:
    age = Column(name="age", low=30, high=90)
    assert Levels(column=age, cuts=(60, 75)).names == ("30 to <60", "60 to <75", "75 to 90")
