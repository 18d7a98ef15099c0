"""What a notebook shows of a result: a heading, the promise, metrics, figures, tables of answers.

Notebooks have a style of their own for headings and tables, so nothing here states one. It reads
plain values; the whole page is `page.py`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hubbub.desk.report import charts, score_words, validation_section, validation_words
from hubbub.desk.report.answer_figures import figure_of
from hubbub.desk.report.answer_tables import Answer, said_of, tables_of
from hubbub.desk.report.markup import Html, join, table, tag
from hubbub.learning.metric_words import Row, metrics_of, words_of


def shown_in_notebook(
    heading: str,
    promise: str,
    notes: Sequence[str],
    *,
    final: Row | None = None,
    scores: score_words.Scores | None = None,
    validation: validation_section.Validation | None = None,
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


def _metrics(final: Row, scores: score_words.Scores, *, is_validated: bool) -> Iterator[Html]:
    """The metrics of the model that is returned: whether it is better than guessing, what next."""
    shown = [(words_of(key), final[key]) for key in metrics_of([final])]
    rows = [(words.name, f"{value:.3f}", words.meaning) for words, value in shown]
    if rows:
        if said := score_words.in_a_sentence(scores, final):
            yield tag("p", f"{_sentence(said)}.")
        yield table("The model", ("metric", "value", "what it says"), rows, numeric=(1,))
        if not is_validated:
            yield tag("p", f"{_sentence(score_words.what_next(scores, final))}.")
    elif not is_validated:
        yield tag("p", "Not evaluated: state test or validation to be told how good it is.")


def _validation(validation: validation_section.Validation) -> Iterator[Html]:
    """The private validation: its sentence, its scores, its calibration plot, what to do next."""
    told = validation["all"]
    yield tag("p", f"{_sentence(validation_words.sentence(validation))}.")
    if told is not None and told["scores"]:
        rows = validation_words.rows(told)
        caption = "The model on the silos' records"
        yield table(caption, validation_words.HEAD, rows, numeric=(1, 2, 3))
        if told["calibration"]:
            chart, words = validation_section.calibration_chart(told["calibration"])
            yield _picture(chart, charts.HEIGHT, words)
        if drawn := validation_section.decision_chart(told["decisions"]):
            yield _picture(drawn[0], charts.HEIGHT, drawn[1])
        yield from _groups(validation)
    yield tag("p", f"{_sentence(validation_words.next_step(validation))}.")


def _groups(validation: validation_section.Validation) -> Iterator[Html]:
    """Its scores in subgroups and centres, where there are some."""
    rows = [
        (f"{part['by']}: {part['group']}", *told[:3])
        for part in validation["groups"]
        for told in validation_words.rows(part)
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
