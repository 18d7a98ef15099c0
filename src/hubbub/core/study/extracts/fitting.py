"""What a query gave, as cells that fit: those that do not are missing, or their row is nobody's.

Whoever writes a query and declares its columns could have a silo fail at one person's cell, and so
tell of it (docs/privacy.md P31). So no cell does. One that is none of its column's counts as a
missing one, which has a default or is a gap; a row that cannot have one, such as a row without its
target, is left out. Each row is judged by itself. A column that is not there is the study's fault,
or the table's, and is refused. `hubbub check` lists what does not fit to those who have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from itertools import compress

from hubbub.core.errors import DataError
from hubbub.core.study.data import Data
from hubbub.core.study.extracts.cell_stream import Cells
from hubbub.core.study.study import Study
from hubbub.core.tabular.cell_rule import MISSING as NO_NUMBER
from hubbub.core.tabular.cell_rule import CellFault, Rule, number_in
from hubbub.core.tabular.patient_keys import patient_key
from hubbub.core.tabular.table import class_rule

MISSING = ""


def fitted(study: Study, cells: Cells, origin: str) -> Cells:
    """The cells of the rows that stay, each of its column or missing.

    Args:
        study: says what each column is.
        cells: as they were given.
        origin: what sentences call the source.
    """
    data = study.data
    made = dict(cells)
    stays = [True] * len(next(iter(cells.values()), ()))
    for name, rule in _rules(study).items():
        refuse_absent(cells, name, origin)
        made[name], fits = _by(rule, cells[name])
        stays = [one and other for one, other in zip(stays, fits, strict=True)]
    if data.order and data.order in cells and data.order not in _rules(study):
        known = {text: order_number(text) is not None for text in set(cells[data.order])}
        made[data.order] = [text if known[text] else MISSING for text in cells[data.order]]
    if data.patient in cells:
        keys = {text: bool(patient_key(text)) for text in set(cells[data.patient])}
        own = [keys[text] for text in cells[data.patient]]
        stays = [one and other for one, other in zip(stays, own, strict=True)]
    if all(stays):
        return made
    return {name: list(compress(column, stays)) for name, column in made.items()}


def _rules(study: Study) -> dict[str, Rule]:
    """By column what its cells say; where an empty one is a fault, a row without it is left out."""
    data = study.data
    found = {}
    for name, column in study.cell_columns.items():
        trained = study.trains and column.feature and name not in data.targets
        found[name] = column.rule if trained else column.rule_with_gaps
    outcome = data.outcome
    if outcome is None and data.target:
        rule = class_rule(data.positive, data.negative, data.classes)
        found[data.target] = rule if study.trains else _or_missing(rule)
    elif outcome is not None and study.trains:
        found[data.target] = outcome.rule
        found |= {name: outcome.rule_of(name) for name in outcome.columns}
    return found


def _or_missing(rule: Rule) -> Rule:
    """A rule by which an empty cell is a gap."""
    return lambda text: rule(text) if text else NO_NUMBER


def _by(rule: Rule, texts: Sequence[str]) -> tuple[list[str], list[bool]]:
    """A column's cells by its rule, and which of them there may be."""
    gap = not isinstance(rule(MISSING), CellFault)
    fits = {text: not isinstance(rule(text), CellFault) for text in set(texts)}
    return [text if fits[text] else MISSING for text in texts], [
        fits[text] or gap for text in texts
    ]


def plain_row(data: Data) -> dict[str, str]:
    """A row that fits, of nobody: what arrays of no rows are shaped by."""
    made = {
        column.name: column.categories[0] if column.categories else str(column.low)
        for column in data.columns
    }
    outcome = data.outcome
    if outcome is not None:
        made[data.target] = str(max(outcome.low, 0.0))
        if outcome.event:
            made[outcome.event] = outcome.positive[0]
        if outcome.exposure:
            made[outcome.exposure] = str(outcome.exposure_high)
    elif data.target:
        made[data.target] = (data.positive or data.classes or ("0",))[0]
    made |= {data.order: "0"} if data.order and data.order not in made else {}
    return made | ({data.patient: "1"} if data.patient else {})


def order_number(text: str) -> float | None:
    """What a cell of `data.order` counts as; None: it is neither a number nor a day."""
    if not text:
        return float("inf")
    if (value := number_in(text)) is not None:
        return value
    try:
        return float(date.fromisoformat(text[:10]).toordinal())
    except ValueError:
        return None


def refuse_absent(cells: Cells, column: str, origin: str) -> None:
    """Refuse cells without a column that the study names."""
    if column not in cells:
        raise DataError(
            f"expected a column {column!r} in {origin}, found none of that name; name it in the "
            "result, or correct the study"
        )
