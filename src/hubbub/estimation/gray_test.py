"""Gray's test that groups have the same incidence of one kind of event (Gray 1988, weight 1).

Theory of operation. Of who is at risk in a group only those can yet have the event whom no other
kind of event has taken away, and yet they are the population: with S the survival without any event
and F the incidence, R_j = Y_j (1 - F(j - 1)) / S(j - 1) of a group's records stand for it in bin j.
What a group has too much is U = sum_j D_j - R_j (sum of all D_j) / (sum of all R_j), the log-rank
statistic with R for Y. It is a function of events of each kind, D, and of Y, all linear in the
noisy sum. Its covariance is that of drawing the events of each bin (multinomial) and of the noise,
both by its derivatives, which are known. It is made of the sums of curves alone (docs/privacy.md
P35). It goes on as long as all groups have survivors that stand clear of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hubbub.estimation.crosstab import quadratic_form
from hubbub.estimation.statistic import Array, NoisyTest
from hubbub.estimation.survival_course import SurvivalCourse

NAME = "Gray's"
_CLEAR = 8.0  # standard deviations of noise that survivors have while it goes on, as curves do


@dataclass(frozen=True, kw_only=True)
class GroupIncidence:
    """A group's events of all kinds, and who is at risk, over the bins that are compared.

    Args:
        events: (causes, bins), the first row of the kind that is compared.
        at_risk: (bins,).
    """

    events: Array
    at_risk: Array

    @cached_property
    def _left(self) -> Array:
        """(bins,) who has had no event."""
        return np.asarray(self.at_risk - self.events.sum(axis=0))

    @cached_property
    def _survived(self) -> Array:
        """(bins,) the share without any event before each bin."""
        return np.append(1.0, np.cumprod(self._left / self.at_risk))[:-1]

    @cached_property
    def _incidence(self) -> Array:
        """(bins,) the share with the event before each bin."""
        each = self._survived * self.events[0] / self.at_risk
        return np.append(0.0, np.cumsum(each))[:-1]

    @cached_property
    def standing(self) -> Array:
        """(bins,) R: how many records the group has in a bin, whom others' events took away too."""
        return np.asarray(self.at_risk * (1.0 - self._incidence) / self._survived)

    def derivatives(self) -> tuple[Array, Array]:
        """Of R by events of each kind, (causes, bins, bins of R), and by who is at risk."""
        after = np.triu(np.ones((len(self.at_risk),) * 2), 1)  # an earlier bin bears on later ones
        own = np.zeros(len(self.events))
        own[0] = 1.0
        later = np.append(self._incidence[1:], 0.0)  # at the end of each bin
        reached = self._incidence[None, :] - later[:, None]  # what came in between
        gone = 1.0 - self._incidence[None, :]
        per_event = (self._survived / self.at_risk)[:, None]
        lost = (1.0 + reached / gone) / self._left[:, None]
        of_events = np.array([self.standing * after * (lost - k * per_event / gone) for k in own])
        hazard = (self.events[0] / self.at_risk)[:, None]
        every = (self.events.sum(axis=0) / self.at_risk)[:, None]
        of_risk = self.standing * after * (per_event * hazard / gone - lost * every)
        return of_events, of_risk + np.diag(self.standing / self.at_risk)


def gray_test(
    column: str, groups: Sequence[tuple[SurvivalCourse, Array]], cause: int
) -> NoisyTest | None:
    """The test of one kind of event; None if too few records are at risk for the noise.

    Args:
        column: the kind of event, for the answer.
        groups: each group's course, and its events by kind, (causes, bins).
        cause: which kind, counted from 0.
    """
    from scipy.special import chdtrc  # which takes long to import

    end = min(course.bins_clear_of(_CLEAR) for course, _ in groups)
    if not end:
        return None
    order = [cause, *(other for other in range(len(groups[0][1])) if other != cause)]
    parts = [
        GroupIncidence(events=events[order, :end], at_risk=course.entered[:end])
        for course, events in groups
    ]
    excess, gradients = compared(parts)
    covariance = sum(
        _drawn(part, by_events) + _noise(course, order, by_events, by_risk)
        for part, (course, _), (by_events, by_risk) in zip(parts, groups, gradients, strict=True)
    )
    degrees = len(groups) - 1
    statistic = quadratic_form(excess[:-1], np.asarray(covariance)[:-1, :-1], degrees)
    return NoisyTest(
        name=NAME,
        column=column,
        statistic=statistic,
        degrees=degrees,
        p_value=float(chdtrc(degrees, statistic)),
        z=math.copysign(math.sqrt(statistic), excess[0]) if degrees == 1 else None,
    )


def compared(parts: Sequence[GroupIncidence]) -> tuple[Array, list[tuple[Array, Array]]]:
    """U (groups,), and for each group its derivatives: (groups, causes, bins), (groups, bins)."""
    standing = np.array([part.standing for part in parts])
    events = np.array([part.events[0] for part in parts])
    share = standing / standing.sum(axis=0)
    hazard = events.sum(axis=0) / standing.sum(axis=0)
    excess = (events - standing * hazard).sum(axis=1)
    gradients = []
    for place, part in enumerate(parts):
        apart = np.eye(len(parts))[place][:, None] - share  # (groups, bins)
        of_events, of_risk = part.derivatives()
        by_events = -np.einsum("cjk,gk->gcj", of_events, apart * hazard)
        by_events[:, 0] += apart
        gradients.append((by_events, -np.einsum("jk,gk->gj", of_risk, apart * hazard)))
    return excess, gradients


def _drawn(part: GroupIncidence, by_events: Array) -> Array:
    """(groups, groups) covariance of U by drawing a group's events in each bin."""
    events = np.maximum(part.events, 0.0)
    mean = np.einsum("gcj,cj->gj", by_events, events)
    squares = np.einsum("gcj,hcj,cj->gh", by_events, by_events, events)
    return np.asarray(squares - (mean / part.at_risk) @ mean.T)


def _noise(course: SurvivalCourse, order: Sequence[int], by_events: Array, by_risk: Array) -> Array:
    """(groups, groups) covariance of U by the noise in a group's sum."""
    end, sets = by_risk.shape[1], course.sets
    rows = by_risk @ sets.exposed[:end]
    for place, cause in enumerate(order):
        rows = rows + by_events[:, place] @ sets.events_of(cause)[:end]
    return np.asarray(course.sigma**2 * rows @ rows.T)
