"""What columns may mean, by their names and values: codes, units, times, events, targets.

1 to 6 may be six wards, or six points of pain. What neither name nor values say, people are asked;
a guess is one that they must see. This file sees the cells of all files, a column or two at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median, quantiles
from typing import NamedTuple

from hubbub.desk.drafting.cell_text import (
    filled,
    folded,
    is_date,
    is_missing,
    listed,
    measured,
    word_set,
    words_in,
)

# Codes, whose size means nothing, or amounts.

_CODES = word_set(
    "race ethnicity ethnic marital ward site centre center hospital clinic department dept "
    "region district type kind code category sex gender religion language insurance payer payor "
    "disposition source reason occupation job employment housing blood country nationality arm "
    "treatment trt drug mode origin rasse station familienstand geschlecht beruf konfession "
    "versicherung diagnosis"
)
_AMOUNTS = word_set(
    "age alter score scale count num number anzahl n no of visits admissions children kids "
    "siblings days weeks months years hours year grade stage level pain severity parity gravida "
    "apgar gcs ecog karno asa nyha index points rating comorbidities nodes falls doses "
    "cigarettes drinks education los stay time duration grad stadium punkte jahre tage rank "
    "previous prior episodes events lesions vessels instance visit tumors size"
)
_FEWEST_CODES, _MOST_CODES, _LARGEST_CODE = 3, 20, 30  # different ones; the largest: no 99 is one
UNKNOWN = frozenset({88, 99, 999})  # numbers that stand for “not known” beside few others
_ROWS = 20


def by_name(name: str) -> bool | None:
    """Whether a column of few whole numbers holds codes, by its name; None if it does not say.

    >>> by_name("ward"), by_name("pain_score"), by_name("slope")
    (True, False, None)
    """
    words = {*words_in(name)}
    if words & _AMOUNTS:
        return False
    return True if words & _CODES else None


def few_whole_numbers(cells: Sequence[str]) -> list[int]:
    """The numbers that a column has, if they are few whole ones that nearly follow each other."""
    spellings = set(filled(set(cells)))
    if len(cells) < _ROWS or not _FEWEST_CODES <= len(spellings) <= 2 * _MOST_CODES:
        return []
    numbers = set(_numbers(spellings))
    if not numbers or any(number % 1 or number < 0 for number in numbers):
        return []
    kept = sorted({int(number) for number in numbers} - UNKNOWN)
    if not _FEWEST_CODES <= len(kept) <= _MOST_CODES or kept[-1] > _LARGEST_CODE:
        return []
    return sorted(map(int, numbers)) if 2 * len(kept) > kept[-1] - kept[0] else []


def in_words(numbers: Sequence[int]) -> str:
    """Whole numbers, those that follow each other as one: "1 to 5, 9".

    >>> in_words([1, 2, 3, 4, 5, 9])
    '1 to 5, 9'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _numbers(cells: Collection[str]) -> list[float]:
    there = filled(cells)
    read = {cell: float(number) for cell in set(there) if (number := measured(cell)) is not None}
    return [read[cell] for cell in there] if read.keys() >= set(there) else []


# Numbers that cannot be what their column's name says, and files that may measure in other units.
# Files are compared by their middle halves, which few slips move. Children's ages lie apart, too:
# only people know whether it is a unit.

