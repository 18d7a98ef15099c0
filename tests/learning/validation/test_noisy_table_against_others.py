"""Without noise every score is what scikit-learn, or a count of all pairs, says of these bins."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    d2_tweedie_score,
    mean_absolute_error,
    mean_squared_error,
    r2_score,
    roc_auc_score,
)

from hubbub import Study
from hubbub.desk.report.scores import score_name
from hubbub.learning import scoring
from hubbub.learning.queries.validation import noisy_table
from hubbub.learning.queries.validation.kinds import (
    Amounts,
    ClassValidation,
    Risks,
    Times,
    _auc_variance,
    _ranked,
)
from hubbub.learning.queries.validation.layout import layout_of
from hubbub.learning.queries.validation.noisy_table import NoisyTable, gradient

_EXACT = 1e-6


def _told(kind, predicted, targets):
    rows, columns = kind.places(predicted, targets)
    counts = np.zeros(kind.shape)
    np.add.at(counts, (rows, columns), 1.0)
    scored = kind.scored(NoisyTable(counts=counts, sigma=0.0))
    return {one.name: one for one in scored.scores}, scored, rows, columns


def test_scores_of_risks_are_those_of_scikit_learn():
    rng = np.random.default_rng(1)
    chance = rng.beta(1, 3, 3000)
    came = (rng.random(3000) < chance**1.2).astype(np.float32)
    kind = Risks(bins=noisy_table.of_risks(16))
    found, scored, rows, _ = _told(kind, chance, came)
    binned = np.array(kind.bins.values)[rows]
    assert found["auc"].value == pytest.approx(roc_auc_score(came, binned), abs=_EXACT)
    assert found["brier"].value == pytest.approx(brier_score_loss(came, binned), abs=_EXACT)
    assert found["brier"].null == pytest.approx(came.mean() * (1 - came.mean()), abs=_EXACT)
    assert found["calibration_gap"].value == pytest.approx((binned - came).mean(), abs=_EXACT)
    assert score_name("calibration_gap") == "mean of predicted minus observed"
    line = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000)
    line.fit(np.log(binned / (1 - binned))[:, None], came)
    assert found["calibration_slope"].value == pytest.approx(line.coef_[0, 0], abs=_EXACT)
    model = scored.decisions[0]
    for cut, benefit in zip(model.x, model.y, strict=True):
        treated = binned >= cut
        wanted = (treated & (came == 1)).mean() - cut / (1 - cut) * (treated & (came == 0)).mean()
        assert benefit == pytest.approx(wanted, abs=_EXACT)


def test_scores_of_amounts_are_those_of_scikit_learn_without_rounding_to_bins():
    """Of binned values the slope would be .95, R squared .59 and the root of squares 9.6."""
    rng = np.random.default_rng(2)
    predicted = rng.normal(50, 12, 200_000)
    came = predicted + rng.normal(0, 9, 200_000)
    kind = Amounts(bins=noisy_table.of_amounts(0, 100, 12), seen=noisy_table.of_amounts(0, 100, 12))
    found, _, _, _ = _told(kind, predicted, came)
    assert found["r_squared"].value == pytest.approx(r2_score(came, predicted), abs=0.004)
    wanted = mean_squared_error(came, predicted) ** 0.5
    assert found["rmse"].value == pytest.approx(wanted, rel=0.005)
    assert found["rmse"].null == pytest.approx(came.std(), rel=0.005)
    assert found["mae"].value == pytest.approx(mean_absolute_error(came, predicted), rel=0.02)
    slope = np.polyfit(predicted, came, 1)[0]
    assert found["calibration_slope"].value == pytest.approx(slope, abs=0.005)


def test_amounts_that_are_nearly_all_in_one_bin_have_no_mean():
    """The gap would be -.73 of 8, whatever the model foretells, and its interval far from 0."""
    rng = np.random.default_rng(3)
    predicted = np.exp(rng.normal(2, 0.5, 5000))
    came = np.minimum(predicted * np.exp(rng.normal(-0.18, 0.6, 5000)), 100)
    for number, told in (
        (10, set()),
        (40, {"calibration_gap", "calibration_slope", "rmse", "mae"}),
    ):
        bins = noisy_table.of_amounts(0, 100, number)
        found, *_ = _told(Amounts(bins=bins, seen=bins), predicted, came)
        assert found.keys() - {"c_index", "r_squared"} == told
    gap = (predicted - came).mean()
    assert found["calibration_gap"].value == pytest.approx(gap, abs=0.1)


def test_amounts_or_predictions_that_many_share_have_no_mean():
    """Its bin may stand for another value, which moves a mean as many times as it is there."""
    rng = np.random.default_rng(4)
    bins = noisy_table.of_amounts(0, 100, 16)
    kind, spread = Amounts(bins=bins, seen=bins), rng.normal(0, 9, (2, 5000))
    foretold = np.where(rng.random(5000) < 0.5, 41.0, 63.0)
    some = np.clip(30 + spread[0], 0, 100)
    zeros = np.where(rng.random(5000) < 0.4, 0.0, some / 0.6 + spread[1])
    for predicted, came in ((foretold, foretold + spread[0]), (some, zeros)):
        found, *_ = _told(kind, predicted, came)
        assert found.keys() == {"c_index"}
    found, *_ = _told(kind, 50 + spread[0], 50 + spread[0] + spread[1])
    assert found["calibration_gap"].low < 0 < found["calibration_gap"].high


def test_few_bins_of_a_learned_logarithm_change_its_scores_little():
    """Equal widths would put two thirds of these amounts into one bin of six."""
    rng = np.random.default_rng(4)
    predicted = np.exp(rng.normal(1.0, 0.3, 3000))
    came = np.clip(predicted * np.exp(rng.normal(0, 0.6, 3000)), 0.6, 20)
    outcome = {"kind": "numeric", "column": "stay", "low": 0.6, "high": 20, "scale": "log"}
    study = Study(
        name="stays",
        parties={"silos": 3, "colluders": 1},
        data={"source": "python:none:none", "records": 3000, "target": outcome},
        model={"kind": "logistic", "inputs": [2]},
        training={"steps": 5, "sample_rate": 0.1},
        validation={"epsilon": 0.5, "bins": 6},
        privacy={"epsilon": 4.0, "delta": 1e-5},
    )
    found, *_ = _told(layout_of(study).kind, predicted, came)
    assert found["mae"].value == pytest.approx(mean_absolute_error(came, predicted), rel=0.1)
    gap = (predicted - came).mean()
    assert found["calibration_gap"].value == pytest.approx(gap, abs=0.1)


def test_explained_deviance_is_that_of_scikit_learn():
    rng = np.random.default_rng(3)
    rates = rng.gamma(2, 1.5, 2000)
    came = rng.poisson(rates).astype(float)
    kind = Amounts(
        bins=noisy_table.of_rates(14, 10), seen=noisy_table.of_counts(14, 20), counts=True
    )
    found, _, _, columns = _told(kind, rates, came)
    seen = np.array(kind.seen.values)[columns]
    assert (seen == came.clip(max=14)).all()  # few counts have bins of their own
    one = found["deviance_explained"]
    assert one.value == pytest.approx(d2_tweedie_score(seen, rates, power=1), abs=0.01)
    assert one.low < d2_tweedie_score(seen, rates, power=1) < one.high


def _scores(predicted, came):
    return {
        "r_squared": r2_score(came, predicted),
        "rmse": mean_squared_error(came, predicted) ** 0.5,
        "mae": mean_absolute_error(came, predicted),
        "calibration_gap": (predicted - came).mean(),
        "calibration_slope": np.polyfit(predicted, came, 1)[0],
    }


@pytest.mark.parametrize("law", ["smooth", "cut at a bound", "in fives", "counts in ranges"])
@pytest.mark.parametrize("number", [6, 10])
def test_what_rounding_to_bins_may_change_is_in_the_interval(law, number):
    """Sampling alone is less here: without an allowance few of these hold."""
    rng, many = np.random.default_rng(8), 400_000
    bins = noisy_table.of_amounts(0, 100, number)
    kind = Amounts(bins=bins, seen=bins)
    middle = 35 if law == "cut at a bound" else 50
    predicted = np.clip(middle + rng.normal(0, 12, many), 0, 100)
    came = np.clip(predicted + rng.normal(0, 15, many), 0, 100)
    if law == "in fives":
        came = 5 * np.round(came / 5)
    if law == "counts in ranges":
        predicted = rng.gamma(2, 5, many).clip(max=60)
        came = rng.poisson(predicted).clip(max=60).astype(float)
        rates, seen = noisy_table.of_rates(60, number), noisy_table.of_counts(60, number)
        kind = Amounts(bins=rates, seen=seen, counts=True)
    found, *_ = _told(kind, predicted, came)
    wanted = _scores(predicted, came)
    assert wanted.keys() <= found.keys()
    for name, true in wanted.items():
        assert found[name].low < true < found[name].high
    if number == 10:
        assert found["calibration_gap"].value == pytest.approx(wanted["calibration_gap"], abs=0.3)


@pytest.mark.parametrize("number", [4, 5, 6])
@pytest.mark.parametrize("law", [(1, 4), (1, 2), (2, 3)])
def test_counts_of_which_the_highest_alone_share_a_bin_are_in_the_interval(number, law):
    """That bin has no other beside it to be paired with, or there is one way to pair bins."""
    rng, many = np.random.default_rng(3), 200_000
    predicted = rng.beta(*law, many) * number * 0.8 + 1e-3
    came = rng.poisson(predicted).clip(max=number).astype(float)
    rates, seen = noisy_table.of_rates(number, number), noisy_table.of_counts(number, number)
    assert [*seen.widths[-2:]] == [1, 3]
    found, *_ = _told(Amounts(bins=rates, seen=seen, counts=True), predicted, came)
    wanted = _scores(predicted, came)
    wanted["deviance_explained"] = d2_tweedie_score(came, predicted, power=1)
    assert "deviance_explained" in found
    for name in found.keys() & wanted.keys():
        assert found[name].low < wanted[name] < found[name].high


def test_concordance_is_that_of_all_pairs():
    rng = np.random.default_rng(4)
    grid = tuple(range(1, 9))
    risk = rng.beta(2, 3, 700)
    times = rng.exponential(4 / (0.3 + risk))
    lost = rng.exponential(12, 700)
    targets = np.column_stack([np.minimum(times, lost), times <= lost])
    kind = Times(bins=noisy_table.of_risks(10), ends=grid)
    found, _, rows, columns = _told(kind, (1 - risk)[:, None], targets)
    many = len(grid)
    event = columns < many
    at = np.where(columns == 2 * many, many, columns % many)
    wanted = scoring.harrell(np.array(kind.bins.values)[rows], at.astype(float), event)
    assert found["c_index"].value == pytest.approx(wanted, abs=_EXACT)


def test_brier_score_without_losses_is_that_of_scikit_learn():
    rng = np.random.default_rng(5)
    risk = rng.beta(2, 3, 900)
    times = rng.exponential(8 * (1.2 - risk))
    targets = np.column_stack([times, times <= 8])
    targets[:, 0] = np.minimum(times, 8.5)
    kind = Times(bins=noisy_table.of_risks(10), ends=tuple(range(1, 9)))
    found, scored, rows, _ = _told(kind, (1 - risk)[:, None], targets)
    binned, came = np.array(kind.bins.values)[rows], times <= 8
    assert found["brier"].value == pytest.approx(brier_score_loss(came, binned), abs=_EXACT)
    assert found["brier"].null == pytest.approx(came.mean() * (1 - came.mean()), abs=_EXACT)
    assert found["calibration_gap"].value == pytest.approx(binned.mean() - came.mean(), abs=_EXACT)
    assert sum(scored.calibration.y) > 0


def test_accuracy_of_several_classes_is_that_of_scikit_learn():
    rng = np.random.default_rng(6)
    chances = rng.dirichlet(np.ones(4), 800)
    came = np.array([rng.choice(4, p=one) for one in chances])
    found, _, _, _ = _told(ClassValidation(many=4), chances, came)
    assert found["accuracy"].value == pytest.approx(accuracy_score(came, chances.argmax(1)))
    assert found["accuracy"].null == pytest.approx(np.bincount(came).max() / 800)


def test_derivatives_are_those_of_differences():
    counts = np.random.default_rng(7).uniform(5, 50, (6, 2))
    exact = gradient(_ranked, counts)
    for place in np.ndindex(counts.shape):
        more, less = counts.copy(), counts.copy()
        more[place] += 0.5
        less[place] -= 0.5
        assert exact[place] == pytest.approx(float(_ranked(more) - _ranked(less)), rel=1e-9)


def test_the_sampling_variance_of_an_auc_is_exact_for_exponential_risks():
    """Draws have a deviation of 1 %: one seed in ten thousand would fail."""
    rng, scale = np.random.default_rng(1), 4.0
    first = rng.exponential(size=(40_000, 8, 1))
    second = scale * rng.exponential(size=(40_000, 1, 5))
    found = (second > first).mean(axis=(1, 2)).var()
    assert _auc_variance(scale / (1 + scale), np.array([8, 5])) == pytest.approx(found, rel=0.04)
