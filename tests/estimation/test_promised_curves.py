"""A curve that a plan promises is told, also where most records are followed for a short time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimation.often import hold_as_often
from hubbub.core.tabular.column import Column
from hubbub.estimation.incidence import Incidence
from hubbub.estimation.risk_sets import RiskSets
from hubbub.estimation.survival import Survival
from hubbub.estimation.survival_course import SurvivalCourse
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


def refused(statistic: Survival | Incidence, mean: float = 10 / 3, releases: int = RELEASES) -> int:
    """Of so many releases at the largest noise with which a plan says yes."""
    sigma, rng = 1000.0, np.random.default_rng(2)
    while not statistic.expected(RECORDS, sigma).answered:
        sigma /= 1.1
    total = statistic.encode(followed(mean)).sum(axis=0)
    noise = sigma * rng.standard_normal((releases, statistic.size))
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
def test_a_curve_that_ends_in_the_first_quarter_of_its_grid_is_told(kind: str) -> None:
    """Hardly one in a thousand to the horizon; false alarms: at most 1e-6."""
    assert not too_often(refused(asked(kind, 40), mean=1.5, releases=30), 30, REFUSED)


@pytest.mark.parametrize("kind", ["survival", "incidence"])
def test_a_promise_without_margin_is_not_kept(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def guessed(sets: RiskSets, records: float, sigma: float) -> bool:
        return SurvivalCourse.guess(sets, records, sigma).length == sets.bins

    monkeypatch.setattr(SurvivalCourse, "promised", guessed)
    assert too_often(refused(asked(kind, 2)), RELEASES, REFUSED)


STEEP = Survival(time=TIME, event=DIED, edges=tuple(np.linspace(0, 10, 7).tolist()))


def course_of(events: list[int], at_risk: list[int], noise: np.ndarray) -> SurvivalCourse:
    """Of 20,000 at epsilon 1, seven in ten of whom have the event in each bin."""
    exact = STEEP.sets.coded(np.array(events, float), np.array(at_risk, float))
    return SurvivalCourse(STEEP.sets, exact + 4.7 * noise, 4.7)


def test_the_last_point_of_a_curve_that_noise_cuts_short_holds_as_often_as_it_says() -> None:
    """Where chance has left more in the fifth bin than there are on average; one in ten.

    False alarms: at most 1e-6.
    """
    rng, held = np.random.default_rng(3), list[tuple[float, float, float]]()
    while len(held) < 100:
        at_risk, events = [20_000], list[int]()
        for _ in range(6):
            events.append(int(rng.binomial(at_risk[-1], 1 - np.exp(-1.2))))
            at_risk.append(at_risk[-1] - events[-1])
        course = course_of(events, at_risk, rng.standard_normal(STEEP.size))
        if course.length == 5:
            low, high = course.ends(1.96)
            held.append((float(low[-1]), float(np.exp(-6.0)), float(high[-1])))
    hold_as_often(held, len(held))


def test_a_bin_that_chance_may_have_hidden_is_told_with_caution() -> None:
    """Sixty survivors of the fifth bin are clear of the noise by 1 deviation, and of chance less.

    Greenwood's variance of the last bin grows with it, that of bins long before does not.
    """
    course = course_of(
        [14_000, 4_200, 1_260, 378, 92, 60],
        [20_000, 6000, 1800, 540, 162, 70, 10],
        np.zeros(STEEP.size),
    )
    y = course.entered[:5]
    plain = np.cumsum(course.events[:5] / (y * (y - course.events[:5])))
    assert course.length == 5
    assert course.greenwood[:3] == pytest.approx(plain[:3], rel=1e-3)
    assert course.greenwood[4] > 1.5 * plain[4]


def test_a_late_bin_that_noise_hides_hardly_widens_intervals_before_it() -> None:
    """Upper limits that rise are pooled, and a wide one counts for little.

    Of a curve of few events and many losses, and of its first two bins alone.
    """
    events, at_risk = [200, 150, 12, 2, 0, 1], [4000, 3000, 2000, 300, 90, 60, 20]
    course = course_of(events, at_risk, np.zeros(STEEP.size))
    low, high = course.ends(1.96)
    errors = course.survived * np.sqrt(np.diag(course.covariance))
    assert errors[-1] > 10 * errors[0]
    assert (high - course.survived)[:3] == pytest.approx(1.96 * errors[:3], rel=0.25)
    assert all(np.diff(low) < 0)
    assert all(np.diff(high) <= 0)


def test_limits_of_a_flat_curve_of_many_noisy_edges_hold_as_often_as_they_say() -> None:
    """Few events, all early: each edge has noise of its own, and the least of many limits is none.

    False alarms: at most 1e-6.
    """
    rng, sets = np.random.default_rng(4), asked("survival", 40).sets
    at_risk = np.append(RECORDS, RECORDS - 60.0 - np.linspace(0, 1000, 40))
    exact = sets.coded(np.append(60.0, np.zeros(39)), at_risk)
    truth, missed = 1.0 - 60 / RECORDS, 0
    for _ in range(RELEASES):
        course = SurvivalCourse(sets, exact + 16 * rng.standard_normal(exact.size), 16.0)
        low, high = course.ends(1.96)
        missed += not low[20] <= truth <= high[20]
        assert max(*np.diff(low), *np.diff(high)) <= 0
    assert not too_often(missed, RELEASES, 0.05)


def test_what_is_said_of_the_horizon_says_whom_it_takes_to_be_there() -> None:
    said: dict[str, Any] = {}
    for kind in ("survival", "incidence"):
        said[kind] = asked(kind, 12).expected(RECORDS, 5.0)
        assert said[kind].answered
        assert said[kind].sentence.endswith("if a third of the records are followed so far")
