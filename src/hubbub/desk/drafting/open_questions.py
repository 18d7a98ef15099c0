"""What has to be known before a study can be drafted: whose a row is, and what is to be learned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from hubbub.core.errors import DataError
from hubbub.desk.drafting.joined_rows import scattered
from hubbub.desk.drafting.likely_codes import by_name, few_whole_numbers, in_words
from hubbub.desk.drafting.question import Option, Question
from hubbub.desk.drafting.survey import Survey
from hubbub.desk.drafting.target_candidates import (
    candidates,
    counts_something,
    is_absent,
    is_guessable,
)
from hubbub.desk.drafting.time_event_pairs import (
    Pair,
    follow_ups,
    is_time,
    time_event_pairs,
    times_in,
)

_SHOWN = 4  # candidates


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What people have said of their files.

    Args:
        target: the column to be learned; None: they have not said.
        kind: of the target.
        event: the column that says whether a time ends with the event.
        patient: the column that says whose a row is.
        records_are_units: whether every row is somebody else's.
        codes: columns whose numbers are codes.
        amounts: those whose numbers are not.
    """

    target: str | None = None
    kind: str | None = None
    event: str | None = None
    patient: str | None = None
    records_are_units: bool = False
    codes: tuple[str, ...] = ()
    amounts: tuple[str, ...] = ()


def with_time(given: Answers, survey: Survey) -> Answers:
    """The answers, with the time that an event ends, if only the event was named.

    Raises:
        DataError: no column's name says that it is a time.
    """
    if given.event is None or given.target is not None:
        return given
    pairs = time_event_pairs(survey.cells)
    times = [pair.time for pair in pairs if pair.event == given.event]
    times = times or list(times_in(survey.cells))
    if not times:
        raise DataError(
            f"expected a column that says how long it took until {given.event!r}, found none by "
            f"its name among {', '.join(survey.common)}; name it with --time"
        )
    return replace(given, target=times[0])


def open_questions(survey: Survey, given: Answers) -> list[Question]:
    """What the answers leave open; empty: a study can be drafted."""
    return [*_whose(survey, given), *_what(survey, given), *_codes(survey, given)]


def _whose(survey: Survey, given: Answers) -> Iterator[Question]:
    """Rows that may belong to one person."""
    if given.records_are_units:
        return
    if given.patient is not None:
        if _is_bare(survey, given) and (two := scattered(survey.full, given.patient)):
            yield _join_question(given.patient, two)
        return
    keys = survey.likely_keys
    if not keys:
        return
    first = keys[0]
    others = [one.name for one in keys[1:3]]
    also = f" (or {' or '.join(map(repr, others))})" if others else ""
    people = [
        Option(means=f"{name} is the person", options=("--patient", name))
        for name in (first.name, *others)
    ]
    apart = Option(means="every row is another person, or public", options=("--records-are-units",))
    if two := scattered(survey.full, first.name):
        yield _join_question(first.name, two, *people, apart)
        return
    yield Question(
        columns=tuple(one.name for one in keys),
        asked=f"whose is a row? {first.name!r}{also} has {first.values} values in {first.rows} "
        f"rows, one of them in {first.most}: if that is a person, the promise must be to the "
        "person, with all rows",
        choices=(*people, apart),
    )


def _is_bare(survey: Survey, given: Answers) -> bool:
    """Whether most columns are empty wherever the target is not."""
    cells = survey.cells
    if given.target is None or given.target not in cells:
        return False
    there = [not is_absent(cell) for cell in cells[given.target]]
    filled = [any(map(bool, column)) for column in cells.values()]
    left = [any(compress(column, there)) for column in cells.values()]
    return 2 * sum(left) <= sum(filled) + 1


def _join_question(key: str, two: tuple[str, str], *more: Option) -> Question:
    """Whether rows of one person are parts of one record."""
    join = Option(
        means="one record each, of every column its first value: copies are made so (another join: "
        "docs/howto/mapping.md)",
        options=("--join", key, "--tidy", "tidy"),
    )
    return Question(
        columns=(key, *two),
        asked=f"the rows of one {key!r} hold its values apart: where {two[0]!r} stands {two[1]!r} "
        "is empty, so no row has both a target and what it is learned from. Are they one record?",
        choices=(join, *more),
    )


