"""A trained model at work: tables in, predictions out, by the study's own encoding.

Everything here is public or the caller's own: the model of a run is a release that the run has paid
for, and records that are scored leave nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.core.disk import json_value
from hubbub.core.errors import DataError, IntegrityError, ModelError, UserError
from hubbub.core.study import foreign_code, silo_records
from hubbub.core.study.source import is_own
from hubbub.core.study.study import Study
from hubbub.core.tabular.cells import cells_of, number_rule, read_cells, read_column
from hubbub.core.tabular.records import Records, Standardisation
from hubbub.core.tabular.table import encode_inputs
from hubbub.core.verification.evidence.claims import MODEL
from hubbub.estimation.data_frame import data_frame, library_of
from hubbub.learning.queries.beside_training import STANDARDISED
from hubbub.learning.study.training import is_header_of, learning_of

_TRUTH = {"True": "1", "False": "0"}


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """The model of a run, ready to predict new records.

    Args:
        study: that was run; says how records become features.
        module: the torch module, in eval mode; features (n, ...) in, logits out: shape (n,) for two
            classes, (n, classes) for more.
        shape: of one record's features.
        standardisation: what features go through before the module; None if nothing.
        column_names: of the data frames that `fit` took by the places of their columns, in their
            order; empty where the study names the columns, and where there were only arrays.

    >>> import hubbub
    >>> rng = np.random.default_rng(0)
    >>> silos = {name: (rng.uniform(-1, 1, (50, 2)), np.arange(50) % 2) for name in "abc"}
    >>> trained = hubbub.fit(silos, epsilon=1, steps=2).trained
    >>> trained.predict(np.zeros((3, 2), dtype=np.float32)).shape, trained.classes
    ((3,), ('0', '1'))
    """

    study: Study
    module: Any = field(repr=False)
    shape: tuple[int, ...]
    standardisation: Standardisation | None = field(default=None, repr=False)
    column_names: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """What the classes are called, in the order of their numbers; empty if there are none."""
        if self.study.data.outcome is not None:
            return ()
        data, outputs = self.study.data, learning_of(self.study)[0].outputs
        if data.positive:
            return (" or ".join(data.negative), " or ".join(data.positive))
        if len(data.classes) == max(outputs, 2):
            return data.classes
        return tuple(map(str, range(max(outputs, 2))))

    @property
    def scorer(self) -> Any:
        """A torch module that takes features as the study encodes them and gives predictions."""
        return learning.Scorer(self.module, self.standardisation, learning.goal_of(self.study))

    def to_onnx(self, path: Path) -> None:
        """Write the scorer for other programs.

        Args:
            path: of the ONNX file, replaced if it exists.

        Raises:
            UserError: the packages `onnx` and `onnxscript` are not there, or cannot say the model.
            OSError: the file cannot be written.
        """
        learning.write_onnx(path, self.scorer, self.shape)

    def predict(self, table: Any) -> NDArray[np.float32]:
        """Predictions for new records, which stay where they are.

        Args:
            table: path of a CSV or Parquet file; a data frame or mapping of columns; or features as
                the study encodes them, an array or tensor (n, ...). A target column is ignored, and
                so are columns that the study does not name.

        Returns:
            (n,): the probability of the second class; (n, classes) for more than two classes. (n,)
            also for an amount, in its own unit, and for a count, how many are expected, with
            `data.target.exposure` in one unit of exposure. (n, times) for a time to an event: the
            chance to be without it after each time of the grid.

        Raises:
            DataError: the table cannot be read or does not fit the study.
            ModelError: a prediction is no finite number.
        """
        # By the module and everything before it, as it was trained.
        predicted = learning.scores(self.scorer, self.features(table))
        finite = np.asarray(np.isfinite(predicted).all(tuple(range(1, predicted.ndim))))
        if not finite.all():
            raise ModelError(
                f"expected finite predictions, found others for {int((~finite).sum())} of "
                f"{len(finite)} rows, the first of them row {int(np.argmin(finite)) + 1}; "
                "look at that row, or train the model again"
            )
        return predicted

    def predict_frame(self, table: Any) -> Any:
        """Predictions for new records as a data frame, of the library that the table is of.

        Args:
            table: as `predict` takes it.

        Returns:
            A row for each record, with the columns of `predictions`; of anything but a data frame
            in the first of pandas, polars and pyarrow that is installed.

        Raises:
            DataError, ModelError: as `predict`.
            UserError: there is no such library.
        """
        return data_frame(predictions(self, table), library_of(table))

    def features(self, table: Any) -> NDArray[np.float32]:
        """The features of new records, as the study encodes them, not yet standardised.

        Args:
            table: see `predict`.

        Returns:
            (n, ...) float32, one row for each record.

        Raises:
            DataError: the table cannot be read or does not fit the study.
        """
        if hasattr(table, "detach"):
            table = table.detach().cpu().numpy()
        if isinstance(table, np.ndarray):
            if table.dtype.kind not in "fiub" or not np.isfinite(table).all():
                raise DataError("expected finite numbers to predict from, found others; clean them")
            unlabelled = np.zeros(len(table), dtype=np.float32)
            records = Records(inputs=table.astype(np.float32), targets=unlabelled)
            extractor = learning_of(self.study)[0].extractor
            inputs = learning.through_frozen(extractor, records).inputs
        else:
            inputs = self._encoded(table)
        if tuple(inputs.shape[1:]) != self.shape or inputs.ndim < 2:
            raise DataError(
                f"expected records of shape {self.shape}, as the model was trained with, found "
                f"{tuple(inputs.shape[1:])}; give the columns that the study names"
            )
        return inputs

    def exposures(self, table: Any) -> NDArray[np.float64] | None:
        """For how long, or of how much, each record of a table is counted; None: it says nothing.

        Args:
            table: a file, a data frame or an array.

        Returns:
            (n,) in the exposure's own unit, above 0.

        Raises:
            DataError: a cell is no exposure above 0.
        """
        outcome = self.study.data.outcome
        if outcome is None or not outcome.exposure or hasattr(table, "dtype"):
            return None
        cells = _cells(table, [outcome.exposure])
        if outcome.exposure not in cells:
            return None
        where = f"{_origin(table)}, column {outcome.exposure!r}"
        return read_column(cells[outcome.exposure], outcome.rule_of(outcome.exposure), where)

    def _encoded(self, table: Any) -> NDArray[np.float32]:
        origin = _origin(table)
        columns, target = silo_records.encoding(self.study)
        if not columns and is_own(self.study.data.source):
            raise DataError(
                "expected an array of features, since the study's records come from a function, "
                f"found {origin}; call hubbub.load and give its predict an array"
            )
        cells = _cells(table, [column.name for column in columns])
        if self.column_names:  # of data frames that were fitted by their places
            if missing := [name for name in self.column_names if name not in cells]:
                raise DataError(
                    f"expected in {origin} the columns that the model was fitted to, found no "
                    f"{missing[0]!r}; add it"
                )
            # Whatever they are called, none is a target; and truth values are numbers, as in `fit`.
            read = [
                read_column(
                    [_TRUTH.get(text, text) for text in cells[name]],
                    number_rule,
                    f"{origin}, column {name!r}",
                )
                for name in self.column_names
            ]
            return np.column_stack(read).astype(np.float32)
        outcome = self.study.data.outcome
        return encode_inputs(cells, target=target, columns=columns, outcome=outcome, origin=origin)


def _origin(table: Any) -> str:
    """What sentences call a table."""
    return Path(table).name if isinstance(table, str | Path) else "the table"


def _cells(table: Any, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """These columns' cells of a file, or all of a table in memory."""
    return read_cells(Path(table), names) if isinstance(table, str | Path) else cells_of(table)


