"""Some files as one: their tables with the same names of columns, and the cells of those.

Everything that is asked of people or drafted is asked of a survey, so that files are read once.
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

from hubbub.core.errors import DataError
from hubbub.core.study import cell_stream
from hubbub.core.tabular.records import patient_key
from hubbub.desk.drafting.cell_text import folded, is_missing
from hubbub.desk.drafting.column_draft import is_named_key
from hubbub.desk.drafting.column_meaning import (
    Option,
    Pair,
    Question,
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
    words_in,
)
from hubbub.desk.drafting.raw_table import Fault, RawTable, raw_of, read_raw

# Columns whose values come back from row to row as a patient's number does.
#
# Several rows of one person that count as several people promise that person less than is written,
# and nothing later tells. This file sees the cells of all files; whose they are, people say.

_PEOPLE = frozenset(
    {
        *("patient", "patients", "pat", "person", "subject", "subj", "participant", "proband"),
        *("member", "customer", "client", "resident", "insuree", "mrn", "pid", "usubjid", "pt"),
        *("patientid", "personid", "subjectid", "patid", "subjid", "zper", "versicherter"),
    }
)
_ENDINGS = frozenset({"id", "nr", "no", "key", "code", "number", "nummer", "num", "hash", "ref"})
_FEW = 8  # different values, below which nothing looks like people
_CODE = re.compile(r"[\w.:/-]{1,64}")
_LETTERED = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w-]+|\d{4,18}")
_GROUPS = 20  # values that come back, before other columns say anything


@dataclass(frozen=True, kw_only=True)
class RepeatedKey:
    """A column that may say whose a row is.

    Args:
        name: of the column.
        values: how many different ones there are, each file for itself.
        rows: how many rows, those alike in all cells counted once.
        most: rows of one value.
    """

    name: str
    values: int
    rows: int
    most: int


def repeated_keys(tables: Sequence[RawTable], names: Sequence[str]) -> list[RepeatedKey]:
    """The columns, of these names, that may say whose a row is, the likeliest first.

    Args:
        tables: all files, each of which has columns of these names.
        names: of the columns.
    """
    kept = [_Rows(table) for table in tables]
    ranked = [(_rank(name), one) for name in names if (one := _repeated(name, kept)) is not None]
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


class _Rows:
    """A file's rows, those that are alike in every cell once."""

    def __init__(self, table: RawTable) -> None:
        self.header = table.header
        self.rows = list(dict.fromkeys(table.rows))

    def keys(self, name: str) -> list[str]:
        """Whose each row is by a column; empty where it says nothing."""
        index = self.header.index(name)
        return [patient_key(row[index]) for row in self.rows]


def _repeated(name: str, files: Sequence[_Rows]) -> RepeatedKey | None:
    """A column, if its values come back as those of people do."""
    keys = [[key for key in file.keys(name) if key] for file in files]
    rows, values = sum(map(len, keys)), sum(len(set(own)) for own in keys)
    if values < _FEW or values >= rows:
        return None
    codes = sum(_CODE.fullmatch(key) is not None for own in keys for key in own)
    if codes < 0.95 * rows or any("." in key and _is_fraction(key) for own in keys for key in own):
        return None
    rank = _rank(name)
    least = (0.02, 0.1, 0.1)[rank] * rows
    if values < least or (rank == 2 and not _are_people(name, files, keys)):
        return None
    most = max(max(Counter(own).values(), default=0) for own in keys)
    return RepeatedKey(name=name, values=values, rows=rows, most=most)


def _is_fraction(key: str) -> bool:
    return re.fullmatch(r"[+-]?\d*\.\d+", key) is not None


def _rank(name: str) -> int:
    """0: called after people; 1: called a key; 2: called anything."""
    words = words_in(name)
    if words and words[-1] in _ENDINGS:
        if len(words) > 1 and words[-2] in _PEOPLE:
            return 0
    elif words and words[-1] in _PEOPLE:
        return 0
    return 1 if is_named_key(name) else 2


def _are_people(name: str, files: Sequence[_Rows], keys: Sequence[Sequence[str]]) -> bool:
    """Whether values are codes, and some other column never differs between rows of one value."""
    if not all(_LETTERED.fullmatch(key) for own in keys for key in own):
        return False
    others = [one for one in files[0].header if one != name]
    return any(_belongs(name, other, files) for other in others)


def _belongs(name: str, other: str, files: Sequence[_Rows]) -> bool:
    """Whether rows of one key have one value of another column, which is not nearly constant."""
    groups: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
    for key, cell in _pairs(name, other, files):
        groups[key].append(cell)
    several = [cells for cells in groups.values() if len(cells) > 1]
    counts = Counter(cell for cells in several for cell in cells)
    total = counts.total()
    if len(several) < _GROUPS or sum((n / total) ** 2 for n in counts.values()) > 0.8:
        return False
    alike = sum(len(set(cells)) == 1 for cells in several)
    return alike >= 0.98 * len(several)


