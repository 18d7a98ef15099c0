"""Arrays, tensors and data frames that somebody hands over become records, or are refused."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError, StudyError
from hubbub.core.number_format import few
from hubbub.core.tabular.cells import canonical, cells_of, column_names, text_of
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.core.tabular.records import Records, patient_numbers, refuse_rounded
from hubbub.core.tabular.table import CodedCells, coded_cells, encode_inputs
from hubbub.core.tabular.target import Outcome

_PATIENT = "patient"  # the column of keys that are handed over beside the tables
_SHOWN = 5  # columns
_FAR = 100.0
MISSING = frozenset({"", "nan", "None", "NaT", "<NA>"})  # texts of what is not there
_MOST = 100  # classes that are taken from targets without being stated
# A silo's features and targets.
Table = tuple[Any, Any]


def refuse_fewer(silos: Any, example: str, remedy: str, colluders: Any) -> None:
    """Refuse what is no mapping of at least two silos, or leaves fewer outside the adversary."""
    if not hasattr(silos, "items") or len(silos) < 2 or column_names(silos) is not None:
        others = "fewer" if isinstance(silos, Mapping) else type(silos).__name__
        raise DataError(
            f"expected at least two silos, a mapping such as {{'north': {example}, 'south': "
            f"{example}}}, found {others}; {remedy}"
        )
    spare = len(silos) - 2
    if isinstance(colluders, int) and colluders > spare:
        raise StudyError(
            f"expected colluders <= silos - 2 = {spare}, because the noise is that of at least two "
            f"silos that do not collude, got colluders = {colluders} of {len(silos)} silos; use "
            f"colluders={spare}{', which protects against the aggregator alone' * (not spare)}, or "
            "pass more silos"
        )


def classes_of(silos: Mapping[str, Table], stated: Sequence[object] | None) -> tuple[str, ...]:
    """What the classes are called, in the order of their numbers."""
    if stated is not None:
        return _stated(stated)
    values_of = {who: _values(_pair(who, table)[1]) for who, table in silos.items()}
    for who, targets in values_of.items():
        _check_targets(who, targets)
    values = {value for targets in values_of.values() for value in targets}
    try:
        ordered = sorted(values)
    except TypeError:
        ordered = sorted(values, key=str)
    classes = tuple(dict.fromkeys(map(_spelled, ordered)))  # 1 and "1" are one
    if len(classes) < 2:
        raise DataError(
            "expected targets of at least two classes, found fewer; state classes, such as "
            '["well", "ill"]'
        )
    if len(classes) > _MOST:
        raise DataError(
            f"expected targets of at most {_MOST} classes, found {len(classes)}: each "
            "would become public; state classes if that is intended"
        )
    refuse_several_codings(values_of)
    return classes


def refuse_several_codings(targets: Mapping[str, Sequence[object]]) -> None:
    """Refuse classes that silos spell in several ways, where nobody has stated what they are.

    So it is where no silo holds every class that occurs, as with 0 and 1 at one silo and words at
    another, and where two classes differ in case or spaces only.
    """
    each = {who: set(map(_spelled, values)) for who, values in targets.items()}
    everything = set[str]().union(*each.values())
    # Where spellings agree, some silo has every class.
    richest = max(each, key=lambda who: len(each[who]))
    if strange := [who for who, classes in each.items() if classes - each[richest]]:
        raise DataError(
            f"expected a silo with every class that occurs, found none: {strange[0]} has "
            f"classes that {richest} does not have, as if they were spelled in two ways; "
            "spell them alike, or state classes"
        )
    if len({" ".join(name.split()).casefold() for name in everything}) < len(everything):
        raise DataError(
            "expected every class in one spelling, found some that differ only in case "
            "or spaces; spell them alike, or state classes"
        )


def _stated(classes: Any) -> tuple[str, ...]:
    spelled = () if isinstance(classes, int) else tuple(map(_spelled, classes))
    if len(set(spelled)) < max(2, len(spelled)):
        raise DataError(
            'expected classes to be at least two different values, such as ["well", '
            f'"ill"], got {classes!r}; state each once'
        )
    return spelled


def _check_targets(who: str, targets: list[Any]) -> None:
    """Refuse what can be no class, before its values are taken for public ones."""
    for row, value in enumerate(targets):
        if str(value).strip() in MISSING:
            raise DataError(
                f"expected a target for every record of {who}, found none at {row}; leave "
                "the record out"
            )
        if isinstance(value, float) and not value.is_integer():
            raise DataError(
                f"expected classes as targets of {who}, found a number with a fraction at {row}; "
                "to predict a number say target={'kind': 'numeric', ...}"
            )


def columns_alike(tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The names of the data frames' columns, in one order or refused; empty if all are arrays."""
    names = {
        who: list(map(str, own))
        for who, table in tables.items()
        if (own := column_names(_pair(who, table)[0])) is not None
    }
    first = next(iter(names), None)
    for who, own in names.items():
        if first is not None and own != names[first]:
            pairs = enumerate(zip_longest(own, names[first]), 1)
            place, (name, other) = next(pair for pair in pairs if len({*pair[1]}) > 1)
            raise DataError(
                "expected data frames with the same columns in the same order, found "
                f"{name!r} in place {place} for {who} and {other!r} for {first}; put them in one "
                "order, or use columns to say what they are"
            )
    return () if first is None else tuple(names[first])