def load(folder: str | Path, *, model: Any = None, trust_code: bool = False) -> TrainedModel:
    """The model of a finished run.

    Guarantees:
        1. Nothing that the folder names is executed, unless this user has approved or run the very
           same code on this machine before, or trusts it here.

    Args:
        folder: of the run.
        model: a module of the trained one's shapes, for a run whose module was made by a program
            (`hubbub.fit`); it is overwritten.
        trust_code: the factory that the study names may run here, known or not. Its source still
            has to be the one that the study states, if it states one.

    Returns:
        The torch module, and what turns tables into its features.

    Raises:
        UserError: there is no finished run in the folder.
        StudyError: the module cannot be built from the study, or only by code that is not known.
        ModelError: the file holds a model of other shapes.
        IntegrityError: a file of the run was damaged, is missing, or is that of another run.

    >>> load("no/such/run")
    Traceback (most recent call last):
        ...
    hubbub.core.errors.UserError: expected a finished run in no/such/run, found no model in it; ...
    """
    path = Path(folder)
    study = _study_in(path)
    settings, _ = learning_of(study)
    # Code that makes the module or its features, if nobody here has let it run, is refused.
    called = (
        settings.frozen.module if settings.frozen else "",
        settings.kind if model is None else "",
    )
    names = [name for name in study.own_code if name in called]
    foreign_code.keep_known(study, names, trusted=trust_code)
    shape = learning.stored_shape(path / MODEL)
    if model is not None:
        module = learning.with_logits(study, model, shape)
    else:
        build = partial(learning.model_of, study, shape)
        if settings.is_built_in:  # no larger than the file of its numbers
            learning.refuse_other_model(path / MODEL, build)
        module = build()
    header = learning.load_model(path / MODEL, module)
    if not is_header_of(header, study):
        raise IntegrityError(
            f"expected {path / MODEL} to be a model of the study beside it, found that of another; "
            "copy both again"
        )
    standardised = Standardisation.read(path / STANDARDISED, shape[0])
    if standardised is None and study.data.standardise is not None:
        raise IntegrityError(
            f"expected {path / STANDARDISED}, which the study's features need, found none; copy it "
            "again"
        )
    if standardised is not None and study.data.standardise is None:
        raise IntegrityError(
            f"expected no {path / STANDARDISED}, as the study says, found one; remove it"
        )
    listed: Any = None
    with suppress(ValueError):  # of the data frames that it was fitted to
        listed = json_value(header.get("columns", "[]"))
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise IntegrityError(
            f"expected {path / MODEL} to list names of columns, found others; copy it again"
        )
    return TrainedModel(
        study=study,
        module=module.eval(),
        shape=shape,
        standardisation=standardised,
        column_names=tuple(listed),
    )


