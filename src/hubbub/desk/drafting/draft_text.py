"""A drafted study as the text of a file, with what people need to know to mend it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hubbub.core.section import key_of
from hubbub.core.study.target import target_table
from hubbub.core.tabular.column import Column
from hubbub.desk.drafting.column_draft import ColumnDraft
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
