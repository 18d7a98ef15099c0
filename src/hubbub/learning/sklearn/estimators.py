"""scikit-learn estimators: what all have in common, and the kinds of target.

An estimator warns of what happens around a fit that its own promise does not cover. A search fits
once for each candidate and fold, and each fit is a release of its own. A scaler that has seen all
silos' rows together puts what it learned of them into every record, without noise. Frames of
scikit-learn that are under way, and the numbers themselves, are all that is looked at.
"""

from __future__ import annotations

import hashlib
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import cleandoc, currentframe
from itertools import count
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_regressor
from sklearn.metrics import d2_tweedie_score
from sklearn.utils import check_consistent_length
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from hubbub.core.errors import DataError, HubbubError, UncountedWarning, UnnoisedWarning
from hubbub.core.study.parties import is_name, is_reserved
from hubbub.core.tabular.cells import canonical, column_names
from hubbub.core.tabular.target import LOG_LINK
from hubbub.learning.runs import array_inputs, in_memory
from hubbub.learning.runs.result import classes_in_words
from hubbub.learning.scoring import harrell

Array = NDArray[Any]
_CLOSE = 1e-5  # how near 0 and 1 means and deviations are that were made so
_FEWEST = 10  # rows, of which a mean of 0 is no chance
_INTERVALS = 10  # of the grid where nobody states one


@dataclass(frozen=True, kw_only=True)
class Target:
    """What an estimator makes of y, and in words what of it nobody has stated."""

    values: Array  # (n,), or (n, 2) for times
    settings: Mapping[str, Any]  # what `hubbub.fit` is told of them
    classes: tuple[str, ...] = ()
    bounds: Mapping[str, str] = field(default_factory=dict)  # by the parameter that would state it