_FEW = 20  # values of a file, below which its half says little
_PART = 4  # of the values, one part at most is a slip; more are another unit, or another thing
_LEAST = 1e-9  # above 0: what can be measured of somebody alive
_KINDS = tuple(  # in whatever unit is usual
    (word_set(words), bounds)
    for words, bounds in (
        ("age alter edad idade eta", (0.0, 120.0)),
        ("height stature groesse größe", (0.2, 250.0)),
        ("weight gewicht", (0.2, 700.0)),
        ("bmi", (8.0, 150.0)),
        ("temp temperature temperatur", (20.0, 115.0)),
        ("sbp dbp bp systolic diastolic pulse puls heartrate bloodpressure", (10.0, 400.0)),
        ("spo sao saturation", (10.0, 100.0)),
        ("gcs", (3.0, 15.0)),
        (
            (
                "glucose cholesterol creatinine haemoglobin hemoglobin hb sodium potassium albumin "
                "platelets kreatinin glukose cholesterin insulin"
            ),
            (_LEAST, inf),
        ),
    )
)
_OTHER = word_set("birth sample survey change diff delta log score")
_SHORT = word_set("months month weeks days hours monate tage wochen")


class Unit(NamedTuple):
    """What makes one unit another: value * factor + offset."""

    factor: float
    offset: float = 0.0
    words: str = ""  # of what, from which unit to which

    def of(self, value: float) -> float:
        """The value in the other unit."""
        return value * self.factor + self.offset

    def __str__(self) -> str:
        """As a `mapping.toml` has it."""
        offset = f", offset = {self.offset:g}" if self.offset else ""
        return f"factor = {self.factor:.7g}{offset}"


_PREFIX = "a decimal prefix, as in g and mg"
_FACTORS = (  # one way, and back
    (18.0156, "glucose, mmol/l to mg/dl", "glucose, mg/dl to mmol/l"),
    (38.67, "cholesterol, mmol/l to mg/dl", "cholesterol, mg/dl to mmol/l"),
    (88.57, "triglycerides, mmol/l to mg/dl", "triglycerides, mg/dl to mmol/l"),
    (88.42, "creatinine, mg/dl to µmol/l", "creatinine, µmol/l to mg/dl"),
    (17.1, "bilirubin, mg/dl to µmol/l", "bilirubin, µmol/l to mg/dl"),
    *((tens, _PREFIX, _PREFIX) for tens in (10.0, 100.0, 1000.0)),
    (2.54, "inches to cm", "cm to inches"),
    (0.45359237, "pounds to kg", "kg to pounds"),
)
UNITS = (
    Unit(0.09148, 2.152, "HbA1c, mmol/mol to %"),
    Unit(0.5556, -17.7778, "°F to °C"),
    *(
        unit
        for factor, forth, back in _FACTORS
        for unit in (Unit(factor, words=forth), Unit(1 / factor, words=back))
    ),
    Unit(1.8, 32.0, "°C to °F"),
)


def plausible(name: str) -> tuple[float, float]:
    """Between which numbers a column of this name can lie.

    >>> plausible("Age at admission"), plausible("x")
    ((0.0, 120.0), (-inf, inf))
    """
    words = {*words_in(name), "".join(words_in(name))}
    if words & _OTHER:
        return -inf, inf
    kind = next((bounds for names, bounds in _KINDS if names & words), None)
    if kind is not None:
        return (0.0, inf) if words & _SHORT else kind
    return (0.0, inf) if is_time(name) else (-inf, inf)


def cannot_be(name: str, values: Sequence[float]) -> list[float]:
    """The values that a column of this name cannot have, if they are few among the others."""
    low, high = plausible(name)
    beyond = [value for value in values if not low <= value <= high]
    return beyond if _PART * len(beyond) <= len(values) else []


def apart(files: Sequence[Sequence[float]]) -> Mapping[int, tuple[tuple[float, float], float]]:
    """By its place each file whose middle half overlaps none of the others', and their median.

    Of two files with enough values the second; where nearly all lie apart from each other, none.
    """
    quarters = {k: quantiles(values, n=4) for k, values in enumerate(files) if len(values) >= _FEW}
    halves = {k: (low, high) for k, (low, _, high) in quarters.items()}
    alone = {}
    for k, (low, high) in halves.items():
        others = [half for j, half in halves.items() if j != k]
        if not any(low <= end and start <= high for start, end in others):
            alone[k] = low, high
    if len(halves) == 2 and alone:
        alone.pop(min(halves))
    elif len(halves) - len(alone) < 2:
        return {}
    rest = [value for k, values in enumerate(files) if k not in alone for value in values]
    return {k: (half, median(rest)) for k, half in alone.items()}


