"""What a draft writes: a study's file, tidy copies of records, and a site's `mapping.toml`.

A study has no cell but those that are named in `Draft.private`. A mapping may quote cells, so it is
for who has them, and a proposal to be looked through. In tidy copies stands what the study names
alone, and patients are numbered anew; what was left out of them is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hubbub.core.disk import PRIVATE, write_text
from hubbub.core.errors import UserError, printable
from hubbub.core.settings import key_of
from hubbub.core.study.cell_stream import ColumnMapping
from hubbub.core.study.data import Data, spellings_of
from hubbub.core.tabular.cells import CellFault, canonical, csv_text, number_in
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.records import patient_key
from hubbub.core.tabular.target import target_table
from hubbub.desk.drafting.cell_text import folded, is_date, is_limit, meant_by_truth, measured, seen
from hubbub.desk.drafting.column_meaning import UNITS, Unit, is_absent
from hubbub.desk.drafting.raw_table import RawTable
from hubbub.desk.drafting.study_draft import EPSILON, Draft


def draft_text(made: Draft) -> str:
    """The text of a study file that `hubbub plan` accepts."""
    parts = (_study, _data, _training, _validation, _privacy)
    return "\n\n".join("\n".join(lines) for part in parts if (lines := part(made))) + "\n"


def _study(made: Draft) -> list[str]:
    alone = len(made.tables) == 1
    colluders = "one silo may collude with the aggregator without weakening the guarantee"
    if not made.colluders:
        colluders = "with two silos, one that colludes with the aggregator weakens the guarantee"
    return [
        "# A first draft by hubbub init. Values marked “from records” were read from your files:",
        "# agree on them with your partners, or replace them by public knowledge, before anybody",
        "# outside sees this file (docs/data.md). Everything else is a proposal, to be reviewed",
        "# line by line.",
        "",
        "[study]",
        f"name = {_toml(f'{made.target.name}, {len(made.parties)} silos'[:200])}",
        "",
        "[parties]",
        *(["# Only one file was given: put the names of the other silos here."] if alone else []),
        f"names = {_toml(made.parties)}",
        f"colluders = {made.colluders}                    # {colluders}",
    ]


def _data(made: Draft) -> list[str]:
    if made.asked is not None:
        tables = ", ".join(f"{table} = {_toml(key)}" for table, key in made.asked.tables)
        quoted = made.asked.query.replace("\\", "\\\\").replace('"', '\\"')
        source = [
            'source = "sql"',
            f'query = """\n{quoted}\n"""',
            f"tables = {{ {tables} }}   # each table, and its column with the person's key",
        ]
    else:
        moved = "# Rename the files to match this pattern, or let init --tidy do it."
        files = f"files = {_toml(made.files or '{name}.csv')}"
        source = [files] if made.files else [moved, files]
    patients = [
        f"patient = {_toml(made.patient)}   # the person's key; below, “records” means patients",
        f"most_per_patient = {made.most_per_patient}             # from records, rounded up",
    ]
    return [
        "[data]",
        *source,
        *_target(made),
        *(patients if made.patient else []),
        f"records = {made.records}                    # from records, rounded: of all silos",
        f"capacity = {made.capacity}                   # from records, rounded up: of each silo",
        "",
        "[data.columns]            # bounds, steps, categories, defaults, missing: from records",
        *map(_column, made.used),
        *(
            f"# {_plain(column.name)} is left out: {_plain(column.why)}"
            for column in made.columns
            if not column.column
        ),
    ]


def _target(made: Draft) -> list[str]:
    target = made.target
    notes = [f"# {_plain(note)}" for note in target.notes]
    if target.outcome is not None:
        table = _toml(target_table(target.name, target.outcome))
        return [*notes, "# Bounds, times and spellings from records.", f"target = {table}"]
    named = [f"target = {_toml(target.name)}{'   # guessed' if target.guessed else ''}", *notes]
    if target.classes:
        return [*named, f"classes = {_toml(target.classes)}   # from records"]
    return [
        *named,
        "# Spellings from records: those that count as 1, and as 0; any other is refused.",
        f"positive = {_toml(target.positive)}",
        f"negative = {_toml(target.negative)}",
    ]


def _column(column: Column) -> str:
    """The column's entry on one line, as TOML wants it."""
    entry: dict[str, Any] = {"categories": column.categories}
    if not column.categories:
        entry = dict(zip(("low", "high"), column.bounds, strict=True)) | {"step": column.step}
    for key in ("default", "missing", "other", "reference", "indicator", "ignore_case"):
        entry[key] = getattr(column, key)
    said = {
        k: v for k, v in entry.items() if v is not None and v is not False and v not in ("", ())
    }
    return f"{key_of(column.name)} = {_toml(said)}"


