"""A drafted study as the text of a file, with what people need to know to mend it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hubbub.core.disk import PRIVATE, write_text
from hubbub.core.errors import UserError
from hubbub.core.settings import key_of
from hubbub.core.study.data import Data, spellings_of
from hubbub.core.tabular.cells import CellFault, canonical, csv_text, number_in
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.records import patient_key
from hubbub.core.tabular.target import target_table
from hubbub.desk.drafting.cell_text import folded, meant_by_truth, measured, seen
from hubbub.desk.drafting.column_draft import ColumnDraft
from hubbub.desk.drafting.column_meaning import FACTORS, OFFSETS, Unit, is_absent
from hubbub.desk.drafting.raw_table import RawTable
from hubbub.desk.drafting.study_draft import EPSILON, Draft


def draft_text(made: Draft) -> str:
    """The text of a study file that `hubbub plan` accepts."""
    parts = (_head, _parties, _data, _model, _training, _validation, _privacy, _rules)
    return "\n\n".join("\n".join(lines) for part in parts if (lines := part(made))) + "\n"


def _head(made: Draft) -> list[str]:
    return [
        "# A first draft by hubbub init. Values marked “from records” were taken from files, and",
        "# so was what is said of columns: nobody outside may see them before you have agreed on",
        "# them, or put in their place what is known without looking (docs/data.md). Everything",
        "# else is a proposal.",
        "",
        "[study]",
        f"name = {_text(f'{made.target.name}, {len(made.parties)} silos'[:200])}",
    ]


def _parties(made: Draft) -> list[str]:
    alone = len(made.tables) == 1
    colluders = "one silo may help the aggregator without loss"
    if not made.colluders:
        colluders = "with two silos, one that helps the aggregator weakens the promise"
    return [
        "[parties]",
        *(["# Only one file was given: put the names of the other silos here."] if alone else []),
        f"names = {_list(made.parties)}",
        f"colluders = {made.colluders}                    # {colluders}",
    ]


def _data(made: Draft) -> list[str]:
    return [
        "[data]",
        *_source(made),
        *_target(made),
        *_patients(made),
        f"records = {made.records}                    # from records, rounded: of all silos",
        f"capacity = {made.capacity}                   # from records, rounded up: of each silo",
        "",
        "[data.columns]            # bounds, steps, categories, defaults, missing: from records",
        *(_column(covariate.column) for covariate in made.used if covariate.column),
        *[line for column in made.columns if not column.column for line in _left_out(column)],
    ]


def _source(made: Draft) -> list[str]:
    """The query, or the files."""
    if made.asked is not None:
        tables = ", ".join(f"{table} = {_text(key)}" for table, key in made.asked.tables)
        quoted = made.asked.query.replace("\\", "\\\\").replace('"', '\\"')
        return [
            'source = "sql"',
            f'query = """\n{quoted}\n"""',
            f"tables = {{ {tables} }}   # each table, and the column that says whose a row is",
        ]
    files = made.files or "{name}.csv"
    moved = [] if made.files else ["# Rename the files to this pattern, or let init --tidy do it."]
    return [*moved, f"files = {_text(files)}"]


def _patients(made: Draft) -> list[str]:
    if not made.patient:
        return []
    return [
        f"patient = {_text(made.patient)}   # whose a record is; below, records are patients",
        f"most_per_patient = {made.most_per_patient}             # from records, rounded up",
    ]


def _target(made: Draft) -> list[str]:
    target = made.target
    notes = [f"# {_plain(note)}" for note in target.notes]
    guess = "   # guessed" if target.guessed else ""
    if target.outcome is not None:
        table = target_table(target.name, target.outcome).items()
        parts = ", ".join(f"{key} = {_value(value)}" for key, value in table)
        return [*notes, "# Bounds, times and spellings from records.", f"target = {{ {parts} }}"]
    named = f"target = {_text(target.name)}{guess}"
    if target.classes:
        return [named, *notes, f"classes = {_list(target.classes)}   # from records"]
    return [
        named,
        *notes,
        "# Spellings from records: those that count as 1, and as 0; any other is refused.",
        f"positive = {_list(target.positive)}",
        f"negative = {_list(target.negative)}",
    ]


def _column(column: Column) -> str:
    """The column's entry on one line, as TOML wants it."""
    parts = []
    if column.categories:
        parts.append(f"categories = {_list(column.categories)}")
    else:
        low, high = column.bounds
        parts += [f"low = {_number(low)}", f"high = {_number(high)}"]
        parts += [f"step = {_number(column.step)}"] if column.step else []
    if column.default is not None:
        default = column.default
        said = _text(default) if isinstance(default, str) else _number(default)
        parts.append(f"default = {said}")
    if column.missing:
        parts.append(f"missing = {_list(column.missing)}")
    if column.other:
        parts.append(f"other = {_text(column.other)}")
    if column.reference:
        parts.append(f"reference = {_text(column.reference)}")
    parts += [f"{key} = true" for key in ("indicator", "ignore_case") if getattr(column, key)]
    return f"{key_of(column.name)} = {{ {', '.join(parts)} }}"


