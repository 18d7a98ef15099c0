"""What a notebook shows of a result: a heading, the promise, metrics, figures, tables of answers.

Notebooks have a style of their own for headings and tables, so nothing here states one. It reads
plain values; the whole page is `page.py`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hubbub.report import charts
from hubbub.report.answer_figures import figure_of
from hubbub.report.answer_tables import Answer, said_of, tables_of
from hubbub.report.markup import Html, join, table, tag
from hubbub.report.metric_words import Row, metrics_of, words_of


def shown_in_notebook(
    heading: str,
    promise: str,
    notes: Sequence[str],
    *,
    final: Row | None = None,
    answers: Mapping[str, Answer],
) -> str:
    """HTML for a notebook.

    Args:
        heading: what was run.
        promise: its epsilon, and against whom.
        notes: further sentences.
        final: the last metrics; None where no model was trained.
        answers: to statistics, by their names, as `statistics.json` has them.
    """
    parts = [tag("h4", heading), tag("p", tag("b", promise))]
    if final is not None:
        parts.append(_metrics(final))
    parts += [one for name, answer in answers.items() for one in _answer(name, answer)]
    return tag("div", join([*parts, *(tag("p", note) for note in notes)])).text


def _metrics(final: Row) -> Html:
    """The metrics of the model that is returned, with what they mean."""
    shown = [(words_of(key), final[key]) for key in metrics_of([final])]
    rows = [(words.name, f"{value:.3f}", words.meaning) for words, value in shown]
    if not rows:
        return tag("p", "Not evaluated: no test set was given.")
    return table("The model", ("metric", "value", "what it says"), rows, numeric=(1,))


def _answer(name: str, answer: Mapping[str, Any]) -> Iterator[Html]:
    """One answer: its tables, tests and notes, or why there is none."""
    if answer["refusal"]:
        yield tag("p", f"{name}: not answered: {answer['refusal']}.")
        return
    drawn = figure_of(answer)
    if drawn is not None:  # a picture of its own, so that its style is not the notebook's
        file = b64encode(charts.alone(drawn.chart, drawn.height).encode()).decode()
        source = f"data:image/svg+xml;base64,{file}"
        yield tag("img", src=source, alt=drawn.words, width=charts.WIDTH)
    for found in tables_of(answer).values():
        numeric = range(1, len(found.head))
        yield table(f"{answer['title']} ({name})", found.head, found.rows, numeric=numeric)
    yield from (tag("p", f"{one[:1].upper()}{one[1:]}.") for one in said_of(answer))