def _training(made: Draft) -> list[str]:
    usual = made.usual
    begun = "# from records: log-odds of the outcome"
    return [
        "[model]",
        'kind = "logistic"',
        *([f"outputs = {made.target.outputs}"] if made.target.outputs > 1 else []),
        *([f"intercept = {made.intercept:g}                 {begun}"] if made.intercept else []),
        "",
        "[training]                       # a rule that suits most studies",
        f"steps = {usual.steps}",
        'sampling = "poisson"',
        f"sample_rate = {usual.sample_rate:g}                # chance of a record to be in a batch",
        f"clip_norm = {usual.clip_norm:g}",
        f'optimizer = {{ name = "adam", lr = {usual.lr:g}, schedule = "linear" }}',
    ]


def _validation(made: Draft) -> list[str]:
    if not made.validation_epsilon:
        return [
            "# No [validation], which would measure how good the model is: with so few records",
            "# at this epsilon, the noise would hide it. With more of either, hubbub init drafts",
            "# it; public records (data.test) measure it without epsilon.",
        ]
    why = "this part of epsilon measures how good the model is"
    whose = "held-back records if there are enough, else training records: hubbub plan says which"
    bins = f"bins = {made.validation_bins}                         # fewer bins suit few records"
    return [
        "[validation]",
        f"epsilon = {made.validation_epsilon:g}                    # {why}",
        f'records = "auto"                 # {whose}',
        *([bins] if made.validation_bins else []),
        *([f"holdout = {made.test_share:g}"] if made.test_share else []),
    ]


def _privacy(made: Draft) -> list[str]:
    """The promise, and what synthetic records might keep, as comments."""
    whose = "patient" if made.patient else "record"
    rules = made.rules
    lines = [f"# follows = {_toml(rules.follows)}"] if rules.follows else []
    lines += [f"# possible = {_toml(rules.possible)}"] if rules.possible else []
    asks = "# If you add [synthetic]: these rules hold in every row of these files (from records):"
    return [
        "[privacy]",
        (
            f"epsilon = {EPSILON:.1f}                    # the guarantee to every "
            f"{whose}; smaller protects more"
        ),
        f"delta = {made.delta:g}",
        'relation = "add-remove"',
        (
            f"cap = {3 * EPSILON:g}                        # epsilon of all studies of these "
            "records together; becomes the cap of a ledger that has none"
        ),
        *(["", asks, *lines] if lines else []),
    ]


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        entries = (f"{key_of(key)} = {_toml(entry)}" for key, entry in value.items())
        return f"{{ {', '.join(entries)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    whole = value == int(value) and abs(value) < 1e15
    return str(int(value)) if whole else repr(float(value))


def _plain(text: str) -> str:
    return printable(text)[:200]


def write_tidy(made: Draft, folder: Path, *, replace: bool = False) -> dict[str, int]:
    """Write a copy of every file, for its owner's eyes only, under the parties' names.

    Args:
        made: the draft that says which columns are used.
        folder: where copies go.
        replace: whether copies that are there may be written over.

    Returns:
        By party, how many rows were left out, of all that follow the header.
    """
    targets = [folder / f"{name}.csv" for name in made.parties[: len(made.tables)]]
    if (there := [path for path in targets if path.exists()]) and not replace:
        raise UserError(
            f"expected no file {there[0]}, found one; name another folder with --tidy, or add "
            "--replace"
        )
    folder.mkdir(parents=True, exist_ok=True)
    whose = [made.patient] if made.patient else []
    header = [*whose, *made.target.columns, *(column.name for column in made.used)]
    left_out = {}
    for path, table in zip(targets, made.tables, strict=True):
        rows = _tidy_rows(made, table) if table.rows else []
        write_text(path, csv_text([header, *rows]), mode=PRIVATE)
        left_out[path.stem] = table.read - len(rows)
    return left_out


def _tidy_rows(made: Draft, table: RawTable) -> list[list[str]]:
    """The records that have a target, with the columns in use."""
    target = made.target
    first, *others = (table.plain(name) for name in target.columns)
    if target.outcome is not None:
        first = _measured(first)
    else:
        first = [target.respelled.get(cell, cell) for cell in map(seen, first)]
    # What a run would refuse of the target is left out here.
    is_read = {cell: not isinstance(target.rule(cell), CellFault) for cell in set(first)}
    columns = []
    for column in made.used:
        cells = table.column(column.name)
        decimal = table.decimal(column.name)
        columns.append([*map(seen, cells)] if column.categories else _measured(cells, decimal))
    whose = ["1"] * len(table.rows)
    if made.patient:  # by a number of this copy alone; empty where the file does not say
        numbers: dict[str, str] = {}
        keys = map(patient_key, table.column(made.patient))
        whose = [numbers.setdefault(key, str(1 + len(numbers))) if key else "" for key in keys]
    return [
        ([number] if made.patient else []) + row
        for number, *row in zip(whose, first, *others, *columns, strict=True)
        if number and is_read[row[0]] and not any(map(is_absent, row[: 1 + len(others)]))
    ]


