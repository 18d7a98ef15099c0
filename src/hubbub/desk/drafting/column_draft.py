"""What becomes of one column: a number with bounds, categories, or nothing, and why.

Bounds are rounded outward to numbers that look as if nobody had measured them; that hides little,
and a draft says so. This file sees the cells of all files that were given, of one column at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from statistics import median

from hubbub.core.number_format import few
from hubbub.core.tabular.cells import canonical
from hubbub.core.tabular.column import Column
from hubbub.desk.drafting.cell_text import (
    filled,
    is_code,
    is_date,
    is_limit,
    is_missing,
    measured,
    plain_number,
    seen,
    sentinels,
)
from hubbub.desk.drafting.column_meaning import (
    ANSWERS,
    ONES,
    UNKNOWN,
    ZEROS,
    cannot_be,
    plausible,
)
from hubbub.desk.drafting.survey import is_key

NOT_RECORDED = "not recorded"
_MOST_CATEGORIES = 20
_LONGEST = 40  # letters of a category
_LONGEST_MARK = 20  # letters, beyond which what few cells say is a remark about a person
_MANY = 200  # values, from which on a hundredth at either end is no single person
_FEW_VALUES = 20  # different ones, as of a score
_FEWEST_OF_ONE = 10  # rows of a category among many
_RARE = 3  # rows, below which a category may point to a person
_OTHER = "other"
_COMMON = 0.8  # share of the records that have one category
_FEW_ROWS = 8  # below which no file is told by its values
_TAIL = 10.0  # times the lower half of values is as wide as all, in a column with a long tail
_TRUSTED, _MOST_STEPS = 20, 1000  # values, of which a step is no chance; and steps they span
_LAST_DIGITS = 1e-7
_LEAST_SPAN = 1e-306  # of values: tenths of less lose digits, or are 0
_LISTED = 5  # spellings that are shown, or read as missing
_GRADES = 10  # different numbers, such as 0, 1+, 2+ and 3+
_DIGITS = frozenset(map(float, range(10)))

_WITH_UNIT = re.compile(r"[+-]?\d[\d.,]* *[a-zA-Zµ°/²³]+\.?")

Read = list[tuple[str, str | None]]  # the cells of a file, each with its number if it is one


@dataclass(frozen=True, kw_only=True)
class ColumnDraft:
    """What becomes of one column."""

    name: str  # in the header
    column: Column | None = None  # what the study says of it; None if it is left out
    why: str = ""  # why it is left out, or what people should know of it; empty: nothing
    seen: str = ""  # what else was seen, which quotes cells, so that no study has it

    @property
    def note(self) -> str:
        """All of it, for those who have the files."""
        return "; ".join(filter(None, (self.why, self.seen)))

    def with_note(self, note: str) -> ColumnDraft:
        """The column, of which people should know something more."""
        return replace(self, why="; ".join(filter(None, (note, self.why))))


def column_draft(
    name: str,
    files: Sequence[Sequence[str]],
    decimals: Sequence[str] = (),
    *,
    is_code: bool = False,
) -> ColumnDraft:
    """What becomes of a column with these cells."""
    there = [filled(cells) for cells in files]
    if why := _why_none(name, files, there):
        return ColumnDraft(name=name, why=why)
    # A text such as 1,234 means what the decimal sign of its own file says.
    by_file: list[Read] = []
    for cells, decimal in zip(files, decimals or ["."] * len(files), strict=True):
        numbers = {cell: measured(cell, decimal) for cell in set(cells)}
        by_file.append([(cell, numbers[cell]) for cell in cells])
    mixed = len({_mostly(cells, _is_number) for cells in there if cells}) > 1  # words in some files
    draft = None if is_code else _number(name, by_file, mixed=mixed)
    if draft is None:
        draft = _categories(name, [cell for cells in files for cell in cells], is_code=is_code)
        if draft.column is not None:
            why = _other_spellings([{canonical(c).casefold() for c in own} for own in there if own])
            return draft.with_note(why)
        if mixed:
            why = "numbers in some files, words in others: write it the same way in all of them"
            return replace(draft, why=why)
    if draft.column or mixed:
        return draft
    # Spellings that alone keep a column from being a number are told of it.
    pairs = [pair for own in by_file for pair in own if not is_missing(pair[0])]
    strange = Counter(cell for cell, number in pairs if number is None)
    if 2 * sum(strange[cell] for cell in strange if _WITH_UNIT.fullmatch(cell)) > len(pairs):
        why = "numbers with words beside them, such as units: write the numbers alone, in one unit"
        return replace(draft, why=why)
    if not strange or 2 * strange.total() > len(pairs):
        return draft
    shown = ", ".join(repr(cell) for cell, _ in strange.most_common(_LISTED))
    rest = f" and {len(strange) - _LISTED} others" if len(strange) > _LISTED else ""
    why = "numbers, except for a few spellings: correct them, or leave them empty"
    words = f"{shown}{rest} in {strange.total()} of {len(pairs)} cells"
    return replace(draft, why=why, seen=words)


def _why_none(name: str, files: Sequence[Sequence[str]], there: Sequence[Sequence[str]]) -> str:
    """Why a column is left out, whether it has numbers or words; empty if it need not be."""
    every = [cell for cells in there for cell in cells]
    if not name.isprintable() or len(name) > 100:
        return "a study cannot use this name: give the column a short one on one line"
    if not every:
        return "no file has a value in it"
    if _mostly(every, is_date):
        return "dates: turn them into numbers, such as an age in years"
    values = [set(cells) for cells in there]
    alike = all(len(own) == 1 for own in values) and len(set[str]().union(*values)) == len(values)
    if len(values) > 1 and alike and all(len(cells) >= _FEW_ROWS for cells in files):
        return "each file has its own value, which reveals the file"
    if is_key(name, files):
        return "it looks like an identifier, which predicts nothing for others"
    return ""


def _other_spellings(files: Sequence[set[str]]) -> str:
    """A word on spellings that may mean the same as others, in one file or among several."""
    every, notes = set[str]().union(*files), list[str]()
    yes, no = next((pair for pair in ANSWERS if {*pair} <= every), ("", ""))
    answers = (ONES | ZEROS) & every - {no, yes} if yes else set[str]()
    if answers:
        notes.append(
            f"{' and '.join(sorted(answers))} seem to mean {no} or {yes}: spell them alike in all "
            "files, or have the column read as text"
        )
    # A letter and the one word that begins with it, such as f and female; no Roman number.
    words = [w for w in every if len(w) > 2 and w.isalpha() and not {*w} <= {*"ivx"}]
    begun = {start: [w for w in words if w[0] == start] for start in every - answers}
    if pairs := [f"{start} and {full[0]}" for start, full in begun.items() if len(full) == 1]:
        notes.append(f"{few(sorted(pairs))} may mean the same: spell them alike, or map them")
    for place, spellings in enumerate(files):
        others = set[str]().union(*files[:place], *files[place + 1 :])
        are_answers = answers and spellings <= answers | {no, yes}
        if others and not spellings & others and not are_answers:
            notes.append(
                f"one file alone has {few(sorted(spellings))}, and no spelling of the others: if "
                "the column means the same there, spell it alike, or map it (docs/howto/mapping.md)"
            )
            break
    return "; ".join(notes)


def _is_number(cell: str) -> bool:
    return measured(cell) is not None


def _mostly(cells: Sequence[str], law: Callable[[str], bool]) -> bool:
    """Whether a law holds of nine cells in ten."""
    return sum(map(law, cells)) * 10 >= len(cells) * 9


def _number(name: str, by_file: Sequence[Read], *, mixed: bool) -> ColumnDraft | None:
    """A column of numbers; None if it is none, or has two values only."""
    read = [pair for own in by_file for pair in own]
    there = [(cell, number) for cell, number in read if not is_missing(cell)]
    numbers = [(cell, number) for cell, number in there if number is not None]
    strange = {cell for cell, number in there if number is None}
    if not _are_numbers(there, numbers, strange, mixed=mixed):
        return None
    times = Counter(cell for cell, _ in there)
    strange = {cell for cell in strange if len(cell) <= _LONGEST_MARK or times[cell] >= _RARE}
    # Sentinels, and few values that are too small to be, mean that there is no value.
    gone = sentinels({number for _, number in read if number is not None})
    impossible = set(cannot_be(name, [float(n) for _, n in numbers if n not in gone]))
    least = plausible(name)[0]
    below = {n for _, n in numbers if float(n) in impossible and float(n) < least}
    gone |= below if len(below) <= _LISTED else set()
    values = [float(n) for _, n in numbers if n not in gone and float(n) not in impossible]
    different = set(values)
    if len(different) < 2:
        return ColumnDraft(name=name, why="it has the same value in every row")
    mended = sum(cell != number for cell, number in numbers)
    if len(different) == 2 and different <= _DIGITS and not mended and not gone:
        return None  # two codes, such as 0 and 1: a third one should be refused, not clipped
    # Bounds hold the core of the values, whose tails may be slips or single persons.
    low, high = rounded_outward(*_core(values))
    notes = _number_notes(values, low, high)
    # Which spellings are read as what they do not say.
    if limits := sorted({cell for cell, number in read if number and is_limit(cell)}):
        notes.append(f"read as their numbers: {', '.join(limits[:_LISTED])}")
    if unread := strange | {cell for cell, number in numbers if number in gone}:
        counted = f"{sum(cell in unread for cell, _ in read)} of {len(read)} cells"
        notes.append(f"read as missing: {', '.join(sorted(unread))} ({counted})")
    if left := [cell for cell, n in numbers if float(n) in impossible and n not in gone]:
        notes.append(
            f"{len(left)} values are impossible, such as {left[0]}: they count as the "
            "nearer bound; list them as missing if that is wrong"
        )
    # Bounds and the default lie on steps, where values do.
    typical, step = _typical(values, low, high), common_step(values)
    low, high = (low, high) if step is None else _on_step(min(values), step, low, high)
    absent = {
        cell
        for cell, text in read
        if cell in strange or text in gone or (text is None and is_missing(cell))
    }
    column = Column(
        name=name,
        low=low,
        high=high,
        step=step,
        default=min(max(typical, low), high),
        indicator=len(values) < len(read),
        missing=_listable(absent),
    )
    return ColumnDraft(name=name, column=column, why="; ".join(notes))


def _are_numbers(
    there: Read, numbers: Sequence[tuple[str, str]], strange: Collection[str], *, mixed: bool
) -> bool:
    """Whether cells are numbers but for few spellings, which then mean missing."""
    if sum(is_code(cell) for cell, _ in there) > 1:
        return False
    different = len({number for _, number in numbers})
    least = 9 if different <= _FEW_VALUES or mixed else 5  # in ten; few words are then none
    if len(numbers) * 10 < len(there) * least or len(strange) > _LISTED:
        return False
    limits = {cell for cell, _ in numbers if is_limit(cell)}
    return len(limits) < 2 or different > _GRADES  # others are 1+, 2+, 3+


def _number_notes(values: Sequence[float], low: float, high: float) -> list[str]:
    """How the values lie within the bounds."""
    different, notes = set(values), []
    outside = sum(not low <= value <= high for value in values)
    if outside and len(values) < _MANY:
        notes.append(f"{outside} of {len(values)} values lie outside")
    # The 9 that mostly means unknown, above few whole numbers that follow each other.
    most = max(different)
    rest = different - {most}
    is_run = rest <= _DIGITS and len(rest) > 1 and max(rest) - min(rest) == len(rest) - 1
    if is_run and most in UNKNOWN | {9} and most > max(rest) + 1:
        means = "if it means “unknown”, list it as missing"
        notes.append(f"{most:g} lies apart from the others: {means}")
    if len(different) > _FEW_VALUES and low >= 0 and median(values) - low < (high - low) / _TAIL:
        notes.append('a long tail: for its quantiles or histogram use spacing = "log"')
    return notes


def common_step(values: Sequence[float]) -> float | None:
    """The largest step of which all values are whole numbers apart; None if they lie closely.

    >>> common_step([84.0, 168.0, 420.0] * 9), common_step([0.1, 0.3, 0.7] * 9)
    (84.0, 0.2)
    """
    different = sorted(set(values))
    if len(values) < _TRUSTED or len(different) < 3:
        return None
    least, span = different[0], different[-1] - different[0]
    if span < _LEAST_SPAN:
        return None
    step = 0.0
    for value in different[1:]:  # Euclid's way, up to the last digits
        rest, divisor = step, value - least
        while rest > _LAST_DIGITS * span:
            rest, divisor = abs(divisor - rest * round(divisor / rest)), rest
        step = divisor
        if step * _MOST_STEPS < span:
            return None
    step = span / round(span / step)
    short = float(f"{step:.9g}")
    return short if abs(short - step) * _MOST_STEPS < _LAST_DIGITS * short else step


def _on_step(value: float, step: float, low: float, high: float) -> tuple[float, float]:
    """The bounds, moved outward to where a value is whole steps away; none goes below 0 for it."""
    below = value + floor((low - value) / step + _LAST_DIGITS) * step
    above = value + ceil((high - value) / step - _LAST_DIGITS) * step
    below += step if below < 0 <= low else 0.0
    below = float(f"{below:.12g}") + 0.0
    return below, float(f"{below + round((above - below) / step) * step:.12g}")


def _listable(absent: Collection[str]) -> tuple[str, ...]:
    """Those of some missing cells that a study can list."""
    return tuple(sorted(cell for cell in absent if cell and cell.isprintable()))


def _core(values: Sequence[float]) -> tuple[float, float]:
    """The least and largest value, without a few that lie far beyond all others."""
    ordered = sorted(values)
    if len(ordered) >= _MANY and len(set(ordered)) > _FEW_VALUES:
        # What is clipped there costs little, what is wide costs much.
        return ends_within(ordered, len(ordered) // 100)
    cut = len(ordered) // 50 if len(ordered) >= 50 else min(1, len(ordered) // 10)
    low, high = ends_within(ordered, cut)
    room = 5 * (high - low)
    kept = [value for value in ordered if low - room <= value <= high + room]
    return kept[0], kept[-1]


def ends_within(ordered: Sequence[float], cut: int) -> tuple[float, float]:
    """The ends without so many values on each side; of values that are nearly all the same, all."""
    cut = cut if ordered[cut] < ordered[-1 - cut] else 0
    return ordered[cut], ordered[-1 - cut]


def rounded_outward(low: float, high: float) -> tuple[float, float]:
    """Bounds that hold both numbers, in steps of 1, 2 or 5 tenths of their distance or more.

    >>> rounded_outward(29.0, 77.0), rounded_outward(0.0, 6.2)
    ((25.0, 80.0), (0.0, 7.0))
    >>> rounded_outward(0.3, 1.3)
    (0.3, 1.3)
    """
    span = max(high - low, _LEAST_SPAN)
    power = 10.0 ** floor(log10(span / 10))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= 0.99 * span / 10)
    # 0.3 / 0.1 is below 3, and no step is left out for it; what is rounded holds both again.
    bounds = floor(low / step + 1e-9) * step, ceil(high / step - 1e-9) * step
    digits = 2 - floor(log10(span))  # others a difference of `span` does not need
    below, above = (round(bound, digits) + 0.0 for bound in bounds)
    return (below, above) if below < above else (low - span, high + span)


def _typical(values: Sequence[float], low: float, high: float) -> float:
    """What a missing value counts as: the median in round numbers, within the bounds.

    >>> _typical([3.0, 12.0, 400.0], 0.0, 400.0), _typical([150.0, 171.0, 190.0], 145.0, 190.0)
    (10.0, 171.0)
    """
    middle = median(values)
    sizes = [(high - low) / 5, *([abs(middle)] if middle else [])]  # a tail makes bounds wide
    digits = -floor(log10(min(sizes)))
    return min(max(round(middle, digits) + 0.0, low), high)


def _categories(name: str, cells: Sequence[str], *, is_code: bool = False) -> ColumnDraft:
    """A column of categories, or one that is left out as free text."""
    there = [cell for cell in cells if not is_missing(cell, number=is_code)]
    counts = Counter(canonical(seen(cell)) for cell in there)
    # Spellings that differ in case alone are one category.
    variants: dict[str, str] = {}  # the commonest spelling of each category
    merged = Counter[str]()
    for spelling, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        variants.setdefault(spelling.casefold(), spelling)
        merged[spelling.casefold()] += count
    if len(variants) < 2:
        return ColumnDraft(name=name, why="it has the same value in every row")
    named = _named(variants, merged, len(there))
    if not named:
        return ColumnDraft(name=name, why="free text, or too many values for categories")
    # Numbers stand by size, words after them by letters.
    plain = {spelling: plain_number(spelling) for spelling in named}
    named = sorted(named, key=lambda text: (float(plain[text] or "inf"), text))
    pooled = len(variants) - len(named)
    other = next((text for text in named if text.casefold() == _OTHER), _OTHER) if pooled else ""
    named += [other] if pooled and other not in named else []
    absent = {cell for cell in cells if canonical(seen(cell)) not in counts}
    gaps = len(there) < len(cells)
    # The features of the other categories are told from the one that nearly all records have.
    rows = {text: merged[text.casefold()] for text in named}
    if gaps:
        rows[NOT_RECORDED] = len(cells) - sum(merged.values())
    commonest = max(rows, key=lambda text: rows[text])
    is_common = len(cells) >= _MANY and rows[commonest] >= _COMMON * len(cells)
    column = Column(
        name=name,
        categories=(*named, NOT_RECORDED) if gaps else tuple(named),
        default=NOT_RECORDED if gaps else None,
        missing=_listable(absent),
        ignore_case=len(variants) < len(counts),
        other=other,
        reference=commonest if is_common else "",
    )
    why = f"{pooled} rare spellings, which might identify a person, count as {other!r}"
    return ColumnDraft(name=name, column=column, why=why if pooled else "")


def _named(variants: Mapping[str, str], merged: Mapping[str, int], cells: int) -> list[str]:
    """The spellings that become categories of their own; none if the column is free text.

    Of few categories the rare ones are pooled, of many all but the commonest: what is not named
    points to nobody, and costs no weight of the model.
    """
    if _are_categories(variants.values(), cells):
        common = [text for folded, text in variants.items() if merged[folded] >= _RARE]
        return common if len(common) > 1 else list(variants.values())
    often = sorted(variants, key=lambda folded: (-merged[folded], folded))[:_MOST_CATEGORIES]
    often = [folded for folded in often if merged[folded] >= max(_FEWEST_OF_ONE, cells // 100)]
    covered = sum(merged[folded] for folded in often)
    named = [variants[folded] for folded in often]
    rest = [text for folded, text in variants.items() if folded not in often]
    numbers = sum(map(_is_number, rest)) * 2 > len(rest)  # they measure, and mean no category
    is_text = not _are_categories(named, cells) or covered * 3 < cells or numbers
    return [] if len(often) < 2 or is_text else named


def _are_categories(spellings: Collection[str], cells: int) -> bool:
    are_few = len(spellings) <= min(_MOST_CATEGORIES, max(2, cells // 2))
    return are_few and all(
        len(spelling) <= _LONGEST and spelling.isprintable() and spelling.casefold() != NOT_RECORDED
        for spelling in spellings
    )
