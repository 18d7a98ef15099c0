"""The scikit-learn estimator: scikit-learn's own checks, and whose record is whose."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from hubbub.errors import UncountedWarning
from hubbub.ledger import Ledger
from hubbub.sklearn import FederatedClassifier
from hubbub.training import uncounted

# What a federation with fresh noise cannot do, by the name of the check.
EXCEPT = {
    "check_classifier_data_not_an_array": "two fits differ by their noise",
    "check_supervised_y_2d": "two fits differ by their noise",
    "check_fit_idempotent": "two fits differ by their noise",
}


def checks():
    """Every check of scikit-learn's that applies."""
    for estimator, check in estimator_checks_generator(FederatedClassifier(steps=2), legacy=True):
        if check.func.__name__ not in EXCEPT:
            yield estimator, check


CHECKS = list(checks())
IDS = [f"{number}-{check.func.__name__}" for number, (_, check) in enumerate(CHECKS)]


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
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "check"),
    [pair for pair in CHECKS if pair[1].func.__name__ in QUICK],
    ids=[one for one in IDS if one.partition("-")[2] in QUICK],
)
def test_some_of_them_pass_quickly(estimator, check):
    check(estimator)


def table(rows: int = 300):
    inputs, labels = make_classification(rows, 5, random_state=0, class_sep=2.0)
    return inputs / np.abs(inputs).max(), np.where(labels > 0, "ill", "well")


def test_groups_say_whose_record_each_row_is():
    inputs, labels = table()
    hospital = np.repeat(["north", "south", "east"], [150, 100, 50])
    model = FederatedClassifier(epsilon=8, steps=20).fit(inputs, labels, groups=hospital)
    assert model.result_.plan.study.parties.silos == 3
    assert model.result_.epsilon <= 8
    assert model.classes_.tolist() == ["ill", "well"]
    np.testing.assert_allclose(model.predict_proba(inputs).sum(1), 1)
    assert (model.predict(inputs) == labels).mean() > 0.8
    assert (
        FederatedClassifier(steps=1, silos=5).fit(inputs, labels).result_.plan.study.parties.silos
        == 5
    )


def test_it_goes_into_pipelines_and_cross_validation():
    inputs, labels = table()
    model = make_pipeline(MaxAbsScaler(), FederatedClassifier(epsilon=8, steps=20))
    assert cross_val_score(model, inputs, labels, cv=2).mean() > 0.7
    assert clone(model).get_params()["federatedclassifier__epsilon"] == 8


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
    assert model.predict_proba(inputs[:2]).shape == (2, 3)


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
        ({"silos": 3, "colluders": 2}, None, "parties.colluders"),
        ({}, ["7", "7.0", "8"] * 100, "two that read alike"),
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
