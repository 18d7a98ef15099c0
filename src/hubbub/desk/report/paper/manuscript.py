"""What a paper prints of a run, before it has a format.

The methods sentence, the flow of records, a table for each answer with its caption and notes, and
its figure; the model's coefficients, scores, calibration and decision curve.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hubbub.core.disk import file_name
from hubbub.core.number_format import NOT_KNOWN, amount, at_most
from hubbub.core.planning.plan_rows import spoken
from hubbub.core.runs.renderers import render
from hubbub.desk.report import charts, markup
from hubbub.desk.report.answers import (
    Answer,
    Row,
    estimate_words,
    p_cell,
    printed,
    sheet_of,
    test_cells,
)
from hubbub.desk.report.charts import word
from hubbub.desk.report.sheet import Figure, Sheet, SheetOfModel, Table, full
from hubbub.estimation.kinds import methods_of

# Effects of a regression as journals print them: each column with its classes, reference first.
#
# Numbers are a line each. What is told of subgroups, or of each of several classes of an outcome,
# stands below a line of its own. It reads plain values, as the files of a run have them.

EFFECTS = ("logistic", "multinomial", "poisson", "linear", "cox")  # kinds of answers that are such
GEOMETRIC = "ratio of geometric means"
_AGAINST = " against "


def effects_table(answer: Answer) -> Table:
    """The table of an answer of one of these kinds."""
    quantities = dict.fromkeys(row["quantity"] for row in answer["rows"])
    what = "difference" if len(quantities) > 1 else next(iter(quantities))
    head = ("", f"{what} ({100 * answer['confidence']:g} % interval)", "p")
    groups = dict.fromkeys(row["group"] for row in answer["rows"])
    rows = [
        line
        for group in groups
        for line in _section(group, [row for row in answer["rows"] if row["group"] == group])
    ]
    return Table(head, tuple(rows))


def _section(group: str, rows: Sequence[Row]) -> Iterator[tuple[str, str, str]]:
    """What is told of one group; a line where it is one number."""
    if group and len(rows) == 1:
        (row,) = rows
        yield f"{group}; {row['column']}: {row['level']}", _cell(row), p_cell(row)
        return
    if group:
        yield group, "", ""
    for column in dict.fromkeys(row["column"] for row in rows):
        own = [row for row in rows if row["column"] == column]
        reference = ""
        for row in own:
            level, against, first = row["level"].partition(_AGAINST)
            if against and first != reference:
                yield column, "", ""
                yield f"  {first}", "reference", ""
                reference = first
            label = f"  {level}" if against else ", ".join(filter(None, (column, row["level"])))
            yield label, _cell(row), p_cell(row)


def _cell(row: Row) -> str:
    known = None not in (row["value"], row["low"], row["high"])
    return estimate_words(row) if known else NOT_KNOWN


# Table 1 as journals print it: n (%), mean (SD) or median [IQR], all records, groups, p and SMD.
#
# Numbers of records are noisy: a class's is its share of those who have a value. What the noise is
# stands in a note below the table.

_MISSING = "missing"


def table_one(answer: Answer, quantiles: Sequence[Answer]) -> Table:
    """The table of an answer of the kind "table"."""
    groups = list(dict.fromkeys(row["group"] for row in answer["rows"]))
    tests = {test["column"]: test for test in answer["tests"] if test["column"]}
    counts = {group: _records(answer, group) for group in groups}
    names = (f"{group or 'Overall'} (n = {n:,.0f})" for group, n in counts.items())
    head = ["", *names, *(["p", "SMD"] if tests else [])]
    rows: list[tuple[str, ...]] = []
    for column in dict.fromkeys(row["column"] for row in answer["rows"] if row["column"]):
        own = [row for row in answer["rows"] if row["column"] == column]
        described = [*_column(column, own, counts), *_medians(column, groups, quantiles)]
        for place, (label, cells) in enumerate(described):
            is_tested = place == 0 and column in tests
            last = test_cells(tests[column]) if is_tested else ("", "")
            rows.append((label, *cells, *(last if tests else ())))
    return Table(tuple(head), tuple(rows))


def noise_note(answer: Answer) -> str:
    """What the noise in the table's counts is."""
    errors = [row["standard_error"] for row in answer["rows"] if row["quantity"] == "records"]
    least, most = min(errors), max(errors)
    size = amount(least) if f"{least:.2g}" == f"{most:.2g}" else f"{least:.2g} to {most:.2g}"
    return (
        f"Counts carry noise with a standard deviation of {size} records, which the tests "
        "account for"
    )