def _codes(survey: Survey, given: Answers) -> Iterator[Question]:
    """Few whole numbers, which may be codes."""
    tiers = target_tiers(survey, given) if given.target is None else []
    sure = tiers[0][:1] if tiers else []
    said = {given.target, given.event, given.patient, *given.codes, *given.amounts, *sure}
    open_columns = {
        name: numbers
        for name, cells in survey.cells.items()
        if name not in said and by_name(name) is None and not is_time(name)
        if (numbers := few_whole_numbers(cells)) and not counts_something(name, cells)
    }
    if not open_columns:
        return
    shown = ", ".join(f"{name!r} ({in_words(own)})" for name, own in open_columns.items())
    names = ",".join(open_columns)
    yield Question(
        columns=tuple(open_columns),
        asked=f"{shown}: few whole numbers. Are they codes, whose size means nothing, or amounts? "
        "A 9 or 99 apart from the others often means unknown",
        choices=(
            Option(means="codes: each number is a category", options=("--codes", names)),
            Option(means="amounts: counts, scores, grades", options=("--amounts", names)),
        ),
    )


def _what(survey: Survey, given: Answers) -> Iterator[Question]:
    """A time and its event, or several columns that may be learned."""
    if given.event is not None or given.kind is not None:
        return
    pairs = time_event_pairs(survey.cells)
    if given.target is not None:
        mine = [pair for pair in pairs if pair.time == given.target]
        if mine:
            yield _pair_question(mine[0], survey)
        return
    if pairs and not _has_stated(survey):
        yield _pair_question(pairs[0], survey)
        return
    tiers = target_tiers(survey, given)
    if (times := follow_ups(survey.cells)) and tiers and not _has_stated(survey):
        yield _event_question(times[0], [name for tier in tiers for name in tier])
        return
    if tiers and not is_guessable(tiers, survey.cells):
        yield _target_question([name for tier in tiers for name in tier])


def target_tiers(survey: Survey, given: Answers) -> list[list[str]]:
    """The columns that may be learned, the likeliest first; none says whose a row is."""
    whose = {given.patient, *(key.name for key in survey.likely_keys)}
    cells = {name: own for name, own in survey.cells.items() if name not in whose}
    return candidates(cells)


def _has_stated(survey: Survey) -> bool:
    """Whether some column is called target, label or outcome."""
    tiers = candidates(survey.cells)
    return bool(tiers) and len(tiers[0]) == 1 and tiers[0][0].casefold() in ("target", "label", "y")


def _pair_question(pair: Pair, survey: Survey) -> Question:
    """Whether a time and an event are to be learned together."""
    other = "its column of times says when that was known, and is left out"
    choices = [
        Option(
            means=f"learn the time in {pair.time!r} until {pair.event!r} (survival)",
            options=("--time", pair.time, "--event", pair.event),
        ),
        Option(
            means=f"learn {pair.event!r} as yes or no; {other}", options=("--target", pair.event)
        ),
    ]
    if not pair.is_sure:
        choices.reverse()
    tiers = candidates(survey.cells)
    more = [one for tier in tiers for one in tier if one not in (pair.time, pair.event)][:2]
    choices += [Option(means=f"learn {one!r}", options=("--target", one)) for one in more]
    return Question(
        columns=(pair.time, pair.event),
        asked=f"what is to be learned? {pair.time!r} looks like a time and {pair.event!r} like "
        "whether it ended with the event; who was only watched until then is no “no”",
        choices=tuple(choices),
    )


def _event_question(time: str, names: Sequence[str]) -> Question:
    """What ended a time, if no column is called as events are."""
    events = [name for name in names if name != time][:_SHOWN]
    return Question(
        columns=(time, *events),
        asked=f"what is to be learned? {time!r} looks like how long people were followed, which "
        "tells what happened: name the column that says whether it ended with the event, or learn "
        "another without it",
        choices=(
            *(
                Option(
                    means=f"learn the time in {time!r} until {name!r} (survival)",
                    options=("--time", time, "--event", name),
                )
                for name in events
            ),
            *(
                Option(means=f"learn {name!r}; {time!r} is left out", options=("--target", name))
                for name in events[:1]
            ),
        ),
    )


def _target_question(names: Sequence[str]) -> Question:
    """Which of several columns is to be learned."""
    shown = names[:_SHOWN]
    rest = len(names) - _SHOWN
    more = f" or {rest} other{'s' * (rest > 1)}" if rest > 0 else ""
    return Question(
        columns=tuple(names),
        asked=f"what is to be learned? It may be {', '.join(map(repr, shown))}{more}",
        choices=tuple(Option(means=f"learn {one!r}", options=("--target", one)) for one in shown),
    )