@dataclass(kw_only=True, eq=False, repr=False)
class Federated(BaseEstimator):  # type: ignore[misc]
    """What all federated estimators share: parameters, attributes and the meaning of a fit.

    The parties are simulated in this process, with the real protocol; `groups` says whose record
    each row is. The noise is drawn from the operating system, so two fits differ, and there is no
    `random_state`. What is not stated of `records`, `capacity` and the target is read off the rows
    and counts as public; `result_` names it. Each fit is a release of its own, those of a
    cross-validation too: with `out` the silos' ledgers count all of them, and without, the second
    one warns.

    Args:
        epsilon: the guarantee against the aggregator with `colluders` silos; no unit.
        delta: the probability with which the guarantee may fail.
        colluders: number of silos that may collude with the aggregator.
        silos: how many silos the rows are dealt to, in turn, where `fit` gets no groups.
        model: "linear" ("logistic" for classes), "mlp", or a torch module, as for `hubbub.fit`.
        hidden: widths of the hidden layers of "mlp".
        steps: number of steps; None: as for `hubbub.fit`.
        sample_rate: the chance of a record to be in a batch, a probability.
        clip_norm: the largest norm of a record's gradient; None: as for `hubbub.fit`.
        optimizer: name and options; None: as for `hubbub.fit`.
        relation: of neighbouring data sets, "add-remove" or "substitute".
        records: public number of rows, as which the sum is divided; None: as many as there are.
        capacity: public number of rows that a silo may hold; None: a step of a public ladder.
        columns: what each column of a data frame becomes, by the keys of `data.columns` in a
            study; X is then a frame, not an array. None: X is numbers, used as they are.
        statistics: what is asked beside the training, as for `hubbub.fit`; takes `columns`.
        validation: epsilon of a private validation of the model on the rows, or its table, as
            for `hubbub.fit`; `result_.validation` has its scores.
        out: folder in which each fit gets one of its own, `fit-1`, `fit-2`, …, beside the silos'
            `ledgers`; None: write nothing, keep no ledger.

    Attributes:
        n_features_in_: number of features.
        result_: what `hubbub.fit` gave: the model, its metrics, its plan, its epsilon.
        n_iter_: steps that were taken.
    """

    # scikit-learn reads an estimator's parameters off its constructor, which a dataclass has of
    # its own fields and of those that it derives from.
    epsilon: float = 1.0
    delta: float = 1e-5
    colluders: int = 1
    silos: int = 4
    model: Any = "linear"
    hidden: tuple[int, ...] = ()
    steps: int | None = None
    sample_rate: float = 0.2
    clip_norm: float | None = None
    optimizer: Mapping[str, Any] | None = None
    relation: str = "add-remove"
    records: int | None = None
    capacity: int | None = None
    columns: Mapping[str, Mapping[str, Any]] | None = None
    statistics: Mapping[str, Any] | None = None
    validation: Mapping[str, Any] | float | None = None
    out: str | Path | None = None

    def __init_subclass__(cls, **settings: Any) -> None:
        """The help of each kind describes what it shares with the others."""
        super().__init_subclass__(**settings)
        if cls.__doc__ and Federated.__doc__:  # neither is there where Python leaves them out
            cls.__doc__ = f"{cleandoc(cls.__doc__)}\n\n{cleandoc(Federated.__doc__)}\n"

    def __sklearn_tags__(self) -> Any:
        """The noise makes two fits differ."""
        return replace(super().__sklearn_tags__(), non_deterministic=True)

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train.

        Args:
            X: (n, features), numbers, brought to about -1 to 1 by public numbers; with `columns` a
                data frame.
            y: (n,), classes, numbers, or whole numbers from 0 for counts. For survival (n, 2),
                times and 1 or 0 for the event; or (n,) with a field of truth values, the event, and
                one of numbers, the time, as scikit-survival has it.
            groups: (n,), whose record each is, by which its silo is called; dealt in turn to
                `silos` silos if None.

        Raises:
            ValueError: the rows or the numbers do not fit.
        """
        inputs, given = self._given(X, y)
        silos = _dealt(groups, len(given), self.silos)
        target = self._target(given, silos if groups is not None else None)
        if target.bounds:
            what, stated = (" and ".join(each) for each in (target.bounds.values(), target.bounds))
            warnings.warn(
                f"expected {stated} to be stated, read {what} from y: a value of a single row, "
                f"which now counts as public; state {stated} from what is known without the rows",
                UserWarning,
                stacklevel=2,
            )
        _warn_of_what_is_around(inputs if self.columns is None else None, self.epsilon)
        parts = {name: (_part(inputs, rows), target.values[rows]) for name, rows in silos.items()}
        try:
            learned = in_memory.fit(parts, **self._shared(), **target.settings, progress=False)
        except HubbubError as error:
            raise ValueError(str(error)) from error
        read_off = (*learned.made_public, *target.classes, *target.bounds.values())
        self.result_ = replace(learned, made_public=read_off)
        self.n_iter_ = self.result_.steps
        return self

    @abstractmethod
    def _target(self, given: Array, silos: Mapping[str, Array] | None) -> Target:
        """What y, (n,) or (n, 2), is to `hubbub.fit`, or a ValueError.

        `silos` are by name the rows of each, (n,) true where a row is theirs; None: nobody said.
        """

    def _given(self, X: ArrayLike, y: ArrayLike) -> tuple[Any, Array]:
        """The rows and what is to be learned of them, or a ValueError."""
        given = validate_data(self, "no_validation", y, y_numeric=is_regressor(self))
        inputs = self._rows(X, reset=True)
        check_consistent_length(inputs, given)
        return inputs, given

    def _rows(self, X: ArrayLike, *, reset: bool) -> Any:
        """(n, features) numbers, or with `columns` the frame that has the columns."""
        if self.columns is None:
            return validate_data(self, X, dtype=np.float64, reset=reset)
        if column_names(X) is None:
            raise ValueError(
                f"expected X to be a data frame beside columns, got {type(X).__name__}; "
                "pass a frame, or leave columns out and scale numbers by public bounds"
            )
        return validate_data(self, X, skip_check_array=True, reset=reset)

    def _shared(self) -> dict[str, Any]:
        """The parameters that all kinds have, as `hubbub.fit` takes them."""
        shared = {field.name: getattr(self, field.name) for field in fields(Federated)}
        del shared["silos"]  # of the rows, which are dealt by now
        return shared | {
            "model": "logistic" if self.model == "linear" else self.model,
            "out": None if self.out is None else _new_folder(Path(self.out)),
        }

    def _predicted(self, X: ArrayLike) -> NDArray[np.float64]:
        """What the model says of (n, features): (n,), or (n, k) where it gives k numbers."""
        check_is_fitted(self, "result_")
        try:
            return self.result_.predict(self._rows(X, reset=False)).astype(np.float64)
        except DataError as error:
            raise ValueError(str(error)) from error


def _part(inputs: Any, rows: Array) -> Any:
    """Some rows, (n,) true where they are: of an array, or of a frame as a mapping of columns."""
    names = column_names(inputs)
    if names is None:
        return inputs[rows]
    return {str(name): np.asarray(inputs[name], dtype=object)[rows] for name in names}


def _dealt(groups: ArrayLike | None, rows: int, silos: int) -> dict[str, Array]:
    """By each silo's name which rows are its own, (rows,): as groups say, or in turn."""
    if groups is None:
        if rows < silos:
            raise ValueError(
                f"expected a row for each of {silos} silos, found {rows} sample; give more, or "
                "fewer silos"
            )
        turns = np.arange(rows) % silos
        return {f"silo-{silo + 1}": turns == silo for silo in range(silos)}
    given = np.asarray(groups)
    if given.shape != (rows,):
        raise ValueError(f"expected groups of shape ({rows},), found {given.shape}; give one a row")
    texts = list(map(str, given.tolist()))
    if not array_inputs.MISSING.isdisjoint(texts):
        raise ValueError("expected a silo for each row in groups, found a missing one; fill it in")
    try:
        values, owners = np.unique(given, return_inverse=True)
    except TypeError:  # numbers and texts have no order
        values, owners = np.unique(texts, return_inverse=True)
    names = [_silo_name(value) for value in values.tolist()]
    if len(set(names)) < len(names):
        raise ValueError(
            "expected every silo in groups in one spelling, found two that look alike, "
            "such as 7 and 7.0; spell each in one way"
        )
    return {name: owners == silo for silo, name in enumerate(names)}