def predictions(trained: TrainedModel, table: Any) -> Mapping[str, list[Any]]:
    """What a table of predictions holds: columns of the row's number, probabilities and class.

    "row" is from 1, "score" the probability of the second of two classes, or "score of CLASS" for
    each of more; of counts with an exposure "rate" is in one unit of it, and "predicted" there
    where the table has that column; for times there is "free of it after TIME" of the grid.
    """
    predicted, classes = trained.predict(table), trained.classes
    columns: dict[str, list[Any]] = {"row": list(range(1, len(predicted) + 1))}
    outcome = trained.study.data.outcome
    if outcome is not None and outcome.exposure_high:
        exposures = trained.exposures(table)
        columns["rate"] = _digits(predicted)
        return columns | (
            {} if exposures is None else {"predicted": _digits(predicted * exposures)}
        )
    if outcome is not None and not outcome.grid:
        return columns | {"predicted": _digits(predicted)}
    if outcome is not None:
        return columns | {
            f"free of it after {time:g}": _digits(predicted[:, k])
            for k, time in enumerate(outcome.grid)
        }
    if predicted.ndim == 1:
        columns["score"] = _digits(predicted)
        best = (predicted > 0.5).astype(int)
    else:
        columns |= {f"score of {name}": _digits(predicted[:, k]) for k, name in enumerate(classes)}
        best = predicted.argmax(1)
    return columns | {"predicted": [classes[k] for k in best.tolist()]}


def _digits(column: NDArray[np.floating[Any]]) -> list[float]:
    """The fewest digits that give a float32 back."""
    return [float(str(value)) for value in column.astype(np.float32)]


def _study_in(folder: Path) -> Study:
    """The study of a finished run, or UserError."""
    study = Study.load(folder / "study.toml") if (folder / "study.toml").is_file() else None
    if study is not None and study.model is None:
        raise UserError(
            f"expected a run that trained a model in {folder}, got one with statistics "
            "only; its answers are in statistics.json"
        )
    if study is None or not (folder / MODEL).is_file():
        what = "study.toml" if study is None and (folder / MODEL).is_file() else "model"
        raise UserError(
            f"expected a finished run in {folder}, found no {what} in it; name the folder "
            "given to --out, or continue with hubbub run --resume"
        )
    return study
