"""Cox regression on numbers, by a few noisy sums of scores.

Theory of operation. Within a public bin k the hazard of a record is exp(a_k + b x), so that what it
has gathered over its time in the bin, h_k, is known from public parameters. With d_k for its event,
d_k - h_k are the scores of the a_k, and their sum times z, x less a public centre and over the
longest that can be, is that of b. A record is followed as long as all that it has gathered stays
below a public stop, which its bins before tell: that bounds all its parts (docs/privacy.md P23) and
bends nothing. What is known of a_k comes out of b by the scores of a few pieces of the time. Where
an event is, half of a bin is gathered: times may be rounded to the grid (Efron's rule for ties, up
to second order).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hubbub.core.tabular.column import Column
from hubbub.estimation.covariates import USUAL, Guess
from hubbub.estimation.cox_cells import Cox, HazardRatios
from hubbub.estimation.newton_sums import NewtonRegression, Scored, Triangle
from hubbub.estimation.risk_sets import RiskSets
from hubbub.estimation.statistic import Array, Cells, Expectation, Levels, Parameters

# What parts of a record are multiplied by, the score's own being 1: that of the hazards, and those
# of the information one beside the other (docs/privacy.md P23).
_BASE = 0.4
_GATHERED, _CROSS, _SQUARES = 0.35, 0.45, 0.82  # their squares add up to less than 1
_LEAST_SHARE = 1.5  # of the information, squared
_FIRST, _PLANNED = 0.6, 1.0  # stops of the first sum and of others, as they are planned
_STOPS = 0.25 * 1.12 ** np.arange(26)  # that may follow
_KEPT = 0.97  # of the events: with fewer, ratios that change would be those of earlier times
_LEAST, _LARGEST = 0.1, 8.0
_PIECES = 4
_ROOM = 1e-3  # by which the first sum's hazards stay below the stop


def cox(
    time: Column,
    event: Column,
    edges: tuple[float, ...],
    on: tuple[Levels | Column, ...],
    **more: Any,
) -> Cox | NewtonCox:
    """A Cox regression: one sum where all covariates are classes, else a few Newton sums.

    Args:
        time, event, edges, on, more: the fields of `HazardRatios`.

    Raises:
        StudyError: a grid, an event or covariates that are none.
    """
    classes = tuple(covariate for covariate in on if isinstance(covariate, Levels))
    if len(classes) == len(on):
        return Cox(time=time, event=event, edges=edges, on=classes, **more)
    return NewtonCox(time=time, event=event, edges=edges, on=on, **more)


@dataclass(frozen=True, kw_only=True)
class NewtonCox(HazardRatios, NewtonRegression):
    """Hazard ratios per unit and between classes, from a few sums."""

    sensitivity = 1.0  # docs/privacy.md P23
    diameter = 2.0
    note = (
        f"{HazardRatios.note}; who is at high risk may be followed for less long: "
        "a few of the latest events may not count"
    )

    def __post_init__(self) -> None:
        """Refuses a grid, an event or covariates that are none."""
        _ = self._sets
        super().__post_init__()

    @property
    def size(self) -> int:
        """How many numbers its block has."""
        return 2 * self._bins + self.width * (1 + self._pieces) + self._triangle.size

    @property
    def start(self) -> Parameters:
        """Parameters of the first sum: no effects, a constant hazard that just reaches the stop."""
        lengths = np.diff(self._sets.grid)
        hazards = np.log((1 - _ROOM) * _FIRST * lengths / lengths.sum())
        centre = self._means
        return np.concatenate([0.0 * centre, hazards, centre, [_FIRST]]).astype(np.float32)

    def encode_at(self, cells: Cells, parameters: Parameters) -> Array:
        """The blocks of n records at these parameters, (n, size)."""
        at = self._at(parameters)
        x = self.covariates.design(cells)[:, 1:]
        event, present = self._sets.followed(cells)
        known = ~np.isnan(x).any(axis=1, keepdims=True)
        x = np.where(known, x, 0.0)
        with np.errstate(all="ignore"):
            risks = np.clip(np.nan_to_num(x @ at.effects), -50, 50)
        hazards = np.exp(risks[:, None] + at.hazards)
        followed = known & (np.cumsum(hazards, axis=1) <= at.stop)
        gathered = np.where(followed, hazards * present, 0.0)
        left = np.where(followed, event, 0.0) - gathered
        z = (x - at.centre) / at.radius
        pieces = gathered @ self._in_piece
        blocks = [
            _BASE * left,
            left.sum(axis=1)[:, None] * z,
            at.share * _GATHERED * gathered,
            at.share * _CROSS * (pieces[:, :, None] * z[:, None, :]).reshape(len(z), -1),
            at.share * _SQUARES * self._triangle.squares(gathered.sum(axis=1), z),
        ]
        return np.hstack(blocks) / at.length

    def scored(self, sums: Array, sigma: float, parameters: Parameters) -> Scored:
        """What a sum says of the effects, with what is known of the hazards taken out."""
        at = self._at(parameters)
        read = self._read(sums, sigma, at)
        left, exposed = (self._in_piece.T @ part for part in (read.left, read.gathered))
        means = read.cross * (exposed / (exposed**2 + read.noise**2))[:, None]
        error = sigma * at.length * math.sqrt(self._bins / self._pieces) / _BASE
        unit = at.radius
        return Scored(
            at=at.effects,
            score=unit * (read.score - means.T @ left),
            information=read.ratio * unit**2 * (read.squares - read.cross.T @ means),
            noise=unit**2
            * ((sigma * at.length) ** 2 * np.eye(self.width) + error**2 * means.T @ means),
            blur=read.ratio * unit**2 * sigma * at.length / (at.share * _SQUARES),
            entries=self._triangle,
        )

    def update(self, sums: Array, sigma: float, parameters: Parameters) -> Parameters:
        """The parameters after a noisy sum that was taken at `parameters`."""
        at = self._at(parameters)
        read = self._read(sums, sigma, at)
        step = self.scored(sums, sigma, parameters).step
        shrunk = np.maximum(read.events, 0.0) + read.noise * read.ratio
        ratios = shrunk / (np.maximum(read.gathered, 0.0) + read.noise)
        shift = at.radius * read.cross.sum(axis=0) / read.total
        centre = self.covariates.inside(at.centre + shift)
        hazards = at.hazards + np.log(ratios) - step @ centre
        effects = at.effects + step
        stop = at.stop
        if not at.effects.any():
            gathered = np.cumsum(np.exp(hazards + effects @ centre))
            risks = at.radius**2 * float(effects @ read.squares @ effects) / read.total
            stop = self._stop(gathered, max(risks, 0.01), read.events)
        return np.concatenate([effects, hazards, centre, [stop]]).astype(np.float32)

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in each of its sums.

        As if nothing were correlated, and numbers had a mean beside the middle of their range.
        """
        length, noise = _length(_PLANNED), self.blurred(sigma)

        def found(guess: Guess) -> Scored:
            whole = self.covariates.moments(guess)
            means, moments = whole[0, 1:], whole[1:, 1:]
            unit = self.covariates.radius(means + 0.25 * np.array(self.covariates.number))
            return Scored(
                at=0.0 * means,
                score=0.0 * means,
                information=max(records, 1.0) * guess.event * (moments - np.outer(means, means)),
                noise=(noise * unit * length) ** 2 * np.eye(self.width),
                blur=unit**2 * noise * length / (_share(_PLANNED) * _SQUARES),
                entries=self._triangle,
            )

        return self.foreseen(
            found, sigma, "logarithm of a hazard ratio over half of a column's range"
        )

    def _stop(self, gathered: Array, risks: float, events: Array) -> float:
        """The least stop that comes after almost all events, whatever the noise.

        Args:
            gathered: (bins,) by records at the centre.
            risks: variance of the logarithms of others' hazards, as if they were normal.
            events: (bins,) noisy.
        """
        from scipy.special import ndtr  # which takes long to import

        seen = np.maximum(events, 0.0)
        for stop in _STOPS:
            kept = ndtr((np.log(stop / gathered) - risks) / math.sqrt(risks))
            if seen @ kept >= _KEPT * seen.sum():
                return float(stop)
        return float(_STOPS[-1])

    def _at(self, parameters: Parameters) -> _At:
        """Parameters, made possible whatever they are."""
        whole = np.nan_to_num(parameters.astype(np.float64), posinf=50.0, neginf=-50.0)
        effects, hazards, centre, stop = np.split(
            np.clip(whole, -50.0, 50.0), np.cumsum([self.width, self._bins, self.width])
        )
        inside = self.covariates.inside(centre)
        bound = min(max(float(stop[0]), _LEAST), _LARGEST)
        radius = self.covariates.radius(inside)
        return _At(effects, hazards, inside, bound, radius, _length(bound), _share(bound))

    def _read(self, sums: Array, sigma: float, at: _At) -> _Read:
        """The parts of a sum, each in its own unit."""
        bins, width = self._bins, self.width
        parts = np.split(sums * at.length, np.cumsum([bins, width, bins, width * self._pieces]))
        left, gathered = parts[0] / _BASE, parts[2] / (at.share * _GATHERED)
        noise = sigma * at.length * math.hypot(1 / _BASE, 1 / (at.share * _GATHERED))
        total = max(float(gathered.sum()), noise)
        return _Read(
            left=left,
            score=parts[1],
            gathered=gathered,
            cross=parts[3].reshape(self._pieces, width) / (at.share * _CROSS),
            squares=self._triangle.matrix(parts[4]) / (at.share * _SQUARES),
            events=left + gathered,
            total=total,
            ratio=max(float(left.sum()) / total + 1.0, 1e-3),
            noise=noise,
        )

    @cached_property
    def _sets(self) -> RiskSets:
        return RiskSets(time=self.time, event=self.event, edges=self.edges)

    @property
    def _means(self) -> Array:
        """(q,) guessed."""
        return self.covariates.moments(USUAL)[0, 1:]

    @property
    def _bins(self) -> int:
        return self._sets.bins

    @property
    def width(self) -> int:
        """How many effects there are."""
        return self.covariates.width - 1

    @property
    def _triangle(self) -> Triangle:
        return Triangle(width=self.width)

    @property
    def _pieces(self) -> int:
        return min(_PIECES, self._bins)

    @property
    def _in_piece(self) -> Array:
        """(bins, pieces) 1 where a bin lies in a piece."""
        return np.eye(self._pieces)[np.arange(self._bins) * self._pieces // self._bins]


class _At(NamedTuple):
    """Public numbers at which a sum is taken, and what follows from them."""

    effects: Array
    hazards: Array  # logarithms, of records whose covariates are 0
    centre: Array
    stop: float
    radius: float  # of the covariates around their centre
    length: float  # of the longest record, before it is divided by it
    share: float  # what the parts of the information are multiplied by


class _Read(NamedTuple):
    """The parts of a noisy sum; covariates less their centre are in units of the radius."""

    left: Array  # (bins,) events less what was gathered
    score: Array
    gathered: Array
    cross: Array  # (pieces, q)
    squares: Array
    events: Array
    total: float  # that was gathered
    ratio: float  # of events to that
    noise: float  # standard deviation, of the events of a bin


def _length(stop: float) -> float:
    """The longest that a record can be with this stop (docs/privacy.md P23)."""
    return math.sqrt(max(1 + _BASE**2, stop**2 * (1 + _BASE**2 + _share(stop) ** 2)))


def _share(stop: float) -> float:
    """The largest share of the information that makes no record longer, or enough of it."""
    square = 1 + _BASE**2
    return math.sqrt(max(min(square * (stop**-2 - 1), 2 / stop - square), _LEAST_SHARE))