def _silo_name(group: object) -> str:
    """What a group's silo is called, whichever others there are: so is its ledger."""
    text = canonical(str(group))
    if is_name(text) and not is_reserved(text):
        return f"silo-{text}" if text[0].isdigit() else text
    return f"silo-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _new_folder(parent: Path) -> Path:
    """A folder that no other fit has, made here so that no other takes it."""
    numbers = count(1)
    while True:
        folder = parent / f"fit-{next(numbers)}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise ValueError(
                f"expected a folder that can be written, got {parent}: {error.strerror}; choose "
                "another out"
            ) from None


def _warn_of_what_is_around(inputs: Array | None, epsilon: float) -> None:
    """Warn of a search that this fit is part of, and of features that all rows together have made.

    `inputs` are (n, features), of all silos; None if they are no numbers yet.
    """
    frames = [frame for frame, _ in walk_stack(currentframe())]
    modules = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    if any(module.startswith("sklearn.model_selection") for module in modules):
        warnings.warn(
            "expected a single fit, got one within a search or a cross-validation: each fit costs "
            f"up to epsilon {epsilon:g}, they add up, and the choice depends on private rows; "
            "choose on public or synthetic records (hubbub.rehearse), then fit once",
            UncountedWarning,
            stacklevel=3,
        )
    learned = [name for frame in frames for name in _learned_before(frame)]
    if learned or (inputs is not None and _is_standardised(inputs)):
        what = ", ".join(dict.fromkeys(learned)) or "what made each mean 0 and each deviation 1"
        warnings.warn(
            "expected features that each silo computes from public numbers alone, got "
            f"those of {what}, which was fitted on all silos' rows together: what it "
            "learned reaches the model without noise; scale by public bounds (columns of "
            "hubbub.fit), or with noise (data.standardise)",
            UnnoisedWarning,
            stacklevel=3,
        )