# A time, and what says whether it ended with the event: an event alone forgets how long people were
# seen.

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
_LENGTHS = word_set("time days weeks months duration los stay tage")
_NO_TIMES = word_set(
    "age since gestation gestational prior before ago last first birth diabetes waiting wait "
    "diagnosis symptom symptoms start status admission date year of"
)
_EVENTS = listed(  # the sooner, the likelier
    "event status died dead death deceased fustat stat censored cens censor censoring vital "
    "mortality relapse recurrence progression failure fail delta ereignis zensiert tod tot "
    "verstorben gestorben rezidiv progress exitus recurred relapsed progressed evt"
)
_NO_EVENTS = word_set(
    "smoking smoker marital insurance employment menopausal meno er performance hormone receptor "
    "pr hr vaccination socioeconomic asa ecog admission discharge date cause family prior "
    "history mutation node nodal treatment work"
)
_FEWEST_TIMES = 10
_MEANING = re.compile(r"[0-4]|.*(dead|alive|died|living|deceased|censor|event|relaps|progress).*")
_SAID = word_set("yes no true false y n ja nein j t f")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A time, and what says whether it ended with the event."""

    time: str  # the time's column
    event: str  # the event's
    # whether the time's name says that it ends with something, not only that it lasts
    is_sure: bool


def time_event_pairs(columns: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Pairs that belong together by their names and values, the likeliest first."""
    ranks = {name: _rank(name, _EVENTS, _NO_EVENTS) for name in columns}
    pairs = [
        Pair(time=time, event=event, is_sure=sure)
        for time, sure in times_in(columns).items()
        for event in columns
        if ranks[event] and _are_events(columns[event])
    ]

    def order(pair: Pair) -> tuple[bool, int, int]:
        """Sure ones first; then those whose names begin alike; then by the event's name."""
        shared = len({*words_in(pair.time)} & {*words_in(pair.event)})
        return not pair.is_sure, -shared, ranks[pair.event]

    return sorted(pairs, key=order)


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


def _ends(name: str) -> bool | None:
    """True: a time that ends with something; False: one that may; None: no time by its name."""
    words = words_in(name)
    if {*words} & _NO_TIMES and not {"to", "until"} & {*words}:
        return None
    if _TIMES.fullmatch(" ".join(words)):
        return True
    return False if {*words} & _LENGTHS else None


def _rank(name: str, ranks: Sequence[str], excluding: frozenset[str]) -> int:
    """From 1, the sooner a name has one of these words; 0: none, or one that excludes it."""
    words = {*words_in(name)}
    if words & excluding:
        return 0
    return next((k for k, word in enumerate(ranks, 1) if word in words), 0)


def _are_times(cells: Sequence[str]) -> bool:
    """Whether cells are many different numbers from 0."""
    read = [measured(cell) for cell in filled(cells)]
    if not read or read.count(None) * 20 > len(read):
        return False
    values = {float(number) for number in read if number is not None}
    slips = sum(value < 0 for value in values)  # dates the wrong way round
    return len(values) >= _FEWEST_TIMES and slips * 10 <= len(values)


def _are_events(cells: Sequence[str]) -> bool:
    """Whether cells are two to four answers, in nearly every row."""
    there = filled(cells)
    spellings = set(map(folded, there))
    meant = all(word in _SAID or _MEANING.fullmatch(word) for word in spellings)
    gone = len(cells) - len(there)
    return 2 <= len(spellings) <= 4 and meant and gone * 10 <= len(cells)


# What is to be learned. The best of several columns is a guess that people must see; where several
# are as good, they are asked.

