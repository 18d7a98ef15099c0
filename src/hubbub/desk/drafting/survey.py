"""Some files as one: their common columns, whose their rows are, and what only people know of them.

A wrong guess at whose a row is, or at what ends a time, makes a promise to the wrong unit or learns
the wrong thing, and nothing later tells. So nothing is drafted before it is answered.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import NamedTuple

from hubbub.core.errors import DataError
from hubbub.core.number_format import offered
from hubbub.core.study import cell_stream
from hubbub.core.tabular.cells import canonical
from hubbub.core.tabular.records import patient_key
from hubbub.desk.drafting.cell_text import folded, is_missing, plain_number, word_set, words_in
from hubbub.desk.drafting.column_meaning import (
    Pair,
    by_name,
    candidates,
    counts_something,
    few_whole_numbers,
    follow_ups,
    in_words,
    is_absent,
    is_guessable,
    is_time,
    time_event_pairs,
    times_in,
)
from hubbub.desk.drafting.raw_table import Fault, RawTable, raw_of, read_raw

# Columns that tell rows apart, or that say whose a row is: their values come back from row to row
# as a patient's number does.

_KEY = re.compile(
    r"(?i)(^|.*[^a-z])(id|nr|key|uuid|mrn|rowid|record|case)([^a-z]|$)|.*(nr|nummer|number)$"
    r"|(.*[^a-z])?(case|pat|patient|person|row|sample|subj|usubj|user)_?id$"
)
_CAMEL_KEY = re.compile(r".*[a-z](ID|Id|Nr|No|Key)")
_ROW_KEY = re.compile(r"[\w-]+")
_FEW_ROWS = 8  # below which nothing looks like a key
_FIRST_CODE = 1000
_PEOPLE = word_set(
    "patient patients pat person subject subj participant proband member customer client "
    "resident insuree mrn pid usubjid pt patientid personid subjectid patid subjid zper "
    "versicherter"
)
_ENDINGS = word_set("id nr no key code number nummer num hash ref")
_FEW_PEOPLE = 8  # different values, below which nothing looks like people
_PERSON_KEY = re.compile(r"[\w.:/-]{1,64}")
_FRACTION = re.compile(r"[+-]?\d*\.\d+")
_LETTERED = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w-]+|\d{4,18}")
_GROUPS = 20  # values that come back, before other columns say anything
# Nine digits and more, of which a few were kept.
_CUT = re.compile(r"[+-]?\d([.,]\d{1,8})?[eE]\+?(0?9|[1-9]\d+)|\d{10,}([.,]0)?[eE]\+?\d+")


@dataclass(frozen=True, kw_only=True)
class RepeatedKey:
    """A column that may say whose a row is."""

    name: str  # of the column
    values: int  # how many different ones there are, each file for itself
    rows: int  # how many rows, those alike in all cells counted once
    most: int  # rows of one value


def is_named_key(name: str) -> bool:
    """Whether a column is called as keys are."""
    return bool(_KEY.match(name) or _CAMEL_KEY.match(name))


def is_key(name: str, files: Sequence[Sequence[str]]) -> bool:
    """Whether a column, by its cells in each file, tells rows apart, as a patient's number does."""
    is_named, keys = is_named_key(name), list[list[str]]()
    for cells in files:
        # A column that is called a key may have rows that came twice.
        least = 0.9 if is_named and len(cells) >= _FEW_ROWS else 1.0
        if len(set(cells)) < least * len(cells):
            return False
        keys.append([*map(canonical, cells)])  # programs write 1001 as 1001.0, too
        if not all(map(_ROW_KEY.fullmatch, keys[-1])):
            return False
    long = [own for own in keys if len(own) >= _FEW_ROWS]  # the others say too little
    return (bool(long) and all(map(_are_row_keys, long))) or (is_named and len(files[0]) > 1)