def _pairs(name: str, other: str, files: Sequence[_Rows]) -> Iterator[tuple[tuple[int, str], str]]:
    for number, file in enumerate(files):
        if other in file.header:
            index = file.header.index(other)
            for key, row in zip(file.keys(name), file.rows, strict=True):
                if key:
                    yield (number, key), row[index]


# Patients' keys that look alike, or like nobody's: a run takes them as they are, people see them.
#
# Two spellings of one patient weaken what the patient is promised, and so do two patients under one
# key (docs/privacy.md P21); which of the two it is, only the hospital knows. So nothing is joined
# here. This file knows keys as texts, and may quote them: what it says stays with who has the file.

# Nine digits and more, of which a few were kept.
_CUT = re.compile(r"[+-]?\d([.,]\d{1,8})?[eE]\+?(0?9|[1-9]\d+)|\d{10,}([.,]0)?[eE]\+?\d+")


def likely_namesakes(table: RawTable, column: str) -> Iterator[Fault]:
    """What is odd about the keys in a column of a table."""
    groups: dict[str, list[str]] = {}
    for key in filter(None, dict.fromkeys(map(patient_key, table.column(column)))):
        groups.setdefault("" if is_missing(key) else near_key(key), []).append(key)
    nobody = groups.pop("", [])
    near = [group for group in groups.values() if len(group) > 1]
    if nobody:
        yield Fault(
            file=table.origin,
            column=column,
            what=f"{nobody[0]!r} looks like a missing value, and counts as one patient",
            remedy="leave the cells empty or fill them in, unless somebody is called so",
            refused=False,
        )
    if near:
        shown = " and ".join(map(repr, near[0][:2]))
        yield Fault(
            file=table.origin,
            column=column,
            what=f"{len(near)} times keys look alike, such as {shown}: they are several patients",
            remedy="spell each patient in one way, unless they are several people",
            refused=False,
        )


