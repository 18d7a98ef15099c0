"""Answers of statistics as sheets: a row for each thing, a column for each group, and a figure.

It reads plain values, as `statistics.json` has them, and knows neither sums nor noise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hubbub.core.number_format import NOT_KNOWN, amount
from hubbub.desk.report import charts, markup
from hubbub.desk.report.sheet import Figure, Sheet, Table

Answer = Mapping[str, Any]
Row = Mapping[str, Any]  # of an answer
_LEAST_P, _SMALL_P, _MOST_P = 0.001, 0.0995, 0.99  # as papers print p-values
_SHARES = ("survival", "incidence", "risk difference")
_MOST_PLACES = 8  # of a curve in a table
_MOST_ACROSS = 3  # levels of a two-way table


def sheet_of(name: str, answer: Answer) -> Sheet:
    """What is to be said of an answer, by the name of its question."""
    if answer["refusal"]:
        why = f"not answered: {answer['refusal']}"
        return Sheet(name=name, title=answer["title"], sentences=(why,))
    figure = figure_of(answer)
    tables = (
        replace(
            table,
            name="-".join(filter(None, (name, what))),
            caption=f"{answer['title']}{', ' if what else ''}{what}, with "
            f"{_percent(answer)} intervals",
            is_drawn=what == "over time",
        )
        for what, table in tables_of(answer).items()
    )
    # The tests of a table of columns stand in the table.
    tests = [test for test in answer["tests"] if answer["kind"] != "table"]
    return Sheet(
        name=name,
        title=answer["title"],
        sentences=tuple(map(test_words, tests)),
        figures=(replace(figure, name=name),) if figure else (),
        tables=tuple(tables),
        notes=tuple(answer["notes"]),
    )


def tables_of(answer: Answer) -> Mapping[str, Table]:
    """All tables of an answer, by what is said of each: its numbers, comparisons, curves."""
    if answer["kind"] == "two-way":
        return _two_way(answer)
    tables = {"": table_of(answer), "over time": _curves(answer)}
    if rows := [row for row in answer["rows"] if _is_comparison(answer, row)]:
        compared = _with_p_values(_pivoted(rows, _label, lambda _: ""), rows, _label)
        tables = {"": tables[""], "compared": compared, "over time": tables["over time"]}
    return {what: table for what, table in tables.items() if table is not None}


def table_of(answer: Answer) -> Table | None:
    """The numbers of an answer with their intervals; None where it has no numbers."""
    rows = [row for row in answer["rows"] if not _is_comparison(answer, row)]
    if not rows:
        return None
    if answer["kind"] == "crosstab":
        return _pivoted(rows, lambda row: row["group"], lambda row: row["level"])
    if answer["kind"] == "histogram":
        return _pivoted(rows, lambda row: row["level"], lambda row: row["quantity"])
    tested = {row["group"] for row in rows if row["p_value"] is not None}
    if len(tested) > 1:  # a line for each group has room for its p-value
        return _with_p_values(_pivoted(rows, _label_of_group, lambda _: ""), rows, _label_of_group)
    table = _pivoted(rows, _label, lambda row: row["group"])
    if answer["kind"] == "table":
        return _with_tests(table, rows, answer["tests"])
    return _with_p_values(table, rows, _label)


def _two_way(answer: Answer) -> Mapping[str, Table]:
    of: dict[str, list[Row]] = {}
    for row in answer["rows"]:
        of.setdefault(row["column"], []).append(row)
    tables = {}
    for name, rows in of.items():
        tables[name] = _pivoted(rows, lambda row: row["group"], lambda row: row["level"])
        if len(tables[name].head) > _MOST_ACROSS + 1:  # a page is too narrow for so many levels
            both = "{group}, {level}".format_map
            tables[name] = _pivoted(rows, both, lambda _: "")
    return tables


def _is_comparison(answer: Answer, row: Row) -> bool:
    """Whether a row compares groups, whose numbers the other rows are."""
    of_groups = answer["kind"] == "crosstab" and not row["group"]
    return of_groups or row["quantity"].startswith("difference of")


def _with_p_values(table: Table, rows: Sequence[Row], label: Callable[[Row], str]) -> Table:
    """The table, with the p-values of its rows if they have some."""
    tested = {label(row): p_cell(row) for row in rows if row["p_value"] is not None}
    if not tested:
        return table
    shown = tuple((*row, tested.get(row[0], "")) for row in table.rows)
    return Table((*table.head, "p"), shown)


def _with_tests(table: Table, rows: Sequence[Row], tests: Sequence[Row]) -> Table:
    """The table, with the test of each column, where groups differ, in its first row."""
    tested = {test["column"]: test for test in tests if test["column"]}
    if not tested:
        return table
    first = {row["column"]: _label(row) for row in reversed(rows)}
    cells = {first[column]: test_cells(one) for column, one in tested.items() if column in first}
    shown = tuple((*row, *cells.get(row[0], ("", ""))) for row in table.rows)
    return Table((*table.head, "p", "SMD"), shown)


def _curves(answer: Answer) -> Table | None:
    """Survival curves at up to eight of their times; None of other answers."""
    curves = answer["curves"]
    if answer["kind"] != "survival" or not curves:
        return None
    places = max((curve["x"] for curve in curves), key=len)
    shown = places[:: -(-len(places) // _MOST_PLACES)]
    columns = [
        {
            x: f"{100 * y:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
            for x, y, low, high in zip(*map(curve.get, ("x", "y", "low", "high")), strict=False)
        }
        for curve in curves
    ]
    rows = tuple((amount(x), *(column.get(x, "") for column in columns)) for x in shown)
    whole = "all" if len(curves) > 1 else "without the event"
    return Table(("after", *(curve["name"] or whole for curve in curves)), rows)


def test_words(test: Mapping[str, Any]) -> str:
    """A test in a sentence."""
    below = test["degrees_below"]
    number = amount(test["degrees"]) + ("" if below is None else f" and {amount(below)}")
    degrees = f"{number} degree{'' if number == '1' else 's'} of freedom"
    column = f" of {test['column']}" if test["column"] else ""
    z = "" if test["z"] is None else f", z = {amount(test['z'])}"
    p_value = p_words(test["p_value"], equal="= ") + _adjusted(test)
    return (
        f"{test['name']} test{column}, adjusted for noise: statistic "
        f"{amount(test['statistic'])} on {degrees}{z}, p {p_value}"
    )


def p_cell(tested: Mapping[str, Any]) -> str:
    """The p-value of a row or a test in a table."""
    return p_words(tested["p_value"]) + _adjusted(tested)


def test_cells(test: Row) -> tuple[str, str]:
    """The p-value of a test, and the standardised mean difference where there is one."""
    return p_cell(test), "" if test["smd"] is None else f"{test['smd']:.3f}"


def _adjusted(tested: Mapping[str, Any]) -> str:
    """What Holm makes of it, where it was asked for."""
    after = tested["p_adjusted"]
    return "" if after is None else f" (Holm {p_words(after)})"


def p_words(value: float | None, *, equal: str = "") -> str:
    """A p-value to two places, a small one to three, or that it is beyond them."""
    if value is None:
        return ""
    if value < _LEAST_P or value > _MOST_P:
        return f"< {_LEAST_P:g}" if value < _LEAST_P else f"> {_MOST_P:g}"
    return f"{equal}{value:.{3 if value < _SMALL_P else 2}f}"


def estimate_words(row: Row, longest: int = 99) -> str:
    """An estimate with its interval, to two digits of the interval's width, or as many as fit.

    Below 10 at least two places, as ratios have; and as many as part the interval's ends.
    """
    low, value, high = (float(row[key]) for key in ("low", "value", "high"))
    places = 1 - math.floor(math.log10(high - low)) if high > low else 2
    most = min(max(places, 2 if abs(high) < 10 else 0), 9)
    shown = [
        printed(f"{value:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})")
        for digits in range(most, min(max(places - 1, 0), most) - 1, -1)
    ]
    return next((words for words in shown if len(words) <= longest), shown[-1])


def printed(cell: str) -> str:
    """A cell as print has it: a dash between ends above 0, and a minus that is no hyphen."""
    dashed = re.sub(r"\(([\d.,]+) to ([\d.,]+)\)", r"(\1–\2)", cell)
    return re.sub(r"(?<![^\s(])-(?=\d)", "−", dashed)


def _pivoted(rows: Sequence[Row], down: Any, across: Any) -> Table:
    """Rows and columns in the order in which they first come."""
    names = list(dict.fromkeys(across(row) for row in rows))
    pivoted: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        pivoted.setdefault(down(row), {}).setdefault(across(row), []).append(_cell(row))
    whole = "all" if len(names) > 1 else "estimate and interval"
    head = ("", *(name or whole for name in names))
    body = [
        (label, *("; ".join(cells.get(name, [NOT_KNOWN])) for name in names))
        for label, cells in pivoted.items()
    ]
    return Table(head, tuple(body))


def _label(row: Row) -> str:
    about = ": ".join(filter(None, (row["column"], row["level"])))
    plain = row["quantity"] in ("share", "records")
    return about if about and plain else ", ".join(filter(None, (about, row["quantity"])))


def _label_of_group(row: Row) -> str:
    return "; ".join(filter(None, (row["group"], _label(row))))


def _cell(row: Row) -> str:
    """A number with the ends of its interval."""
    if row["value"] is None:
        return NOT_KNOWN
    shown, unit = _shown(row), " %" if _is_share(row["quantity"]) else ""
    if row["quantity"] == "risk difference":
        unit = " percentage points"
    if row["low"] == row["value"] == row["high"]:  # known without an interval
        return f"{shown(row['value'])}{unit}"
    ends = (row["low"], row["high"])
    low, high = (NOT_KNOWN if end is None else shown(end) for end in ends)
    return f"{shown(row['value'])}{unit} ({low} to {high})"


def _is_share(quantity: str) -> bool:
    return quantity.startswith("share") or quantity in _SHARES


def _shown(row: Row) -> Any:
    """How numbers of a row are written: with more digits where an interval's ends need them.

    As of a ratio per unit of a column, whose ends by three digits would all be 1.02.
    """
    if row["quantity"] == "records":
        return lambda value: f"{value:,.0f}"
    times = 100 if _is_share(row["quantity"]) else 1
    low, high = (times * (math.nan if row[end] is None else row[end]) for end in ("low", "high"))
    places = 1 - math.floor(math.log10(high - low)) if 0 < high - low < math.inf else 0
    if _is_share(row["quantity"]):
        return lambda value: f"{100 * value:.{min(max(places - 1, 1), 9)}f}"
    if not places:
        return _three_digits
    given = min(len(_three_digits(end).partition(".")[2]) for end in (low, high))
    if places < given + 2 or "e" in _three_digits(low):
        return _three_digits
    return lambda value: f"{value:,.{min(places, 9)}f}"


def _three_digits(value: float) -> str:
    return f"{value:#.3g}".rstrip(".") if abs(value) < 999.5 else f"{value:,.0f}"


# The figure that goes with an answer. Survival figures are as papers print them: a point-wise
# interval around each curve, the p-value in the figure, and the numbers at risk below the axis.

_RATIOS = ("hazard ratio", "odds ratio", "rate ratio", "relative risk", "ratio of geometric means")
_MOST_CURVES, _MOST_TIMES = 6, 8
# What is on the vertical axis, by the kind of answer.
_WHAT = {"survival": "share without the event", "incidence": "share with the event"}
_LONGEST = 20  # letters of an estimate with its interval
_ESTIMATE_ROOM = 154  # for an estimate with its interval, right of a forest
_AT_RISK, _LINE = 62, 16  # where numbers at risk begin below the axis, and how high a line is


def figure_of(answer: Answer) -> Figure | None:
    """The figure that goes with an answer, if there is one."""
    if answer["refusal"]:
        return None
    if answer["curves"]:
        return _curves_figure(answer)
    if answer["kind"] == "histogram":
        return _histogram(answer)
    ratios = [row for row in answer["rows"] if row["quantity"] in _RATIOS]
    ratios = [row for row in ratios if row["quantity"] == ratios[0]["quantity"]]
    slopes = [row for row in answer["rows"] if row["quantity"] == "slope"]
    return _forest(answer, ratios or slopes) if ratios or slopes else None


def _curves_figure(answer: Answer) -> Figure:
    """Curves with their intervals, the p-value, and numbers at risk below."""
    curves = answer["curves"][:_MOST_CURVES]
    places = [x for curve in curves for x in curve["x"]]
    what = _WHAT.get(answer["kind"], "share of records up to here")
    start = [0.0] if answer["kind"] in _WHAT else []
    across = charts.linear([*start, *places], charts.LEFT, charts.RIGHT)
    # Numbers at risk are told at times of the grid, equally many bins apart.
    grid = max((curve["x"] for curve in curves if curve["at_risk"]), key=len, default=())
    if grid:
        across = replace(across, ticks=tuple(grid[:: -(-len(grid) // _MOST_TIMES)]))
    up = charts.linear([0.0, 1.0], *charts.vertical(charts.HEIGHT))
    words = (
        f"{answer['title']}. The shaded area contains each point of the curve with "
        f"{_percent(answer)} probability, noise included."
    )
    name = curves[0]["column"] or ("time" if start else "value")
    axes = charts.Axes(across=across, up=up, labels=(name, what))
    extra = [*_tested(answer, axes), *_at_risk(curves, axes)]
    known = len(_own_numbers(curves))
    more = _LINE * (2 * known + 2) if known else 0
    if more:
        words += " Below: records at risk just after these times, with noise."
    drawn = [charts.Series.of({**curve, "name": curve["name"] or "all"}) for curve in curves]
    chart = charts.lines(drawn, axes, described=words, extra=extra, more=more)
    return Figure(chart, words, charts.HEIGHT + more)


def _tested(answer: Answer, axes: charts.Axes) -> list[markup.Html]:
    """The p-values of the answer's tests, where curves leave room."""
    said = [
        f"{test['name']} p {p_words(test['p_value'], equal='= ')}"
        + (f" ({test['column']})" if test["column"] else "")
        for test in answer["tests"]
    ]
    if answer["kind"] != "survival":  # other curves rise
        return [charts.note(text, axes, line, above=True) for line, text in enumerate(said)]
    return [charts.note(text, axes, line) for line, text in enumerate(reversed(said))]


