"""What all estimators have in common: parameters, whose row is whose, one call of `fit`."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from hubbub.core.errors import DataError, HubbubError
from hubbub.core.study.parties import is_name, is_reserved
from hubbub.core.tabular.cell_rule import canonical
from hubbub.learning.runs.in_memory import fit
from hubbub.learning.sklearn.around_fit import warn_of_what_is_around

Array = NDArray[Any]
_NO_TARGETS = object()  # an estimator reads them itself; None is a y that is missing


class Federated(BaseEstimator):  # type: ignore[misc]
    """An estimator whose rows are several silos'; each kind of target derives from it once.

    scikit-learn reads an estimator's parameters off its own constructor, so each has all of them.
    """

    epsilon: float
    delta: float
    colluders: int
    silos: int
    model: Any
    hidden: tuple[int, ...]
    steps: int | None
    sample_rate: float
    clip_norm: float | None
    optimizer: Mapping[str, Any] | None
    relation: str
    records: int | None
    capacity: int | None
    columns: Mapping[str, Mapping[str, Any]] | None
    statistics: Mapping[str, Any] | None
    validation: Mapping[str, Any] | float | None
    out: str | Path | None

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Every parameter as it was given, as scikit-learn wants it."""
        for name in self._get_param_names():
            setattr(self, name, given[name])

    def __sklearn_tags__(self) -> Any:
        """The noise makes two fits differ."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def _given(self, X: Any, y: Any = _NO_TARGETS, **how: Any) -> Any:
        """The rows, and the targets if there are to be any: numbers, or with `columns` the frame.

        Raises:
            ValueError: they are none, or not as many.
        """
        alone = y is _NO_TARGETS
        if self.columns is None:
            both = (X,) if alone else (X, y)
            return validate_data(self, *both, dtype=np.float64, **how)
        targets = None if alone else validate_data(self, "no_validation", y, **how)
        frame = self._frame(X, reset=True)
        if alone:
            return frame
        check_consistent_length(frame, targets)
        return frame, targets

    def _frame(self, X: Any, *, reset: bool) -> Any:
        """A data frame that has the columns that are declared."""
        if not hasattr(X, "columns"):
            raise ValueError(
                f"expected X to be a data frame beside columns, got {type(X).__name__}; hand over "
                "a frame, or leave columns out and scale numbers by public bounds"
            )
        return validate_data(self, X, skip_check_array=True, reset=reset)

    def _learn(
        self,
        inputs: Any,
        targets: Array,
        silos: Mapping[str, Array],
        read_off: Sequence[str],
        **more: Any,
    ) -> Self:
        """The estimator itself, with what `hubbub.fit` learns.

        Args:
            inputs: (n, features) numbers, or a data frame of n rows.
            targets: (n,), or (n, 2) for times.
            silos: by name the rows of each, (n,) true where a row is theirs.
            read_off: in words what was read off the targets, and so is public.
            more: what the target is, and else.

        Raises:
            ValueError: the rows or the numbers do not fit.
        """
        numbers = np.empty((0, 0)) if self.columns is not None else inputs
        warn_of_what_is_around(numbers, self.epsilon)
        try:
            learned = fit(
                {name: (_part(inputs, rows), targets[rows]) for name, rows in silos.items()},
                epsilon=self.epsilon,
                delta=self.delta,
                colluders=self.colluders,
                model="logistic" if self.model == "linear" else self.model,
                hidden=self.hidden,
                steps=self.steps,
                sample_rate=self.sample_rate,
                clip_norm=self.clip_norm,
                optimizer=self.optimizer,
                relation=self.relation,
                records=self.records,
                capacity=self.capacity,
                columns=self.columns,
                statistics=self.statistics,
                validation=self.validation,
                out=None if self.out is None else _new_folder(Path(self.out)),
                progress=False,
                **more,
            )
        except HubbubError as error:
            raise ValueError(str(error)) from error
        self.result_ = replace(learned, made_public=(*learned.made_public, *read_off))
        self.n_iter_ = self.result_.steps
        return self

    def _predicted(self, X: ArrayLike) -> NDArray[np.float64]:
        """What the model says of (n, features): (n,), or (n, k) where it gives k numbers.

        Raises:
            ValueError: the rows do not fit.
        """
        check_is_fitted(self)
        inputs = (
            validate_data(self, X, dtype=np.float64, reset=False)
            if self.columns is None
            else self._frame(X, reset=False)
        )
        try:
            return self.result_.predict(inputs).astype(np.float64)
        except DataError as error:
            raise ValueError(str(error)) from error


def _part(inputs: Any, rows: Array) -> Any:
    """Some rows, (n,) true where they are: of an array, or of a frame as a mapping of columns."""
    if not hasattr(inputs, "columns"):
        return inputs[rows]
    return {str(name): np.asarray(inputs[name], dtype=object)[rows] for name in inputs.columns}


def dealt(groups: ArrayLike | None, rows: int, silos: int) -> dict[str, Array]:
    """By each silo's name which rows are its own, (rows,): as groups say, or in turn."""
    names, owners = _owners(groups, rows, silos)
    return {name: owners == silo for silo, name in enumerate(names)}


def warn_of_read_off(what: str, parameter: str) -> None:
    """A bound that nobody has stated was read off a private row, and the model shows it."""
    warnings.warn(
        f"expected {parameter} to be stated, read {what} off y: a row's own value, which counts as "
        f"public now; state {parameter} from what is known without the rows",
        UserWarning,
        stacklevel=3,
    )


def _new_folder(parent: Path) -> Path:
    """A folder that no other fit has, made here so that no other takes it."""
    for number in count(1):
        folder = parent / f"fit-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ValueError(
                f"expected a folder that can be written, got {parent}: {error.strerror}; choose "
                "another out"
            ) from None
        return folder
    raise AssertionError("numbers do not end")


def _owners(groups: ArrayLike | None, rows: int, silos: int) -> tuple[list[str], NDArray[np.intp]]:
    """What the silos are called, and the place of each row's silo among them."""
    if groups is None and rows < silos:
        raise ValueError(
            f"expected a row for each of {silos} silos, found {rows} sample; give more, or fewer "
            "silos"
        )
    if groups is None:
        return [f"silo-{silo + 1}" for silo in range(silos)], np.arange(rows) % silos
    given = np.asarray(groups)
    if given.shape != (rows,):
        raise ValueError(f"expected groups of shape ({rows},), found {given.shape}; give one a row")
    if any(one is None or one != one or one == "" for one in given.tolist()):
        raise ValueError("expected a silo for each row in groups, found a missing one; fill it in")
    values, owners = np.unique(given, return_inverse=True)
    names = [_silo_name(value) for value in values.tolist()]
    if len(set(names)) < len(names):
        raise ValueError(
            "expected every silo in groups in one spelling, found two that read alike, such as 7 "
            "and 7.0; spell each in one way"
        )
    return names, owners


def _silo_name(group: object) -> str:
    """What a group's silo is called, whichever others there are: so is its ledger."""
    text = canonical(str(group))
    if is_name(text) and not is_reserved(text):
        return f"silo-{text}" if text[0].isdigit() else text
    return f"silo-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