ANSWERS = tuple(  # what counts as 1, and as 0
    tuple(pair.split("/"))
    for pair in listed(
        "yes/no y/n true/false t/f 1/0 ja/nein j/n oui/non si/no sí/no positive/negative pos/neg "
        "positiv/negativ +/- dead/alive died/survived deceased/living case/control ill/healthy "
        "sick/well present/absent event/censored"
    )
)
ONES, ZEROS = (frozenset(side) for side in zip(*ANSWERS, strict=True))
MOST_CLASSES = 10
# Names of targets: the three tiers in which they are preferred.
_STATED = ("target", "label", "outcome", "y")
_HAPPENED = listed(
    "num class event died death dead deceased mortality readmitted readmission relapse "
    "recurrence verstorben tod"
)
_FOUND = ("diagnosis", "disease", "result", "response", "status")
_COUNTED = word_set(
    "visits admissions readmissions hospitalizations hospitalisations falls exacerbations "
    "episodes seizures relapses claims attacks count counts infections events consultations "
    "complications crashes"
)
_PAID = word_set(
    "cost costs charge charges expenditure expenditures expenses los stay amount price spending "
    "bill kosten payment reimbursement"
)
_TRAITS = word_set(  # who somebody is, which is learned from more often than it is learned
    "sex gender female male geschlecht race ethnicity ethnic black white hispanic married "
    "marital kids child children smoker self smoking insured insurance rural urban employed "
    "education treat treatment trt arm rx group"
)
_EARLIER = word_set(
    "prior previous prev history hist before baseline past family mother father parental cause "
    "date type code group last"
)
_FEWEST_AMOUNTS = 20  # different values
_FEWEST_COUNTS = 6
_LARGEST_COUNT = 200


