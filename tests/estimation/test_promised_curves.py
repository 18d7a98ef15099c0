"""A curve that a plan promises is told, also where most records are followed for a short time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hubbub.core.tabular.column import Column
from hubbub.estimation.incidence import Incidence
from hubbub.estimation.risk_sets import RiskSets
from hubbub.estimation.survival import Survival, SurvivalCourse
from hubbub.testing.laws import too_often

TIME, BLOOD = (
    Column(name="time", low=0, high=10),
    Column(name="blood", categories=("none", "relapse", "death")),
)
DIED = Column(name="died", categories=("no", "yes"))
RECORDS, RELEASES, REFUSED = 2000, 100, 0.02  # of releases that a plan has promised


def followed(mean: float) -> dict[str, np.ndarray]:
    """Of whom six in ten have an event, and e^(-10 / mean) are followed to the horizon."""
    rng = np.random.default_rng(1)
    time = rng.exponential(mean, RECORDS)
    event = (rng.random(RECORDS) < 0.6) & (time < 10)
    kind = np.where(event, rng.integers(1, 3, RECORDS), 0)
    return {
        "time": np.minimum(time, 10.0),
        "died": event.astype(float),
        "blood": kind.astype(float),
    }


def asked(kind: str, bins: int) -> Survival | Incidence:
    edges = tuple(np.linspace(0, 10, bins + 1).tolist())
    if kind == "survival":
        return Survival(time=TIME, event=DIED, edges=edges)
    return Incidence(time=TIME, event=BLOOD, edges=edges)


def refused(statistic: Survival | Incidence) -> int:
    """Of 100 releases at the largest noise with which a plan says yes."""
    sigma, rng = 1000.0, np.random.default_rng(2)
    while not statistic.expected(RECORDS, sigma).answered:
        sigma /= 1.1
    total = statistic.encode(followed(10 / 3)).sum(axis=0)
    noise = sigma * rng.standard_normal((RELEASES, statistic.size))
    return sum(bool(statistic.answer(total + one, sigma).refusal) for one in noise)


@pytest.mark.quick_cases("survival-2", "incidence-4")
@pytest.mark.parametrize("bins", [2, 4, 12])
@pytest.mark.parametrize("kind", ["survival", "incidence"])
def test_a_promised_curve_is_told_where_most_are_followed_for_a_short_time(
    kind: str, bins: int
) -> None:
    """One in twenty to the horizon. False alarms: at most 1e-6, if one release in 50 is refused."""
    assert not too_often(refused(asked(kind, bins)), RELEASES, REFUSED)


@pytest.mark.parametrize("kind", ["survival", "incidence"])
def test_a_promise_without_margin_is_not_kept(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def guessed(sets: RiskSets, records: float, sigma: float) -> bool:
        return SurvivalCourse.guess(sets, records, sigma).length == sets.bins

    monkeypatch.setattr(SurvivalCourse, "promised", guessed)
    assert too_often(refused(asked(kind, 2)), RELEASES, REFUSED)


def test_what_is_said_of_the_horizon_says_whom_it_takes_to_be_there() -> None:
    said: dict[str, Any] = {}
    for kind in ("survival", "incidence"):
        said[kind] = asked(kind, 12).expected(RECORDS, 5.0)
        assert said[kind].answered
        assert said[kind].sentence.endswith("if a third of the records are followed so far")
