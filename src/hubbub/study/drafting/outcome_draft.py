"""A target that is no class, as a draft states it: bounds or times that follow from the cells.

Bounds are rounded outward as those of columns are, which hides little, and a draft says so. This
file sees the cells of all files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hubbub.errors import DataError
from hubbub.study.drafting.cell_text import decimal_of, measured
from hubbub.study.drafting.column_draft import rounded_outward
from hubbub.study.drafting.target_draft import TargetDraft, is_absent, target_draft
from hubbub.study.tabular import AMOUNT, COUNT, KINDS, TIME_TO_EVENT, Outcome

_TIMES = 8  # of a grid


def learned(
    columns: Mapping[str, Sequence[str]],
    asked: str | None,
    *,
    kind: str | None = None,
    event: str | None = None,
    elsewhere: Sequence[str] = (),
    usual: str = ".",
) -> TargetDraft:
    """The target: a class unless another kind is asked for, or its column holds many numbers.

    Args:
        columns, asked, elsewhere: as for `target_draft`.
        kind: "class", "amount", "count" or "time-to-event"; None: it is guessed.
        event: the column that says whether a time ends with the event.
        usual: the decimal sign where a cell may mean two numbers.

    Raises:
        DataError: there is no such column, or none that can be learned so.
    """
    wanted = TIME_TO_EVENT if kind is None and event is not None else kind
    if wanted not in KINDS:
        try:
            return target_draft(columns, asked, elsewhere=elsewhere)
        except DataError:
            known = asked is not None and asked in columns
            if asked is None or not known or wanted or not _is_numeric(columns[asked], usual):
                raise
            note = 'numbers, so kind = "amount": say --kind count if they count something'
            return _drafted(AMOUNT, asked, columns, None, usual, (note,))
    for name, key in ((asked, "--target"), (event, "--event")):
        if name not in columns and (key == "--target" or wanted == TIME_TO_EVENT):
            raise DataError(
                f'expected {key} to name a column of every file for kind = "{wanted}", found '
                f"{name!r}; the files have {', '.join(columns)}"
            )
    assert asked is not None  # noqa: S101 (it is in columns)
    return _drafted(wanted, asked, columns, event, usual, ())


def _is_numeric(cells: Sequence[str], usual: str) -> bool:
    """Whether every record that has a target has a number, and there are several."""
    there = [cell for cell in cells if not is_absent(cell)]
    decimal = decimal_of(there, usual)
    return len(set(there)) > 2 and all(measured(cell, decimal) is not None for cell in there)


def _drafted(
    kind: str,
    name: str,
    columns: Mapping[str, Sequence[str]],
    event: str | None,
    usual: str,
    notes: tuple[str, ...],
) -> TargetDraft:
    """The target with its bounds, or its times and the event's spellings."""
    there = [cell for cell in columns[name] if not is_absent(cell)]
    decimal = decimal_of(there, usual)
    values = [float(measured(cell, decimal) or "nan") for cell in there]
    least, most = min(values, default=0.0), max(values, default=0.0)
    if not all(value == value for value in values) or not least < most:
        raise DataError(
            f'expected numbers in the target {name!r} for kind = "{kind}", found others, or one '
            "only; correct the files, or name another kind or column"
        )
    if kind == AMOUNT:
        low, high = rounded_outward(least, most)
        outcome = Outcome(kind=kind, low=low, high=high)
    elif kind == COUNT:
        outcome = Outcome(kind=kind, high=max(1.0, rounded_outward(0.0, most)[1]))
    else:
        end, of_event = rounded_outward(0.0, most)[1], target_draft(columns, event)
        outcome = Outcome(
            kind=kind,
            event=of_event.name,
            positive=of_event.positive,
            negative=of_event.negative,
            grid=tuple(float(f"{end * k / _TIMES:.4g}") for k in range(1, _TIMES + 1)),
        )
        notes = (*notes, *of_event.notes)
    return TargetDraft(name=name, outcome=outcome, decimal=decimal, notes=notes)
