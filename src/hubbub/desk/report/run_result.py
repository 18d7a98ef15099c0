"""A run's result as it is read: on a terminal, in a notebook, as a page."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hubbub.core.disk import write_bytes
from hubbub.core.number_format import at_most
from hubbub.core.runs.run_folder import REPORT
from hubbub.desk.report import charts, validation_sheet
from hubbub.desk.report.answers import Answer, answer_lines, figure_of, said_of, tables_of
from hubbub.desk.report.markup import Html, join, table, tag
from hubbub.desk.report.page import render
from hubbub.desk.report.promise import broken, spent_words
from hubbub.desk.report.report_of_run import write_report
from hubbub.desk.report.scores import Scores, in_a_sentence, what_next
from hubbub.desk.report.validation_sheet import validation_lines
from hubbub.learning.metric_words import Row, metrics_of, words_of
from hubbub.learning.runs.result import Result, scores_to_dict

# What a notebook shows of a result: a heading, the promise, metrics, figures, tables of answers.
#
# Notebooks have a style of their own for headings and tables, so nothing here states one. It reads
# plain values; the whole page is `page.py`.


def shown_in_notebook(
    heading: str,
    promise: str,
    notes: Sequence[str],
    *,
    final: Row | None = None,
    scores: Scores | None = None,
    validation: validation_sheet.Validation | None = None,
    answers: Mapping[str, Answer],
) -> str:
    """HTML for a notebook.

    Args:
        heading: what was run.
        promise: its epsilon, and against whom.
        notes: further sentences.
        final: the last metrics; None where no model was trained.
        scores: on public test records, beside a model that knows nothing.
        validation: as `validation.json` has it; None where none was asked.
        answers: to statistics, by their names, as `statistics.json` has them.
    """
    parts = [tag("h4", heading), tag("p", tag("b", promise))]
    if final is not None:
        parts += _metrics(final, scores or {}, is_validated=validation is not None)
    if validation is not None:
        parts += _validation(validation)
    parts += [one for name, answer in answers.items() for one in _answer(name, answer)]
    return tag("div", join([*parts, *(tag("p", note) for note in notes)])).text


def _metrics(final: Row, scores: Scores, *, is_validated: bool) -> Iterator[Html]:
    """The metrics of the model that is returned: whether it is better than guessing, what next."""
    shown = [(words_of(key), final[key]) for key in metrics_of([final])]
    rows = [(words.name, f"{value:.3f}", words.meaning) for words, value in shown]
    if rows:
        if said := in_a_sentence(scores, final):
            yield tag("p", f"{_sentence(said)}.")
        yield table("The model", ("metric", "value", "what it says"), rows, numeric=(1,))
        if not is_validated:
            yield tag("p", f"{_sentence(what_next(scores, final))}.")
    elif not is_validated:
        yield tag(
            "p",
            "Not evaluated: add public test records (data.test) or [validation] to the study "
            "to learn how good the model is.",
        )


def _validation(validation: validation_sheet.Validation) -> Iterator[Html]:
    """The private validation: its sentence, its scores, its calibration plot, what to do next."""
    told = validation["all"]
    yield tag("p", f"{_sentence(validation_sheet.sentence(validation))}.")
    if told is not None and told["scores"]:
        rows = validation_sheet.validation_rows(told)
        caption = "The model on the silos' records"
        yield table(caption, validation_sheet.HEAD, rows, numeric=(1, 2, 3))
        for _, figure in validation_sheet.figures_of(validation):
            yield _picture(figure.chart, figure.height, figure.words)
        yield from _groups(validation)
    yield tag("p", f"{_sentence(validation_sheet.next_step(validation))}.")


def _groups(validation: validation_sheet.Validation) -> Iterator[Html]:
    """Its scores in subgroups and centres, where there are some."""
    rows = [
        (f"{part['by']}: {part['group']}", *told[:3])
        for part in validation["groups"]
        for told in validation_sheet.validation_rows(part)
    ]
    if rows:
        head = ("", "score", "value", "95 % interval")
        yield table("The same by subgroup and centre", head, rows, numeric=(2, 3))


def _picture(chart: Html, height: float, words: str) -> Html:
    """A picture of its own, so that its style is not the notebook's."""
    file = b64encode(charts.alone(chart, height).encode()).decode()
    return tag("img", src=f"data:image/svg+xml;base64,{file}", alt=words, width=charts.WIDTH)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _answer(name: str, answer: Mapping[str, Any]) -> Iterator[Html]:
    """One answer: its tables, tests and notes, or why there is none."""
    if answer["refusal"]:
        yield tag("p", f"{name}: not answered: {answer['refusal']}.")
        return
    drawn = figure_of(answer)
    if drawn is not None:
        yield _picture(drawn.chart, drawn.height, drawn.words)
    for shown_table in tables_of(answer).values():
        numeric = range(1, len(shown_table.head))
        yield table(
            f"{answer['title']} ({name})", shown_table.head, shown_table.rows, numeric=numeric
        )
    yield from (tag("p", f"{_sentence(one)}.") for one in said_of(answer))


