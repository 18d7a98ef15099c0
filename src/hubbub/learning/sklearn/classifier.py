"""A classifier: classes in, their probabilities out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from hubbub.learning.runs import array_inputs
from hubbub.learning.runs.result import classes_in_words
from hubbub.learning.sklearn.federated_estimator import Federated, dealt


class FederatedClassifier(ClassifierMixin, Federated):  # type: ignore[misc]
    """A classifier that several silos train together, with differential privacy for each record.

    The parties are simulated in this process, with the real protocol; `groups` says whose record
    each row is. The noise is drawn from the operating system, so two fits differ, and there is no
    `random_state`. What is not stated of `records`, `capacity` and `classes` is read off the rows
    and counts as public; `result_` names it. Each fit is a release of its own, those of a
    cross-validation too: with `out` the silos' ledgers count all of them, and without, the second
    one warns.

    Args:
        epsilon: promised against the aggregator with `colluders` silos; no unit.
        delta: the chance with which the promise may fail, a probability.
        colluders: silos that may join the adversary.
        silos: how many silos the rows are dealt to, in turn, where `fit` gets no groups.
        model: "logistic", "mlp", or a torch module, as for `hubbub.fit`.
        hidden: widths of the hidden layers of "mlp".
        intercept: where the bias of a "logistic" of two classes begins, as for `hubbub.fit`.
        steps: number of steps; None: as for `hubbub.fit`.
        sample_rate: the chance of a record to be in a batch, a probability.
        clip_norm: the largest norm of a record's gradient; None: as for `hubbub.fit`.
        optimizer: name and options; None: as for `hubbub.fit`.
        relation: of neighbouring data sets, "add-remove" or "substitute".
        records: public number of rows, as which the sum is divided; None: as many as there are.
        capacity: public number of rows that a silo may hold; None: a step of a public ladder.
        classes: all that y may hold; None: those that occur, of which with `groups` some silo must
            hold all.
        columns: what each column of a data frame becomes, by the keys of `data.columns` in a
            study; X is then a frame, not an array. None: X is numbers, used as they are.
        statistics: what is asked beside the training, as for `hubbub.fit`; takes `columns`.
        validation: epsilon of a private validation of the model on the rows, or its table, as
            for `hubbub.fit`; `result_.validation` has its scores.
        out: folder in which each fit gets one of its own, `fit-1`, `fit-2`, …, beside the silos'
            `ledgers`; None: write nothing, keep no ledger.

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

    classes: Sequence[Any] | None
    intercept: float | None

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        colluders: int = 1,
        silos: int = 4,
        model: Any = "logistic",
        hidden: tuple[int, ...] = (),
        intercept: float | None = None,
        steps: int | None = None,
        sample_rate: float = 0.2,
        clip_norm: float | None = None,
        optimizer: Mapping[str, Any] | None = None,
        relation: str = "add-remove",
        records: int | None = None,
        capacity: int | None = None,
        classes: Sequence[Any] | None = None,
        columns: Mapping[str, Mapping[str, Any]] | None = None,
        statistics: Mapping[str, Any] | None = None,
        validation: Mapping[str, Any] | float | None = None,
        out: str | Path | None = None,
    ) -> None:
        self._keep(locals())

    def __sklearn_tags__(self) -> Any:
        """Few records give poor scores."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train.

        Args:
            X: (n, features), numbers, brought to about -1 to 1 by public numbers; with `columns` a
                data frame.
            y: (n,), classes.
            groups: (n,), whose record each is, by which its silo is called; dealt in turn to
                `silos` silos if None.

        Returns:
            The estimator itself.

        Raises:
            ValueError: the rows or the numbers do not fit.
        """
        inputs, labels = self._given(X, y)
        check_classification_targets(labels)
        silos = dealt(groups, len(labels), self.silos)
        if self.classes is None and groups is not None:
            array_inputs.refuse_several_codings({n: labels[rows] for n, rows in silos.items()})
        self.classes_, numbers = _numbered(labels, self.classes)
        read_off = [] if self.classes is not None else [classes_in_words(self.classes_.tolist())]
        return self._learn(
            inputs,
            numbers,
            silos,
            read_off,
            classes=range(len(self.classes_)),
            intercept=self.intercept,
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