def _left_out(one: ColumnDraft) -> list[str]:
    return [f"# {_plain(one.name)} is left out: {_plain(one.why)}"]


def _model(made: Draft) -> list[str]:
    outputs = [f"outputs = {made.target.outputs}"] if made.target.outputs > 1 else []
    begun = (
        [f"intercept = {made.intercept:g}                 # from records: log-odds of the outcome"]
        if made.intercept
        else []
    )
    return ["[model]", 'kind = "logistic"', *outputs, *begun]


def _training(made: Draft) -> list[str]:
    usual = made.usual
    return [
        "[training]                       # by a rule that fits most studies",
        f"steps = {usual.steps}",
        'sampling = "poisson"',
        f"sample_rate = {usual.sample_rate:g}                # a record's chance to be in a batch",
        f"clip_norm = {usual.clip_norm:g}",
        f'optimizer = {{ name = "adam", lr = {usual.lr:g}, schedule = "linear" }}',
    ]


def _validation(made: Draft) -> list[str]:
    if not made.validation_epsilon:
        return [
            "# No [validation], which would tell how good the model is: of so few records at this",
            "# epsilon the noise would hide it. With more of either, hubbub init drafts it; public",
            "# records (data.test) tell it at no cost.",
        ]
    why = "how good the model is, with intervals: its part of epsilon"
    share = [f"holdout = {made.test_share:g}"] if made.test_share else []
    bins = [
        f"bins = {made.validation_bins}                         # fewer tell more of few records"
    ]
    whose = "those kept from the training; of it where too few: hubbub plan tells which"
    return [
        "[validation]",
        f"epsilon = {made.validation_epsilon:g}                    # {why}",
        f'records = "auto"                 # {whose}',
        *(bins if made.validation_bins else []),
        *share,
    ]


def _privacy(made: Draft) -> list[str]:
    return [
        "[privacy]",
        f"epsilon = {EPSILON:.1f}                    # the promise to every "
        f"{'patient' if made.patient else 'record'}; smaller promises more",
        f"delta = {made.delta:g}",
        'relation = "add-remove"',
        f"cap = {3 * EPSILON:g}                        # epsilon of all studies of these records "
        "together; a ledger without a cap takes it",
    ]


def _rules(made: Draft) -> list[str]:
    """What synthetic records might keep, as comments."""
    rules = made.rules
    follows = [f"{key_of(name)} = {_text(text)}" for name, text in rules.follows.items()]
    lines = [f"# follows = {{ {', '.join(follows)} }}"] if follows else []
    lines += [f"# possible = {_list(rules.possible)}"] if rules.possible else []
    said = (
        "# Who asks for [synthetic] may say what holds in every row of these files, from records:"
    )
    return [said, *lines] if lines else []


def _text(text: str) -> str:
    """A text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


def _value(value: Any) -> str:
    """A text, a number, or a list of either."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value) if isinstance(value, str) else _number(value)


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _number(value: float) -> str:
    whole = value == int(value) and abs(value) < 1e15
    return str(int(value)) if whole else repr(float(value))


