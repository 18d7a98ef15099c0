"""The scikit-learn estimators: scikit-learn's own checks, and whose record is whose."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from hubbub.core.errors import UncountedWarning, UnnoisedWarning
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.learning.runs import uncounted
from hubbub.sklearn import (
    FederatedClassifier,
    FederatedPoissonRegressor,
    FederatedRegressor,
    FederatedSurvival,
)

# What a federation with fresh noise cannot do, by the name of the check.
EXCEPT = {
    "check_classifier_data_not_an_array": "two fits differ by their noise",
    "check_supervised_y_2d": "two fits differ by their noise",
    "check_fit_idempotent": "two fits differ by their noise",
    "check_regressor_data_not_an_array": "two fits differ by their noise",
    "check_regressors_int": "two fits differ by their noise",
}


class OfCounts(FederatedPoissonRegressor):
    """The checks' numbers have fractions, and counts none."""

    def fit(self, X, y, groups=None):
        return super().fit(X, y if y is None else np.round(np.asarray(y, dtype=float)), groups)


class OfTimes(FederatedSurvival):
    """The checks' targets are numbers, each of which is the time of an event here."""

    def fit(self, X, y, groups=None):
        times = y if y is None else np.abs(np.asarray(y, dtype=float).reshape(-1)) + 1
        return super().fit(X, None if y is None else np.column_stack([times, times > 0]), groups)

    def score(self, X, y):
        return super().score(X, np.column_stack([np.abs(y) + 1, np.ones(len(y))]))


def checks():
    """Every check of scikit-learn's that applies."""
    for kind in (FederatedClassifier, FederatedRegressor, OfCounts, OfTimes):
        for estimator, check in estimator_checks_generator(kind(steps=2), legacy=True):
            if check.func.__name__ not in EXCEPT:
                yield estimator, check


CHECKS = list(checks())
IDS = [
    f"{number}-{type(estimator).__name__}-{check.func.__name__}"
    for number, (estimator, check) in enumerate(CHECKS)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=IDS)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


QUICK = {
    "check_estimators_dtypes",
    "check_classifiers_classes",
    "check_classifiers_one_label",
    "check_n_features_in_after_fitting",
    "check_estimators_nan_inf",
    "check_estimators_unfitted",
    "check_requires_y_none",
}


@pytest.mark.quick_cases(
    "28-FederatedClassifier-check_classifiers_one_label",
    "49-FederatedClassifier-check_requires_y_none",
    "60-FederatedRegressor-check_estimators_unfitted",
    "152-OfTimes-check_estimators_unfitted",
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "check"),
    [pair for pair in CHECKS if pair[1].func.__name__ in QUICK],
    ids=[one for one in IDS if one.rpartition("-")[2] in QUICK],
)
def test_some_of_them_pass_quickly(estimator, check):
    check(estimator)


def table(rows: int = 300):
    inputs, labels = make_classification(rows, 5, random_state=0, class_sep=2.0)
    return inputs / np.abs(inputs).max(), np.where(labels > 0, "ill", "well")


