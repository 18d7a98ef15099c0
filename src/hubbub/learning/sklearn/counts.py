"""A regressor of counts: whole numbers in, how many are expected out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from hubbub.learning.sklearn.federated_estimator import Federated, dealt, warn_of_read_off


class FederatedPoissonRegressor(RegressorMixin, Federated):  # type: ignore[misc]
    """A Poisson regression that several silos train together, with privacy for each record.

    As `FederatedClassifier`, for counts up to a public number; above it a count counts as the
    number. Like scikit-learn's `PoissonRegressor` it is scored by the share of the deviance that it
    explains.

    Args:
        high: public largest count; None: the largest that occurs, which then counts as public, with
            a warning.
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
    >>> X = rng.uniform(-1, 1, (900, 2))
    >>> y = rng.poisson(np.exp(0.5 + X[:, 0]))
    >>> hospital = np.arange(900) % 3
    >>> model = FederatedPoissonRegressor(epsilon=8, high=12).fit(X, y, groups=hospital)
    >>> model.predict(X[:2]).shape, bool(model.score(X, y) > 0.1)
    ((2,), True)
    """

    high: float | None

    def __init__(
        self,
        *,
        high: float | None = None,
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
        """Counts are not negative, and few records give poor scores."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        tags.target_tags.positive_only = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train.

        Args:
            X: (n, features), numbers, brought to about -1 to 1 by public numbers; with `columns` a
                data frame.
            y: (n,), whole numbers from 0.
            groups: (n,), whose record each is, by which its silo is called; dealt in turn to
                `silos` silos if None.

        Returns:
            The estimator itself.

        Raises:
            ValueError: the rows or the numbers do not fit.
        """
        inputs, counts = self._given(X, y, y_numeric=True)
        high, read_off = self.high, []
        if high is None:
            high = max(1.0, float(counts.max()))
            read_off = [f"the largest count ({high:g})"]
            warn_of_read_off(read_off[0], "high")
        silos = dealt(groups, len(counts), self.silos)
        target = {"kind": "count", "high": float(high)}
        return self._learn(inputs, counts.astype(np.float64), silos, read_off, target=target)

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
