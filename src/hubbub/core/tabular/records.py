"""The records of one silo, as arrays: what a training step reads, and nothing that is ever sent.

Rows of one patient are one protected unit, up to a public number of them (docs/privacy.md P21). For
keys of patients, from files and from memory, there is one rule: they are compared as `canonical`
writes them. Case, zeros in front and all else tell patients apart, as hospitals' keys do; what
looks alike `hubbub check` shows. Two people in one unit would exchange a part of it where each
should be there or not: so a key that is missing, of more than `LONGEST_KEY` letters, or a number
that a program has rounded, is refused, never one patient. This file must not know where records
come from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.disk import json_value, read_bytes
from hubbub.core.errors import DataError, IntegrityError
from hubbub.core.tabular.cells import LONGEST_KEY, canonical, exact_below, text_of

_FLOAT = re.compile(r"[+-]?\d+(\.\d*(e[+-]?\d+)?|e\+\d+)", re.ASCII | re.IGNORECASE)
# As programs for tables show a number of 12 digits or more, and write it to CSV.
_POWERS = re.compile(r"[+-]?\d+([.,]\d*)?E\+\d+", re.ASCII)
# What is written for a missing value by programs (R, databases, spreadsheets), beside nothing.
_MISSING = frozenset({"", "nan", "NaN", "None", "NaT", "<NA>", "NA", "N/A", "#N/A", "NULL", "null"})


def patient_key(value: object) -> str:
    """One spelling for one patient; "" for a key that is missing.

    >>> patient_key(" 7.0"), patient_key(7), patient_key("07"), patient_key("NA")
    ('7', '7', '07', '')
    """
    text = text_of(value)
    key = canonical(text) if len(text) <= LONGEST_KEY and not is_rounded(text) else ""
    return "" if key in _MISSING else key


def is_rounded(value: object) -> bool:
    """Whether it is, or spells, a number of which digits may be lost, so that several share it.

    That is a large floating-point number, or one in a spreadsheet's powers of ten. Of which key it
    is, nobody can say.

    >>> is_rounded("1.23E+11"), is_rounded("1,23E+11"), is_rounded("12E45"), is_rounded(1e16)
    (True, True, False, True)
    """
    text = str(value).strip()
    is_float = isinstance(value, float | np.floating) or _FLOAT.fullmatch(text) is not None
    return _POWERS.fullmatch(text) is not None or (
        is_float and abs(float(text)) >= exact_below(value)
    )


def refuse_rounded(value: object, place: Callable[[int], str], row: int) -> None:
    """Refuse a patient's key that several whole numbers share; `place` as for `patient_numbers`."""
    if not is_rounded(value):
        return
    found = f"a floating-point number past 2**{log2(exact_below(value)):.0f}"
    if _POWERS.fullmatch(str(value).strip()):
        found = "a number in powers of ten"
    raise DataError(
        f"expected keys of patients as texts or whole numbers, found {found} {place(row)}, which "
        "several of them share; read the column as text, such as with "
        'pandas.read_csv(..., dtype={"column": str}), or export it so'
    )


def patient_numbers(
    values: Iterable[object], place: Callable[[int], str] = "at {}".format
) -> NDArray[np.intp]:
    """Whose each record is, (n,), as numbers from 0 in the order in which patients come.

    DataError: a key is missing; `place` says how it names a row, which is counted from 0.
    """
    by_key: dict[str, int] = {}
    keys: dict[str, str] = {}  # by text: columns repeat themselves
    numbers = []
    for row, value in enumerate(values):
        text = text_of(value)
        if text in keys:
            numbers.append(by_key[keys[text]])
            continue
        refuse_rounded(value, place, row)
        if not (key := patient_key(text)):
            raise DataError(
                f"expected a patient for every record, found none {place(row)}; fill it in or "
                "remove the record"
            )
        keys[text] = key
        numbers.append(by_key.setdefault(key, len(by_key)))
    return np.array(numbers, dtype=np.intp)