def _learned_before(frame: FrameType) -> list[str]:
    """Names of a pipeline's earlier steps that keep something of rows, where a frame is its fit."""
    if (frame.f_globals.get("__name__"), frame.f_code.co_name) != ("sklearn.pipeline", "fit"):
        return []
    steps = [step for _, step in getattr(frame.f_locals.get("self"), "steps", [])[:-1]]
    return [
        type(step).__name__
        for step in steps
        if not (step is None or isinstance(step, str))
        and (not hasattr(step, "__sklearn_tags__") or step.__sklearn_tags__().requires_fit)
    ]


def _is_standardised(inputs: Array) -> bool:
    """Whether every feature that differs at all has mean 0 and standard deviation 1."""
    spread = inputs.std(axis=0)
    spread = spread[spread > 0]
    is_scaled = spread.size and np.all(np.abs(spread - 1) < _CLOSE)
    is_centred = np.all(np.abs(inputs.mean(axis=0)) < _CLOSE)
    return bool(len(inputs) >= _FEWEST and is_scaled and is_centred)


@dataclass(kw_only=True, eq=False, repr=False)
class FederatedClassifier(ClassifierMixin, Federated):  # type: ignore[misc]
    """A classifier that several silos train together, with differential privacy for each record.

    Args:
        intercept: where the bias of a "logistic" of two classes begins, as for `hubbub.fit`.
        classes: all that y may hold; None: those that occur, of which with `groups` some silo must
            hold all.

    Attributes:
        classes_: (classes,), sorted.

    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(400, random_state=0)
    >>> hospital = np.arange(400) % 3
    >>> model = FederatedClassifier(epsilon=5).fit(X / 3, y, groups=hospital)
    >>> model.predict_proba(X[:2] / 3).shape, bool(model.result_.epsilon <= 5)
    ((2, 2), True)
    """

    model: Any = "logistic"
    intercept: float | None = None
    classes: Sequence[Any] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def _target(self, given: Array, silos: Mapping[str, Array] | None) -> Target:
        check_classification_targets(given)
        if self.classes is None and silos is not None:
            array_inputs.refuse_several_codings({n: list(given[rows]) for n, rows in silos.items()})
        self.classes_ = _classes(given, self.classes)
        classes = self.classes_.tolist()
        return Target(
            values=given,
            settings={"classes": classes, "intercept": self.intercept},
            classes=(classes_in_words(classes),) if self.classes is None else (),
        )

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probability of each class for rows (n, features): (n, classes), which add up to 1.

        Raises:
            ValueError: the rows do not fit.
        """
        probabilities = self._predicted(X)
        if probabilities.ndim == 1:
            return np.column_stack([1 - probabilities, probabilities])
        # They were rounded to float32, and each by itself.
        chances: NDArray[np.float64] = probabilities / probabilities.sum(1, keepdims=True)
        return chances

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class for rows (n, features): (n,), out of `classes_`.

        Raises:
            ValueError: the rows do not fit.
        """
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]  # type: ignore[no-any-return]


