"""The kinds of target: classes, numbers, counts and times, each with what it makes of y."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array

from hubbub.learning.runs import array_inputs
from hubbub.learning.runs.result import classes_in_words
from hubbub.learning.sklearn.federated_estimator import Array, Federated, Target, warn_of_read_off
from hubbub.learning.survival_metrics import harrell

_INTERVALS = 10  # of the grid where nobody states one


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
        """Few records give poor scores."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def _target(self, given: Array, silos: Mapping[str, Array] | None) -> Target:
        check_classification_targets(given)
        if self.classes is None and silos is not None:
            array_inputs.refuse_several_codings({n: list(given[rows]) for n, rows in silos.items()})
        self.classes_, numbers = _numbered(given, self.classes)
        return Target(
            values=numbers,
            settings={"classes": range(len(self.classes_)), "intercept": self.intercept},
            read_off=(classes_in_words(self.classes_.tolist()),) if self.classes is None else (),
        )

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probability of each class.

        Args:
            X: (n, features).

        Returns:
            (n, classes), each row adding up to 1.

        Raises:
            ValueError: the rows do not fit.
        """
        probabilities = self._predicted(X)
        return (
            np.column_stack([1 - probabilities, probabilities])
            if probabilities.ndim == 1
            else probabilities
        )

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class.

        Args:
            X: (n, features).

        Returns:
            (n,), out of `classes_`.

        Raises:
            ValueError: the rows do not fit.
        """
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]  # type: ignore[no-any-return]


@dataclass(kw_only=True, eq=False, repr=False)
class FederatedRegressor(RegressorMixin, Federated):  # type: ignore[misc]
    """A regressor that several silos train together, with differential privacy for each record.

    It learns numbers between public bounds; beyond a bound a number counts as the bound.

    Args:
        low: public lower bound of y, in its own unit; None: the smallest that occurs, which then
            counts as public, with a warning.
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

    def __sklearn_tags__(self) -> Any:
        """Few records give poor scores."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _target(self, given: Array, silos: Mapping[str, Array] | None) -> Target:
        low = float(given.min()) if self.low is None else float(self.low)
        high = float(given.max()) if self.high is None else float(self.high)
        read_off: tuple[str, ...] = ()
        if self.low is None or self.high is None:
            high = low + 1.0 if low == high else high
            read_off = (f"the bounds of y ({low:g} to {high:g})",)
            warn_of_read_off(read_off[0], "low and high")
        target = {"kind": "numeric", "low": low, "high": high, "scale": self.scale}
        return Target(
            values=given.astype(np.float64), settings={"target": target}, read_off=read_off
        )

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Expected numbers.

        Args:
            X: (n, features).

        Returns:
            (n,), in the unit of y.

        Raises:
            ValueError: the rows do not fit.
        """
        return self._predicted(X)


@dataclass(kw_only=True, eq=False, repr=False)
class FederatedPoissonRegressor(RegressorMixin, Federated):  # type: ignore[misc]
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
        """Counts are not negative, and few records give poor scores."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        tags.target_tags.positive_only = True
        return tags

    def _target(self, given: Array, silos: Mapping[str, Array] | None) -> Target:
        high, read_off = self.high, tuple[str, ...]()
        if high is None:
            high = max(1.0, float(given.max()))
            read_off = (f"the largest count ({high:g})",)
            warn_of_read_off(read_off[0], "high")
        target = {"kind": "count", "high": float(high)}
        return Target(
            values=given.astype(np.float64), settings={"target": target}, read_off=read_off
        )

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """How many are expected.

        Args:
            X: (n, features).

        Returns:
            (n,), above 0.

        Raises:
            ValueError: the rows do not fit.
        """
        return self._predicted(X)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of the Poisson deviance that is explained, D²; 1 is best, 0 a constant.

        Args:
            X: (n, features).
            y: (n,), counts.
            sample_weight: (n,), how much each row counts; equally if None.

        Returns:
            D², no unit.

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
        grid, read_off = self.grid, tuple[str, ...]()
        if grid is None:
            last = float(given[:, 0].max())
            grid = (last * (np.arange(_INTERVALS) + 1) / _INTERVALS).tolist()
            read_off = (f"the longest time ({last:g})",)
            warn_of_read_off(read_off[0], "grid")
        self.unique_times_ = np.array(grid, dtype=np.float64)
        target = {"kind": "time-to-event", "grid": self.unique_times_.tolist()}
        return Target(values=given, settings={"target": target}, read_off=read_off)

    def predict_survival_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Survival curves.

        Args:
            X: (n, features).

        Returns:
            (n, times): the chance to be without the event after each of `unique_times_`.

        Raises:
            ValueError: the rows do not fit.
        """
        return self._predicted(X)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Risks: hazards cumulated up to the last time of the grid.

        Args:
            X: (n, features).

        Returns:
            (n,), from 0; no unit.

        Raises:
            ValueError: the rows do not fit.
        """
        alive = self.predict_survival_function(X)[:, -1]
        return np.asarray(-np.log(np.maximum(alive, np.finfo(np.float32).tiny)))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Harrell's concordance: the chance that of two records the one at higher risk is first.

        Args:
            X: (n, features).
            y: as for `fit`.

        Returns:
            A probability; .5 is guessing.

        Raises:
            ValueError: the rows do not fit.
        """
        risk = self.predict(X)
        followed = _times_and_events(y, len(risk))
        return harrell(risk, followed[:, 0], followed[:, 1] > 0.5)


def _numbered(
    labels: NDArray[Any], stated: Sequence[Any] | None
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes, sorted, and the number of each label among them."""
    classes = np.unique(labels if stated is None else np.asarray(stated))
    if len(classes) < 2:
        raise ValueError("expected at least 2 classes in y, found 1 class; nothing to learn")
    number = {name: place for place, name in enumerate(classes.tolist())}
    numbers = np.array([number.get(label, -1) for label in labels.tolist()], dtype=np.intp)
    if (numbers < 0).any():
        raise ValueError(
            f"expected y to hold {', '.join(map(str, number))}, as classes says, found another at "
            f"row {int((numbers < 0).argmax())}; correct it, or add it to classes"
        )
    return classes, numbers


def _times_and_events(y: Any, rows: int) -> NDArray[np.float64]:
    """(n, 2), times and events as 0 or 1, in whichever of the two forms they come."""
    given = np.asarray(y)
    if given.dtype.names is not None:
        kinds = {given.dtype[name].kind: given[name] for name in given.dtype.names}
        if len(given.dtype.names) != 2 or "b" not in kinds or len(kinds) != 2:
            raise ValueError(
                "expected y with a field of truth values, the event, and one of numbers, the time, "
                f"found {', '.join(map(str, given.dtype.names))}; leave the others out"
            )
        events = kinds.pop("b")
        given = np.column_stack([*kinds.values(), events])
    pairs: NDArray[np.float64] = check_array(
        given, dtype=np.float64, ensure_min_samples=1, input_name="y"
    )
    events = pairs[:, -1]
    if pairs.shape != (rows, 2) or not np.isin(events, (0.0, 1.0)).all():
        raise ValueError(
            f"expected y of shape ({rows}, 2), times and 1 or 0 for the event, found another shape "
            "or other numbers; give a time and an event for each row"
        )
    if (pairs[:, 0] < 0).any() or not pairs[:, 0].max() > 0:
        raise ValueError("expected times from 0 in y, and one above it, found others; correct them")
    return pairs
