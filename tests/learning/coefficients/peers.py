"""What statsmodels says of made-up patients: makes peers.json.

    pip install --target /tmp/peers statsmodels
    PYTHONPATH=src:.:/tmp/peers python -m tests.learning.coefficients.peers

No test needs it; the values that it gave are kept.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np

PATH = Path(__file__).with_name("peers.json")
HIGH, LOWEST, HIGHEST = 12.0, 5.0, 200.0  # bounds of the count, and of the amount
Cells = dict[str, np.ndarray]


def patients() -> Cells:
    """With a count that spreads twice as widely as a Poisson law's, a class and an amount."""
    rng = np.random.default_rng(4)
    cells: Cells = {
        "age": rng.uniform(20, 90, 900),
        "sex": rng.integers(0, 2, 900).astype(float),
        "ward": rng.integers(0, 3, 900).astype(float),
    }
    x = design(cells)
    rates = rng.gamma(np.exp(x @ [0.4, 0.6, 0.3, -0.2, 0.2]))
    logits = [0 * x[:, 0], x @ [0, 1, 0.5, 0, -0.3], x @ [-0.5, -1, 0, 0.4, 0.6]]
    odds = np.exp(np.column_stack(logits))
    below = (odds / odds.sum(axis=1, keepdims=True)).cumsum(axis=1)
    return cells | {
        "visits": rng.poisson(rates).astype(float),
        "stage": (rng.random((900, 1)) > below).sum(axis=1).astype(float),
        "stay": np.exp(x @ [3, 0.5, -0.4, 0.2, 0.3] + rng.normal(0, 0.9, 900)),
    }


def design(cells: Cells) -> np.ndarray:
    """1, half a range of age, M, wards b and c."""
    ward = [cells["ward"] == place for place in (1, 2)]
    age = (cells["age"] - 55) / 35
    return np.column_stack([np.ones(len(age)), age, cells["sex"] == 1, *ward]).astype(float)


def main() -> None:
    """Write all values."""
    sm = importlib.import_module("statsmodels.api")
    cells = patients()
    x, visits = design(cells), np.minimum(cells["visits"], HIGH)
    poisson = sm.GLM(visits, x, family=sm.families.Poisson())
    rates = poisson.fit().fittedvalues
    # Not Pearson's chi-square, which weighs patients whose rate is low the more.
    spread = float(((visits - rates) ** 2).sum() / rates.sum())
    counts, classes = poisson.fit(scale=spread), sm.MNLogit(cells["stage"], x).fit(disp=0)
    stay = sm.OLS(np.log(np.clip(cells["stay"], LOWEST, HIGHEST)), x).fit()
    told = {
        "statsmodels": importlib.import_module("statsmodels").__version__,
        "counts": counts.params.tolist(),
        "counts errors": counts.bse.tolist(),
        "classes": classes.params.T.tolist(),
        "classes errors": classes.bse.T.tolist(),
        "logarithms": stay.params.tolist(),
        "logarithms errors": stay.bse.tolist(),
    }
    PATH.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