def tests_note(answer: Answer) -> Iterator[str]:
    """Which tests p-values are of, and what SMD is; nothing where nothing is compared."""
    named = dict.fromkeys(test["name"] for test in answer["tests"] if test["column"])
    if named:
        yield (
            f"P-values are of {' or '.join(f'{name} test' for name in named)}, adjusted "
            "for noise; SMD is the standardised mean difference"
        )


def _column(
    column: str, rows: Sequence[Row], groups: Mapping[str, float]
) -> Iterator[tuple[str, list[str]]]:
    """The lines of one column: mean (SD), or a line for each class below its name."""
    known = {(row["quantity"], row["level"], row["group"]): row for row in rows}
    if any(row["quantity"] == "mean" for row in rows):
        cells = []
        for group in groups:
            mean, deviation = (known.get((what, "", group)) for what in ("mean", "sd"))
            cells.append(NOT_KNOWN)
            if mean is not None:
                spread = None if deviation is None else deviation["value"]
                cells[-1] = f"{_short(mean['value'])} ({_short(spread)})"
        yield f"{column}, mean (SD)", cells
    else:
        yield f"{column}, n (%)", ["" for _ in groups]
    for level in dict.fromkeys(row["level"] for row in rows if row["quantity"] == "share"):
        cells = [_counted(known, level, group, number) for group, number in groups.items()]
        yield f"  {level}", cells


def _records(answer: Answer, group: str) -> float:
    rows = (row for row in answer["rows"] if row["quantity"] == "records")
    return next(float(row["value"]) for row in rows if row["group"] == group)


def _counted(known: Mapping[tuple[str, str, str], Row], level: str, group: str, all_: float) -> str:
    """n (%) of a class; of "missing", out of all records."""
    row = known.get(("share", level, group))
    if row is None or row["value"] is None:
        return NOT_KNOWN
    gone = known.get(("share", _MISSING, group))
    without = 0.0 if gone is None or level == _MISSING else gone["value"]
    return f"{row['value'] * all_ * (1.0 - without):,.0f} ({100 * row['value']:.1f})"


def _medians(
    column: str, groups: Sequence[str], quantiles: Sequence[Answer]
) -> Iterator[tuple[str, list[str]]]:
    """The median and quartiles, of all or by group, where somebody asked for them."""
    medians = {
        (row["group"], row["level"]): row["value"]
        for answer in quantiles
        for row in answer["rows"]
        if row["column"] == column and row["quantity"] == "quantile"
    }
    levels = ("0.5", "0.25", "0.75")
    known = [all((group, level) in medians for level in levels) for group in groups]
    if any(known):
        cells = [
            "{} [{}, {}]".format(*(_short(medians[group, level]) for level in levels))
            if there
            else NOT_KNOWN
            for group, there in zip(groups, known, strict=True)
        ]
        yield f"{column}, median [IQR]", cells


def _short(value: float | None) -> str:
    if value is None:
        return NOT_KNOWN
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


# How tests are told that are named after who found them.
_NAMED = {
    "log-rank": "curves were compared by the log-rank test",
    "stratified log-rank": "curves were compared by the log-rank test in strata",
    "Gray's": "incidence was compared by Gray's test",
    "Wilcoxon": "groups were compared by Wilcoxon's rank test",
    "Kruskal-Wallis": "groups were compared by Kruskal and Wallis' rank test",
}


def manuscript_of(
    told: Mapping[str, Any],
    *,
    validation: Mapping[str, Any] | None = None,
    coefficients: Mapping[str, Any] | None = None,
    plan: Mapping[str, Any] | None = None,
) -> Sheet:
    """What a paper prints: the sentence for the section on methods, tables, and figures."""
    answers: Mapping[str, Answer] = told.get("statistics", {})
    effects: Mapping[str, Answer] = (coefficients or {}).get("statistics", {})
    every = {**answers, **effects}
    known, unit = counted(answers, validation), told["unit"]
    said = render("validation", validation) if validation else None
    scored: SheetOfModel | None = said if said and said.methods else None
    sites = None if plan is None else int(plan["silos"])
    sheets = [
        *([_flow(known, unit, sites)] if known else []),
        *(_printed_answer(name, one, answers) for name, one in every.items()),
        *([scored.sheet] if scored else []),
    ]
    tables = [table for sheet in sheets for table in sheet.tables]
    figures = [figure for sheet in sheets for figure in sheet.figures]
    return Sheet(
        title=told["study"],
        sentences=(methods_sentence({**told, "statistics": every}, plan=plan, validation=scored),),
        tables=tuple(
            replace(table, name=name, rows=tuple(tuple(map(printed, row)) for row in table.rows))
            for name, table in zip(_files(table.name for table in tables), tables, strict=True)
        ),
        figures=tuple(
            replace(figure, name=name)
            for name, figure in zip(_files(one.name for one in figures), figures, strict=True)
        ),
    )


