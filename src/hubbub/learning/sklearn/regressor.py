"""A regressor: numbers between public bounds in, numbers out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from hubbub.learning.sklearn.federated_estimator import Federated, dealt, warn_of_read_off


class FederatedRegressor(RegressorMixin, Federated):  # type: ignore[misc]
    """A regressor that several silos train together, with differential privacy for each record.

    As `FederatedClassifier`, for numbers between public bounds; beyond a bound a number counts as
    the bound.

    Args:
        low: public lower bound of y, in its own unit; None: the smallest that occurs, which then
            counts as public, with a warning.
        high: public upper bound; None: the largest that occurs.
        scale: "linear", or "log" for a long tail: the logarithm is learned, and low is above 0; or
            "log-link": the logarithm of the mean is, and low is 0.
        epsilon: promised against the aggregator with `colluders` silos; no unit.
        delta: the chance with which the promise may fail, a probability.
        colluders: silos that may join the adversary.
        silos: how many silos the rows are dealt to, in turn, where `fit` gets no groups.
        model: "linear", "mlp", or a torch module, as for `hubbub.fit`.
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

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (600, 2))
    >>> y = 50 + 30 * X[:, 0] + rng.normal(0, 3, 600)
    >>> hospital = np.arange(600) % 3
    >>> model = FederatedRegressor(epsilon=8, low=0, high=100).fit(X, y, groups=hospital)
    >>> model.predict(X[:2]).shape, bool(model.score(X, y) > 0.5)
    ((2,), True)
    """

    low: float | None
    high: float | None
    scale: str

    def __init__(
        self,
        *,
        low: float | None = None,
        high: float | None = None,
        scale: str = "linear",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        colluders: int = 1,
        silos: int = 4,
        model: Any = "linear",
        hidden: tuple[int, ...] = (),
        steps: int | None = None,
        sample_rate: float = 0.2,
        clip_norm: float | None = None,
        optimizer: Mapping[str, Any] | None = None,
        relation: str = "add-remove",
        records: int | None = None,
        capacity: int | None = None,
        columns: Mapping[str, Mapping[str, Any]] | None = None,
        statistics: Mapping[str, Any] | None = None,
        validation: Mapping[str, Any] | float | None = None,
        out: str | Path | None = None,
    ) -> None:
        self._keep(locals())

    def __sklearn_tags__(self) -> Any:
        """Few records give poor scores."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train.

        Args:
            X: (n, features), numbers, brought to about -1 to 1 by public numbers; with `columns` a
                data frame.
            y: (n,), numbers.
            groups: (n,), whose record each is, by which its silo is called; dealt in turn to
                `silos` silos if None.

        Returns:
            The estimator itself.

        Raises:
            ValueError: the rows or the numbers do not fit.
        """
        inputs, numbers = self._given(X, y, y_numeric=True)
        low, high, read_off = self._bounds(numbers)
        silos = dealt(groups, len(numbers), self.silos)
        target = {"kind": "numeric", "low": low, "high": high, "scale": self.scale}
        return self._learn(inputs, numbers.astype(np.float64), silos, read_off, target=target)

    def _bounds(self, numbers: NDArray[Any]) -> tuple[float, float, tuple[str, ...]]:
        """The bounds of y, and in words what of them was read off."""
        low = float(numbers.min()) if self.low is None else float(self.low)
        high = float(numbers.max()) if self.high is None else float(self.high)
        if self.low is not None and self.high is not None:
            return low, high, ()
        if low == high:
            high = low + 1.0
        words = f"the bounds of y ({low:g} to {high:g})"
        warn_of_read_off(words, "low and high")
        return low, high, (words,)

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
