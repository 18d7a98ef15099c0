"""What a run gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.core.errors import StudyError
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.plan_rows import promised_against, spoken
from hubbub.core.planning.query import QueryState
from hubbub.core.runs.renderers import render
from hubbub.core.runs.spending import Spending
from hubbub.core.tabular.records import Standardisation
from hubbub.estimation.queries.synthesis_query import SYNTHESIS, synthesis_of
from hubbub.estimation.statistic import Answer
from hubbub.estimation.synthesis.release import SyntheticData
from hubbub.learning.runs import baselines, trained_model

_MOST_SHOWN = 10  # classes


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """What a run gives back.

    Args:
        model: the trained torch module; where only statistics are asked for, one that holds what is
            kept of their sums.
        metrics: one row per evaluation, some twenty in all: "step" (a count), "epsilon" so far (no
            unit; absent for "non-private"), and of the public test set "loss" (nats per record)
            and what docs/data.md lists for the target's kind: "accuracy" (a share in [0, 1]) and,
            for two classes, "auc" (a probability), "brier" and "calibration_slope"; averaged
            over the silos for the baseline "alone". Where the study asks for an evaluation on
            records that are held back, also "held_back_accuracy", or what the target's kind has
            instead, and "held_back_loss", with noise.
        epsilon: certified epsilon against the stated adversary at the study's delta; no unit, inf
            for "non-private".
        plan: the plan that was carried out.
        folder: where the run was written; None if nowhere.
        standardisation: what was done to the features before the model saw them; None if nothing.
        is_copied: another copy of the run's folder has made attempts of the study, which count as
            this run's and leave fewer steps to it.
        baseline: which one was run, or "rehearsal"; None for hubbub.
        shape: of one record's features.
        statistics: the answers to the study's statistics, by name.
        scores: of the trained model on the public test set, by metric, each with an interval and
            beside that of a model that knows nothing; see `hubbub.learning.evaluation`. Empty where
            there is no test set.
        validation: what the study's private validation says of the trained model, as plain values
            (docs/validation.md); None where the study asks for none.
        spending: what the silos' records have spent in all, this run included; None where no ledger
            of this process says.
        made_public: what was read off the records because nobody had stated it, in words; the
            promise does not cover it.
        states: where every query came to, by purpose.

    >>> import hubbub
    >>> rng = np.random.default_rng(0)
    >>> def table():
    ...     return rng.uniform(-1, 1, (50, 2)), np.arange(50) % 2
    >>> silos = {"north": table(), "south": table(), "east": table()}
    >>> result = hubbub.fit(silos, test=table(), epsilon=1, steps=2)
    >>> sorted(result.final)
    ['accuracy', 'auc', 'brier', 'calibration_slope', 'epsilon', 'loss', 'step']
    >>> print(result)  # doctest: +ELLIPSIS
    fit: 2 of 2 steps
    epsilon ... at delta 1e-05 against the aggregator together with 1 silo
    made public, since it was not stated: the number of records (150); how many ...
    loss ..., accuracy ..., auc ...
    """

    model: Any = field(repr=False)
    metrics: tuple[Mapping[str, float], ...]
    epsilon: float
    plan: Plan = field(repr=False)
    folder: Path | None = None
    standardisation: Standardisation | None = None
    is_copied: bool = False
    baseline: str | None = None
    shape: tuple[int, ...] = ()
    statistics: Mapping[str, Answer] = field(default_factory=dict, repr=False)
    scores: Mapping[str, learning.Score] = field(default_factory=dict, repr=False)
    validation: Mapping[str, Any] | None = field(default=None, repr=False)
    spending: Spending | None = None
    made_public: tuple[str, ...] = ()
    states: Mapping[str, QueryState] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        text: str = render("text", self)
        return text

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        html: str = render("notebook", self)
        return html

    @property
    def adversary(self) -> str:
        """Against whom `epsilon` holds; "nobody" for "non-private"."""
        if self.baseline == baselines.REHEARSAL:
            return "nobody: a rehearsal shows what a run would give"
        against = promised_against(self.plan.stated.adversary, self.baseline)
        return "nobody" if against is None else spoken(against)

    @property
    def trained(self) -> trained_model.TrainedModel:
        """The model with what turns tables into its features."""
        return trained_model.TrainedModel(
            study=self.plan.study,
            module=self.model.eval(),
            shape=self.shape,
            standardisation=self.standardisation,
        )

    def predict(self, table: Any) -> NDArray[np.float32]:
        """Predictions for new records, which stay where they are.

        Args:
            table: a file, a data frame or an array; see `TrainedModel.predict`.

        Returns:
            (n,): the probability of the second class; (n, classes) for more than two classes; for
            other targets see `TrainedModel.predict`.
        """
        return self.trained.predict(table)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report of the run: one HTML file that loads nothing.

        Args:
            path: of the file; `report.html` in the run's folder if None, or here if it has none.

        Returns:
            The file's path.

        Raises:
            OSError: the file cannot be written.
        """
        written: Path = render("page", self, None if path is None else Path(path))
        return written

    def validation_frame(self) -> Any:
        """The private validation as a pandas data frame, a row for each score of each group.

        Returns:
            "by" and "group" (empty for all records), "count" of records with noise, "score", and
            what `validation.json` says of each: "value", "low", "high", "null" and others.

        Raises:
            StudyError: the study asks for none.
            ImportError: pandas is not installed.
        """
        import pandas as pd  # which is no part of hubbub: who has no frames needs none

        if self.validation is None:
            raise StudyError("expected a study with [validation], got one without; ask for it")
        told = [self.validation["all"], *self.validation["groups"]]
        return pd.DataFrame(
            {"by": one["by"], "group": one["group"], "count": one["count"], "score": name, **score}
            for one in told
            if one is not None
            for name, score in one["scores"].items()
        )

    @property
    def synthetic(self) -> SyntheticData:
        """The synthetic records that the study asks for.

        Raises:
            StudyError: it asks for none.
        """
        state = self.states.get(SYNTHESIS)
        query = synthesis_of(self.plan.study)
        assert state is not None, "a run of a study that asks for them has them"  # noqa: S101
        return query.synthetic(self.plan, state.parameters)

    @property
    def steps(self) -> int:
        """How many steps the model has taken."""
        return int(self.final["step"])

    @property
    def final(self) -> Mapping[str, float]:
        """The last row of `metrics`: those of the model that is returned."""
        return self.metrics[-1]


def scores_to_dict(scores: Mapping[str, learning.Score]) -> dict[str, dict[str, Any]]:
    """Scores as plain values."""
    return {name: one.to_dict() for name, one in scores.items()}


def classes_in_words(classes: Sequence[object]) -> str:
    """Classes that were read off records, as a summary names them."""
    shown = ", ".join(map(str, classes[:_MOST_SHOWN]))
    return f"which classes there are ({shown}{', …' if len(classes) > _MOST_SHOWN else ''})"
