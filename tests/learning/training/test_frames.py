"""Data frames of each library come in and go out, and no other library is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hubbub
from hubbub.core.errors import DataError, UserError
from hubbub.core.tabular.cells import cells_of
from hubbub.core.verification.replay.checking import verify
from hubbub.estimation.data_frame import data_frame, library_of
from hubbub.learning.runs.array_inputs import records_of

ROOT = Path(__file__).parents[3]
COLUMNS = {"age": {"low": 20, "high": 90}, "sex": {"categories": ["f", "m"]}}
MAKERS = {
    "pandas": lambda pandas: (pandas.DataFrame, pandas.Series),
    "polars": lambda polars: (polars.DataFrame, polars.Series),
    "pyarrow": lambda pyarrow: (pyarrow.table, pyarrow.array),
}

# As if nothing but one library were installed; what others find is that they are not there.
ALONE = """
import sys
from importlib.machinery import PathFinder
others, finds = {"pandas", "polars", "pyarrow"} - {sys.argv[1]}, PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, *where: None if name.partition(".")[0] in others else finds(name, *where)
)
from tests.learning.training.test_frames import frames_of
frames_of(sys.argv[1])
assert not others & set(sys.modules), others & set(sys.modules)
"""


def columns(seed: int, count: int = 120) -> tuple[dict[str, list[Any]], list[str]]:
    rng = np.random.default_rng(seed)
    ages = rng.uniform(20, 90, count)
    features = {"age": ages.tolist(), "sex": rng.choice(["f", "m"], count).tolist()}
    return features, np.where(ages > 55, "ill", "well").tolist()


def makers_of(library: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return MAKERS[library](pytest.importorskip(library))


def frames_of(library: str) -> None:
    """Every door by which frames come in and go out."""
    frame, series = makers_of(library)
    tables = {name: columns(seed) for seed, name in enumerate(("north", "south", "east"))}
    silos = {name: (frame(x), series(y)) for name, (x, y) in tables.items()}
    statistics = {"epsilon": 1.0, "t": {"kind": "table"}}
    given = hubbub.fit(
        silos,
        epsilon=8,
        columns=COLUMNS,
        steps=2,
        statistics=statistics,
        validation=1.0,
        test=silos["east"],
    )
    new = silos["north"][0]
    np.testing.assert_array_equal(given.predict(new), given.predict(tables["north"][0]))
    scores = given.predict_frame(new)
    assert library_of(scores) == library
    # Digit by digit what the array holds.
    np.testing.assert_array_equal(np.asarray(scores["score"], np.float32), given.predict(new))
    assert library_of(given.validation_frame()) == library
    assert library_of(given.statistics["t"].to_frame()) == library

    context = hubbub.statistics(
        {n: frame(x) for n, (x, _) in tables.items()}, columns=COLUMNS, epsilon=4
    )
    answer = context.query([{"kind": "table"}], epsilon=3).release().statistics["table"]
    rows = answer.to_frame()
    assert library_of(rows) == library
    assert np.asarray(rows["value"]).tolist() == [row.value for row in answer.rows]
    assert "library" not in answer.to_dict()

    others = {name: frame(columns(seed)[0]) for seed, name in enumerate(tables, 3)}
    synthetic = hubbub.synthesize(others, columns=COLUMNS, epsilon=3)
    drawn = synthetic.to_frame(20)
    assert library_of(drawn) == library
    sexes = [sex if isinstance(sex, str) else None for sex in np.asarray(drawn["sex"])]
    assert sexes == synthetic.draw(20)["sex"]  # where noise leaves some missing, pandas says nan


@pytest.mark.quick_cases("polars")
@pytest.mark.parametrize("library", MAKERS)
def test_what_comes_in_as_a_frame_goes_out_as_one_and_needs_no_other_library(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library)
    data_frame([{"a": 1}], library)  # Arrow looks for pandas once
    for other in set(MAKERS) - {library}:
        monkeypatch.setitem(sys.modules, other, None)  # to import it is an error
    frames_of(library)


@pytest.mark.slow
@pytest.mark.parametrize("library", MAKERS)
def test_no_module_imports_another_library_of_frames(library: str) -> None:
    pytest.importorskip(library)
    subprocess.run([sys.executable, "-W", "ignore", "-c", ALONE, library], check=True, cwd=ROOT)


@pytest.mark.parametrize("library", MAKERS)
def test_estimators_take_frames(library: str) -> None:
    pytest.importorskip("sklearn")
    from hubbub.sklearn import FederatedClassifier

    frame, series = makers_of(library)
    features, targets = columns(7)
    model = FederatedClassifier(epsilon=8, steps=2, columns=COLUMNS)
    assert set(model.fit(frame(features), series(targets)).predict(frame(features))) <= {
        "ill",
        "well",
    }


@pytest.mark.parametrize("library", MAKERS)
def test_rows_that_lack_columns_and_numbers_of_both_kinds_make_a_frame(library: str) -> None:
    makers_of(library)
    rows = [{"a": 1, "b": "x"}, {"a": 2.5, "c": True}, {"b": None}]
    frame = data_frame(rows, library)
    assert library_of(frame) == library
    assert frame.shape == (3, 3)
    assert np.asarray(frame["a"], float)[:2].tolist() == [1.0, 2.5]


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in MAKERS:
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(UserError, match=f"expected {library} for a data frame, found none"):
            data_frame([], library)
    with pytest.raises(UserError, match=r"expected pandas or polars or pyarrow .*found none"):
        data_frame([])
    with pytest.raises(UserError, match=r"expected pandas or polars or pyarrow .*found 'modin'"):
        data_frame([], "modin")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_fitted_frames_columns_are_found_by_their_names(library: str, tmp_path: Path) -> None:
    """Fitted by their places: another order would be taken for other features, without a word."""
    made = pytest.importorskip(library).DataFrame
    x = np.random.default_rng(3).normal(0, 1, (3, 60, 2))

    def frame_of(rows: Any, names: str = "target b more") -> Any:  # whatever they are called
        columns = {"target": rows[:, 0], "b": rows[:, 1] > 0, "more": rows[:, 1]}
        return made({name: columns[name] for name in names.split()})

    silos = {
        name: (frame_of(rows, "target b"), (rows[:, 0] > 0).astype(int))
        for name, rows in zip("rst", x, strict=True)
    }
    result = hubbub.fit(silos, epsilon=8, steps=2, out=tmp_path / "run")
    wanted = result.predict(np.column_stack([x[0, :, 0], x[0, :, 1] > 0]))
    for names in ("target b", "b target", "more b target"):
        table = frame_of(x[0], names)
        np.testing.assert_allclose(result.predict(table), wanted, rtol=1e-6)
    assert np.array_equal(hubbub.load(tmp_path / "run").predict(table), result.predict(table))
    assert all(finding.holds for finding in verify(tmp_path / "run"))
    scores = result.predict_frame(table)["score"].to_numpy()
    assert np.array_equal(scores.astype(np.float32), result.predict(table))
    with pytest.raises(DataError, match="fitted to, found no 'b'"):
        result.predict(frame_of(x[0], "target more"))


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("value", [date(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC), 1 + 2j])
def test_dates_are_no_features_without_a_word_how(library: str, value: object) -> None:
    """Else a day is 18,262, or 1.6e15 where the other silo's library counts in microseconds."""
    if library != "pandas" and isinstance(value, complex):
        return
    frame, series = makers_of(library)
    table = frame({"day": [value] * 2, "age": [50.0, 60.0]}), series([0, 1])
    with pytest.raises(
        DataError, match="expected numbers as features of north, found others in 'd"
    ):
        records_of("north", table, ("0", "1"), (), None)


