"""What a paper prints of a run, before it has a format.

The methods sentence, the flow of records, a table for each answer with its caption and notes, and
its figure; the model's coefficients, scores, calibration and decision curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hubbub.core.disk import file_name
from hubbub.core.number_format import amount
from hubbub.core.planning.adversary_words import spoken
from hubbub.desk.report import validation_words
from hubbub.desk.report.answer_figures import Figure, figure_of
from hubbub.desk.report.answer_tables import Answer, TextTable, printed, said_of, tables_of
from hubbub.desk.report.paper.effects_table import EFFECTS, GEOMETRIC, effects_table
from hubbub.desk.report.paper.model_tables import (
    groups_table,
    model_figures,
    model_methods,
    scores_table,
)
from hubbub.desk.report.paper.record_flow import Counted, counted, flow_figure, flow_table
from hubbub.desk.report.paper.table_one import noise_note, table_one, tests_note

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
    "poisson": "rate ratios are from Poisson regressions, with standard errors that know how far "
    "counts spread around their rates",
    "multinomial": "odds ratios of each class against the first are from multinomial regressions",
}


# How tests are told that are named after who found them.
_NAMED = {
    "log-rank": "curves were compared by the log-rank test",
    "stratified log-rank": "curves were compared by the log-rank test in strata",
    "Gray's": "incidence was compared by Gray's test",
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


def manuscript_of(
    told: Mapping[str, Any],
    *,
    validation: Mapping[str, Any] | None = None,
    coefficients: Mapping[str, Any] | None = None,
    plan: Mapping[str, Any] | None = None,
) -> Manuscript:
    """What a paper prints.

    Args:
        told: what `statistics.json` holds, or another file with the promise of a run, of which then
            no statistic is told.
        validation, coefficients, plan: what these files of the run hold; None where there is none.
    """
    answers: Mapping[str, Answer] = told.get("statistics", {})
    effects: Mapping[str, Answer] = (coefficients or {}).get("statistics", {})
    every = {**answers, **effects}
    known = counted(answers, validation)
    scored = validation if validation and not validation["refusal"] else None
    drawn = [(name, figure_of(answer)) for name, answer in every.items()]
    sites = None if plan is None else int(plan["silos"])
    figures = [
        *([("flow", flow_figure(known, told["unit"], sites))] if known else []),
        *((name, figure) for name, figure in drawn if figure is not None),
        *(model_figures(scored) if scored else ()),
    ]
    tables = [
        *_flow(known, told["unit"]),
        *(table for name, one in every.items() for table in _tables(name, one, answers)),
        *(_scores(scored) if scored else ()),
    ]
    return Manuscript(
        study=told["study"],
        methods=methods_sentence({**told, "statistics": every}, plan=plan, validation=scored),
        tables=tuple(
            replace(table, name=name, table=_printed(table.table))
            for name, table in zip(_files(table.name for table in tables), tables, strict=True)
        ),
        figures=tuple(
            PaperFigure(file, figure)
            for file, (_, figure) in zip(_files(name for name, _ in figures), figures, strict=True)
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
    validation: Mapping[str, Any] | None = None,
) -> str:
    """What the section on methods says; of the whole study's epsilon where there is a plan."""
    methods = dict.fromkeys(
        _method(answer) for answer in told["statistics"].values() if not answer["refusal"]
    )
    tests = dict.fromkeys(
        test["name"] for one in told["statistics"].values() for test in one["tests"]
    )
    named = (*methods, *(_NAMED.get(test) for test in tests))
    done = "; ".join(filter(None, named))
    changed = "exchanged" if told["relation"] == "substitute" else "added or removed"
    family = any(_is_adjusted(statistic) for statistic in told["statistics"].values())
    epsilon = told["epsilon"] if plan is None else _stated_epsilon(plan)
    promised = (
        "All numbers are read from sums over all sites to which noise was added before anybody saw "
        "them; no site's numbers were seen by anybody. They have distributed differential privacy "
        f"(epsilon {amount(epsilon)}, delta {amount(told['delta'])}, one {told['unit']} "
        f"{changed}, against {spoken(told['adversary'])}). Intervals and p-values take sampling "
        "and the added noise into account"
    )
    adjusted = "; p-values of the family were adjusted after Holm." if family else "."
    scored = model_methods(validation) if validation else ""
    own = f"{_capital(done)}." if done else ""
    return " ".join(filter(None, (own, scored, promised + adjusted)))


def _method(answer: Answer) -> str | None:
    """What was done for an answer."""
    if any(row["quantity"] == GEOMETRIC for row in answer["rows"]):
        return "ratios of geometric means are from linear regressions of logarithms"
    return _METHODS.get(answer["kind"])


def _stated_epsilon(plan: Mapping[str, Any]) -> float:
    """Of all that the study asks, against the adversary that it names."""
    stated = plan["stated_adversary"]
    return next(float(row["epsilon"]) for row in plan["epsilon"] if row["adversary"] == stated)


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
        notes = (*tests_note(answer), noise_note(answer), *answer["notes"])
        yield PaperTable(name, answer["title"], table_one(answer, others), notes)
        return
    notes = tuple(said_of(answer))
    if answer["kind"] in EFFECTS:
        yield PaperTable(name, answer["title"], effects_table(answer), notes)
        return
    for what, table in tables_of(answer).items():
        own = f"{name}-{what}" if what else name
        said = f", {what}" if what else ""
        yield PaperTable(own, f"{answer['title']}{said}, {intervals}", table, notes)
        notes = ()


def _flow(known: Sequence[Counted], unit: str) -> Iterator[PaperTable]:
    """How many records each question is about, with noise, and how many lack something for it."""
    if known:
        note = (
            f"{_capital(unit)}s that lack what a question needs are left out of it; all numbers "
            "carry noise"
        )
        yield PaperTable("flow", f"Flow of {unit}s", flow_table(known, unit), (note,))


def _scores(validation: Mapping[str, Any]) -> Iterator[PaperTable]:
    """How good the model is, of all and of groups."""
    whose = f"on {validation_words.whose(validation)}"
    yield PaperTable("validation", f"The model {whose}", scores_table(validation))
    if (groups := groups_table(validation)) is not None:
        yield PaperTable("validation-groups", "The model by subgroup and centre", groups)


def _printed(table: TextTable) -> TextTable:
    return TextTable(table.head, tuple(tuple(map(printed, row)) for row in table.rows))


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