def cut_numbers(table: RawTable, column: str) -> Iterator[Fault]:
    """Long numbers of which a spreadsheet has kept the first digits: many people share one."""
    cells = table.column(column)
    cut = [cell for cell in cells if _CUT.fullmatch(cell.strip())]
    if cut and len(cut) >= sum(not is_missing(cell) for cell in cells) / 2:
        yield Fault(
            file=table.origin,
            column=column,
            what=f"{len(cut)} cells such as {cut[0]!r} are long numbers that a spreadsheet or a "
            f"program has cut: {len(set(cut))} are left of them, so that several people share one",
            remedy="export the column as text; as a key it would make one unit of many people, and "
            "as a number it says nothing",
            refused=False,
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
#
# REDCap's longitudinal exports and every table of visits with forms of their own are so. As records
# they are useless: the row with the outcome has no predictor. Joined by the person's key, each
# column's first value is left. This file knows cells, not what columns mean.

_RARE = 0.01  # share of rows, whose pattern of filled cells may be a slip
_REDCAP = "redcap_"  # what it says of a row itself
_HALF = 0.5  # of the people, who have a value of a column


def scattered(tables: Sequence[RawTable], key: str) -> tuple[str, str] | None:
    """Two columns that most people have, in rows of their own; None where there are none.

    Args:
        tables: all files.
        key: the column that says whose a row is.
    """
    rows = Counter[frozenset[str]]()
    people = Counter[frozenset[str]]()
    for table in tables:
        own = dict[str, frozenset[str]]()
        for person, row in zip(map(patient_key, table.column(key)), table.rows, strict=True):
            cells = zip(table.header, row, strict=True)
            filled = frozenset(name for name, cell in cells if not is_missing(cell)) - {key}
            rows[filled] += 1
            own[person] = own.get(person, frozenset()) | filled
        people.update(own.values())
    least = _RARE * rows.total()
    together = [filled for filled, count in rows.items() if count >= least]
    held = Counter[str]()
    for filled, count in people.items():
        held.update(dict.fromkeys(filled, count))
    most = [
        name
        for name in tables[0].header
        if held[name] >= _HALF * people.total() and not name.startswith(_REDCAP)
    ]
    for place, name in enumerate(most):
        beside = frozenset[str]().union(*(filled for filled in together if name in filled))
        if apart := [other for other in most[place + 1 :] if beside and other not in beside]:
            return name, apart[0]
    return None


def joined(table: RawTable, key: str) -> RawTable:
    """One row for each person: of every column the first value; rows of nobody are left out."""
    people: dict[str, list[str]] = {}
    for person, row in zip(map(patient_key, table.column(key)), table.rows, strict=True):
        if person:
            kept = people.setdefault(person, list(row))
            kept[:] = [
                new if is_missing(old, number=False) else old
                for old, new in zip(kept, row, strict=True)
            ]
    rows = tuple(map(tuple, people.values()))
    return replace(table, rows=rows, numbers=tuple(range(1, len(rows) + 1)))


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Some files of records.

    Args:
        paths: of the files.
        tables: in the order of the paths, all with the same names of columns.
        faults: names of columns that differ between files.
    """

    paths: tuple[Path, ...]
    tables: tuple[RawTable, ...] = field(repr=False)
    faults: tuple[Fault, ...] = field(default=(), repr=False)

    @cached_property
    def full(self) -> list[RawTable]:
        """The tables that hold records."""
        return [table for table in self.tables if table.rows]

    @cached_property
    def common(self) -> list[str]:
        """The columns that every file with records has."""
        first = self.full[0].header
        return [name for name in first if all(name in covariate.header for covariate in self.full)]

    @cached_property
    def by_file(self) -> Mapping[str, list[list[str]]]:
        """The cells of each common column, file by file."""
        return {name: [covariate.column(name) for covariate in self.full] for name in self.common}

    @cached_property
    def cells(self) -> Mapping[str, list[str]]:
        """The cells of each common column, all files in a row, numbers with decimal points."""
        return {name: [c for file in self.full for c in file.plain(name)] for name in self.common}

    @cached_property
    def likely_keys(self) -> list[RepeatedKey]:
        """The columns that may say whose a row is, the likeliest first."""
        return repeated_keys(self.full, self.common)

    def decimals(self, name: str) -> list[str]:
        """The decimal sign of a common column in each file."""
        return [table.decimal(name) for table in self.full]

    @property
    def elsewhere(self) -> dict[str, str]:
        """The columns that some file lacks, and which files."""
        names = dict.fromkeys(name for covariate in self.full for name in covariate.header)
        return {
            name: ", ".join(
                covariate.origin for covariate in self.full if name not in covariate.header
            )
            for name in names
            if name not in self.common
        }

    def joined(self, key: str) -> Survey:
        """With one row for each person that a column names.

        Raises:
            DataError: some file has no such column.
        """
        if lacking := [table.origin for table in self.full if key not in table.header]:
            raise DataError(
                f"expected --join to name a column of every file, found no {key!r} in "
                f"{', '.join(lacking)}; choose one of {', '.join(self.common)}"
            )
        tables = tuple(joined(table, key) if table.rows else table for table in self.tables)
        return Survey(paths=self.paths, tables=tables, faults=self.faults)

    def refuse_absent(self, name: str | None) -> None:
        """Refuse a column that only some files have, by the names of those that lack it."""
        lacking = [covariate for covariate in self.full if name not in covariate.header]
        if name is None or not 0 < len(lacking) < len(self.full):
            return
        raise DataError(
            f"expected a column {name!r} in every file, found none in "
            f"{', '.join(one.origin for one in lacking)}, which has "
            f"{', '.join(lacking[0].header)}; rename it there"
        )


def surveyed(paths: Sequence[Path]) -> Survey:
    """Read some files, one for each silo; of one alone if a silo drafts by itself.

    Raises:
        DataError: a file stands there twice or cannot be read, or there is no record.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise DataError("expected every file once, got one twice; leave it out")
    raw = [
        raw_of(cell_stream.parts_stream(path)) if path.is_dir() else read_raw(path)
        for path in paths
    ]
    return survey_of(raw, paths)


def survey_of(raw: Sequence[RawTable], paths: Sequence[Path]) -> Survey:
    """Some tables as one; see `surveyed`.

    Args:
        raw: the tables.
        paths: what silos are called after.
    """
    if not any(table.rows for table in raw):
        raise DataError(
            f"expected records in {', '.join(table.origin for table in raw)}, found none that can "
            "be read; check the files, their separators and quotes"
        )
    tables, faults = _aligned(raw)
    return Survey(paths=tuple(paths), tables=tuple(tables), faults=tuple(faults))


def _aligned(raw: Sequence[RawTable]) -> tuple[list[RawTable], list[Fault]]:
    """The tables with the names that most of them have, and what differs from those."""
    first = next((one for one in raw if one.named and one.rows), raw[0])
    usual = _usual_names([one for one in raw if one.named])
    tables, faults = [], []
    for table in raw:
        header = tuple(usual.get(folded(name), name) for name in table.header)
        if not table.named and len(table.header) == len(first.header):
            header = tuple(usual.get(folded(name), name) for name in first.header)
        elif len(set(header)) < len(header):
            header = table.header
        for old, new in zip(table.header, header, strict=True):
            if old != new and table.named:
                faults.append(_misnamed(table.origin, old, new))
        tables.append(table.renamed(header))
    return tables, faults


def _usual_names(tables: Sequence[RawTable]) -> dict[str, str]:
    """By folded name the spelling of a column that most files have, or the first of them."""
    times = Counter(name for table in tables for name in table.header)
    return {folded(name): name for name, _ in times.most_common()[::-1]}


def _misnamed(file: str, old: str, new: str) -> Fault:
    what = f"this column is spelled {new!r} in other files"
    return Fault(file=file, column=old, what=what, remedy="spell it alike in all files")


# What has to be known before a study can be drafted: whose a row is, and what is to be learned.

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
