"""A run's result as it is read: on a terminal, in a notebook, as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from hubbub.core.disk import write_bytes
from hubbub.core.number_format import at_most
from hubbub.core.planning.plan_rows import promised_against, spoken
from hubbub.core.planning.study_plan import steps_of
from hubbub.core.runs import renderers
from hubbub.core.runs.run_folder import REPORT
from hubbub.desk.report import answers as answer_sheets
from hubbub.desk.report.answers import Answer
from hubbub.desk.report.arrangements import UNCHARGED_BASELINE
from hubbub.desk.report.markup import Html, join, tag
from hubbub.desk.report.page import render
from hubbub.desk.report.promise import broken, spent_words
from hubbub.desk.report.report_of_run import write_report
from hubbub.desk.report.scores import following, in_a_sentence
from hubbub.desk.report.sheet import Sheet, Table, full, html_of, lines_of, picture, table_html
from hubbub.desk.report.trust_models import called
from hubbub.learning.metric_words import metrics_of, words_of
from hubbub.learning.runs.baselines import BASELINES
from hubbub.learning.runs.result import Result, scores_to_dict

_NOT_EVALUATED = "not evaluated: the study has no public test records (data.test) or [validation]"


def sheets_of(result: Result) -> Iterator[Sheet]:
    """All that is to be said of a run: of itself, of its private validation, of each answer."""
    plan, baseline, study = result.plan, result.baseline, result.plan.study
    # What was run.
    total, steps = steps_of(study), result.steps
    unit = "steps" if study.training else "sum" if total == 1 else "sums"
    title = f"{study.name}, baseline “{called(baseline)}”" if baseline in BASELINES else study.name
    # Its epsilon, against whom, what the records have spent in all, and what is not covered.
    if baseline in BASELINES and promised_against(plan.stated.adversary, baseline) is None:
        sentences = ["no epsilon: this baseline adds no noise and guarantees nothing"]
    else:
        words = f"epsilon {at_most(result.epsilon)} at delta {study.privacy.delta:g} against "
        theirs = f"; hubbub's epsilon is against {spoken(plan.stated.adversary)}"
        sentences = [f"{words}{result.adversary}{theirs if baseline in BASELINES else ''}"]
    sentences += [UNCHARGED_BASELINE] if baseline in BASELINES else []
    sentences += [] if result.spending is None else [spent_words(result.spending.to_dict())]
    if result.made_public:
        why = "made public because the study did not state it"
        sentences.append(f"{why}: {'; '.join(result.made_public)}")
    # How good the model is.
    if result.model is not None and study.training:
        others = ("step", "epsilon", "seconds")
        final = {name: value for name, value in result.final.items() if name not in others}
        shown = ", ".join(f"{name} {value:.3f}" for name, value in final.items())
        if shown or result.validation is None:
            sentences.append(shown or _NOT_EVALUATED)
        if words := in_a_sentence(scores_to_dict(result.scores), result.final):
            sentences.append(words)
    yield Sheet(title=f"{title}: {steps} of {total} {unit}", sentences=tuple(sentences))
    for name, values in result.values.items():
        yield renderers.render(name, values).sheet
    for name, answer in result.statistics.items():
        yield answer_sheets.sheet_of(name, answer.to_dict())


def in_text(result: Result) -> str:
    """What a terminal shows."""
    spent = None if result.spending is None else result.spending.to_dict()
    lines = broken(result.plan.to_dict(), spent)
    lines += [line for sheet in sheets_of(result) for line in lines_of(sheet)]
    return "\n".join([*lines, *([f"written to {result.folder}"] if result.folder else [])])


def in_notebook(result: Result) -> str:
    """HTML for a notebook, which has a style of its own for headings and tables."""
    run = next(sheets_of(result))
    promise, *notes = run.sentences
    notes += [f"written to {result.folder}"] if result.folder else []
    parts = [tag("h4", run.title), tag("p", tag("b", promise)), *(tag("p", note) for note in notes)]
    final = {} if result.model is None else result.final
    if metrics := metrics_of([final]):
        meanings = [(words_of(key), f"{final[key]:.3f}") for key in metrics]
        rows = tuple((words.name, value, words.meaning) for words, value in meanings)
        head = ("metric", "value", "what it says")
        parts.append(table_html(Table(head, rows, "The model", words=(0, 2))))
    validation = result.validation
    validated = None if validation is None else renderers.render("validation", validation)
    if validated:
        parts += html_of(validated.sheet, picture)
    if validated or metrics:
        words = following(scores_to_dict(result.scores), final, validated)
        parts.append(tag("p", full(words)))
    answers = {name: answer.to_dict() for name, answer in result.statistics.items()}
    return tag("div", join([*parts, *answers_in_notebook(answers)])).text


def answers_in_notebook(answers: Mapping[str, Answer]) -> Iterator[Html]:
    """Answers as `statistics.json` has them, by name, each under its heading."""
    for name, answer in answers.items():
        sheet = answer_sheets.sheet_of(name, answer)
        yield tag("h4", f"{sheet.title} ({name})")
        yield from html_of(sheet, picture)


def write_page(result: Result, path: Path | None) -> Path:
    """Write one HTML file that loads nothing; into the run's folder, or here, without a path."""
    if result.folder is not None and path is None:
        return write_report(result.folder)
    file = path or Path(REPORT)
    page = render(
        json.loads(result.plan.to_json()),
        result.metrics,
        baseline=result.baseline,
        statistics={name: answer.to_dict() for name, answer in result.statistics.items()},
        spending=None if result.spending is None else result.spending.to_dict(),
        scores=scores_to_dict(result.scores),
        validation=result.validation,
    )
    write_bytes(file, page.encode())
    return file
