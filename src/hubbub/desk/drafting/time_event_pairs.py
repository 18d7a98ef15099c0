"""Two columns that belong together: a time, and whether it ended with an event.

A follow-up time among the features tells the event, and an event alone forgets how long people
were seen. Names and values are all that is known here; what they mean, people say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hubbub.desk.drafting.cell_text import folded, is_missing, measured
from hubbub.desk.drafting.question import words_in

_LENGTH = r"(time|days?|weeks?|months?|years?|yrs?|mos?|zeit|tage|wochen|monate|jahre)"
_OF = (
    r"(os|pfs|dfs|rfs|efs|css|surv(ival)?|fu|follow ?up|death|event|obs(ervation)?|s|d|tt|relapse)"
)
_TIMES = re.compile(  # names of times that end with something
    rf"(.* )?({_OF} ?{_LENGTH}|{_LENGTH} (to|until|till|of|in) ?{_OF}.*|days ?to ?.*|tte|ttod.*"
    r"|survival|(ü|ue)berlebenszeit|beobachtungszeit|follow ?up|futime|lenfol|time to .*|fu"
    r"|exit ?time|os|pfs|dfs)( .*)?|time|t|zeit"
)
_BARE = frozenset({"time", "t", "zeit"})  # which may be a time of day, or of a visit
_LENGTHS = frozenset({"time", "days", "weeks", "months", "duration", "los", "stay", "tage"})
_NO_TIMES = frozenset(
    {
        *("age", "since", "gestation", "gestational", "prior", "before", "ago", "last", "first"),
        *("birth", "diabetes", "waiting", "wait", "diagnosis", "symptom", "symptoms", "start"),
        *("status", "admission", "date", "year", "of"),
    }
)
_EVENTS = (  # the sooner, the likelier
    *("event", "status", "died", "dead", "death", "deceased", "fustat", "stat", "censored"),
    *("cens", "censor", "censoring", "vital", "mortality", "relapse", "recurrence", "progression"),
    *("failure", "fail", "delta", "ereignis", "zensiert", "tod", "tot", "verstorben", "gestorben"),
    *("rezidiv", "progress", "exitus", "recurred", "relapsed", "progressed", "evt"),
)
_NO_EVENTS = frozenset(
    {
        *("smoking", "smoker", "marital", "insurance", "employment", "menopausal", "meno", "er"),
        *("performance", "hormone", "receptor", "pr", "hr", "vaccination", "socioeconomic"),
        *("asa", "ecog", "admission", "discharge", "date", "cause", "family", "prior", "history"),
        *("mutation", "node", "nodal", "treatment", "work"),
    }
)
_FEWEST_TIMES = 10
_MEANING = re.compile(r"[0-4]|.*(dead|alive|died|living|deceased|censor|event|relaps|progress).*")
_SAID = frozenset({"yes", "no", "true", "false", "y", "n", "ja", "nein", "j", "t", "f"})


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A time, and what says whether it ended with the event.

    Args:
        time: the time's column.
        event: the event's.
        is_sure: whether the time's name says that it ends with something, not only that it lasts.
    """

    time: str
    event: str
    is_sure: bool


def time_event_pairs(columns: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Pairs that belong together by their names and values, the likeliest first.

    Args:
        columns: the cells of all files, by name, numbers with decimal points.
    """
    times = times_in(columns)
    events = [name for name in columns if _rank(name) and _are_events(columns[name])]
    pairs = [
        Pair(time=time, event=event, is_sure=sure)
        for time, sure in times.items()
        for event in events
    ]
    return sorted(pairs, key=_order)


def times_in(columns: Mapping[str, Sequence[str]]) -> dict[str, bool]:
    """Columns of times, and whether their names say that they end with something; those first."""
    times = {name: is_sure for name in columns if (is_sure := _ends(name)) is not None}
    likely = {name: sure for name, sure in times.items() if _are_times(columns[name])}
    return dict(sorted(likely.items(), key=lambda pair: not pair[1]))


def is_time(name: str) -> bool:
    """Whether a column is called as lengths of time are."""
    return _ends(name) is not None and not {*words_in(name)} <= _BARE


def follow_ups(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Times that end with something by their names alone, whatever other columns are called."""
    return [name for name, is_sure in times_in(columns).items() if is_sure and is_time(name)]


def is_censoring(name: str) -> bool:
    """Whether a column, by its name, says that a time ended without the event."""
    return bool({"censored", "zensiert"} & {*words_in(name)})


def _order(pair: Pair) -> tuple[bool, int, int]:
    """Sure ones first; then those whose names begin alike; then by the event's name."""
    shared = len({*words_in(pair.time)} & {*words_in(pair.event)})
    return not pair.is_sure, -shared, _rank(pair.event)


def _ends(name: str) -> bool | None:
    """True: a time that ends with something; False: one that may; None: no time by its name."""
    words = words_in(name)
    if {*words} & _NO_TIMES and not {"to", "until"} & {*words}:
        return None
    if _TIMES.fullmatch(" ".join(words)):
        return True
    return False if {*words} & _LENGTHS else None


def _rank(name: str) -> int:
    """From 1, the sooner a name is an event's; 0: it is none."""
    words = words_in(name)
    if {*words} & _NO_EVENTS:
        return 0
    return next((k for k, known in enumerate(_EVENTS, 1) if known in words), 0)


def _are_times(cells: Sequence[str]) -> bool:
    """Whether cells are many different numbers from 0."""
    there = [cell for cell in cells if not is_missing(cell)]
    read = [measured(cell) for cell in there]
    if not read or sum(one is None for one in read) * 20 > len(read):
        return False
    values = {float(one) for one in read if one is not None}
    slips = sum(value < 0 for value in values)  # dates the wrong way round
    return len(values) >= _FEWEST_TIMES and slips * 10 <= len(values)


def _are_events(cells: Sequence[str]) -> bool:
    """Whether cells are two to four answers, in nearly every row."""
    spellings = {folded(cell) for cell in cells if not is_missing(cell)}
    gone = sum(map(is_missing, cells))
    meant = all(one in _SAID or _MEANING.fullmatch(one) for one in spellings)
    return 2 <= len(spellings) <= 4 and meant and gone * 10 <= len(cells)