MOST_PER_PATIENT = 1000  # as many as the accountant knows (P20)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Records:
    """The records of one silo, or the public test set. Never printed, never sent.

    A data function of your own returns them (docs/data.md).

    Args:
        inputs: finite numbers, float32, shape (n, features), or (n, ...) for images; the model sees
            them as they are.
        targets: shape (n,): float32 in {0, 1} for two classes, int64 class numbers from 0 for
            several classes, float64 for amounts and counts in their own unit; or float64 of shape
            (n, 2) for times from 0, each with 1 if it ends with the event, else 0, and for
            counts, each with its exposure.
        patients: shape (n,), whole numbers or texts: rows with the same one, as `patient_key` reads
            it, are one protected unit (`data.patient`); kept as numbers from 0. None: each row is a
            unit.
        groups: shape (n, columns): the place of each record among the public classes of columns by
            which a model is scored apart, -1 for none; no model sees them. None: there are none.

    Raises:
        DataError: shapes, lengths or types differ from these, a value is not finite, or a patient's
            text is empty.

    >>> records = Records(
    ...     inputs=np.zeros((3, 2), dtype=np.float32), targets=np.array([0, 1, 2], dtype=np.int64)
    ... )
    >>> records, len(records)
    (<Records of shape (2,), targets int64>, 3)
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    patients: NDArray[Any] | None = None
    groups: NDArray[np.intp] | None = None

    def __post_init__(self) -> None:
        """Refuses what a step could not use safely; no message holds a value or a count."""
        for name, array in (("inputs", self.inputs), ("targets", self.targets)):
            if not isinstance(array, np.ndarray):
                raise DataError(
                    f"expected {name} to be a numpy array, found {type(array).__name__}; "
                    "convert it with numpy.asarray"
                )
        self._check_types()
        self._check_shapes()
        self._check_values()
        if self.patients is not None:
            object.__setattr__(self, "patients", _numbered(self.patients, self.targets))

    def __len__(self) -> int:
        """How many records there are: itself private to the silo."""
        return len(self.targets)

    @property
    def units(self) -> int:
        """How many protected units there are, patients or records: private to the silo."""
        return len(self) if self.patients is None else int(self.patients.max(initial=-1)) + 1

    def part(self, chosen: NDArray[Any]) -> Records:
        """Some of the records.

        Args:
            chosen: their numbers, or (n,) bool.

        Returns:
            The same arrays if all are chosen by True.
        """
        if chosen.dtype == bool and chosen.all():
            return self
        return Records(
            inputs=self.inputs[chosen],
            targets=self.targets[chosen],
            patients=None if self.patients is None else self.patients[chosen],
            groups=None if self.groups is None else self.groups[chosen],
        )

    def with_inputs(self, inputs: NDArray[Any]) -> Records:
        """The same records with other inputs.

        Args:
            inputs: (n, ...) float32.

        Returns:
            They have the same targets and patients.
        """
        return replace(self, inputs=inputs)

    def capped(self, most: int) -> Records:
        """No more than the first so many records of each patient, in their order.

        Args:
            most: the public number.

        Returns:
            The other records are left out, whatever they hold.
        """
        return self if self.patients is None else self.part(first_rows(self.patients, most))

    @staticmethod
    def together(several: Sequence[Records]) -> Records:
        """The records of several silos; a patient of one is nobody of another.

        Args:
            several: at least one.

        Returns:
            One silo's after the other's.
        """
        patients, ends = [], 0
        grouped = [records.groups for records in several if records.groups is not None]
        for records in several:
            if records.patients is not None:
                # P21: who is a patient of two silos is two units.
                patients.append(records.patients + ends)
                ends += records.units
        return Records(
            inputs=np.concatenate([records.inputs for records in several]),
            targets=np.concatenate([records.targets for records in several]),
            patients=np.concatenate(patients) if patients else None,
            groups=np.concatenate(grouped) if len(grouped) == len(several) else None,
        )

    def __repr__(self) -> str:
        """Shows the public shape of one record, neither values nor how many there are."""
        return f"<Records of shape {self.inputs.shape[1:]}, targets {self.targets.dtype}>"

    def _check_types(self) -> None:
        if self.inputs.dtype != np.float32:
            raise DataError(
                f"expected inputs of type float32, found {self.inputs.dtype}; convert them with "
                ".astype(numpy.float32)"
            )
        if self.targets.dtype not in (np.float32, np.int64, np.float64):
            raise DataError(
                "expected targets of type float32 (two classes), int64 (several classes) or "
                f"float64 (amounts, counts, times), found {self.targets.dtype}; convert them with "
                ".astype"
            )

    def _check_shapes(self) -> None:
        pairs = self.targets.dtype == np.float64 and self.targets.shape[1:] == (2,)
        if self.inputs.ndim < 2 or (self.targets.ndim != 1 and not pairs):
            raise DataError(
                "expected inputs of shape (n, features) and targets of shape (n,), or (n, 2) for "
                "times and events or counts and exposures in float64, found "
                f"{self.inputs.ndim} and {self.targets.ndim} dimensions; reshape them"
            )
        if len(self.inputs) != len(self.targets):
            raise DataError(
                "expected one target per record, found different lengths of inputs and targets; "
                "check how they were read"
            )

    def _check_values(self) -> None:
        for name, array in (("inputs", self.inputs), ("targets", self.targets)):
            if not (finite := np.isfinite(array)).all():
                first = int(np.argmin(finite.all(tuple(range(1, array.ndim)))))
                raise DataError(
                    f"expected finite numbers only, found infinite or undefined {name}, the first "
                    f"in record {first}, counted from 0; fill them in by a public number, or leave "
                    "the record out"
                )
        if self.targets.dtype == np.float32 and not np.isin(self.targets, (0, 1)).all():
            raise DataError(
                "expected targets of 0 and 1 in float32, found others; number several classes in "
                "int64, and give amounts and counts in float64"
            )
        if self.targets.dtype == np.int64 and (self.targets < 0).any():
            raise DataError(
                "expected class numbers from 0 upwards, found a negative one; renumber the classes"
            )
        if self.targets.ndim == 2 and (self.targets < 0).any():
            raise DataError(
                "expected times with events, or counts with exposures, from 0, found others; "
                "correct the records"
            )


@dataclass(frozen=True, kw_only=True, repr=False)
class UnitRows:
    """The rows of u units, each with k places."""

    rows: NDArray[np.intp]  # (u, k) numbers of rows
    # (u, k): the weight of a place in its unit's mean: 1 in all, 0 where a row stands once more.
    shares: NDArray[np.float32]

    def means(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(u, ...): each unit's mean of what its rows have, (n, ...)."""
        weights = self.shares.astype(np.float64)
        return np.asarray(np.einsum("uk,uk...->u...", weights, values[self.rows]))


