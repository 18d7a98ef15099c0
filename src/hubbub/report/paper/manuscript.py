"""What a paper prints of a run's statistics, before it has a format.

The methods sentence, the flow of records, a table for each answer with its caption and notes, and
its figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hubbub.report.adversary_words import spoken
from hubbub.report.answer_figures import Figure, figure_of
from hubbub.report.answer_tables import Answer, TextTable, said_of, tables_of
from hubbub.report.number_format import amount
from hubbub.report.paper.table_one import noise_note, table_one

# What was done, by the kind of answer.
_METHODS = {
    "table": "means were compared by Welch's test and shares by the chi-square test",
    "crosstab": "associations were tested by chi-square, and risks compared with Newcombe's "
    "interval for differences and on the logarithmic scale for ratios",
    "quantiles": "quantiles were read from binned distribution functions",
    "survival": "survival was estimated by the Kaplan-Meier method on a grid of times that was "
    "fixed beforehand",
    "incidence": "cumulative incidence of competing events is Aalen and Johansen's",
    "rates": "rates are events over person-time, with score intervals, and compared on the "
    "logarithmic scale",
    "centres": "centres were compared with the whole by limits that hold drawing and noise, and "
    "their shares shrunk by the variance between centres",
    "cox": "hazard ratios are from Cox regressions",
    "logistic": "odds ratios are from logistic regressions",
    "linear": "differences of means are from linear regressions",
}


# How tests are told that are named after who found them.
_NAMED = {
    "log-rank": "curves were compared by the log-rank test",
    "stratified log-rank": "curves were compared by the log-rank test in strata",
    "Gray's test": "incidence was compared by Gray's test",
    "Wilcoxon": "groups were compared by Wilcoxon's rank test",
    "Kruskal-Wallis": "groups were compared by Kruskal and Wallis' rank test",
}


@dataclass(frozen=True)
class PaperTable:
    """A table with its caption.

    Args:
        name: of the question, for files.
        caption: what it shows.
        table: its cells.
        notes: sentences below it.
    """

    name: str
    caption: str
    table: TextTable
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaperFigure:
    """A figure, by the name of its question."""

    name: str
    figure: Figure


@dataclass(frozen=True)
class Manuscript:
    """All of it.

    Args:
        study: its name.
        methods: for the section on methods.
        tables: the flow of records first.
        figures: in the order of the questions.
    """

    study: str
    methods: str
    tables: tuple[PaperTable, ...]
    figures: tuple[PaperFigure, ...]


def manuscript_of(told: Mapping[str, Any]) -> Manuscript:
    """What a paper prints, from what `statistics.json` holds."""
    answers: Mapping[str, Answer] = told["statistics"]
    flow = _flow(answers, told["unit"])
    tables = [table for name, answer in answers.items() for table in _tables(name, answer, answers)]
    drawn = [(name, figure_of(answer)) for name, answer in answers.items()]
    return Manuscript(
        study=told["study"],
        methods=methods_sentence(told),
        tables=(*([flow] if flow else []), *tables),
        figures=tuple(PaperFigure(name, one) for name, one in drawn if one is not None),
    )


def methods_sentence(told: Mapping[str, Any]) -> str:
    """What the section on methods says."""
    kinds = dict.fromkeys(
        statistic["kind"] for statistic in told["statistics"].values() if not statistic["refusal"]
    )
    tests = dict.fromkeys(
        test["name"] for one in told["statistics"].values() for test in one["tests"]
    )
    named = (*(_METHODS.get(kind) for kind in kinds), *(_NAMED.get(test) for test in tests))
    done = "; ".join(filter(None, named))
    changed = "exchanged" if told["relation"] == "substitute" else "added or removed"
    family = any(_is_adjusted(statistic) for statistic in told["statistics"].values())
    return (f"{_capital(done)}. " if done else "") + (
        "All numbers are read from sums over all sites to which noise was added before anybody saw "
        "them; no site's numbers were seen by anybody. They have distributed differential privacy "
        f"(epsilon {amount(told['epsilon'])}, delta {amount(told['delta'])}, one {told['unit']} "
        f"{changed}, against {spoken(told['adversary'])}). Intervals and p-values take sampling "
        "and the added noise into account"
        + ("; p-values of the family were adjusted after Holm." if family else ".")
    )


def _is_adjusted(answer: Answer) -> bool:
    parts = (*answer["rows"], *answer["tests"])
    return any(part.get("p_adjusted") is not None for part in parts)


def _tables(name: str, answer: Answer, answers: Mapping[str, Answer]) -> Iterator[PaperTable]:
    """The tables of one answer, the first with its notes."""
    if answer["refusal"]:
        return
    intervals = f"with {100 * answer['confidence']:g} % intervals"
    if answer["kind"] == "table":
        others = [one for one in answers.values() if one["kind"] == "quantiles"]
        notes = (noise_note(answer), *answer["notes"])
        yield PaperTable(name, answer["title"], table_one(answer, others), notes)
        return
    notes = tuple(said_of(answer))
    for what, table in tables_of(answer).items():
        own = f"{name}-{what.replace(' ', '-')}" if what else name
        said = f", {what}" if what else ""
        yield PaperTable(own, f"{answer['title']}{said}, {intervals}", table, notes)
        notes = ()


def _flow(answers: Mapping[str, Answer], unit: str) -> PaperTable | None:
    """How many records each question is about, with noise, and how many lack something for it."""
    known = {
        name: counted for name, one in answers.items() if (counted := _counted(one)) is not None
    }
    if not known:
        return None
    whole, _ = max(known.values(), key=lambda one: one[0])
    rows = [
        (
            f"{answers[name]['title']} ({name})",
            f"{value:,.0f}",
            f"{1.96 * error:,.0f}",
            f"{max(whole - value, 0):,.0f}",
        )
        for name, (value, error) in known.items()
    ]
    head = ("question", f"{unit}s", "± by noise (95 %)", "fewer than in the largest")
    notes = (
        f"{_capital(unit)}s that lack what a question needs are left out of it; all numbers carry "
        "noise",
    )
    return PaperTable("flow", f"Flow of {unit}s", TextTable(head, tuple(rows)), notes)


def _counted(answer: Answer) -> tuple[float, float] | None:
    """How many records an answer is about, and the standard error by noise; None if untold."""
    rows = [row for row in answer["rows"] if row["quantity"] == "records"]
    whole = [row for row in rows if not row["group"] and not row["level"]]
    if not rows:
        return None
    counted = whole[:1] or rows
    value = sum(float(row["value"]) for row in counted)
    return value, math.sqrt(sum(float(row["standard_error"]) ** 2 for row in counted))


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
