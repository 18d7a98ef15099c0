"""Which columns may be what is to be learned, by their names and values, and whether one counts.

The best of several is a guess that people must see; where several are as good, they are asked.
This file sees the cells of all files, one column at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from hubbub.desk.drafting.cell_text import folded, is_date, is_missing, measured
from hubbub.desk.drafting.question import words_in

ANSWERS = (  # what counts as 1, and as 0
    *(("yes", "no"), ("y", "n"), ("true", "false"), ("t", "f"), ("1", "0"), ("ja", "nein")),
    *(("j", "n"), ("oui", "non"), ("si", "no"), ("sí", "no"), ("positive", "negative")),
    *(("pos", "neg"), ("positiv", "negativ"), ("+", "-"), ("dead", "alive"), ("died", "survived")),
    *(("deceased", "living"), ("case", "control"), ("ill", "healthy"), ("sick", "well")),
    *(("present", "absent"), ("event", "censored")),
)
ONES, ZEROS = (frozenset(side) for side in zip(*ANSWERS, strict=True))
MOST_CLASSES = 10
# Names of targets: the three tiers in which they are preferred.
_STATED = ("target", "label", "outcome", "y")
_HAPPENED = (
    *("num", "class", "event", "died", "death", "dead", "deceased", "mortality", "readmitted"),
    *("readmission", "relapse", "recurrence", "verstorben", "tod"),
)
_FOUND = ("diagnosis", "disease", "result", "response", "status")
_COUNTED = frozenset(
    {
        *("visits", "admissions", "readmissions", "hospitalizations", "hospitalisations", "falls"),
        *("exacerbations", "episodes", "seizures", "relapses", "claims", "attacks", "count"),
        *("counts", "infections", "events", "consultations", "complications", "crashes"),
    }
)
_PAID = frozenset(
    {
        *("cost", "costs", "charge", "charges", "expenditure", "expenditures", "expenses", "los"),
        *("stay", "amount", "price", "spending", "bill", "kosten", "payment", "reimbursement"),
    }
)
_TRAITS = frozenset(  # who somebody is, which is learned from more often than it is learned
    {
        *("sex", "gender", "female", "male", "geschlecht", "race", "ethnicity", "ethnic", "black"),
        *("white", "hispanic", "married", "marital", "kids", "child", "children", "smoker", "self"),
        *("smoking", "insured", "insurance", "rural", "urban", "employed", "education", "treat"),
        *("treatment", "trt", "arm", "rx", "group"),
    }
)
_EARLIER = frozenset(
    {
        *("prior", "previous", "prev", "history", "hist", "before", "baseline", "past", "family"),
        *("mother", "father", "parental", "cause", "date", "type", "code", "group", "last"),
    }
)
_FEWEST_AMOUNTS = 20  # different values
_FEWEST_COUNTS = 6
_LARGEST_COUNT = 200


def candidates(columns: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The columns that may be learned, tier by tier: those of one tier are equally likely.

    Args:
        columns: the cells of all files, by name, numbers with decimal points.
    """
    values = {name: _distinct(cells) for name, cells in columns.items()}
    usable = [name for name, cells in columns.items() if not _is_dates(cells)]
    classes = [name for name in usable if 1 < len(values[name]) <= MOST_CLASSES]
    answers = [name for name in usable if values[name] and values[name] <= {*ONES, *ZEROS}]
    named = [name for name in dict.fromkeys((*answers, *classes)) if _is_half_full(columns[name])]
    tiers = [
        _known(named, _STATED),
        _known(named, _HAPPENED),
        _known(named, _FOUND) + [n for n in usable if _is_measured(n, columns[n])],
        _traits_last(
            [name for name in answers if len(values[name]) == 2 and _is_full(columns[name])]
            + [name for name in usable if counts_something(name, columns[name])]
        ),
        _traits_last(
            [name for name in classes if len(values[name]) == 2 and _is_full(columns[name])]
        ),
    ]
    seen: set[str] = set()
    kept = []
    for tier in tiers:
        kept.append([name for name in dict.fromkeys(tier) if name not in seen])
        seen |= {*tier}
    *meant, two_values = kept  # of which one may be the target where nothing else can
    return [tier for tier in meant if tier] or [tier for tier in (two_values,) if tier]