def unit_rows(units: NDArray[np.intp], most: int) -> UnitRows:
    """The rows of each unit, in their order, and no more than `most` of them.

    Every number of a unit, (n,), from 0 on occurs.

    >>> unit_rows(np.array([0, 1, 0]), 2).rows.tolist()
    [[0, 2], [1, 1]]
    """
    counts = np.bincount(units)
    firsts = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.intp)
    order = np.argsort(units, kind="stable")
    held = np.arange(most) < counts[:, None]
    # P21: an empty place has the unit's first row once more, with no weight, so shapes tell
    # nothing.
    place = np.where(held, np.arange(most), 0)
    shares = held / np.minimum(counts, most)[:, None]
    return UnitRows(rows=order[firsts[: len(counts), None] + place], shares=shares.astype("f4"))


def first_rows(units: NDArray[np.intp], most: int) -> NDArray[np.bool_]:
    """(n,): whether a row is among the first `most` of its unit, which its place alone decides.

    >>> first_rows(np.array([0, 1, 0, 0]), 2).tolist()
    [True, True, True, False]
    """
    # P21: which rows of a unit are kept follows from that unit's rows and their order alone.
    order = np.argsort(units, kind="stable")
    ordered = units[order]
    turn = np.empty(len(units), dtype=np.intp)
    turn[order] = np.arange(len(units)) - np.searchsorted(ordered, ordered)
    return np.asarray(turn < most)


