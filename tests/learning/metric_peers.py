"""Metrics of made-up records by lifelines, scikit-survival and scikit-learn, for test_metrics.py.

pip install --target PEERS lifelines scikit-survival
PYTHONPATH=PEERS python tests/learning/metric_peers.py > tests/learning/metric_peers.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_suffix(".json")
GRID = (0.5, 1.0, 2.0, 3.5, 5.0)
SEEDS = range(4)


def survival(seed: int) -> dict[str, Any]:
    """Times with ties, censoring, and hazards that know something of them."""
    random = np.random.default_rng(seed)
    count = 80
    score = random.normal(size=count).round(1)
    times = random.exponential(np.exp(-score)) * 2 + 0.05
    ends = random.exponential(4, count) + 0.05
    events = times <= ends
    hazards = np.exp(score[:, None] - 1.5) * random.uniform(0.5, 1.5, len(GRID))
    return {"times": np.minimum(times, ends).round(1) + 0.1, "events": events, "hazards": hazards}


def binary(seed: int) -> dict[str, Any]:
    """Logits that are too sure, and classes."""
    random = np.random.default_rng(100 + seed)
    logits = 2 * random.normal(size=90).round(1)
    chances = 1 / (1 + np.exp(-0.6 * logits + 0.3))
    return {"logits": logits, "targets": (random.uniform(size=90) < chances).astype(float)}


def counts(seed: int) -> dict[str, Any]:
    """Rates and counts."""
    random = np.random.default_rng(200 + seed)
    rates = random.uniform(0.2, 6, 70)
    return {"rates": rates, "targets": random.poisson(rates).astype(float)}


def _by_peers(seed: int) -> dict[str, float]:
    from lifelines.utils import concordance_index
    from sklearn import metrics
    from sklearn.linear_model import LogisticRegression
    from sksurv.metrics import (
        concordance_index_censored,
        concordance_index_ipcw,
        integrated_brier_score,
    )
    from sksurv.util import Surv

    made = survival(seed)
    times, events, risk = made["times"], made["events"], made["hazards"].sum(1)
    known = Surv.from_arrays(events, times)
    within = [k for k, end in enumerate(GRID) if times.min() <= end < times.max()]
    free = np.exp(-made["hazards"].cumsum(1))[:, within]
    two, some = binary(seed), counts(seed)
    chances = 1 / (1 + np.exp(-two["logits"]))
    regression = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000)
    slope = regression.fit(two["logits"][:, None], two["targets"]).coef_[0, 0]
    return {
        "lifelines_c_index": concordance_index(times, -risk, events),
        "c_index": concordance_index_censored(events, times, risk)[0],
        "c_index_uno": concordance_index_ipcw(known, known, risk, tau=GRID[-1])[0],
        "integrated_brier": integrated_brier_score(known, known, free, np.array(GRID)[within]),
        "auc": metrics.roc_auc_score(two["targets"], two["logits"]),
        "brier": metrics.brier_score_loss(two["targets"], chances),
        "calibration_slope": float(slope),
        "poisson_deviance": metrics.mean_poisson_deviance(some["targets"], some["rates"]),
        "rmse": metrics.root_mean_squared_error(some["targets"], some["rates"]),
        "mae": metrics.mean_absolute_error(some["targets"], some["rates"]),
    }


if __name__ == "__main__":
    found = [{name: float(value) for name, value in _by_peers(seed).items()} for seed in SEEDS]
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