def test_numbers_of_every_width_may_be_missing() -> None:
    missing = {"a": np.array([0.5, np.nan], np.float32), "b": [Decimal("0.5"), Decimal("NaN")]}
    assert cells_of(missing) == {"a": ["0.5", ""], "b": ["0.5", ""]}


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])  # Polars has no such frame
def test_a_column_that_stands_twice_is_named(library: str) -> None:
    made = pytest.importorskip(library)
    if library == "pandas":
        table = made.DataFrame([[1, 2, 3]], columns=["age", "sex", "age"])
    else:
        table = made.Table.from_arrays([made.array([1])] * 3, ["age", "sex", "age"])
    for own, name in ((table, "age"), ({1: [2], "1": [3]}, "1")):
        with pytest.raises(DataError, match=f"names of their own, found others: '{name}'; correct"):
            cells_of(own)


def test_names_of_columns_are_those_of_whichever_silo_has_some() -> None:
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(4).normal(0, 1, (3, 60, 2))
    y = (x[..., 0] > 0).astype(int)
    frames = [pandas.DataFrame({"a": rows[:, 0], "b": rows[:, 1]}) for rows in x]
    silos = {"r": (x[0], y[0]), "s": (frames[1], y[1]), "t": (x[2], y[2])}
    result = hubbub.fit(silos, epsilon=8, steps=2)
    assert result.column_names == ("a", "b")
    assert np.array_equal(result.predict(frames[1][["b", "a"]]), result.predict(frames[1]))
    assert np.array_equal(result.predict(x[1].astype(np.float32)), result.predict(frames[1]))