def records_of(
    who: str,
    table: Table,
    classes: Sequence[str],
    columns: Sequence[Column],
    outcome: Outcome | None,
) -> Records:
    """One silo's records, or the test set's."""
    features, targets = _pair(who, table)
    _refuse_other_rows(who, features, targets)
    if np.shape(targets)[:1] == (0,):
        raise DataError(f"expected records of {who}, found none at all; pass some")
    if outcome is not None:
        numbers = _array(who, targets, np.float64, "targets")
    else:
        number = {name: k for k, name in enumerate(classes)}
        places = [number.get(_spelled(value), -1) for value in _values(targets)]
        if -1 in places:
            raise DataError(
                f"expected targets out of {list(classes)} for {who}, found another at "
                f"{places.index(-1)}; correct it, or add it to classes"
            )
        numbers = np.array(places, dtype=np.float32 if len(classes) == 2 else np.int64)
    if columns:
        inputs = encode_inputs(cells_of(features), target="", columns=columns, origin=who)
    else:
        inputs = _array(who, features, np.float32, "features")
    try:
        return Records(inputs=inputs, targets=numbers)
    except DataError as error:  # which says nothing of whose they are
        raise DataError(f"{who}: {error}") from None


def warn_of_far_features(silos: Mapping[str, Records]) -> None:
    """Warn of features so large that clipping leaves nothing of the others, or of the bias."""
    largest = {name: np.abs(records.inputs).max(initial=0.0) for name, records in silos.items()}
    far = [name for name, feature in largest.items() if feature > _FAR]
    if far:
        warnings.warn(
            f"expected features from about -1 to 1, got some beyond {_FAR:g} at {', '.join(far)}: "
            "a record's gradient is clipped, so the model would learn almost only from the largest "
            "feature; divide by public numbers, or state columns with low and high",
            UserWarning,
            stacklevel=3,
        )


def with_patients(who: str, records: Records, patients: Mapping[str, Any]) -> Records:
    """The records with the patients whose they are."""
    if who not in patients:
        raise DataError(f"expected the patients of {who} beside its records, found none; add them")
    numbers = patient_numbers(keys_of(patients[who]), f"of {who}, at {{}}".format)
    return replace(records, patients=numbers)


def with_groups(who: str, records: Records, table: Table, by: Sequence[Levels]) -> Records:
    """The records with the places of each among the public classes of columns of its frame."""
    columns = [levels.column for levels in by]
    coded = coded_cells(cells_of(table[0]), columns, who)
    return replace(records, groups=np.column_stack([levels.places(coded.columns) for levels in by]))


def keys_of(patients: Any) -> list[Any]:
    """A key for each record; objects keep what is missing as what it is, floats their type."""
    patients = _on_cpu(patients)
    if hasattr(patients, "__array__") and (keys := np.asarray(patients)).dtype.kind == "f":
        return list(keys.reshape(-1))
    return np.asarray(patients, dtype=object).reshape(-1).tolist()


def _refuse_other_rows(who: str, features: Any, targets: Any) -> None:
    """Refuse a frame and a series that name the same rows in another order: they go by place."""
    names: Any = getattr(features, "index", None)
    others: Any = getattr(targets, "index", None)
    if any(
        index is None or callable(index) for index in (names, others)
    ):  # a list has such a method
        return
    if list(names) != list(others) and set(names) == set(others):
        raise DataError(
            f"expected features and targets of {who} with their rows in one order, found "
            "the same index in two orders; sort both by it"
        )


def _array(who: str, table: Any, kind: Any, what: str) -> NDArray[Any]:
    table, wrong = _on_cpu(table), list[str]()
    with suppress(TypeError, ValueError):
        columns = {str(name): table[name] for name in column_names(table) or ()} or {"": table}
        wrong = [name for name, column in columns.items() if not _are_numbers(column)]
        if not wrong:
            return np.asarray(table, dtype=kind)
    where = f" in {few([*map(repr, wrong)], _SHOWN)}" if any(wrong) else ""
    to_do = "say with columns how they become numbers" if what == "features" else "convert them"
    raise DataError(f"expected numbers as {what} of {who}, found others{where}; {to_do}")


def _are_numbers(column: Any) -> bool:
    """Dates are none, though NumPy has them: as numbers their unit is the library's."""
    values = np.asarray(column)
    if values.dtype.kind in "mMc":
        return False
    if values.dtype.kind not in "biuf":
        try:
            values.astype(np.float64)
        except (TypeError, ValueError):
            return False
    return True