def _at_risk(curves: Sequence[Mapping[str, Any]], axes: charts.Axes) -> list[markup.Html]:
    """Numbers at risk below the ticks of the axis."""
    known = _own_numbers(curves)
    top = axes.up.start + _AT_RISK
    head = charts.word("at risk, with noise", charts.LEFT, top, "start", "axis")
    parts = [head] if known else []
    for index, (label, one) in enumerate(known.items()):
        y = top + _LINE * (2 * index + 1)
        name = charts.word(label, charts.LEFT, y, "start", "strong")
        parts.append(markup.tag("g", name, class_=f"series-{curves.index(one)}"))
        # How many are at risk just after a time of the grid, as far as the curve goes.
        numbers = dict(zip(one["x"], one["at_risk"], strict=False))
        for time in axes.across.ticks:
            shown = f"{max(numbers[time], 0):,.0f}" if time in numbers else ""
            place = axes.across.place(time)
            parts.append(charts.word(shown, place, y + _LINE, "middle", "risk"))
    return parts


def _own_numbers(curves: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """A curve for each of the numbers at risk, by what they are called.

    Curves of one group, as of competing events, have the same: these are the group's.
    """
    shared: dict[tuple[float, ...], list[Mapping[str, Any]]] = {}
    for curve in curves:
        if curve["at_risk"]:
            shared.setdefault(tuple(curve["at_risk"]), []).append(curve)
    names = {
        numbers: (same[0]["name"] if len(same) == 1 else same[0]["name"].rpartition(": ")[0])
        for numbers, same in shared.items()
    }
    return {names[numbers] or "all": same[0] for numbers, same in shared.items()}


def _histogram(answer: Answer) -> Figure:
    rows = [row for row in answer["rows"] if row["quantity"] == "share"]
    bins = [row for row in rows if row["level"] != "missing"]
    items = [
        charts.BinShare(name=row["level"], value=row["value"], ends=(row["low"], row["high"]))
        for row in bins
    ]
    tops = [0.0, *(end for item in items for end in item.ends)]
    up = charts.linear(tops, *charts.vertical(charts.HEIGHT))
    how = f"with {_percent(answer)} intervals."
    words = f"{answer['title']}: the share of records in each bin, {how}"
    chart = charts.bars(items, up, labels=(bins[0]["column"], "share"), described=words)
    return Figure(chart, words, charts.HEIGHT)


def _forest(answer: Answer, rows: Sequence[Row]) -> Figure:
    """Effects with their intervals, ratios on a logarithmic axis."""
    ratio = rows[0]["quantity"] in _RATIOS
    name, none = rows[0]["quantity"], 1.0 if ratio else 0.0
    known = [row for row in rows if None not in (row["value"], row["low"], row["high"])]
    ends = [row[key] for row in known for key in ("low", "value", "high")]
    place = (charts.EDGE, charts.WIDTH - _ESTIMATE_ROOM)
    across = charts.ratios(ends, *place) if ratio else charts.linear([0.0, *ends], *place)
    items = [
        charts.Interval(
            label=": ".join(filter(None, (row["group"], row["column"], row["level"]))),
            value=row["value"],
            ends=(row["low"], row["high"]),
            first=not row["low"] <= none <= row["high"],
            told=estimate_words(row, _LONGEST),
        )
        for row in known
    ]
    nothing = "1 means no difference" if ratio else "0 means no effect"
    words = f"{answer['title']}: {name}s with {_percent(answer)} intervals; {nothing}."
    chart = charts.intervals(items, across, label=name, described=words, nothing=none)
    return Figure(chart, words, charts.height_of_intervals(len(items)))


def _percent(answer: Answer) -> str:
    return f"{100 * answer['confidence']:g} %"
