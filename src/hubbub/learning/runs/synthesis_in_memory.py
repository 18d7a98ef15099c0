"""Synthetic records from a program: tables in, records out, or those of a run's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hubbub.core.errors import UserError
from hubbub.core.planning.query import QueryState
from hubbub.core.planning.study_plan import plan
from hubbub.core.study.study import Study
from hubbub.estimation.queries.synthesis_query import synthesis_of
from hubbub.estimation.synthesis.release import SyntheticData
from hubbub.learning.runs import array_inputs
from hubbub.learning.runs.statistics_context import ReleasableQuery, statistics

_NAME = "synthetic"


def synthesize(
    silos: Mapping[str, Any],
    *,
    columns: Mapping[str, Mapping[str, Any]],
    epsilon: float,
    delta: float = 1e-5,
    targets: Sequence[str] = (),
    bins: int = 8,
    cuts: Mapping[str, Sequence[float]] | None = None,
    follows: Mapping[str, str] | None = None,
    possible: Sequence[str] = (),
    size: int = 0,
    total: float | None = None,
    colluders: int = 1,
    relation: str = "add-remove",
    records: int | None = None,
    patients: str | Mapping[str, Any] | None = None,
    most_per_patient: int | None = None,
    out: str | Path | None = None,
) -> SyntheticData:
    """Make synthetic records from silos whose tables are in memory, with the full protocol.

    Guarantees:
        1. Everything that is given back, and whatever is drawn from it later, is (epsilon,
           delta)-DP against the aggregator with `colluders` silos (docs/privacy.md P26), but for
           what is counted here and then public: the units in all, where `records` is None.
        2. It counts against the same ledgers as `hubbub.statistics` of the same tables, and who
           runs a cell twice gets the same release (P22).

    Args:
        silos: each silo's table by its name: a data frame, or a mapping of columns to values.
        columns, delta, colluders, relation, records, patients, most_per_patient, out: see
            `hubbub.statistics`.
        epsilon: what it may cost; no unit.
        targets: up to 3 columns of most interest, such as the outcome.
        bins: ranges of equal width of a numeric column.
        cuts: by column its public break points instead.
        follows: by column the expression of others that it follows from, such as "visits > 0".
        possible: what holds in every record, such as "age - years_married >= 14".
        size: synthetic records to draw; 0: about as many as there are units.
        total: epsilon of all that is asked of these tables, earlier and later `hubbub.statistics`
            too; None: `epsilon`, which nothing else may have a part of.

    Returns:
        An object that draws records and gives shares with intervals.

    Raises:
        DataError: a table does not fit the columns.
        StudyError: a number is out of its range.
        BudgetError: these tables have too little left.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1729)
    >>> def silo():
    ...     return {"age": rng.uniform(20, 90, 400), "sex": rng.choice(["f", "m"], 400)}
    >>> made = synthesize(
    ...     {"north": silo(), "south": silo(), "east": silo()},
    ...     columns={
    ...         "age": {"low": 20, "high": 90, "complete": True},
    ...         "sex": {"categories": ["f", "m"], "complete": True},
    ...     },
    ...     epsilon=4,
    ... )
    >>> table = made.draw(500)
    >>> sorted(table), len(table["age"]), sorted(set(table["sex"]))
    (['age', 'sex'], 500, ['f', 'm'])
    >>> share = made.shares("sex")["f"]
    >>> share.low < 0.5 < share.high
    True
    """
    context = statistics(
        silos,
        columns=columns,
        epsilon=epsilon if total is None else total,
        delta=delta,
        colluders=colluders,
        relation=relation,
        records=records,
        patients=patients,
        most_per_patient=most_per_patient,
        out=out,
    )
    keys: dict[str, Any] = {"targets": list(targets), "bins": bins, "records": size}
    keys |= {"cuts": {name: list(some) for name, some in cuts.items()}} if cuts else {}
    keys |= {"follows": dict(follows)} if follows else {}
    keys |= {"possible": list(possible)} if possible else {}
    privacy = {**context.tables["privacy"], "epsilon": float(epsilon)}
    tables = {**context.tables, "study": {"name": _NAME}, _NAME: keys, "privacy": privacy}
    study = Study.from_table(array_inputs.plain(tables))
    made: SyntheticData = ReleasableQuery(context=context, study=study).release().synthetic
    return made


def synthetic(folder: str | Path) -> SyntheticData:
    """The synthetic records of a finished run.

    Args:
        folder: of the run, or of a silo's copy of what it gave.

    Returns:
        An object that draws records and gives shares with intervals.

    Raises:
        UserError: there is no run in the folder, or it is not finished.
        StudyError: its study asks for no synthetic records.
        IntegrityError: its sums were altered.

    >>> import tempfile
    >>> import numpy as np
    >>> table = {"age": np.linspace(20, 90, 300), "sex": ["f", "m"] * 150}
    >>> columns = {"age": {"low": 20, "high": 90}, "sex": {"categories": ["f", "m"]}}
    >>> with tempfile.TemporaryDirectory() as home:
    ...     _ = synthesize(
    ...         {"north": table, "south": table, "east": table},
    ...         columns=columns,
    ...         epsilon=2,
    ...         out=home,
    ...     )
    ...     (run,) = Path(home).glob("synthetic-*")
    ...     made = synthetic(run)
    >>> len(made.draw(10)["age"])
    10
    """
    home = Path(folder)
    if not (home / "study.toml").is_file():
        raise UserError(
            f"expected the folder of a run at {home}, found no study.toml in it; name the "
            "folder given to --out"
        )
    study = Study.load(home / "study.toml")
    query = synthesis_of(study)
    state = query.restored(home, QueryState(parameters=query.layout.start))
    if not query.has_enough(state):
        raise UserError(
            f"expected a run in {home} that has finished its sums, it has {state.step} of "
            f"{query.mechanism.steps}; continue with hubbub run --resume"
        )
    return query.synthetic(plan(study), state.parameters)