def _plain(text: str) -> str:
    """A text that keeps to its line."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:200]


# What a site may have to map, seen from its cells: a first `mapping.toml`, to be looked through.
#
# It may quote cells, so it is for who has them. Units are guessed: if hardly a value is within a
# column's bounds, and usual units bring nearly all there, the first few of them are proposed.

_PROPOSED = 3
_DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y%m%d", "%d-%m-%Y", "%Y/%m/%d")
_FEW_INSIDE, _MANY_INSIDE = 0.5, 0.95


def mapping_draft(table: RawTable, party: str, data: Data) -> str:
    """The text of a `mapping.toml` for one silo; empty where nothing seems to need one.

    Args:
        table: the site's cells.
        party: the silo.
        data: what the study asks for.
    """
    parts = []
    for name, column in _wanted(data):
        source = _source_column(name, table.header)
        lines = [f"from = {_quoted(source)}"] if source and source != name else []
        if source:
            lines += _mapping_lines(table.column(source), column, name, data)
        else:
            lines.append(f"# from = which of {', '.join(map(_quoted, table.header))}?")
        if lines:
            parts.append("\n".join([f"[{key_of(party)}.{key_of(name)}]", *lines]))
    return "\n\n".join(parts) + "\n" if parts else ""


def _wanted(data: Data) -> Iterator[tuple[str, Column | None]]:
    yield from ((name, None) for name in (*filter(None, [data.patient]), *data.targets))
    yield from ((column.name, column) for column in data.columns)


def _source_column(name: str, header: Sequence[str]) -> str:
    """The site's name of a column: the same, or one that differs in case and spaces only."""
    if name in header:
        return name
    return next((one for one in header if folded(one) == folded(name)), "")


def _mapping_lines(cells: Sequence[str], column: Column | None, name: str, data: Data) -> list[str]:
    """What a column's cells need."""
    known: Sequence[str]
    missing: Sequence[str] = ()
    if column is not None and not column.categories:
        return _number_lines([cell for cell in cells if cell], column)
    if column is not None:
        known, missing = column.categories, column.missing
    elif name == data.target and data.outcome is None:
        known = (*data.negative, *data.positive) or data.classes or spellings_of(data)
    elif data.outcome is not None and name in data.outcome.columns:
        known = (*data.outcome.negative, *data.outcome.positive)
    else:
        return []
    listed = set(map(canonical, (*known, *missing)))
    strange = sorted({canonical(c) for c in cells if c} - listed)[:20]
    near = {cell: _meant(cell, known, missing) for cell in strange}
    sure = [f"{_quoted(cell)} = {_quoted(to)}" for cell, to in near.items() if to]
    lines = [f"spellings = {{ {', '.join(sure)} }}"] if sure else []
    left = ", ".join(_quoted(cell) for cell, to in near.items() if not to)
    return [*lines, *([f"# spellings: what are {left}?"] if left else [])]


def _meant(cell: str, known: Sequence[str], missing: Sequence[str]) -> str:
    """The study's spelling that a cell is surely; empty if it may be any."""
    near = (one for one in (*known, *missing) if folded(one) == folded(cell))
    return next(near, None) or meant_by_truth(cell, known) or ""


def _number_lines(cells: Sequence[str], column: Column) -> list[str]:
    """Decimal signs, dates and units."""
    lines, plain = [], [number_in(canonical(cell)) for cell in cells]
    if None in plain:
        commas = [number_in(cell.replace(",", ".")) for cell in cells]
        if sum(comma is not None for comma in commas) > sum(one is not None for one in plain):
            lines, plain = ['decimal = ","'], commas
    numbers = [one for one in plain if one is not None]
    if cells and not numbers:
        date = next((one for one in _DATES if _are_dates(cells, one)), "")
        return [f"# these look like dates, as {date}: the study wants a number"] if date else []
    for factor, offset in _units(numbers, column):
        unit = f"# factor = {factor:.7g}" + (f", offset = {offset}" if offset else "")
        lines.append(f"{unit}: hardly a value is within the bounds; another unit?")
    return lines