def _files(names: Iterable[str]) -> Iterator[str]:
    """What files are called that show what is called so: a question's name may be anything."""
    taken: set[str] = set()
    for name in names:
        own = file_name(name, lambda one: one not in taken)
        taken.add(own.casefold())
        yield own


def methods_sentence(
    told: Mapping[str, Any],
    *,
    plan: Mapping[str, Any] | None = None,
    validation: SheetOfModel | None = None,
) -> str:
    """What the section on methods says; of the whole study's epsilon where there is a plan."""
    methods: dict[str | None, None] = {}
    for answer in told["statistics"].values():
        if any(row["quantity"] == GEOMETRIC for row in answer["rows"]) and not answer["refusal"]:
            methods["ratios of geometric means are from linear regressions of logarithms"] = None
        elif not answer["refusal"]:
            methods[methods_of(answer["kind"])] = None
    every = told["statistics"].values()
    tests = dict.fromkeys(test["name"] for answer in every for test in answer["tests"])
    done = "; ".join(filter(None, (*methods, *(_NAMED.get(test) for test in tests))))
    changed = "exchanged" if told["relation"] == "substitute" else "added or removed"
    parts = [part for answer in every for part in (*answer["rows"], *answer["tests"])]
    family = any(part["p_adjusted"] is not None for part in parts)
    epsilon = told["epsilon"]
    if plan is not None:  # of all that the study asks, against the adversary that it names
        by_adversary = {row["adversary"]: row["epsilon"] for row in plan["epsilon"]}
        epsilon = by_adversary[plan["stated_adversary"]]
    promised = (
        "All numbers were computed from sums over all sites, to which noise was added before "
        "anybody saw them; nobody saw the numbers of a single site. They satisfy distributed "
        f"differential privacy (epsilon {at_most(epsilon)}, delta {amount(told['delta'])}, one "
        f"{told['unit']} {changed}, against {spoken(told['adversary'])}). Intervals and p-values "
        "account for sampling and the added noise"
    )
    adjusted = "; p-values of the family were adjusted by Holm's method." if family else "."
    scored = validation.methods if validation else ""
    return " ".join(filter(None, (done and full(done), scored, promised + adjusted)))


def _printed_answer(name: str, answer: Answer, answers: Mapping[str, Answer]) -> Sheet:
    """One answer as journals print it: effects and Table 1 otherwise; the first table has notes."""
    sheet = sheet_of(name, answer)
    if answer["refusal"]:
        return sheet
    notes, tables = (*sheet.sentences, *sheet.notes), sheet.tables
    if answer["kind"] == "table":
        others = [one for one in answers.values() if one["kind"] == "quantiles"]
        notes = (*tests_note(answer), noise_note(answer), *answer["notes"])
        tables = (replace(table_one(answer, others), name=name, caption=answer["title"]),)
    elif answer["kind"] in EFFECTS:
        tables = (replace(effects_table(answer), name=name, caption=answer["title"]),)
    first = tuple(replace(table, notes=notes) for table in tables[:1])
    return replace(sheet, tables=first + tables[1:])


def _flow(known: Sequence[Counted], unit: str, sites: int | None) -> Sheet:
    """How many records each question is about, with noise, and how many lack something for it."""
    note = f"{unit.capitalize()}s with a missing value needed for a question are left out of it"
    caption = f"Flow of {unit}s"
    table = replace(flow_table(known, unit), name="flow", caption=caption)
    return Sheet(
        title=caption,
        tables=(replace(table, notes=(f"{note}; all numbers carry noise",)),),
        figures=(replace(flow_figure(known, unit, sites), name="flow"),),
    )


# The flow of records, as CONSORT has it: how many each question is about, with noise.
#
# Who is left out of a question lacks a cell that it needs; how many these are is the difference to
# the largest number that any question tells.

_REACH = 1.96  # standard deviations of the noise that are told
_LINE, _PAD, _GAP = 17, 10, 16  # height of a line, room in a box, and between two
_STEM, _LEFT, _RIGHT = 24, 46, 306  # the line down, and where boxes of questions begin and end
_SIDE = 330  # where boxes of those begin who are left out
_WIDE, _LONG, _SHORT = 58, 34, 15  # letters that a line of each of these has room for


@dataclass(frozen=True)
class Counted:
    """How many records one question is about."""

    name: str  # of the question
    title: str  # what it shows
    value: float  # how many, with noise
    error: float  # standard error of that, by noise
    # how many there are in each group, where it has some
    groups: tuple[tuple[str, float], ...] = ()


