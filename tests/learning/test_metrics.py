"""Metrics against those of lifelines, scikit-survival and scikit-learn (metric_peers.py)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hubbub.learning import accuracy, auc, scoring
from metric_peers import FILE, GRID, SEEDS, binary, counts, survival


def found(seed: int) -> dict[str, float]:
    made, two, some = survival(seed), binary(seed), counts(seed)
    of_times = scoring.survival_scores(made["hazards"], GRID, made["times"], made["events"])
    logits, targets = two["logits"], two["targets"]
    return {
        **of_times,
        "lifelines_c_index": of_times["c_index"],
        "auc": auc(logits, targets),
        "brier": scoring.squared_errors(logits, targets).mean(),
        "calibration_slope": scoring.calibration_slope(logits, targets),
        "poisson_deviance": scoring.deviances(some["rates"], some["targets"]).mean(),
        **scoring.errors(some["rates"], some["targets"]),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_metrics_are_those_of_their_peers(seed: int) -> None:
    expected = json.loads(FILE.read_text())[seed]
    assert found(seed) == pytest.approx(expected, rel=1e-8)


def test_what_is_not_defined_is_left_out() -> None:
    made = survival(0)
    none = np.zeros(len(made["times"]), dtype=bool)
    assert "c_index" not in scoring.survival_scores(made["hazards"], GRID, made["times"], none)
    bad = np.full_like(made["hazards"], np.nan)
    assert scoring.survival_scores(bad, GRID, made["times"], made["events"]) == {}
    apart = np.array([-2.0, -1.0, 1.0, 2.0])
    assert np.isnan(scoring.calibration_slope(apart, (apart > 0).astype(float)))
    assert np.isnan(scoring.calibration_slope(np.zeros(4), (apart > 0).astype(float)))
    assert accuracy(apart, apart > 0) == 1