def is_guessable(tiers: Sequence[Sequence[str]], columns: Mapping[str, Sequence[str]]) -> bool:
    """Whether one column is likelier the target than all others: alone in its tier, and answers.

    Two columns with names such as `target` and `label` are told apart by their order of names.
    """
    if not tiers:
        return False
    best, *rest = tiers[0]
    if words_in(best) and {*words_in(best)} & {*_STATED}:
        return True
    meant = _distinct(columns[best]) <= {*ONES, *ZEROS} or bool(_rank(best, _HAPPENED + _FOUND))
    return not rest and (meant or _is_named(best))


def counts_something(name: str, cells: Sequence[str]) -> bool:
    """Whether a column holds counts: whole numbers from 0, mostly small, that no class has.

    >>> counts_something("visits", ["0", "2", "1", "0"])
    True
    >>> counts_something("stage", ["0", "1", "2", "3", "4"])
    False
    """
    numbers = _numbers(cells)
    if not numbers or min(numbers) < 0 or any(one % 1 for one in numbers):
        return False
    several, most = len(set(numbers)), max(numbers)
    if _counted(name):
        return several >= 3 and most <= 10 * _LARGEST_COUNT
    small = min(numbers) == 0 and most <= _LARGEST_COUNT and median(numbers) <= most / 3
    return several >= _FEWEST_COUNTS and small


def _counted(name: str) -> bool:
    words = words_in(name)
    visits = any(word.endswith(("vis", "visits", "besuche")) for word in words)
    begins = words[:1] in (["n"], ["num"], ["number"], ["anzahl"]) and len(words) > 1
    return bool(_COUNTED & {*words}) or begins or visits


def _is_named(name: str) -> bool:
    words = {*words_in(name)}
    return not words & _EARLIER and (bool(words & _PAID) or _counted(name))


def _is_measured(name: str, cells: Sequence[str]) -> bool:
    """Whether a column is called after an amount or a count that people predict, and holds one."""
    if not _is_named(name) or not _is_half_full(cells):
        return False
    several = len(set(_numbers(cells)))
    return counts_something(name, cells) or several >= _FEWEST_AMOUNTS


def _numbers(cells: Sequence[str]) -> list[float]:
    """The cells as numbers; none if one of them is none."""
    there = [cell for cell in cells if not is_missing(cell)]
    read = [measured(cell) for cell in there]
    return [] if None in read else [float(one) for one in read if one is not None]


def _traits_last(names: Sequence[str]) -> list[str]:
    """The columns, those last that say who somebody is."""
    return sorted(names, key=lambda name: bool({*words_in(name)} & _TRAITS))


def _known(names: Sequence[str], ranks: Sequence[str]) -> list[str]:
    """The columns that have such a name, in the order of these."""
    ranked = [name for name in names if _rank(name, ranks)]
    return sorted(ranked, key=lambda name: _rank(name, ranks))


def _rank(name: str, ranks: Sequence[str]) -> int:
    """From 1, the sooner a name is a target's; 0: it is none that is known."""
    words = {*words_in(name)}
    if words & _EARLIER:
        return 0
    return next((k for k, known in enumerate(ranks, 1) if known in words), 0)


def _distinct(cells: Sequence[str]) -> set[str]:
    return {folded(cell) for cell in set(cells) if not is_absent(cell)}


def is_absent(cell: str) -> bool:
    """Whether a record has no target; “-” may mean negative, and “none” may be a class."""
    return is_missing(cell) and folded(cell) not in ("-", "none", "nil")


def _is_dates(cells: Sequence[str]) -> bool:
    there = [cell for cell in cells if not is_missing(cell)]
    return sum(map(is_date, there)) * 10 >= 9 * len(there) > 0


def _is_full(cells: Sequence[str]) -> bool:
    """Whether nine cells in ten have a value, as a target's should."""
    return sum(map(is_absent, cells)) * 10 <= len(cells)


def _is_half_full(cells: Sequence[str]) -> bool:
    return sum(map(is_absent, cells)) * 2 <= len(cells)