def _are_row_keys(cells: Sequence[str]) -> bool:
    """Whether different cells are whole numbers that rise by one, or codes such as P-0017."""
    if all(re.fullmatch(r"\d{1,18}", cell) for cell in cells):
        numbers = [int(cell) for cell in cells]
        begins = numbers[0] < 2 or numbers[0] >= _FIRST_CODE  # others may be ages, in order
        return begins and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return all(plain_number(cell) is None and re.search(r"\d", cell) for cell in cells)


def repeated_keys(tables: Sequence[RawTable], names: Sequence[str]) -> list[RepeatedKey]:
    """The columns, of these names, that may say whose a row is, the likeliest first."""
    # Rows that are alike in every cell count once: they are copies, and no second visit.
    distinct = [replace(table, rows=tuple(dict.fromkeys(table.rows))) for table in tables]
    ranked = []
    for name in names:
        words = words_in(name)
        called = words[-2:-1] if {*words[-1:]} & _ENDINGS else words[-1:]
        rank = 0 if {*called} & _PEOPLE else 1 if is_named_key(name) else 2  # 0: after people
        if (key := _repeated(name, rank, distinct)) is not None:
            ranked.append((rank, key))
    return [key for _, key in sorted(ranked, key=lambda pair: pair[0])]


def _repeated(name: str, rank: int, files: Sequence[RawTable]) -> RepeatedKey | None:
    """A column, if its values come back as those of people do."""
    keys = [[key for key in map(patient_key, file.column(name)) if key] for file in files]
    every = [key for own in keys for key in own]
    rows, values = len(every), sum(len(set(own)) for own in keys)
    if values < _FEW_PEOPLE or values >= rows:
        return None
    # Free text and measurements come back, too, and say whose a row is by chance alone.
    codes = sum(_PERSON_KEY.fullmatch(key) is not None for key in every)
    if codes < 0.95 * rows or any(map(_FRACTION.fullmatch, every)):
        return None
    if values < (0.02 if rank == 0 else 0.1) * rows:
        return None
    if rank == 2:  # called anything: some other column must never differ within one value
        others = [other for other in files[0].header if other != name]
        are_codes = all(map(_LETTERED.fullmatch, every))
        if not are_codes or not any(_belongs(name, other, files) for other in others):
            return None
    most = max(max(Counter(own).values(), default=0) for own in keys)
    return RepeatedKey(name=name, values=values, rows=rows, most=most)


def _belongs(name: str, other: str, files: Sequence[RawTable]) -> bool:
    """Whether rows of one key have one value of another column, which is not nearly constant."""
    groups: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
    for number, file in enumerate(files):
        if other in file.header:
            for cell, beside in zip(file.column(name), file.column(other), strict=True):
                if key := patient_key(cell):
                    groups[number, key].append(beside)
    several = [cells for cells in groups.values() if len(cells) > 1]
    counts = Counter(cell for cells in several for cell in cells)
    total = counts.total()
    if len(several) < _GROUPS or sum((n / total) ** 2 for n in counts.values()) > 0.8:
        return False
    alike = sum(len(set(cells)) == 1 for cells in several)
    return alike >= 0.98 * len(several)


# Keys that look alike, or like nobody's. Two spellings of one patient weaken what the patient is
# promised, and so do two patients under one key (docs/privacy.md P21); which of the two it is, only
# the hospital knows. So nothing is joined here, and what is said stays with who has the file.


def likely_namesakes(table: RawTable, column: str) -> Iterator[Fault]:
    """What is odd about the keys in a column of a table."""
    groups: dict[str, list[str]] = {}
    for key in filter(None, dict.fromkeys(map(patient_key, table.column(column)))):
        groups.setdefault("" if is_missing(key) else near_key(key), []).append(key)
    if nobody := groups.pop("", []):
        yield table.odd(
            f"{nobody[0]!r} looks like a missing value, but counts as one patient",
            "leave the cells empty or fill them in, unless it is a real key",
            column,
        )
    if near := [group for group in groups.values() if len(group) > 1]:
        shown = " and ".join(map(repr, near[0][:2]))
        yield table.odd(
            f"{len(near)} pairs of keys look alike, such as {shown}: they count as "
            "different patients",
            "spell each patient in one way, unless they are different people",
            column,
        )


