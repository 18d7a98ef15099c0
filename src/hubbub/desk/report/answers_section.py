"""The section with the answers of statistics: a table and a figure for each, with plain captions.

It reads plain values, as `statistics.json` has them, and knows neither sums nor noise.
"""

from __future__ import annotations

from collections.abc import Mapping

from hubbub.desk.report import markup
from hubbub.desk.report.answer_figures import figure_of
from hubbub.desk.report.answer_tables import Answer, said_of, tables_of

_LONG, _LONGER = 12, 40  # rows that are folded away, beside a figure and without one
_MANY = 3  # tables of an answer; of more each is folded away
_IN_NUMBERS, _ALL = "The same in numbers", "All numbers"
_INTERVALS = (
    "Every number comes with an interval that takes both into account: that other people might "
    "have been asked, and the noise that was added. Tests take the noise into account, too."
)


def answers(statistics: Mapping[str, Answer]) -> markup.Html:
    """The section with all answers, by their names."""
    parts = [one for name, answer in statistics.items() for one in _answer(name, answer)]
    return markup.section("What was asked", markup.tag("p", _INTERVALS), *parts)


def _answer(name: str, answer: Answer) -> list[markup.Html]:
    """One answer: its heading, figure, table, tests and notes."""
    parts = [markup.tag("h3", f"{answer['title']} ({name})")]
    if answer["refusal"]:
        return [*parts, markup.tag("p", f"Not answered: {answer['refusal']}.")]
    drawn = figure_of(answer)
    if drawn:
        shown = markup.figure(drawn.chart, drawn.words)
        parts.append(markup.tag("div", shown, class_="figures"))
    tables = tables_of(answer)
    for what, table in tables.items():
        if what == "over time":  # which the figure shows
            continue
        said = f", {what}" if what else ""
        caption = f"{answer['title']}{said}, with {_percent(answer)} intervals"
        numeric = range(1, len(table.head))
        shown = markup.table(caption, table.head, table.rows, numeric=numeric)
        long = len(table.rows) > (_LONG if drawn else _LONGER)
        if len(tables) > _MANY:
            parts.append(_folded(shown, what))
        else:
            parts.append(_folded(shown, _IN_NUMBERS if drawn else _ALL) if long else shown)
    return parts + [markup.tag("p", f"{_capital(one)}.") for one in said_of(answer)]


def _folded(table: markup.Html, words: str) -> markup.Html:
    """A table that is shown to who asks for it."""
    return markup.tag("details", markup.tag("summary", words), table)


def _percent(answer: Answer) -> str:
    return f"{100 * answer['confidence']:g} %"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
