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

from estimation.made_up import entries, patients

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
    # As hubbub reads them: a time of 0 is in the first bin, whose edge is 1.
    later = frame.assign(time=np.maximum(frame["time"], 1))
    first, second = (later[later["sex"] == one] for one in (1, 0))
    test = statistics.logrank_test(first["time"], second["time"], first["died"], second["died"])
    found["log-rank from 1 on"] = float(test.test_statistic)
    cox = lifelines.CoxPHFitter().fit(
        later[["time", "died", "sex", "II", "III"]],
        "time",
        "died",
        fit_options={"precision": 1e-12},
    )
    found["cox from 1 on"], found["cox from 1 on errors"] = (
        part.tolist() for part in (cox.params_, cox.standard_errors_)
    )
    for name, columns in (("logistic", ["sex", "II", "III"]), ("logistic on age", ["sex", "age"])):
        fit = sm.Logit(frame["died"], sm.add_constant(frame[columns])).fit(disp=0)
        found[name], found[f"{name} errors"] = fit.params[1:].tolist(), fit.bse[1:].tolist()
    strata = frame[["time", "died", "sex", "stage"]]
    cox = lifelines.CoxPHFitter().fit(strata, "time", "died", strata=["stage"])
    found["stratified cox"] = [float(cox.params_.iloc[0]), float(cox.standard_errors_.iloc[0])]
    cox = lifelines.CoxPHFitter().fit(frame[["time", "died", "sex"]], "time", "died")
    proportional = statistics.proportional_hazard_test(
        cox, frame[["time", "died", "sex"]], time_transform="rank"
    )
    found["proportional"] = float(np.ravel(proportional.test_statistic)[0])
    frame["m x II"], frame["m x III"] = (frame["sex"] * frame[one] for one in ("II", "III"))
    fit = sm.Logit(
        frame["died"], sm.add_constant(frame[["sex", "II", "III", "m x II", "m x III"]])
    ).fit(disp=0)
    found["interaction"], found["interaction errors"] = (
        part[1:].tolist() for part in (fit.params, fit.bse)
    )
    found["interaction wald"] = float(
        fit.wald_test(np.eye(6)[4:], use_f=False, scalar=True).statistic
    )
    fit = sm.Logit(frame["died"], sm.add_constant(frame[["sex", "stage"]])).fit(disp=0)
    found["trend"] = [float(fit.params["stage"]), float(fit.bse["stage"])]
    fit = sm.Logit(
        men["died"],
        sm.add_constant(pd.get_dummies(men["stage"]) * 1.0, prepend=True).drop(columns=[0.0]),
    ).fit(disp=0)
    found["men"], found["men errors"] = fit.params[1:].tolist(), fit.bse[1:].tolist()
    cause = np.where(frame["died"] == 1, 1 + (np.arange(len(frame)) % 3 == 0), 0)
    found["incidence"] = []
    for number in (1, 2):
        own = lifelines.AalenJohansenFitter(jitter_level=0.0, calculate_variance=False)
        own.fit(np.maximum(frame["time"], 1), cause, event_of_interest=number)
        column = own.cumulative_density_.iloc[:, 0]
        found["incidence"].append([float(column[column.index <= m].iloc[-1]) for m in (6, 12, 24)])
    sums = frame.groupby("sex")[["died", "time"]].sum()
    fit = sm.GLM(
        sums["died"],
        sm.add_constant(np.array([0.0, 1.0])),
        family=sm.families.Poisson(),
        offset=np.log(sums["time"]),
    ).fit()
    found["rate ratio"] = [float(fit.params.iloc[1]), float(fit.bse.iloc[1])]
    found["rate"] = float(np.exp(fit.params.iloc[0]))
    test = sm.duration.survdiff(
        np.maximum(frame["time"], 1), frame["died"], frame["sex"], strata=frame["stage"]
    )
    found["stratified log-rank"] = float(test[0])
    fit = sm.OLS(frame["marker"], sm.add_constant(frame[["age", "II", "III"]])).fit()
    found["linear"], found["linear errors"] = fit.params[1:].tolist(), fit.bse[1:].tolist()
    cross = sm.stats.Table(pd.crosstab(frame["stage"], frame["died"]), shift_zeros=False)
    two = sm.stats.Table2x2(pd.crosstab(frame["sex"], frame["died"]).to_numpy()[::-1, ::-1])
    risks = importlib.import_module("statsmodels.stats.proportion")
    counts = [(one["died"].sum(), len(one)) for one in (men, women)]
    found["risk difference"] = [
        float(counts[0][0] / counts[0][1] - counts[1][0] / counts[1][1]),
        *map(
            float,
            risks.confint_proportions_2indep(*counts[0], *counts[1], method="newcomb"),
        ),
    ]
    found["relative risk"] = [float(two.riskratio), *map(float, two.riskratio_confint())]
    found["odds ratio"] = [float(two.oddsratio), *map(float, two.oddsratio_confint())]
    utils = importlib.import_module("lifelines.utils")
    found["restricted mean"] = []
    for group in (women, men):
        own = lifelines.KaplanMeierFitter().fit(group["time"], group["died"])
        found["restricted mean"].append(float(utils.restricted_mean_survival_time(own, t=24)))
    late = frame.assign(entry=entries())[entries() < frame["time"]]
    curve = lifelines.KaplanMeierFitter().fit(late["time"], late["died"], entry=late["entry"])
    found["late survival"] = [float(curve.predict(month)) for month in (6, 12, 24)]
    ends = curve.confidence_interval_.loc[[6.0, 12.0, 24.0]].to_numpy()
    found["late survival ends"] = ends.tolist()
    columns = ["sex", "II", "III"]
    model = lifelines.CoxPHFitter().fit(
        late[["time", "died", "entry", *columns]], "time", "died", entry_col="entry"
    )
    found["late cox"], found["late cox errors"] = (
        part.tolist() for part in (model.params_, model.standard_errors_)
    )
    test = sm.duration.survdiff(late["time"], late["died"], late["sex"], entry=late["entry"])
    found["late log-rank"] = float(test[0])
    result = cross.test_nominal_association()
    found["chi-square"] = float(result.statistic)
    found["mean age"] = [float(np.mean(frame["age"])), float(np.std(frame["age"], ddof=1))]
    PATH.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