class _OfNumbers(RegressorMixin, Federated):  # type: ignore[misc]
    """What regressors share."""

    def __sklearn_tags__(self) -> Any:
        """Few records give poor scores."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """What is expected for rows (n, features): (n,), in the unit of y.

        Raises:
            ValueError: the rows do not fit.
        """
        return self._predicted(X)


@dataclass(kw_only=True, eq=False, repr=False)
class FederatedRegressor(_OfNumbers):
    """A regressor that several silos train together, with differential privacy for each record.

    It learns numbers between public bounds; beyond a bound a number counts as the bound.

    Args:
        low: public lower bound of y, in its own unit; None: the smallest that occurs, which then
            counts as public; with "log-link" 0.
        high: public upper bound; None: the largest that occurs.
        scale: "linear", or "log" for a long tail: the logarithm is learned, and low is above 0; or
            "log-link": the logarithm of the mean is, and low is 0.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (600, 2))
    >>> y = 50 + 30 * X[:, 0] + rng.normal(0, 3, 600)
    >>> hospital = np.arange(600) % 3
    >>> model = FederatedRegressor(epsilon=8, low=0, high=100).fit(X, y, groups=hospital)
    >>> model.predict(X[:2]).shape, bool(model.score(X, y) > 0.5)
    ((2,), True)
    """

    low: float | None = None
    high: float | None = None
    scale: str = "linear"

    def _target(self, given: Array, silos: Mapping[str, Array] | None) -> Target:
        low, high, bounds = self.low, self.high, dict[str, str]()
        if low is None:
            low = 0.0 if self.scale == LOG_LINK else float(given.min())
            bounds |= {} if self.scale == LOG_LINK else {"low": f"the smallest y ({low:g})"}
        if high is None:
            largest = float(given.max())
            high = largest if largest > low else low + 1.0
            bounds["high"] = f"the largest y ({largest:g})"
        target = {"kind": "numeric", "low": float(low), "high": float(high), "scale": self.scale}
        return Target(values=given.astype(np.float64), settings={"target": target}, bounds=bounds)


@dataclass(kw_only=True, eq=False, repr=False)
class FederatedPoissonRegressor(_OfNumbers):
    """A Poisson regression that several silos train together, with privacy for each record.

    It learns counts up to a public number; above it a count counts as the number. Like
    scikit-learn's `PoissonRegressor` it is scored by the share of the deviance that it explains.

    Args:
        high: public largest count; None: the largest that occurs, which then counts as public, with
            a warning.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (900, 2))
    >>> y = rng.poisson(np.exp(0.5 + X[:, 0]))
    >>> hospital = np.arange(900) % 3
    >>> model = FederatedPoissonRegressor(epsilon=8, high=12).fit(X, y, groups=hospital)
    >>> model.predict(X[:2]).shape, bool(model.score(X, y) > 0.1)
    ((2,), True)
    """

    high: float | None = None

    def __sklearn_tags__(self) -> Any:
        """Counts are not negative."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _target(self, given: Array, silos: Mapping[str, Array] | None) -> Target:
        high = float(max(1.0, given.max()) if self.high is None else self.high)
        return Target(
            values=given.astype(np.float64),
            settings={"target": {"kind": "count", "high": high}},
            bounds={"high": f"the largest count ({high:g})"} if self.high is None else {},
        )

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of the Poisson deviance that is explained, D²; 1 is best, 0 a constant.

        Args:
            X: (n, features).
            y: (n,), counts.
            sample_weight: (n,), how much each row counts; equally if None.

        Raises:
            ValueError: the rows do not fit.
        """
        predicted = self.predict(X)
        return float(d2_tweedie_score(y, predicted, sample_weight=sample_weight, power=1))


@dataclass(kw_only=True, eq=False, repr=False)
class FederatedSurvival(Federated):
    """A survival model that several silos train together, with privacy for each record.

    Hazards on a public grid of times, proportional for the built-in models. As `predict` of
    scikit-survival's estimators, that of this one gives risks, higher ones for earlier events, and
    `score` their concordance.

    Args:
        grid: public times, rising, at which the intervals of the hazards end; what happens
            after the last is not seen. None: ten equal intervals up to the longest time, which then
            counts as public, with a warning.

    Attributes:
        unique_times_: (times,), the grid.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (900, 2))
    >>> died, left = rng.exponential(20 * np.exp(-2 * X[:, 0])), rng.uniform(0, 48, 900)
    >>> y = np.column_stack([np.minimum(died, left), died <= left])
    >>> hospital = np.arange(900) % 3
    >>> model = FederatedSurvival(epsilon=8, grid=[6, 12, 24, 36]).fit(X, y, groups=hospital)
    >>> model.predict_survival_function(X[:2]).shape, bool(model.score(X, y) > 0.6)
    ((2, 4), True)
    """

    grid: Sequence[float] | None = None

    def _given(self, X: ArrayLike, y: ArrayLike) -> tuple[Any, Array]:
        inputs = self._rows(X, reset=True)
        return inputs, _times_and_events(y, len(inputs))

    def _target(self, given: Array, silos: Mapping[str, Array] | None) -> Target:
        last = float(given[:, 0].max())
        equal = last * (np.arange(_INTERVALS) + 1) / _INTERVALS
        self.unique_times_ = np.array(equal if self.grid is None else self.grid, dtype=np.float64)
        target = {"kind": "time-to-event", "grid": self.unique_times_.tolist()}
        return Target(
            values=given,
            settings={"target": target},
            bounds={"grid": f"the longest time ({last:g})"} if self.grid is None else {},
        )

    def predict_survival_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Survival curves of rows (n, features).

        Returns:
            (n, times): the chance to be without the event after each of `unique_times_`.

        Raises:
            ValueError: the rows do not fit.
        """
        return self._predicted(X)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Risks of rows (n, features): (n,), hazards cumulated up to the last time of the grid.

        Raises:
            ValueError: the rows do not fit.
        """
        alive = self.predict_survival_function(X)[:, -1]
        return np.asarray(-np.log(np.maximum(alive, np.finfo(np.float32).tiny)))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Harrell's concordance: the chance that of two records the one at higher risk is first.

        A probability; .5 is guessing. X is (n, features), and y as for `fit`.

        Raises:
            ValueError: the rows do not fit.
        """
        risk = self.predict(X)
        followed = _times_and_events(y, len(risk))
        return harrell(risk, followed[:, 0], followed[:, 1] > 0.5)