def _measured(cells: Sequence[str], decimal: str = ".") -> list[str]:
    """The cells, those that are numbers in one way of writing them."""
    return [measured(cell, decimal) or cell for cell in cells]


# A mapping. Units are guessed: if hardly a value is within a column's bounds, and usual units bring
# nearly all there, the first few of them are proposed.

_PROPOSED, _SPELLINGS = 3, 20
_FEW_INSIDE, _MANY_INSIDE = 0.5, 0.95


def mapping_draft(table: RawTable, party: str, data: Data) -> str:
    """The text of a `mapping.toml` for one silo; empty where nothing seems to need one."""
    wanted: dict[str, Column | None] = dict.fromkeys((*filter(None, [data.patient]), *data.targets))
    wanted |= {column.name: column for column in data.columns}
    parts = []
    for name, column in wanted.items():
        # The site's name of a column is the same, or differs in case and spaces only.
        alike = [own for own in table.header if folded(own) == folded(name)]
        source = name if name in table.header else next(iter(alike), None)
        if source is None:
            lines = [f"# from = which of {', '.join(map(_toml, table.header))}?"]
        else:
            lines = [f"from = {_toml(source)}"] if source != name else []
            lines += _needed(table.column(source), column, name, data)
        if lines:
            parts.append("\n".join([f"[{key_of(party)}.{key_of(name)}]", *lines]))
    return "\n\n".join(parts) + "\n" if parts else ""


def _needed(cells: Sequence[str], column: Column | None, name: str, data: Data) -> Iterator[str]:
    spellings: Sequence[str]
    missing: Sequence[str] = ()
    if column is not None and not column.categories:
        yield from _number_lines([cell for cell in cells if cell], column)
        return
    if column is not None:
        spellings, missing = column.categories, column.missing
    elif name == data.target and data.outcome is None:
        spellings = (*data.negative, *data.positive) or data.classes or spellings_of(data)
    elif data.outcome is not None and name in data.outcome.columns:
        spellings = (*data.outcome.negative, *data.outcome.positive)
    else:
        return
    listed = (*spellings, *missing)
    strange = sorted({canonical(c) for c in cells if c} - set(map(canonical, listed)))[:_SPELLINGS]
    near = {}  # the study's spelling that a cell is surely; none if it may be any
    for cell in strange:
        same = next((text for text in listed if folded(text) == folded(cell)), None)
        near[cell] = same or meant_by_truth(cell, spellings)
    if sure := [f"{_toml(cell)} = {_toml(to)}" for cell, to in near.items() if to]:
        yield f"spellings = {{ {', '.join(sure)} }}"
    if left := ", ".join(_toml(cell) for cell, to in near.items() if not to):
        yield f"# spellings: what are {left}?"


def _number_lines(cells: Sequence[str], column: Column) -> Iterator[str]:
    """Decimal signs, dates and units."""
    cells = list(map(canonical, cells))
    # Decimal commas are proposed where a mapping that states them makes more cells numbers.
    comma = ColumnMapping(source=column.name, decimal=",")
    plain = [number_in(cell) for cell in cells]
    commas = [number_in(comma.cell(cell)) for cell in cells]
    decimal = "," if commas.count(None) < plain.count(None) else "."
    if decimal == ",":
        yield 'decimal = ","'
        plain = commas
    numbers = [number for number in plain if number is not None]
    if cells and not numbers:
        if all(map(is_date, cells[:200])):
            yield "# these look like dates: the study expects a number"
        return
    low, high = column.bounds

    def inside(unit: Unit) -> float:
        return sum(low <= unit.of(number) <= high for number in numbers) / max(len(numbers), 1)

    if numbers and inside(Unit(1.0)) < _FEW_INSIDE:
        if units := [unit for unit in UNITS if inside(unit) >= _MANY_INSIDE][:_PROPOSED]:
            yield "# hardly any value is within the bounds: is it another unit?"
        yield from (f"# {unit}   # {unit.words}" for unit in units)
        return  # a spelling becomes what it says, in the study's unit
    strange = {cell for cell, number in zip(cells, plain, strict=True) if number is None}
    sure = {cell: measured(cell, decimal) for cell in sorted(strange) if not is_limit(cell)}
    if lines := [f"{_toml(cell)} = {_toml(to)}" for cell, to in sure.items() if to][:_SPELLINGS]:
        yield f"spellings = {{ {', '.join(lines)} }}"