def _units(numbers: Sequence[float], column: Column) -> list[Unit]:
    """Usual factors and offsets that bring values into the bounds; none where they are there."""
    low, high = column.bounds

    def inside(unit: Unit) -> float:
        return sum(low <= unit.of(number) <= high for number in numbers) / max(len(numbers), 1)

    if not numbers or inside(Unit(1.0)) >= _FEW_INSIDE:
        return []
    return [unit for unit in (*OFFSETS, *FACTORS) if inside(unit) >= _MANY_INSIDE][:_PROPOSED]


def _are_dates(cells: Sequence[str], form: str) -> bool:
    try:
        return all(datetime.strptime(cell, form) for cell in cells[:200])  # noqa: DTZ007 (days)
    except ValueError:
        return False


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# Copies of files of records as every program reads them: UTF-8, commas, decimal points.
#
# Only what the study names is copied, so no patient's number or name: where the study says whose a
# record is, patients are numbered anew. Nothing is guessed but how a number is spelled, a limit
# such
# as <0.5 being its number, and no record is altered otherwise: those without a target or a patient
# are left out, and rows that have not as many cells as the header, and all are counted.


def write_tidy(made: Draft, folder: Path, *, replace: bool = False) -> dict[str, int]:
    """Write a copy of every file, for its owner's eyes only.

    Args:
        made: the draft that says which columns are used.
        folder: where copies go, under the parties' names.
        replace: whether copies that are there may be written over.

    Returns:
        By party, how many rows were left out.

    Raises:
        UserError: there is a file already.
        OSError: the folder cannot be written.
    """
    targets = [folder / f"{name}.csv" for name in made.parties[: len(made.tables)]]
    there = [path for path in targets if path.exists()]
    if there and not replace:
        raise UserError(
            f"expected no file {there[0]} yet, found one; name another folder with --tidy, or add "
            "--replace"
        )
    folder.mkdir(parents=True, exist_ok=True)
    left_out = {}
    for path, table in zip(targets, made.tables, strict=True):
        rows = _rows(made, table)
        write_text(path, _csv_of(made, rows), mode=PRIVATE)
        read = max(table.numbers, default=0)
        left_out[path.stem] = read - len(rows)
    return left_out


def _rows(made: Draft, table: RawTable) -> list[list[str]]:
    """The records that have a target, with the columns in use."""
    if not table.rows:
        return []
    learned = made.target
    own = len(learned.columns)
    targets = [table.plain(name) for name in learned.columns]
    if learned.outcome is not None:
        targets[0] = _measured(targets[0])
    else:
        targets[0] = [learned.respelled.get(cell, cell) for cell in targets[0]]
    rule = learned.rule
    known = {cell for cell in set(targets[0]) if not isinstance(rule(cell), CellFault)}
    columns = [_covariate(one, table) for one in made.used]
    return [
        ([number] if made.patient else []) + row
        for number, *row in zip(_numbers(made, table), *targets, *columns, strict=True)
        if number and not any(map(is_absent, row[:own])) and row[0] in known
    ]


def _covariate(covariate: ColumnDraft, table: RawTable) -> list[str]:
    """The cells of a column that becomes features."""
    cells = table.column(covariate.name)
    is_number = covariate.column is not None and not covariate.column.categories
    return _measured(cells, table.decimal(covariate.name)) if is_number else [*map(seen, cells)]


def _numbers(made: Draft, table: RawTable) -> list[str]:
    """Whose each row is, by a number of this copy alone; empty where the file does not say."""
    if not made.patient:
        return ["1"] * len(table.rows)
    known: dict[str, str] = {}
    keys = map(patient_key, table.column(made.patient))
    return [known.setdefault(key, str(1 + len(known))) if key else "" for key in keys]


def _measured(cells: Sequence[str], decimal: str = ".") -> list[str]:
    """The cells, those that are numbers in one way of writing them."""
    return [measured(cell, decimal) or cell for cell in cells]


def _csv_of(made: Draft, rows: list[list[str]]) -> str:
    whose = [made.patient] if made.patient else []
    return csv_text(
        [[*whose, *made.target.columns, *(covariate.name for covariate in made.used)], *rows]
    )
