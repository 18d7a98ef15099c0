"""Gray's test of 137 patients after a transplant, beside what R's cmprsk says of them.

The records are those of Klein and Moeschberger, Survival Analysis (1997), section 1.3; the numbers
of cmprsk 2.2-12 are printed at https://psiaims.github.io/CAMIS/R/survival_cif.html.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Levels
from hubbub.estimation.incidence import GroupIncidence, Incidence, compared_incidence

# Days by group, ALL, AML of low and of high risk: neither, relapse, death in remission.
DAYS = (
    (
        "226 530 996 1111 1167 1182 1199 1330 1377 1433 1462 1496 1602 2081",
        "55 74 104 109 110 122 129 192 230 383 609 662",
        "1 86 107 122 172 194 276 332 418 466 487 526",
    ),
    (
        "847 848 860 932 957 1030 1258 1324 1363 1384 1447 1470 1527 1535 1562 1568 1674 1709 1799 "
        "1829 1843 1850 1857 1870 2218 2246 2409 2506 2569",
        "211 219 248 272 381 421 486 606 748",
        "10 35 48 53 79 80 105 288 390 414 481 641 704 1063 1074 2204",
    ),
    (
        "845 1136 1238 1345 1631 2024 2133 2140 2252 2430 2640",
        "32 47 47 48 64 76 84 93 100 113 115 120 157 242 268 273 390 422 456 467 625",
        "2 16 63 74 80 105 162 164 168 183 318 363 677",
    ),
)
GROUP, CAUSE, TIME = np.array(
    [
        (group, cause, float(day))
        for group, causes in enumerate(DAYS)
        for cause, days in enumerate(causes)
        for day in days.split()
    ]
).T
RELAPSE, RELAPSE_P_VALUE = 11.9228820, 0.0025762


def counts(days: Array) -> tuple[Array, Array, Array]:
    """(groups, days): who is at risk, who relapses, who dies."""
    here, past = days[:, None] == TIME, days[:, None] <= TIME
    own = [group == GROUP for group in range(3)]
    return (
        np.array([(past & one).sum(axis=1) for one in own]) * 1.0,
        np.array([(here & one & (CAUSE == 1)).sum(axis=1) for one in own]) * 1.0,
        np.array([(here & one & (CAUSE == 2)).sum(axis=1) for one in own]) * 1.0,
    )


def grays_covariance(at_risk: Array, relapses: Array, deaths: Array) -> Array:
    """Of the score, as if groups had one incidence (Gray 1988, section 2), tied events drawn."""
    survival = np.cumprod(1.0 - (relapses + deaths) / at_risk, axis=1)
    before = np.column_stack([np.ones(3), survival[:, :-1]])
    standing = at_risk / before
    events, together = relapses.sum(axis=0), standing.sum(axis=0)
    incidence = np.cumsum(events / together)
    share = np.append(0.0, incidence[:-1])
    apart = standing[:, None] * (np.eye(3)[:, :, None] - standing / together)
    gathered = np.cumsum(apart * events / together / (1.0 - share), axis=2)
    to_come = gathered[:, :, -1:] - gathered
    lost = (1.0 - incidence) / survival
    of_relapses, of_deaths = apart + (1.0 - lost) * to_come, lost * to_come
    tied = 1.0 - np.maximum(events - 1.0, 0.0) / (together * before - 1.0)
    weights = before * events / (together * at_risk) * tied
    tied = 1.0 - np.maximum(deaths - 1.0, 0.0) / np.maximum(at_risk - 1.0, 1.0)
    drawn = (before / at_risk) ** 2 * deaths * tied
    return np.asarray(
        np.einsum("gkj,hkj,kj->gh", of_relapses, of_relapses, weights)
        + np.einsum("gkj,hkj,kj->gh", of_deaths, of_deaths, drawn)
    )


def test_grays_score_with_grays_variance_is_the_statistic_that_r_prints() -> None:
    days = np.unique(TIME[TIME <= 1100.0])  # after the last relapse, and before a group ends
    at_risk, relapses, deaths = counts(days)
    excess, _ = compared_incidence(
        [
            GroupIncidence(events=np.array([relapses[group], deaths[group]]), at_risk=one)
            for group, one in enumerate(at_risk)
        ]
    )
    covariance = grays_covariance(at_risk, relapses, deaths)[:2, :2]
    statistic = float(excess[:2] @ np.linalg.solve(covariance, excess[:2]))
    assert statistic == pytest.approx(RELAPSE, abs=1e-6)
    assert chi2.sf(statistic, 2) == pytest.approx(RELAPSE_P_VALUE, abs=1e-7)


def test_the_test_from_sums_is_within_a_hundredth_of_the_statistic_that_r_prints() -> None:
    """Its variance is that of each group's own events, as if nothing were known to be alike."""
    cause = Column(name="cause", categories=("none", "relapse", "death"))
    group = Column(name="group", categories=("ALL", "low", "high"))
    asked = Incidence(
        time=Column(name="time", low=0, high=2640),
        event=cause,
        edges=(0.0, *np.unique(TIME[(CAUSE > 0) & (TIME <= 2081)]).tolist()),
        by=Levels(column=group),
        test=True,
    )
    sums = asked.encode({"time": TIME, "cause": CAUSE, "group": GROUP}).sum(axis=0)
    relapse, _ = asked.answer(sums, 1e-9).tests
    assert relapse.column == "relapse"
    assert relapse.statistic == pytest.approx(RELAPSE, rel=0.01)
    assert relapse.p_value == pytest.approx(RELAPSE_P_VALUE, rel=0.05)
