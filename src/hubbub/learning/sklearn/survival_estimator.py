"""Survival: times to an event in, risks and survival curves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array

from hubbub.learning.sklearn.federated_estimator import Federated, dealt, warn_of_read_off
from hubbub.learning.survival_metrics import harrell

_INTERVALS = 10  # of the grid where nobody states one


class FederatedSurvival(Federated):
    """A survival model that several silos train together, with privacy for each record.

    Hazards on a public grid of times, proportional for the built-in models. As `predict` of
    scikit-survival's estimators, that of this one gives risks, higher ones for earlier events, and
    `score` their concordance.

    Args:
        grid: public times, rising, at which the intervals of the hazards end; what happens
            after the last is not seen. None: ten equal intervals up to the longest time, which then
            counts as public, with a warning.
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
        unique_times_: (times,), the grid.
        n_features_in_: number of features.
        result_: what `hubbub.fit` gave: the model, its metrics, its plan, its epsilon.
        n_iter_: steps that were taken.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (900, 2))
    >>> died, left = rng.exponential(20 * np.exp(-2 * X[:, 0])), rng.uniform(0, 48, 900)
    >>> y = np.column_stack([np.minimum(died, left), died <= left])
    >>> hospital = np.arange(900) % 3
    >>> model = FederatedSurvival(epsilon=8, grid=[6, 12, 24, 36]).fit(X, y, groups=hospital)
    >>> model.predict_survival_function(X[:2]).shape, bool(model.score(X, y) > 0.6)
    ((2, 4), True)
    """

    grid: Sequence[float] | None

    def __init__(
        self,
        *,
        grid: Sequence[float] | None = None,
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

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train.

        Args:
            X: (n, features), numbers, brought to about -1 to 1 by public numbers; with `columns` a
                data frame.
            y: (n, 2), times and 1 or 0 for the event; or (n,) with a field of truth values, the
                event, and one of numbers, the time, as scikit-survival has it.
            groups: (n,), whose record each is, by which its silo is called; dealt in turn to
                `silos` silos if None.

        Returns:
            The estimator itself.

        Raises:
            ValueError: the rows or the numbers do not fit.
        """
        inputs = self._given(X)
        followed = _times_and_events(y, len(inputs))
        grid, read_off = self.grid, []
        if grid is None:
            last = float(followed[:, 0].max())
            grid = (last * (np.arange(_INTERVALS) + 1) / _INTERVALS).tolist()
            read_off = [f"the longest time ({last:g})"]
            warn_of_read_off(read_off[0], "grid")
        silos = dealt(groups, len(followed), self.silos)
        target = {"kind": "time-to-event", "grid": [float(time) for time in grid]}
        self._learn(inputs, followed, silos, read_off, target=target)
        self.unique_times_ = np.array(grid, dtype=np.float64)
        return self

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