def candidates(columns: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The columns that may be learned, tier by tier: those of one tier are equally likely."""
    values = {name: _distinct(cells) for name, cells in columns.items()}
    there = {name: filled(cells) for name, cells in columns.items()}
    days = {name: sum(map(is_date, cells)) for name, cells in there.items()}
    usable = [name for name, cells in there.items() if not days[name] * 10 >= 9 * len(cells) > 0]
    classes = [name for name in usable if 1 < len(values[name]) <= MOST_CLASSES]
    answers = [name for name in usable if values[name] and values[name] <= {*ONES, *ZEROS}]
    either = [name for name in dict.fromkeys((*answers, *classes)) if _is_filled(columns[name], 2)]

    def called(ranks: Sequence[str]) -> list[str]:
        by_rank = {name: _rank(name, ranks, _EARLIER) for name in either}
        return sorted(filter(by_rank.get, either), key=by_rank.__getitem__)

    def of_two_values(names: Sequence[str]) -> list[str]:
        return [name for name in names if len(values[name]) == 2 and _is_filled(columns[name], 10)]

    def is_measured(name: str) -> bool:
        """Called after an amount or a count that people predict, and holding one."""
        cells = columns[name]
        if not _is_amount(name) or not _is_filled(cells, 2):
            return False
        return counts_something(name, cells) or len(set(_numbers(cells))) >= _FEWEST_AMOUNTS

    def is_trait(name: str) -> bool:
        return bool({*words_in(name)} & _TRAITS)

    counting = [name for name in usable if counts_something(name, columns[name])]
    tiers = [
        called(_STATED),
        called(_HAPPENED),
        called(_FOUND) + list(filter(is_measured, usable)),
        sorted(of_two_values(answers) + counting, key=is_trait),
        sorted(of_two_values(classes), key=is_trait),
    ]
    # A column stands in its first tier.
    first = {name: place for place, tier in reversed([*enumerate(tiers)]) for name in tier}
    kept = [[n for n in dict.fromkeys(tier) if first[n] == k] for k, tier in enumerate(tiers)]
    *meant, two_values = kept  # of which one may be the target where nothing else can
    return [tier for tier in meant if tier] or [tier for tier in (two_values,) if tier]


def is_guessable(tiers: Sequence[Sequence[str]], columns: Mapping[str, Sequence[str]]) -> bool:
    """Whether one column is likelier the target than all others: alone in its tier, and answers.

    Two columns with names such as `target` and `label` are told apart by their order of names.
    """
    if not tiers:
        return False
    best, *rest = tiers[0]
    if {*words_in(best)} & {*_STATED}:
        return True
    is_answer = _distinct(columns[best]) <= {*ONES, *ZEROS}
    is_called = bool(_rank(best, _HAPPENED + _FOUND, _EARLIER)) or _is_amount(best)
    return not rest and (is_answer or is_called)


def counts_something(name: str, cells: Sequence[str]) -> bool:
    """Whether a column holds counts: whole numbers from 0, mostly small, that no class has.

    >>> counts_something("visits", ["0", "2", "1", "0"])
    True
    >>> counts_something("stage", ["0", "1", "2", "3", "4"])
    False
    """
    numbers = _numbers(cells)
    if not numbers or min(numbers) < 0 or any(number % 1 for number in numbers):
        return False
    several, most = len(set(numbers)), max(numbers)
    if _is_count(name):
        return several >= 3 and most <= 10 * _LARGEST_COUNT
    small = min(numbers) == 0 and most <= _LARGEST_COUNT and median(numbers) <= most / 3
    return several >= _FEWEST_COUNTS and small


def _is_count(name: str) -> bool:
    words = words_in(name)
    visits = any(word.endswith(("vis", "visits", "besuche")) for word in words)
    begins = words[:1] in (["n"], ["num"], ["number"], ["anzahl"]) and len(words) > 1
    return bool(_COUNTED & {*words}) or begins or visits


def _is_amount(name: str) -> bool:
    """Whether a column is called as what people predict as a number."""
    words = {*words_in(name)}
    return not words & _EARLIER and (bool(words & _PAID) or _is_count(name))


def _distinct(cells: Sequence[str]) -> set[str]:
    return {folded(cell) for cell in set(cells) if not is_absent(cell)}


def is_absent(cell: str) -> bool:
    """Whether a record has no target; “-” may mean negative, and “none” may be a class."""
    return is_missing(cell) and folded(cell) not in ("-", "none", "nil")


def _is_filled(cells: Sequence[str], part: int) -> bool:
    """Whether at most one cell in so many has no target."""
    return sum(map(is_absent, cells)) * part <= len(cells)


# Columns that tell the target. A model with such a column is perfect on paper and useless at a
# bedside.

_FEW_CELLS = 5  # or rows of either answer
_MOST_VALUES = 10


def telling(cells: Sequence[str], happened: Sequence[bool | None], sides: tuple[str, str]) -> str:
    """Why a column tells the target; empty if nothing says that it does."""
    pairs = [(cell, side) for cell, side in zip(cells, happened, strict=True) if side is not None]
    rows = Counter(side for _, side in pairs)
    if min(rows[True], rows[False]) < _FEW_CELLS:
        return ""
    there = Counter(side for cell, side in pairs if not is_missing(cell))
    for side, words in zip((True, False), sides, strict=True):
        here, beyond = there[side] / rows[side], there[not side] / rows[not side]
        if there[side] >= _FEW_CELLS and here >= 0.1 and beyond <= 0.02 * here:
            return f"it has a value only where {words}, so it reveals the target"
    # Few values may tell the answer in nearly all rows, the rarer answer's too.
    values = Counter((folded(cell), side) for cell, side in pairs)
    names = {value for value, _ in values}
    wrong = sum(min(values[name, True], values[name, False]) for name in names)
    if 2 <= len(names) <= _MOST_VALUES and wrong <= 0.02 * min(rows[True], rows[False]):
        return (
            f"each of its values occurs only where {sides[0]}, or only where not, so it reveals "
            "the target"
        )
    return ""