def cut_numbers(table: RawTable, column: str) -> Iterator[Fault]:
    """Long numbers of which a spreadsheet has kept the first digits: many people share one."""
    cells = table.column(column)
    cut = [cell for cell in cells if _CUT.fullmatch(cell.strip())]
    if cut and len(cut) >= sum(not is_missing(cell) for cell in cells) / 2:
        yield table.odd(
            f"{len(cut)} cells such as {cut[0]!r} are long numbers that a spreadsheet or "
            f"a program has rounded: only {len(set(cut))} different ones are left, so "
            "several people share one",
            "export the column as text; as a key it would merge several people, and as a "
            "number it means nothing",
            column,
        )


def near_key(text: str) -> str:
    """A key without what people spell in many ways: case, accents, signs, zeros in front.

    >>> near_key("PAT-007"), near_key("pat 7"), near_key("1-12") == near_key("11-2")
    ('pat 7', 'pat 7', False)
    """
    bare = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    kept = "".join(sign for sign in bare if unicodedata.category(sign) not in ("Mn", "Cf"))
    return " ".join(part.lstrip("0") or "0" for part in re.findall(r"\d+|[^\W\d_]+", kept))


# Rows of one person that hold its values apart: a baseline's in one, an outcome's in another.
# REDCap's longitudinal exports and every table of visits with forms of their own are so. As records
# they are useless: the row with the outcome has no predictor. Joined by the person's key, each
# column's first value is left.

_RARE = 0.01  # share of rows, whose pattern of filled cells may be a slip
_REDCAP = "redcap_"  # what it says of a row itself
_HALF = 0.5  # of the people, who have a value of a column


def scattered(tables: Sequence[RawTable], key: str) -> tuple[str, str] | None:
    """Two columns that most people have, in rows of their own; None where there are none."""
    rows = Counter[frozenset[str]]()
    people = Counter[frozenset[str]]()
    for table in tables:
        own = dict[str, frozenset[str]]()
        for person, row in zip(map(patient_key, table.column(key)), table.rows, strict=True):
            cells = zip(table.header, row, strict=True)
            there = frozenset(name for name, cell in cells if not is_missing(cell)) - {key}
            rows[there] += 1
            own[person] = own.get(person, frozenset()) | there
        people.update(own.values())
    # Patterns of filled cells that few rows have are slips, and show no two columns together.
    together = [names for names, count in rows.items() if count >= _RARE * rows.total()]
    held = Counter[str]()
    for names, count in people.items():
        held.update(dict.fromkeys(names, count))
    most = [
        name
        for name in tables[0].header
        if held[name] >= _HALF * people.total() and not name.startswith(_REDCAP)
    ]
    for place, name in enumerate(most):
        beside = frozenset[str]().union(*(names for names in together if name in names))
        if elsewhere := [other for other in most[place + 1 :] if beside and other not in beside]:
            return name, elsewhere[0]
    return None