def _pair(who: str, table: Any) -> Table:
    if not isinstance(table, tuple | list) or len(table) != 2:
        raise DataError(
            f"expected features and targets for {who}, such as (X, y), found "
            f"{type(table).__name__}; give both"
        )
    return table[0], table[1]


def _on_cpu(values: Any) -> Any:
    """A tensor where NumPy reads it; anything else as it is."""
    return values.detach().cpu() if hasattr(values, "detach") else values


def _values(targets: Any) -> list[Any]:
    return np.asarray(_on_cpu(targets)).reshape(-1).tolist()


def _spelled(value: object) -> str:
    return canonical(value.decode() if isinstance(value, bytes) else str(value))


def declared(columns: Any) -> Any:
    """Columns as a study has them: their names and categories are texts."""
    if not isinstance(columns, Mapping):
        return columns
    stated = {str(name): entry for name, entry in columns.items()}
    for name, entry in stated.items():
        if isinstance(entry, Mapping):
            texts = {
                key: list(map(str, entry[key]))
                for key in ("categories", "missing")
                if isinstance(entry.get(key), list | tuple)
            }
            stated[name] = plain({**entry, **texts})
    return stated


def plain(value: Any) -> Any:
    """Numbers of NumPy's as Python's own; anything else as it is, for the study to judge."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def arrays_of(who: str, table: Any) -> Any:
    """Features and targets of a `torch.utils.data.Dataset`; whatever else is there stays as it is.

    It has a length and gives a pair (x, y) at each place below it.
    """
    if hasattr(table, "dataset") and hasattr(table, "batch_size"):
        raise DataError(
            f"expected the records of {who}, found a {type(table).__name__}, which draws "
            "its own batches: hubbub draws batches itself, because the privacy account "
            "depends on how; pass its .dataset"
        )
    kind = type(table)
    has_places = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    is_other = any(hasattr(table, name) for name in ("shape", "columns", "keys"))
    if isinstance(table, tuple | list) or not has_places or is_other:
        return table
    pairs = [table[place] for place in range(len(table))]
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise DataError(
            f"expected a data set of pairs, features and target, for {who}, found others or none; "
            "let its __getitem__ give (x, y)"
        )
    features = [np.asarray(_on_cpu(inputs)) for inputs, _ in pairs]
    if len({feature.shape for feature in features}) > 1:
        raise DataError(
            f"expected features of one shape from the data set of {who}, found several; resize or "
            "pad them"
        )
    targets = [np.asarray(_on_cpu(target)) for _, target in pairs]
    plain = [target.item() if target.ndim == 0 else target for target in targets]
    return np.stack(features), np.array(plain)


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What silos have in memory, by their names."""

    cells: Mapping[str, CodedCells] = field(repr=False)
    digests: Mapping[str, str] = field(repr=False)  # of the whole tables
    patient: str  # the column that says whose a row is; empty: each row is a unit


def tables_of(
    silos: Mapping[str, Any],
    columns: Sequence[Column],
    patients: str | Mapping[str, Any] | None,
    most_per_patient: int | None,
) -> Tables:
    """The tables of silos by their names, checked.

    Patients are a column of every table, keys by each silo's name, or None.
    """
    if patients is not None and not most_per_patient:
        raise StudyError(
            "expected most_per_patient beside patients, the public number of rows that "
            "count for one patient, got none; state it"
        )
    # Keys that are handed over beside the tables become a column of them.
    patient = patients if isinstance(patients, str) else _PATIENT if patients is not None else ""
    keyed = {who: _with_keys(who, table, patients, patient) for who, table in silos.items()}
    cells = {
        who: coded_cells(table, columns, who, patient=patient, most=most_per_patient or 0)
        for who, table in keyed.items()
    }
    digests = {
        who: hashlib.sha256(
            json.dumps(sorted((name, list(column)) for name, column in table.items())).encode()
        ).hexdigest()
        for who, table in keyed.items()
    }
    return Tables(cells=cells, digests=digests, patient=patient)


def _with_keys(
    who: str, table: Any, patients: str | Mapping[str, Any] | None, patient: str
) -> dict[str, list[str]]:
    """A table's cells, beside which its patients' keys stand in a column."""
    cells, keys = cells_of(table), list[Any]()
    if isinstance(patients, Mapping):
        if who not in patients:
            raise DataError(f"expected the patients of {who} beside its rows, found none; add them")
        keys = keys_of(patients[who])
        cells = {**cells, patient: list(map(text_of, keys))}
    elif patient in cells:
        names = column_names(table)
        keys = keys_of(
            *(table[n] for n in (table if names is None else names) if str(n) == patient)
        )
    if patient and patient not in cells:
        raise DataError(
            f"expected a column {patient!r} with the patient of each row of {who}, found "
            "none; correct its name"
        )
    for row, key in enumerate(keys):
        if isinstance(key, np.floating):  # whose type its text does not show
            refuse_rounded(key, f"of {who}, at {{}}".format, row)
    if len(set(map(len, cells.values()))) > 1:
        raise DataError(
            f"expected a patient for every row of {who}, found another number of them; give as many"
        )
    return cells
