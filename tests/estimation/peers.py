"""What lifelines and statsmodels say of the made-up patients, all pooled: makes peers.json.

    pip install --target /tmp/peers lifelines statsmodels
    PYTHONPATH=src:tests:/tmp/peers python -m estimation.peers

No test needs the two; the values that they gave are kept.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from estimation.made_up import patients

PATH = Path(__file__).with_name("peers.json")


def main() -> None:
    """Write all values."""
    pd, sm = importlib.import_module("pandas"), importlib.import_module("statsmodels.api")
    lifelines = importlib.import_module("lifelines")
    statistics = importlib.import_module("lifelines.statistics")
    frame = pd.DataFrame(patients())
    frame["II"], frame["III"] = (frame["stage"] == 1) * 1.0, (frame["stage"] == 2) * 1.0
    found: dict[str, Any] = {
        "lifelines": lifelines.__version__,
        "statsmodels": importlib.import_module("statsmodels").__version__,
    }
    curve = lifelines.KaplanMeierFitter().fit(frame["time"], frame["died"])
    ends = curve.confidence_interval_.loc[[6.0, 12.0, 24.0]].to_numpy()
    found["survival"] = [float(curve.predict(month)) for month in (6, 12, 24)]
    found["survival ends"] = ends.tolist()
    men, women = (frame[frame["sex"] == one] for one in (1, 0))
    test = statistics.logrank_test(men["time"], women["time"], men["died"], women["died"])
    found["log-rank"] = float(test.test_statistic)
    for name, columns in (("cox", ["sex", "II", "III"]), ("cox on age", ["sex", "age"])):
        cox = lifelines.CoxPHFitter().fit(frame[["time", "died", *columns]], "time", "died")
        found[name], found[f"{name} errors"] = (
            part.tolist() for part in (cox.params_, cox.standard_errors_)
        )
    for name, columns in (("logistic", ["sex", "II", "III"]), ("logistic on age", ["sex", "age"])):
        fit = sm.Logit(frame["died"], sm.add_constant(frame[columns])).fit(disp=0)
        found[name], found[f"{name} errors"] = fit.params[1:].tolist(), fit.bse[1:].tolist()
    fit = sm.OLS(frame["marker"], sm.add_constant(frame[["age", "II", "III"]])).fit()
    found["linear"], found["linear errors"] = fit.params[1:].tolist(), fit.bse[1:].tolist()
    cross = sm.stats.Table(pd.crosstab(frame["stage"], frame["died"]), shift_zeros=False)
    result = cross.test_nominal_association()
    found["chi-square"] = float(result.statistic)
    found["mean age"] = [float(np.mean(frame["age"])), float(np.std(frame["age"]))]
    PATH.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