def joined(table: RawTable, key: str) -> RawTable:
    """One row for each person: of every column the first value; rows of nobody are left out."""
    people: dict[str, list[str]] = {}
    for person, row in zip(map(patient_key, table.column(key)), table.rows, strict=True):
        if person:
            kept = people.setdefault(person, list(row))
            pairs = zip(kept, row, strict=True)
            kept[:] = [new if is_missing(old, number=False) else old for old, new in pairs]
    rows = tuple(map(tuple, people.values()))
    return replace(table, rows=rows, numbers=tuple(range(1, len(rows) + 1)), read=len(rows))


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Some files of records."""

    paths: tuple[Path, ...]  # of the files
    # in the order of the paths, all with the same names of columns
    tables: tuple[RawTable, ...] = field(repr=False)
    faults: tuple[Fault, ...] = field(default=(), repr=False)
    silos: tuple[str, ...] = ()  # of the tables, where their names are known; else after the paths

    @cached_property
    def full(self) -> list[RawTable]:
        """The tables that hold records."""
        return [table for table in self.tables if table.rows]

    @cached_property
    def common(self) -> list[str]:
        """The columns that every file with records has."""
        first = self.full[0].header
        return [name for name in first if all(name in table.header for table in self.full)]

    @cached_property
    def by_file(self) -> Mapping[str, list[list[str]]]:
        """The cells of each common column, file by file."""
        return {name: [table.column(name) for table in self.full] for name in self.common}

    @cached_property
    def cells(self) -> Mapping[str, list[str]]:
        """The cells of each common column, all files in a row, numbers with decimal points."""
        return {name: [c for table in self.full for c in table.plain(name)] for name in self.common}

    @cached_property
    def likely_keys(self) -> list[RepeatedKey]:
        """The columns that may say whose a row is, the likeliest first."""
        return repeated_keys(self.full, self.common)

    @property
    def elsewhere(self) -> dict[str, str]:
        """The columns that some file lacks, and which files."""
        names = dict.fromkeys(name for table in self.full for name in table.header)
        return {
            name: ", ".join(table.origin for table in self.full if name not in table.header)
            for name in names
            if name not in self.common
        }

    def joined(self, key: str) -> Survey:
        """With one row for each person that a column names."""
        if lacking := [table.origin for table in self.full if key not in table.header]:
            raise DataError(
                f"expected --join to name a column that every file has, found no {key!r} "
                f"in {', '.join(lacking)}; choose one of {', '.join(self.common)}"
            )
        tables = tuple(joined(table, key) if table.rows else table for table in self.tables)
        return replace(self, tables=tables)

    def refuse_absent(self, name: str | None) -> None:
        """Refuse a column that only some files have, by the names of those that lack it."""
        lacking = [table for table in self.full if name not in table.header]
        if name is None or not 0 < len(lacking) < len(self.full):
            return
        raise DataError(
            f"expected a column {name!r} in every file, found none in "
            f"{', '.join(table.origin for table in lacking)}, which has "
            f"{offered(lacking[0].header)}; rename it there"
        )


def surveyed(paths: Sequence[Path]) -> Survey:
    """Read some files, one for each silo; of one alone if a silo drafts by itself."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise DataError("expected every file once, got one twice; leave it out")
    raw = [
        raw_of(cell_stream.parts_stream(path)) if path.is_dir() else read_raw(path)
        for path in paths
    ]
    return survey_of(raw, paths)


def survey_of(raw: Sequence[RawTable], paths: Sequence[Path]) -> Survey:
    """Some tables as one, with the names of columns that most of them have; see `surveyed`."""
    if not any(table.rows for table in raw):
        raise DataError(
            f"expected readable records in {', '.join(table.origin for table in raw)}, "
            "found none; check the files, their separators and quotes"
        )
    named = [table for table in raw if table.named]
    first = next((table for table in named if table.rows), raw[0])
    # By folded name the spelling that most files have, or the first of them.
    times = Counter(name for table in named for name in table.header)
    usual = {folded(name): name for name, _ in times.most_common()[::-1]}
    tables, faults = [], []
    for table in raw:
        header = tuple(usual.get(folded(name), name) for name in table.header)
        if not table.named and len(table.header) == len(first.header):
            header = tuple(usual.get(folded(name), name) for name in first.header)
        elif len(set(header)) < len(header):
            header = table.header
        for old, new in zip(table.header, header, strict=True):
            if old != new and table.named:
                what = f"this column is spelled {new!r} in other files"
                faults.append(table.fault(what, "spell it the same in all files", old))
        tables.append(replace(table, header=header))
    return Survey(paths=tuple(paths), tables=tuple(tables), faults=tuple(faults))


# What has to be known before a study can be drafted: whose a row is, and what is to be learned.