@pytest.mark.slow
def test_groups_say_whose_record_each_row_is():
    inputs, labels = table()
    hospital = np.repeat(["north", "south", "east"], [150, 100, 50])
    model = FederatedClassifier(epsilon=8, steps=20).fit(inputs, labels, groups=hospital)
    assert model.result_.plan.study.parties.silos == 3
    assert model.result_.epsilon <= 8
    assert model.classes_.tolist() == ["ill", "well"]
    frame = model.result_.predict_frame(inputs)  # says classes, not their places
    assert list(frame["predicted"]) == model.predict(inputs).tolist()
    np.testing.assert_allclose(model.predict_proba(inputs).sum(1), 1)
    assert (model.predict(inputs) == labels).mean() > 0.8  # .986 with a deviation of .005
    assert (
        FederatedClassifier(steps=1, silos=5).fit(inputs, labels).result_.plan.study.parties.silos
        == 5
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hubbub.core.errors.UnnoisedWarning")
def test_it_goes_into_pipelines_and_cross_validation():
    inputs, labels = table()
    model = make_pipeline(MaxAbsScaler(), FederatedClassifier(epsilon=8, steps=20))
    assert cross_val_score(model, inputs, labels, cv=2).mean() > 0.7
    assert clone(model).get_params()["federatedclassifier__epsilon"] == 8


@pytest.mark.slow
def test_what_nobody_states_is_named_and_what_is_stated_hides_a_row():
    inputs, labels = table()
    read_off = FederatedClassifier(steps=1).fit(inputs, labels).result_
    assert read_off.made_public == (
        "the number of records (300)",
        "how many records a silo may hold, to a factor of 2",
        "which classes there are (ill, well)",
    )
    stated = {"steps": 1, "records": 320, "capacity": 90, "classes": ["well", "ill", "lost"]}
    results = [FederatedClassifier(**stated).fit(inputs[k:], labels[k:]).result_ for k in (0, 1)]
    assert [one.made_public for one in results] == [(), ()]
    assert results[0].plan.to_json() == results[1].plan.to_json()
    model = FederatedClassifier(**stated).fit(inputs, labels)
    assert model.classes_.tolist() == ["ill", "lost", "well"]
    chances = model.predict_proba(inputs)
    assert chances.shape == (300, 3)
    # Three float32 numbers that are each rounded for themselves: scikit-learn warned of their sum.
    np.testing.assert_allclose(chances.sum(1), 1, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_every_fit_is_charged_to_one_ledger_where_out_is_stated(tmp_path, monkeypatch):
    monkeypatch.setattr(uncounted, "_ledgers_of", {})  # as in a program that begins
    inputs, labels = table()
    model = FederatedClassifier(steps=2, silos=3, out=tmp_path / "fits")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncountedWarning)
        first = charged(model.fit(inputs, labels), tmp_path)
        assert charged(clone(model).fit(inputs[:200], labels[:200]), tmp_path) == 2 * first > 0
    assert {one.name for one in (tmp_path / "fits").iterdir()} == {"fit-1", "fit-2", "ledgers"}
    with pytest.warns(UncountedWarning, match="no ledger counts"):
        FederatedClassifier(steps=2, silos=3).fit(inputs, labels)


@pytest.mark.slow
def test_a_hospital_keeps_its_ledger_when_another_has_no_rows(tmp_path):
    """Numbered by who is there, one hospital would be charged to the ledger of another."""
    inputs, labels = table()
    hospital = np.array(["north", "Süd", "test", "4", "east"])[np.arange(300) % 5]
    model = FederatedClassifier(steps=1, out=tmp_path / "fits")
    names = model.fit(inputs, labels, groups=hospital).result_.plan.study.parties.names
    assert len(set(names)) == 5
    assert {"north", "east", "silo-4"} < set(names)
    kept = hospital != "4"
    fewer = model.fit(inputs[kept], labels[kept], groups=hospital[kept]).result_.plan.study
    assert set(fewer.parties.names) == set(names) - {"silo-4"}
    books = {one.stem for one in (tmp_path / "fits" / "ledgers").glob("*.sqlite")}
    assert books == set(names)


def charged(_model, home):
    """Rows of the first silo's ledger."""
    with Ledger(home / "fits" / "ledgers" / "silo-1.sqlite") as book:
        return len(list(book.entries()))


@pytest.mark.parametrize(
    ("settings", "groups", "words"),
    [
        ({"epsilon": -1}, None, "privacy.epsilon"),
        ({}, [0, 1], "groups of shape"),
        ({}, np.zeros(300), "at least two silos"),
        ({}, [float("nan"), *[0.0, 1.0, 2.0] * 99, 0.0, 1.0], "a silo for each row"),
        ({}, pd.array([None, 1, 2] * 100, dtype="Int64"), "a silo for each row"),
        ({}, [1.0, "1.0", None] * 100, "a silo for each row"),
        ({"epsilon": -1}, np.array([7, "north", 8] * 100, dtype=object), "privacy.epsilon"),
        ({"silos": 3, "colluders": 2}, None, "use colluders=1"),
        ({}, ["7", "7.0", "8"] * 100, "two that look alike"),
        ({}, ["", "north", "south"] * 100, "a silo for each row"),
        ({"silos": 301}, None, "a row for each of 301 silos"),
        ({"classes": ["ill", "lost"]}, None, "y to hold ill, lost, as classes says"),
        ({"records": 10}, None, "data.records"),
        ({"out": "/dev/null/fits"}, None, "a folder that can be written"),
    ],
)
def test_what_cannot_be_is_a_value_error(settings, groups, words):
    inputs, labels = table()
    with pytest.raises(ValueError, match=words):
        FederatedClassifier(**settings).fit(inputs, labels, groups=groups)


@pytest.mark.parametrize("own", [["0", "1"], ["Ill", "well"]])
def test_a_silo_that_spells_classes_its_own_way_is_refused(own):
    inputs, labels = table()
    hospital = np.arange(300) % 3
    mixed = np.where(hospital == 0, np.where(labels == "ill", *own), labels)
    with pytest.raises(ValueError, match="spelled in two ways"):
        FederatedClassifier(steps=1).fit(inputs, mixed, groups=hospital)


# Numbers, counts and times ----------------------------------------------------------------------

PUBLIC = {"records": 900, "capacity": 400, "epsilon": 8.0, "optimizer": {"name": "adam", "lr": 0.1}}


def features(seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (900, 2)), np.array(["north", "south", "east"])[np.arange(900) % 3]


def followed(inputs, seed: int = 1):
    """Times until the event or the end of the study, and which of them it was."""
    rng = np.random.default_rng(seed)
    died, left = rng.exponential(20 * np.exp(-2 * inputs[:, 0])), rng.uniform(0, 48, len(inputs))
    return np.minimum(died, left), died <= left


@pytest.mark.slow
def test_a_regressor_predicts_in_the_unit_of_y_and_names_no_bound_that_was_stated():
    inputs, hospital = features()
    amounts = 500 + 300 * inputs[:, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", UncountedWarning)
        model = FederatedRegressor(low=0, high=1000, **PUBLIC)
        model.fit(inputs, amounts, groups=hospital)
    assert model.score(inputs, amounts) > 0.6
    assert model.result_.made_public == ()
    assert set(model.result_.plan.study.parties.names) == {"north", "south", "east"}
    assert model.result_.epsilon <= 8
    # Of 200 and 800, with deviations of 5 and 6 by the noise.
    assert model.predict([[-1.0, 0.0], [1.0, 0.0]]) == pytest.approx([200, 800], abs=40)


@pytest.mark.slow
def test_a_count_regressor_gives_rates_and_is_scored_by_deviance():
    inputs, hospital = features()
    counts = np.random.default_rng(3).poisson(np.exp(0.5 + inputs[:, 0]))
    model = FederatedPoissonRegressor(high=12, **PUBLIC).fit(inputs, counts, groups=hospital)
    rates = model.predict(inputs)
    assert (rates > 0).all()
    assert 0.15 < model.score(inputs, counts) < 0.6
    assert model.score(inputs, counts) != pytest.approx(1 - np.var(counts - rates) / np.var(counts))
    weights = np.where(inputs[:, 0] > 0, 1.0, 0.0)
    assert model.score(inputs, counts, weights) != model.score(inputs, counts)
    with pytest.raises(ValueError, match="whole numbers from 0"):
        FederatedPoissonRegressor(high=12).fit(inputs, counts - 0.5)


@pytest.mark.slow
def test_a_survival_model_gives_curves_and_risks_and_takes_both_forms_of_y():
    inputs, hospital = features()
    times, events = followed(inputs)
    pairs = np.array(list(zip(events, times, strict=True)), dtype=[("e", "?"), ("t", "f8")])
    for y in (np.column_stack([times, events]), pairs):
        model = FederatedSurvival(grid=[6, 12, 24, 36], **PUBLIC).fit(inputs, y, groups=hospital)
        curves, risks = model.predict_survival_function(inputs), model.predict(inputs)
        assert curves.shape == (900, 4)
        assert (np.diff(curves, axis=1) <= 0).all()
        np.testing.assert_allclose(np.exp(-risks), curves[:, -1], rtol=1e-5)
        assert model.score(inputs, y) > 0.65
        assert model.unique_times_.tolist() == [6, 12, 24, 36]
        assert model.result_.made_public == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settings", "unstated", "read"),
    [
        (FederatedRegressor, {}, "low and high", ("the smallest y (1)", "the largest y (3)")),
        (FederatedRegressor, {"low": 0}, "high", ("the largest y (3)",)),
        (FederatedRegressor, {"scale": "log-link"}, "high", ("the largest y (3)",)),
        (FederatedPoissonRegressor, {}, "high", ("the largest count (3)",)),
        (FederatedSurvival, {}, "grid", ("the longest time (3)",)),
    ],
)
@pytest.mark.filterwarnings("ignore::hubbub.core.errors.UncountedWarning")
def test_a_bound_that_nobody_stated_is_read_off_with_a_warning_and_named(
    kind, settings, unstated, read
):
    inputs, _ = features()
    y = 1.0 + np.arange(900) % 3
    if kind is FederatedSurvival:
        y = np.column_stack([y, y > 1])
    words = re.escape(f"expected {unstated} to be stated, read {' and '.join(read)} from y")
    with pytest.warns(UserWarning, match=words):
        model = kind(steps=1, **settings).fit(inputs, y)
    assert model.result_.made_public[-len(read) :] == read


@pytest.mark.parametrize(
    ("model", "y", "words"),
    [
        (FederatedRegressor(low=3, high=1), np.zeros(900), "data.target"),
        (FederatedRegressor(low=0, high=1, model="forest"), np.zeros(900), "model.kind"),
        (FederatedPoissonRegressor(high=0.5), np.zeros(900), "data.target.high"),
        (FederatedSurvival(grid=[3, 2]), np.ones((900, 2)), "data.target.grid"),
        (FederatedSurvival(grid=[1, 2]), np.ones((900, 3)), r"y of shape \(900, 2\)"),
        (FederatedSurvival(grid=[1, 2]), np.full((900, 2), 2.0), "1 or 0 for the event"),
        (FederatedSurvival(grid=[1, 2]), np.zeros((900, 2)), "times from 0"),
        (
            FederatedSurvival(grid=[1, 2]),
            np.zeros(900, dtype=[("a", "f8"), ("b", "f8")]),
            "a field of truth values",
        ),
    ],
)
def test_targets_and_bounds_that_cannot_be_are_a_value_error(model, y, words):
    with pytest.raises(ValueError, match=words):
        model.fit(features()[0], y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_kind_goes_into_pipelines_and_keeps_ledgers(tmp_path):
    inputs, hospital = features()
    model = make_pipeline(
        MaxAbsScaler(), FederatedRegressor(epsilon=8, low=0, high=1, out=tmp_path / "fits")
    )
    scores = cross_val_score(model, inputs, (inputs[:, 0] + 1) / 2, cv=2)
    assert scores.mean() > 0.3
    assert {one.name for one in (tmp_path / "fits").iterdir()} == {"fit-1", "fit-2", "ledgers"}
    model = FederatedSurvival(grid=[6, 12], steps=1, out=tmp_path / "fits")
    model.fit(inputs, np.column_stack(followed(inputs)), groups=hospital)
    assert (tmp_path / "fits" / "ledgers" / "north.sqlite").exists()


def rows_of(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    inputs = draw.uniform(-1, 1, (n, 3))
    return inputs, (inputs[:, 0] + 0.3 * draw.normal(size=n) > 0).astype(int)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_search_and_a_cross_validation_are_told_what_their_fits_cost():
    from sklearn.model_selection import GridSearchCV, cross_val_score

    inputs, labels = rows_of(1)
    one = FederatedClassifier(steps=1, epsilon=2.0, classes=[0, 1], records=60, capacity=30)
    with pytest.warns(UncountedWarning, match=r"up to epsilon 2, they add up.*synthetic records"):
        GridSearchCV(one, {"clip_norm": [1.0, 2.0]}, cv=2).fit(inputs, labels)
    with pytest.warns(UncountedWarning, match=r"a search or a cross-validation.*hubbub\.rehearse"):
        cross_val_score(one, inputs, labels, cv=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hubbub.core.errors.UncountedWarning")
def test_a_scaler_that_has_seen_all_silos_rows_is_no_private_one():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler

    inputs, labels = rows_of(2)
    one = FederatedClassifier(steps=1, classes=[0, 1], records=60, capacity=30)
    with pytest.warns(UnnoisedWarning, match="MinMaxScaler, which was fitted on all silos' rows"):
        make_pipeline(MinMaxScaler(), one).fit(inputs, labels)
    with pytest.warns(UnnoisedWarning, match="each mean 0 and each deviation 1"):
        one.fit(StandardScaler().fit_transform(inputs), labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnnoisedWarning)
        one.fit(inputs, labels)
        make_pipeline(FunctionTransformer(lambda table: table / 2), one).fit(inputs, labels)


def frame_of_patients(rows: int = 900):
    rng = np.random.default_rng(3)
    age, sex = rng.uniform(20, 90, rows), rng.choice(["f", "m"], rows)
    ill = np.where(age + 20 * (sex == "m") + rng.normal(0, 10, rows) > 65, "ill", "well")
    return pd.DataFrame({"age": age, "sex": sex, "unused": "x"}), ill


COLUMNS = {"age": {"low": 20, "high": 90}, "sex": {"categories": ["f", "m"]}}


@pytest.mark.slow
def test_an_estimator_is_scored_privately_and_asks_statistics_of_a_frame():
    frame, ill = frame_of_patients()
    model = FederatedClassifier(
        epsilon=12,
        silos=3,
        columns=COLUMNS,
        statistics={"epsilon": 3.0, "baseline": {"kind": "table"}},
        validation={"epsilon": 4.0, "by": {"sex": "categories"}},
    ).fit(frame, ill)
    told = model.result_.validation
    assert told["all"]["scores"]["auc"]["is_better"] is True
    assert [one["group"] for one in told["groups"]] == ["f", "m"]
    mean = next(row for row in model.result_.statistics["baseline"].rows if row.quantity == "mean")
    assert mean.low < frame["age"].mean() < mean.high
    assert model.predict_proba(frame[:5]).shape == (5, 2)
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["age", "sex", "unused"]
    with pytest.raises(ValueError, match="data frame"):
        model.predict(np.zeros((2, 3)))


@pytest.mark.slow
def test_every_kind_of_estimator_has_a_validation():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (900, 2))
    died, left = rng.exponential(20 * np.exp(-2 * X[:, 0])), rng.uniform(0, 48, 900)
    cases = {
        "amounts": (FederatedRegressor(low=0, high=100), 50 + 30 * X[:, 0]),
        "counts": (
            FederatedPoissonRegressor(high=12),
            rng.poisson(np.exp(0.5 + 1.2 * X[:, 0])),
        ),
        "times": (
            FederatedSurvival(grid=[6, 12, 24, 36]),
            np.column_stack([np.minimum(died, left), died <= left]),
        ),
    }
    asked = {"epsilon": 8.0, "records": "training"}
    for model, y in cases.values():
        fitted = model.set_params(epsilon=16, validation=asked).fit(X, y)
        assert fitted.result_.validation["telling"] == "c_index"
        assert fitted.result_.validation["all"]["scores"]["c_index"]["is_better"] is not False
        assert fitted.result_.epsilon <= 16


def test_columns_without_a_frame_are_refused():
    inputs, labels = table()
    with pytest.raises(ValueError, match="beside columns"):
        FederatedClassifier(columns=COLUMNS).fit(inputs, labels)


def test_a_classifier_takes_the_intercept_of_a_study():
    inputs, labels = np.zeros((60, 2)), np.arange(60) % 2
    model = FederatedClassifier(epsilon=8, steps=1, intercept=-3.0).fit(inputs, labels)
    assert model.result_.plan.study.model.intercept == -3.0
