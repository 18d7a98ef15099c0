"""The scikit-learn estimator: scikit-learn's own checks, and whose record is whose."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from hubbub.sklearn import FederatedClassifier

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


@pytest.mark.parametrize(
    ("settings", "groups", "words"),
    [
        ({"epsilon": -1}, None, "privacy.epsilon"),
        ({}, [0, 1], "groups of shape"),
        ({}, np.zeros(300), "at least two silos"),
        ({}, [float("nan"), *[0.0, 1.0, 2.0] * 99, 0.0, 1.0], "a silo for each row"),
        ({"silos": 3, "colluders": 2}, None, "parties.colluders"),
    ],
)
def test_what_cannot_be_is_a_value_error(settings, groups, words):
    inputs, labels = table()
    with pytest.raises(ValueError, match=words):
        FederatedClassifier(**settings).fit(inputs, labels, groups=groups)