def in_text(result: Result) -> str:
    """What a terminal shows."""
    return "\n".join(_lines(result))


def in_notebook(result: Result) -> str:
    """HTML for a notebook."""
    return shown_in_notebook(
        _heading(result),
        _promise(result),
        [*_read_off(result), *([f"written to {result.folder}"] if result.folder else [])],
        final=None if result.model is None else result.final,
        scores=scores_to_dict(result.scores),
        validation=result.validation,
        answers={name: one.to_dict() for name, one in result.statistics.items()},
    )


def write_page(result: Result, path: Path | None) -> Path:
    """Write one HTML file that loads nothing; into the run's folder, or here, without a path."""
    if result.folder is not None and path is None:
        return write_report(result.folder)
    file = path or Path(REPORT)
    page = render(
        json.loads(result.plan.to_json()),
        result.metrics,
        baseline=result.baseline,
        statistics={name: one.to_dict() for name, one in result.statistics.items()},
        spending=None if result.spending is None else result.spending.to_dict(),
        scores=scores_to_dict(result.scores),
        validation=result.validation,
    )
    write_bytes(file, page.encode())
    return file


def _lines(result: Result) -> Iterator[str]:
    spent = None if result.spending is None else result.spending.to_dict()
    yield from broken(result.plan.to_dict(), spent)
    if result.model is not None:
        yield _heading(result)
    if result.statistics:
        answered = [name for name, one in result.statistics.items() if not one.refusal]
        yield f"{result.plan.study.name}: answers to {', '.join(answered) or 'nothing'}"
    for name, one in result.statistics.items():
        yield from (f"  {line}" for line in answer_lines(name, one.to_dict()))
    yield _promise(result)
    if spent is not None:
        yield spent_words(spent)
    yield from _read_off(result)
    known = {k: v for k, v in result.final.items() if k not in ("step", "epsilon", "seconds")}
    if result.model is not None:
        shown = ", ".join(f"{name} {value:.3f}" for name, value in known.items())
        if shown or result.validation is None:
            yield shown or (
                "not evaluated: add public test records (data.test) or [validation] to the "
                "study to learn how good the model is"
            )
        if said := in_a_sentence(scores_to_dict(result.scores), result.final):
            yield said
    if result.validation is not None:
        yield from validation_lines(result.validation)
    if result.folder is not None:
        yield f"written to {result.folder}"


def _heading(result: Result) -> str:
    """What was run."""
    name = result.plan.study.name
    if result.model is None:
        return f"{name}: {len(result.statistics)} answers"
    return f"{name}: {result.steps} of {result.plan.mechanism.steps} steps"


def _promise(result: Result) -> str:
    """Its epsilon, and against whom."""
    epsilon, delta = at_most(result.epsilon), result.plan.study.privacy.delta
    return f"epsilon {epsilon} at delta {delta:g} against {result.adversary}"


def _read_off(result: Result) -> tuple[str, ...]:
    """What the promise does not cover, in a sentence, if there is something."""
    if not result.made_public:
        return ()
    return (f"made public because the study did not state it: {'; '.join(result.made_public)}",)