def _classes(labels: NDArray[Any], stated: Sequence[Any] | None) -> NDArray[Any]:
    """The classes, sorted, which every label is one of."""
    classes = np.unique(labels if stated is None else np.asarray(stated))
    if len(classes) < 2:
        raise ValueError("expected at least 2 classes in y, found 1 class; nothing to learn")
    names = set(classes.tolist())
    if strange := [row for row, label in enumerate(labels.tolist()) if label not in names]:
        raise ValueError(
            f"expected y to hold {', '.join(map(str, classes))}, as classes says, found another at "
            f"row {strange[0]}; correct it, or add it to classes"
        )
    return classes


def _times_and_events(y: Any, rows: int) -> NDArray[np.float64]:
    """(n, 2), times and events as 0 or 1, in whichever of the two forms they come."""
    given = np.asarray(y)
    if given.dtype.names is not None:
        names = sorted(given.dtype.names, key=lambda name: given.dtype[name].kind == "b")
        if [given.dtype[name].kind == "b" for name in names] != [False, True]:
            raise ValueError(
                "expected y with a field of truth values, the event, and one of numbers, the time, "
                f"found {', '.join(given.dtype.names)}; leave the others out"
            )
        given = np.column_stack([given[name] for name in names])
    pairs: NDArray[np.float64] = check_array(given, dtype=np.float64, input_name="y")
    events = pairs[:, -1]
    if pairs.shape != (rows, 2) or not np.isin(events, (0.0, 1.0)).all():
        raise ValueError(
            f"expected y of shape ({rows}, 2), times and 1 or 0 for the event, found another shape "
            "or other numbers; give a time and an event for each row"
        )
    if (pairs[:, 0] < 0).any() or not pairs[:, 0].max() > 0:
        raise ValueError("expected times from 0 in y, and one above it, found others; correct them")
    return pairs
