"""What a study may ask, and the one sentence for what it may not."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.estimation.asking.made_up import KINDS, study, table_of_study

from hubbub import Study
from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.estimation.kinds import statistic_from

HERE = Path()
WRONG = {
    "no kind": ({}, "expected the key statistics.q.kind"),
    "strange kind": ({"kind": "mode"}, 'to be one of "table"'),
    "strange key": ({**KINDS["histogram"], "bin": 3}, "did you mean bins?"),
    "key of another kind": (
        {**KINDS["table"], "bins": 3},
        "columns, by in [statistics.q], got bins",
    ),
    "strange column": ({**KINDS["histogram"], "column": "bmi"}, "one of the columns age, sex"),
    "words in a histogram": ({**KINDS["histogram"], "column": "sex"}, "a numeric column"),
    "numbers as groups": ({**KINDS["table"], "by": "age"}, "a column with categories"),
    "a group that is described": ({**KINDS["table"], "by": "sex"}, "different columns out of"),
    "a column twice": ({**KINDS["table"], "columns": ["age", "age"]}, "different columns out of"),
    "bins out of order": ({**KINDS["histogram"], "bins": [50, 40]}, "put them in order"),
    "bins beyond the bounds": ({**KINDS["histogram"], "bins": [50, 95]}, "bounds 20 and 90"),
    "too few bins": ({**KINDS["histogram"], "bins": 1}, "a whole number from 2 to 1000"),
    "another spacing": ({**KINDS["histogram"], "spacing": "even"}, 'one of "equal", "log"'),
    "break points that are spaced": (
        {**KINDS["histogram"], "bins": [50, 60], "spacing": "log"},
        "absent where bins",
    ),
    "no probabilities": ({**KINDS["quantiles"], "at": [0, 0.5]}, "between 0 and 1"),
    "a column against itself": ({**KINDS["crosstab"], "columns": "sex"}, "another column"),
    "an event of three": ({**KINDS["survival"], "event": "stage"}, "of which the second"),
    "a time in words": ({**KINDS["survival"], "time": "sex"}, "a numeric column"),
    "a horizon beyond": ({**KINDS["survival"], "horizon": 61}, "above 0 to 60"),
    "a test of one group": ({**KINDS["survival"], "by": None}, "add by"),
    "another test": ({**KINDS["survival"], "test": "chi-square"}, 'one of "log-rank"'),
    "nothing to explain by": ({**KINDS["logistic"], "covariates": {}}, "1 to 30 columns"),
    "explained by itself": (
        {**KINDS["logistic"], "covariates": {"died": "categories"}},
        "remove it",
    ),
    "categories as a number": (
        {**KINDS["logistic"], "covariates": {"sex": "number"}},
        '"categories"',
    ),
    "a number as categories": (
        {**KINDS["logistic"], "covariates": {"age": "categories"}},
        "break points",
    ),
    "an outcome of numbers": ({**KINDS["logistic"], "outcome": "age"}, "two categories"),
    "no weight": ({**KINDS["table"], "weight": 0}, "0.001 to 1000"),
    "certain": ({**KINDS["table"], "confidence": 1.0}, "0.5 to 0.999"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_question_that_is_wrong_is_refused_in_one_sentence(name: str) -> None:
    asked, said = WRONG[name]
    given = {key: value for key, value in asked.items() if value is not None}
    with pytest.raises(StudyError) as refused:
        study(HERE, q=given)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert ";" in str(refused.value)  # what to do


def changed(**tables: Any) -> dict[str, Any]:
    whole = table_of_study(HERE)
    return {name: {**whole.get(name, {}), **more} for name, more in {**whole, **tables}.items()}


TRAINING = {
    "model": {"kind": "logistic", "inputs": [4]},
    "training": {"steps": 2, "sampling": "full-batch"},
}
WRONG_STUDIES = {
    "a part without a training": (changed(statistics={"epsilon": 0.5}), "no model is trained"),
    "no part beside one": (
        changed(**TRAINING, data={"target": "died", "columns": {"age": {"low": 0, "high": 1}}}),
        "statistics.epsilon",
    ),
    "a model without training": (changed(model=TRAINING["model"]), "[training]"),
    "a target without a model": (changed(data={"target": "died"}), "no model is trained"),
    "no feature without a model": (
        changed(data={"columns": {"age": {"low": 0, "high": 1, "feature": False}}}),
        "feature = false",
    ),
    "nothing asked": ({**table_of_study(HERE), "statistics": {}}, "1 to 100 tables"),
    "no columns": (
        {**table_of_study(HERE), "data": {"files": "{name}.csv"}},
        "expected data.columns",
    ),
}


@pytest.mark.parametrize("name", WRONG_STUDIES)
def test_a_study_that_contradicts_its_statistics_is_refused(name: str) -> None:
    table, said = WRONG_STUDIES[name]
    with pytest.raises(StudyError, match="expected") as refused:
        Study.from_table(table)
    assert said in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_of_every_kind_is_written_and_read_again_as_the_same(kind: str) -> None:
    asked = study(HERE, q=KINDS[kind])
    assert asked.training is None
    assert Study.parse(replace(asked, toml="").as_toml()).id == asked.id


def test_another_question_is_another_study() -> None:
    ids = {study(HERE, q=KINDS[kind]).id for kind in KINDS}
    fewer = {**KINDS["survival"], "bins": 5}
    assert len(ids | {study(HERE, q=fewer).id}) == len(KINDS) + 1


def test_columns_that_are_no_features_leave_the_model_as_it_is() -> None:
    told = Study.from_table(
        changed(
            **TRAINING,
            data={"target": "died", "columns": _hidden("months")},
            statistics={"epsilon": 0.5},
        )
        | {"model": {"kind": "logistic"}}
    )
    assert [one.name for one in told.data.features] == ["age", "sex", "stage"]
    assert "months" in {one.name for one in told.data.columns}


def _hidden(*names: str) -> dict[str, Any]:
    columns = table_of_study(HERE)["data"]["columns"]
    return {
        name: {**one, **({"feature": False} if name in names else {})}
        for name, one in columns.items()
        if name != "died"
    }


@pytest.mark.parametrize(("low", "first"), [(2.0, []), (0.0, [0.0])])
def test_log_bins_have_equal_ratios_from_a_thousandth_of_the_upper_bound(
    low: float, first: list[float]
) -> None:
    columns = {"crp": Column(name="crp", low=low, high=400)}
    table = {"kind": "quantiles", "column": "crp", "bins": 20, "spacing": "log"}
    asked = statistic_from("q", table, columns)
    edges = list(asked.edges)
    assert len(edges) == 21
    assert (edges[0], edges[-1]) == (low, 400)
    ratios = [b / a for a, b in pairwise(edges[len(first) :])]
    assert ratios == pytest.approx([(400 / (low or 0.4)) ** (1 / len(ratios))] * len(ratios))
    assert statistic_from("q", asked.to_table(), columns) == asked


def test_log_bins_of_a_column_below_zero_are_refused() -> None:
    columns = {"base_excess": Column(name="base_excess", low=-20, high=20)}
    table = {"kind": "histogram", "column": "base_excess", "spacing": "log"}
    with pytest.raises(StudyError, match="a bound below 0"):
        statistic_from("q", table, columns)