_SHOWN = 4  # candidates


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What people have said of their files."""

    target: str | None = None  # the column to be learned; None: they have not said
    kind: str | None = None  # of the target
    event: str | None = None  # the column that says whether a time ends with the event
    patient: str | None = None  # the column that says whose a row is
    records_are_units: bool = False  # whether every row is somebody else's
    codes: tuple[str, ...] = ()  # columns whose numbers are codes
    amounts: tuple[str, ...] = ()  # those whose numbers are not
    # whether rows may be joined in copies, which are made of files and of no query
    can_join: bool = True

    def with_time(self, survey: Survey) -> Answers:
        """The answers, with the time that an event ends, if only the event was named."""
        if self.event is None or self.target is not None:
            return self
        pairs = time_event_pairs(survey.cells)
        times = [pair.time for pair in pairs if pair.event == self.event]
        times = times or list(times_in(survey.cells))
        if not times:
            raise DataError(
                f"expected a column with the time until {self.event!r}, found none by its "
                f"name among {offered(survey.common)}; name it with --time"
            )
        return replace(self, target=times[0])


class Option(NamedTuple):
    """One answer."""

    means: str  # in words
    options: tuple[str, ...]  # what to type for it


class Question(NamedTuple):
    """One thing to be answered by options of `hubbub init`."""

    columns: tuple[str, ...]  # that it is about
    asked: str  # what was seen, and what has to be known
    choices: tuple[Option, ...]  # the likeliest first

    def to_dict(self) -> dict[str, object]:
        """The question as plain values."""
        return self._asdict() | {"choices": [choice._asdict() for choice in self.choices]}


def open_questions(survey: Survey, given: Answers) -> list[Question]:
    """What the answers leave open; empty: a study can be drafted."""
    return [*_whose(survey, given), *_what(survey, given), *_codes(survey, given)]


def _whose(survey: Survey, given: Answers) -> Iterator[Question]:
    """Rows that may belong to one person."""
    keys = survey.likely_keys if given.patient is None else []
    key = given.patient or (keys[0].name if keys else "")
    if given.records_are_units or key not in survey.common:  # which a draft refuses
        return
    choices = [Option(f"{k.name} is the person", ("--patient", k.name)) for k in keys[:3]]
    nobody = "every row is a different person, or the records are public"
    choices.append(Option(nobody, ("--records-are-units",)))
    asks = given.can_join and (given.patient is None or _is_bare(survey, given))
    if asks and (two := scattered(survey.full, key)):
        means = (
            "merge them into one record, with the first value of every column: copies are written "
            "(for another way to join: docs/howto/mapping.md)"
        )
        asked = (
            f"the rows of one {key!r} complete each other: where {two[0]!r} has a value, "
            f"{two[1]!r} is empty, so no row has both a target and something to predict it from. "
            "Should they be one record?"
        )
        join = Option(means, ("--join", key, "--tidy", "tidy"))
        yield Question((key, *two), asked, (join, *(choices if given.patient is None else ())))
    elif keys:
        # The likeliest key is asked about, and two more are offered.
        others = [other.name for other in keys[1:3]]
        also = f" (or {' or '.join(map(repr, others))})" if others else ""
        asked = (
            f"Does a person have several rows? {key!r}{also} has {keys[0].values} values in "
            f"{keys[0].rows} rows, up to {keys[0].most} rows each. If it identifies a person, the "
            "guarantee should cover the person, with all rows"
        )
        yield Question(tuple(likely.name for likely in keys), asked, tuple(choices))


def _is_bare(survey: Survey, given: Answers) -> bool:
    """Whether most columns are empty wherever the target is not."""
    cells = survey.cells
    if given.target is None or given.target not in cells:
        return False
    there = [not is_absent(cell) for cell in cells[given.target]]
    columns = [any(map(bool, column)) for column in cells.values()]
    left = [any(compress(column, there)) for column in cells.values()]
    return 2 * sum(left) <= sum(columns) + 1


def _codes(survey: Survey, given: Answers) -> Iterator[Question]:
    """Few whole numbers, which may be codes."""
    tiers = target_tiers(survey, given) if given.target is None else []
    likeliest = tiers[0][:1] if tiers else []
    answered = {given.target, given.event, given.patient, *given.codes, *given.amounts, *likeliest}
    open_columns = {
        name: numbers
        for name, cells in survey.cells.items()
        if name not in answered and by_name(name) is None and not is_time(name)
        if (numbers := few_whole_numbers(cells)) and not counts_something(name, cells)
    }
    if open_columns:
        shown = ", ".join(f"{name!r} ({in_words(own)})" for name, own in open_columns.items())
        names = ",".join(open_columns)
        asked = (
            f"{shown}: few whole numbers. Are they codes, whose size means nothing, or amounts? A "
            "9 or 99 apart from the others often means “unknown”"
        )
        choices = (
            Option("codes: each number is a category", ("--codes", names)),
            Option("amounts: counts, scores, grades", ("--amounts", names)),
        )
        yield Question(tuple(open_columns), asked, choices)


def _what(survey: Survey, given: Answers) -> Iterator[Question]:
    """A time and its event, or several columns that may be learned."""
    if given.event is not None or given.kind is not None:
        return
    pairs = time_event_pairs(survey.cells)
    tiers = candidates(survey.cells)
    if given.target is not None:
        pairs = [pair for pair in pairs if pair.time == given.target]
    # A column called target, label or outcome is meant, whatever times there are.
    elif tiers and len(tiers[0]) == 1 and tiers[0][0].casefold() in ("target", "label", "y"):
        return
    if pairs:
        yield _of_pair(pairs[0], [name for tier in tiers for name in tier])
        return
    if given.target is not None:
        return
    tiers = target_tiers(survey, given)
    names = [name for tier in tiers for name in tier]
    times = follow_ups(survey.cells)
    if times and tiers:  # no column is called as events are
        yield _of_follow_up(times[0], [name for name in names if name != times[0]][:_SHOWN])
    elif tiers and not is_guessable(tiers, survey.cells):
        rest = len(names) - _SHOWN
        more = f" or {rest} other{'s' * (rest > 1)}" if rest > 0 else ""
        shown = ", ".join(map(repr, names[:_SHOWN]))
        asked = f"Which column should the model predict? Perhaps {shown}{more}"
        yield Question(tuple(names), asked, tuple(map(_learn, names[:_SHOWN])))


def _of_pair(pair: Pair, names: Sequence[str]) -> Question:
    """Whether a time and its event are one target; `names` may be learned, too."""
    left = "; its column of times, which shows when that was known, is left out"
    choices = [_learn_time(pair.time, pair.event), _learn(pair.event, f" as yes or no{left}")]
    if not pair.is_sure:
        choices.reverse()
    others = [name for name in names if name not in (pair.time, pair.event)]
    asked = (
        f"Which column should the model predict? {pair.time!r} looks like a time, and "
        f"{pair.event!r} like whether it ended with the event; people who were observed only "
        "until then do not count as “no”"
    )
    return Question((pair.time, pair.event), asked, (*choices, *map(_learn, others[:2])))


def _of_follow_up(time: str, events: Sequence[str]) -> Question:
    """Which of some columns says what ended a time."""
    asked = (
        f"Which column should the model predict? {time!r} looks like the length of follow-up, "
        "which reveals the outcome: name the column that says whether it ended with the event, "
        "or predict another one without it"
    )
    learned = [_learn(name, f"; {time!r} is left out") for name in events[:1]]
    times_to = (_learn_time(time, name) for name in events)
    return Question((time, *events), asked, (*times_to, *learned))


def _learn_time(time: str, event: str) -> Option:
    means = f"predict the time in {time!r} until {event!r} (survival)"
    return Option(means, ("--time", time, "--event", event))


def _learn(name: str, more: str = "") -> Option:
    return Option(f"predict {name!r}{more}", ("--target", name))


def target_tiers(survey: Survey, given: Answers) -> list[list[str]]:
    """The columns that may be learned, the likeliest first; none says whose a row is."""
    whose = {given.patient, *(key.name for key in survey.likely_keys)}
    return candidates({name: own for name, own in survey.cells.items() if name not in whose})