def _numbered(patients: Any, targets: NDArray[Any]) -> NDArray[np.intp]:
    """(n,): the number of each record's patient among those that occur, from 0."""
    keyed = isinstance(patients, np.ndarray) and patients.dtype.kind in "iuU"
    if not keyed or patients.shape != targets.shape[:1]:
        raise DataError(
            "expected patients as an array (n,) of whole numbers or texts, one for each "
            "record, found something else; convert them with numpy.asarray"
        )
    if patients.dtype.kind == "U":
        return patient_numbers(patients.tolist())
    _, numbers = np.unique(patients, return_inverse=True)
    return numbers.reshape(-1).astype(np.intp)


# Features brought to mean 0 and standard deviation 1: by which shifts and scales.
#
# They follow from sums that are asked for with noise like everything else (docs/privacy.md P16) and
# are public.

Array = NDArray[np.float64]

STANDARDISED = "standardisation.json"  # of a run's folder
_MOST_BYTES = 2**26  # of the file: a shift and a scale of a million features
_LARGEST = np.finfo(np.float32).max
_LEAST_DEVIATION = 1e-3  # of a feature, in units of its bound; smaller ones are noise


@dataclass(frozen=True, kw_only=True)
class Standardisation:
    """What is taken off every feature, and what it is then divided by; both are public."""

    shift: NDArray[np.float32]  # (features,), each in its feature's own unit
    scale: NDArray[np.float32]  # the same, above 0

    def of(self, records: Records) -> Records:
        """The records with standardised features, of which none is too large to be a number.

        Who chooses shift and scale must not learn from a refusal that a record has such a feature.
        """
        with np.errstate(over="ignore"):  # P16: shift and scale are public, and noisy sums' alone
            scaled = (records.inputs - self.shift) / self.scale
        return records.with_inputs(np.clip(scaled, -_LARGEST, _LARGEST).astype(np.float32))

    def __post_init__(self) -> None:
        for array in (self.shift, self.scale):
            if array.shape != self.shift.shape or not np.isfinite(array).all():
                raise ValueError("expected as many finite shifts as scales")
        if not (self.scale > 0).all():
            raise ValueError("expected scales above 0")

    def is_within(self, bound: float) -> bool:
        """Whether sums of features that are cut off at `bound` can have given it (P16)."""
        most, least = np.float32(bound), np.float32(bound * _LEAST_DEVIATION)
        shifts, scales = np.abs(self.shift), self.scale
        return bool((shifts <= most).all() and (scales >= least).all() and (scales <= most).all())

    def to_json(self) -> str:
        """The shifts and scales as a JSON text; `read` reads it back bit for bit."""
        return json.dumps({"shift": self.shift.tolist(), "scale": self.scale.tolist()})

    @classmethod
    def of_plain(cls, said: Mapping[str, Any]) -> Standardisation:
        """What `to_json` wrote; ValueError, KeyError or TypeError if it is none."""
        try:
            with np.errstate(over="ignore"):  # what is too large is infinite, and so refused
                shift, scale = (np.array(said[key], dtype=np.float32) for key in ("shift", "scale"))
        except OverflowError:  # of whole numbers
            raise ValueError("expected shifts and scales that are numbers of a machine") from None
        return cls(shift=shift, scale=scale)

    @classmethod
    def read(cls, path: Path, features: int) -> Standardisation | None:
        """What was kept of so many features in a file, if there is one."""
        if not path.exists():
            return None
        try:
            standardisation = cls.of_plain(json_value(read_bytes(path, most=_MOST_BYTES)))
            if standardisation.shift.shape != (features,):
                raise ValueError("expected another number of features")
            return standardisation
        except (OSError, ValueError, KeyError, TypeError):
            raise IntegrityError(
                f"expected {path} as this version writes it, found something else; restore it"
            ) from None


def standardisation_from(sums: Array, bound: float) -> Standardisation:
    """Shift and scale from noisy sums; a feature that hardly varies is left as wide as it is."""
    features = (sums.size - 1) // 2
    count = max(float(sums[0]), 1.0)
    mean = np.clip(sums[1 : 1 + features] / count, -1.0, 1.0)
    squares = 0.5 + sums[1 + features :] / count
    spread = np.sqrt(np.clip(squares - mean**2, 0.0, 1.0))
    scale = np.where(spread < _LEAST_DEVIATION, 1.0, spread)
    return Standardisation(
        shift=(bound * mean).astype(np.float32), scale=(bound * scale).astype(np.float32)
    )
