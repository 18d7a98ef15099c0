"""A scikit-learn estimator: the whole protocol behind `fit` and `predict_proba`.

It is an adapter and knows nothing of its own: records go to `hubbub.fit`, errors come back as the
`ValueError` that scikit-learn's tools expect. It needs the extra `sklearn`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from hubbub.errors import HubbubError
from hubbub.study.parties import is_name, is_reserved
from hubbub.tabular import canonical
from hubbub.training import array_inputs, fit
from hubbub.training.result import classes_in_words

__all__ = ["FederatedClassifier"]


_FORMER = "deprecated"  # the value of a former argument that is not given


class FederatedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
        steps: number of steps.
        sample_rate: the chance of a record to be in a batch, a probability.
        clip_norm: the largest norm of a record's gradient.
        optimizer: name and options; Adam with a rate of 0.1 if None.
        relation: of neighbouring data sets, "add-remove" or "substitute".
        records: public number of rows, as which the sum is divided; None: as many as there are.
        capacity: public number of rows that a silo may hold; None: a step of a public ladder.
        classes: all that y may hold; None: those that occur, of which with `groups` some silo must
            hold all.
        out: folder in which each fit gets one of its own, `fit-1`, `fit-2`, …, beside the silos'
            `ledgers`; None: write nothing, keep no ledger.
        clip: what `clip_norm` was called before 0.2; goes with 0.3.

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
        clip_norm: float = 1.0,
        optimizer: Mapping[str, Any] | None = None,
        relation: str = "add-remove",
        records: int | None = None,
        capacity: int | None = None,
        classes: Sequence[Any] | None = None,
        out: str | Path | None = None,
        clip: Any = _FORMER,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.colluders = colluders
        self.silos = silos
        self.model = model
        self.hidden = hidden
        self.steps = steps
        self.sample_rate = sample_rate
        self.clip_norm = clip_norm
        self.optimizer = optimizer
        self.relation = relation
        self.records = records
        self.capacity = capacity
        self.classes = classes
        self.out = out
        self.clip = clip

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
            groups: (n,), whose record each is, by which its silo is called; dealt in turn to
                `silos` silos if None.

        Returns:
            The estimator itself.

        Raises:
            ValueError: the rows or the numbers do not fit.
        """
        inputs, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        names, owners = _owners(groups, len(labels), self.silos)
        of_silo = {name: owners == silo for silo, name in enumerate(names)}
        if self.classes is None and groups is not None:
            array_inputs.refuse_several_codings({n: labels[rows] for n, rows in of_silo.items()})
        self.classes_, numbers = _numbered(labels, self.classes)
        parts = {name: (inputs[rows], numbers[rows]) for name, rows in of_silo.items()}
        try:
            learned = fit(
                parts,
                epsilon=self.epsilon,
                delta=self.delta,
                colluders=self.colluders,
                model=self.model,
                classes=range(len(self.classes_)),
                hidden=self.hidden,
                steps=self.steps,
                sample_rate=self.sample_rate,
                clip_norm=self.clip_norm,
                clip=None if self.clip == _FORMER else self.clip,
                optimizer=self.optimizer,
                relation=self.relation,
                records=self.records,
                capacity=self.capacity,
                out=None if self.out is None else _new_folder(Path(self.out)),
            )
        except HubbubError as error:
            raise ValueError(str(error)) from error
        read_off = [] if self.classes is not None else [classes_in_words(self.classes_.tolist())]
        self.result_ = replace(learned, made_public=(*learned.made_public, *read_off))
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
