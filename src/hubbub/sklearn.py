"""A scikit-learn estimator: the whole protocol behind `fit` and `predict_proba`.

It is an adapter and knows nothing of its own: records go to `hubbub.fit`, errors come back as the
`ValueError` that scikit-learn's tools expect. It needs the extra `sklearn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from hubbub.errors import HubbubError
from hubbub.training import fit

__all__ = ["FederatedClassifier"]


class FederatedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that several silos train together, with differential privacy for each record.

    The parties are simulated in this process, with the real protocol; `groups` says whose record
    each row is. The noise is drawn from the operating system, so two fits differ, and there is no
    `random_state`.

    Args:
        epsilon: promised against the aggregator with `colluders` silos; no unit.
        delta: the chance with which the promise may fail, a probability.
        colluders: silos that may join the adversary.
        silos: how many silos the rows are dealt to, in turn, where `fit` gets no groups.
        model: "logistic", "mlp", or a torch module, as for `hubbub.fit`.
        hidden: widths of the hidden layers of "mlp".
        steps: number of steps.
        sample_rate: the chance of a record to be in a batch, a probability.
        clip: the largest norm of a record's gradient.
        optimizer: name and options; Adam with a rate of 0.1 if None.
        relation: of neighbouring data sets, "add-remove" or "substitute".

    Attributes:
        classes_: (classes,), sorted.
        n_features_in_: number of features.
        result_: what `hubbub.fit` gave: the model, its metrics, its plan, its epsilon.
        n_iter_: steps that were taken.

    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(400, random_state=0)
    >>> hospital = np.arange(400) % 3
    >>> model = FederatedClassifier(epsilon=5).fit(X / 3, y, groups=hospital)
    >>> model.predict_proba(X[:2] / 3).shape, bool(model.result_.epsilon <= 5)
    ((2, 2), True)
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        colluders: int = 1,
        silos: int = 4,
        model: Any = "logistic",
        hidden: tuple[int, ...] = (),
        steps: int = 60,
        sample_rate: float = 0.2,
        clip: float = 1.0,
        optimizer: Mapping[str, Any] | None = None,
        relation: str = "add-remove",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.colluders = colluders
        self.silos = silos
        self.model = model
        self.hidden = hidden
        self.steps = steps
        self.sample_rate = sample_rate
        self.clip = clip
        self.optimizer = optimizer
        self.relation = relation

    def __sklearn_tags__(self) -> Any:
        """The noise makes two fits differ, and few records give poor scores."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train.

        Args:
            X: (n, features), numbers, brought to about -1 to 1 by public numbers.
            y: (n,), classes.
            groups: (n,), whose record each is; dealt in turn to `silos` silos if None.

        Returns:
            The estimator itself.

        Raises:
            ValueError: the rows or the numbers do not fit.
        """
        inputs, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("expected at least 2 classes in y, found 1 class; nothing to learn")
        owners = _owners(groups, len(labels), self.silos)
        parts = {
            f"silo-{silo + 1}": (inputs[owners == silo], numbers[owners == silo])
            for silo in range(owners.max() + 1)
        }
        try:
            self.result_ = fit(
                parts,
                epsilon=self.epsilon,
                delta=self.delta,
                colluders=self.colluders,
                model=self.model,
                classes=range(len(self.classes_)),
                hidden=self.hidden,
                steps=self.steps,
                sample_rate=self.sample_rate,
                clip=self.clip,
                optimizer=self.optimizer,
                relation=self.relation,
            )
        except HubbubError as error:
            raise ValueError(str(error)) from error
        self.n_iter_ = self.result_.steps
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probability of each class.

        Args:
            X: (n, features).

        Returns:
            (n, classes), each row adding up to 1.

        Raises:
            ValueError: the rows do not fit.
        """
        check_is_fitted(self)
        inputs = validate_data(self, X, dtype=np.float64, reset=False)
        found = self.result_.predict(inputs).astype(np.float64)
        return np.column_stack([1 - found, found]) if found.ndim == 1 else found

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


def _owners(groups: ArrayLike | None, rows: int, silos: int) -> NDArray[np.intp]:
    """The silo of each row, counted from 0."""
    if groups is None:
        return np.arange(rows) % silos
    given = np.asarray(groups)
    if given.shape != (rows,):
        raise ValueError(f"expected groups of shape ({rows},), found {given.shape}; give one a row")
    if any(one is None or one != one for one in given.tolist()):
        raise ValueError("expected a silo for each row in groups, found a missing one; fill it in")
    return np.unique(given, return_inverse=True)[1]