def counted(
    answers: Mapping[str, Answer], validation: Mapping[str, Any] | None
) -> Sequence[Counted]:
    """What is known of each question that tells a number of records."""
    known = []
    for name, answer in answers.items():
        rows = [row for row in answer["rows"] if row["quantity"] == "records"]
        whole = [row for row in rows if not row["group"] and not row["level"]]
        if rows and not answer["refusal"]:
            summed = whole[:1] or rows
            error = math.sqrt(sum(float(row["standard_error"]) ** 2 for row in summed))
            groups = tuple((row["group"], float(row["value"])) for row in rows if row["group"])
            alone = groups if all(not row["level"] for row in rows) else ()
            value = sum(float(row["value"]) for row in summed)
            known.append(Counted(name, answer["title"], value, error, alone))
    if validation is None or validation["all"] is None:
        return known
    told = validation["all"]
    title = f"Validation of the model on {validation['records']} {validation['unit']}s"
    return [*known, Counted("validation", title, told["count"], told["count_error"])]


def flow_table(known: Sequence[Counted], unit: str) -> Table:
    """A line for each question."""
    whole = _whole(known)
    rows = []
    for one in known:
        numbers, fewer = (f"{one.value:,.0f}", f"{_REACH * one.error:,.0f}"), _fewer(one, whole)
        rows.append((f"{one.title} ({one.name})", *numbers, f"{fewer:,.0f}" if fewer else ""))
    head = ("question", f"{unit}s", "± by noise (95 %)", "fewer than in the largest")
    return Table(head, tuple(rows))


def flow_figure(known: Sequence[Counted], unit: str, sites: int | None) -> Figure:
    """The same as boxes: all above, each question below, and who is left out of it beside it."""
    whole = _whole(known)
    where = f" of {sites} sites" if sites else ""
    head = [f"{_told(whole)} {unit}s{where}", f"by the noisy count of “{whole.name}”"]
    top, y = _box(head, (charts.EDGE, charts.WIDTH - charts.EDGE), charts.EDGE, _WIDE)
    parts, start, middle = [*top], y, y
    for one in known:
        y += _GAP
        lines = [f"{one.title} ({one.name})", f"n = {_told(one)}"]
        if one.groups:
            lines.append("; ".join(f"{name} {value:,.0f}" for name, value in one.groups))
        box, end = _box(lines, (_LEFT, _RIGHT), y, _LONG)
        middle = (y + end) / 2
        parts += [*box, _line(_STEM, middle, _LEFT, middle)]
        if fewer := _fewer(one, whole):
            left = [f"{fewer:,.0f} fewer:", "a cell missing", "or not asked"]
            side, below = _box(left, (_SIDE, charts.WIDTH - charts.EDGE), y, _SHORT)
            parts += [*side, _line(_RIGHT, middle, _SIDE, middle)]
            end = max(end, below)
        y = end
    parts.append(_line(_STEM, start, _STEM, middle))
    words = f"Flow of {unit}s. Every number carries noise; ± is its size in 95 of 100 releases."
    return Figure(charts.drawing(parts, y + charts.EDGE, words), words, y + charts.EDGE)


def _told(one: Counted) -> str:
    return f"{one.value:,.0f} (± {_REACH * one.error:,.0f})"


def _whole(known: Sequence[Counted]) -> Counted:
    """The most exact of those from which the largest is not told apart."""
    largest = max(known, key=lambda one: one.value)
    return min((one for one in known if not _fewer(one, largest)), key=lambda one: one.error)


def _fewer(one: Counted, whole: Counted) -> float:
    """How many fewer a question is about; 0 where noise alone may be what makes the difference."""
    apart = whole.value - one.value
    return apart if apart > _REACH * math.hypot(one.error, whole.error) else 0.0


def _box(
    lines: Sequence[str], across: tuple[float, float], y: float, letters: int
) -> tuple[list[markup.Html], float]:
    """A box with these lines in it, broken where they are too long, and where it ends."""
    broken = [part for line in lines for part in textwrap.wrap(line, letters)]
    end = y + 2 * _PAD + _LINE * len(broken) - 4
    left, right = across
    sides = {"width": right - left, "height": end - y}
    outline = markup.tag("rect", x=left, y=y, **sides, class_="outline")
    texts = [
        word(text, left + _PAD, y + _PAD + 9 + _LINE * place, "start", "axis")
        for place, text in enumerate(broken)
    ]
    return [outline, *texts], end


def _line(x1: float, y1: float, x2: float, y2: float) -> markup.Html:
    return markup.tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_="edge")
