"""A second opinion on delta(epsilon), by a method that shares nothing with the accountant.

Knows: the dominating pairs, and the Laplace inversion

    delta(eps) = 1/(2 pi i) * integral of E[e^{sL}]^S e^{-s eps} / (s (s + 1)) ds   on Re s = c > 0

where L is the privacy loss log(P/Q) of one step under P. It must not know (import) any part of
hubbub: no grid of losses, no FFT, no rounding of masses occurs here.

Theory of operation. (1) E[e^{sL}] is a sum over nodes: composite Gauss-Legendre panels narrow
enough for the phase t*L to turn less than a quarter turn between nodes. E[e^{cL}] - 1 is summed
as E[e^{cL} - 1 + c(e^{-L} - 1)], whose terms are second order in L, so that the power S = 10^6
finds a relative error near 1e-16 and not an absolute one. (2) The contour passes near the saddle
point or left of it. (3) The trapezoid rule with spacing D returns the wanted value plus
sum_k delta(eps + 2 pi k / D) e^{2 pi k c / D}; D is chosen from Chernoff bounds so that these
aliases stay below e^-26 of the value. (4) The same integral on a second contour with a second
spacing gives the stated error. Losses with an atom at 0 (substitution without replacement) have
the constant atom^S removed from the integrand; its exact contribution for eps >= 0 is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from scipy.stats import chi, hypergeom

Array = NDArray[np.float64]
ALIAS = 26.0  # natural log of how far below the value every discretisation term must lie
ELEMENTS = 100_000  # entries of the (times x nodes) matrix held at once: it stays in cache
MOST_ELEMENTS = 100_000_000  # give up, loudly, on integrands that decay too slowly
LEGENDRE = np.polynomial.legendre.leggauss(16)


class NoConvergenceError(ArithmeticError):
    """The integrand decays too slowly for this oracle (few steps, tiny rate)."""


@dataclass(frozen=True)
class Law:
    """Loss of one step under P: `nodes(c, t)` gives (log mass, loss) fit for |Im s| <= t."""

    nodes: Callable[[float, float], tuple[Array, Array]]
    log_atom: float = -inf


@dataclass(frozen=True)
class Estimate:
    """A value and the largest disagreement between two spacings and two contours."""

    value: float
    error: float


Steps = Sequence[tuple[Law, int]]


def rem(rate: float, shift: float) -> Law:
    """P = (1-q)N(0,1) + qN(shift,1) against Q = N(0,1)."""

    def nodes(c: float, t: float) -> tuple[Array, Array]:
        x, logw = _panels(-14.0, 14.0 + (1 + c) * shift, shift, t)
        loss = _mixture_loss(x, rate, shift)
        return logw + _log_normal(x) + loss, loss

    return Law(nodes)


def add(rate: float, shift: float) -> Law:
    """P = N(0,1) against Q = (1-q)N(0,1) + qN(shift,1)."""

    def nodes(c: float, t: float) -> tuple[Array, Array]:
        x, logw = _panels(-14.0 - c * shift, 14.0 + shift, shift, t)
        return logw + _log_normal(x), -_mixture_loss(x, rate, shift)

    return Law(nodes)


def plus_minus(rate: float, shift: float) -> Law:
    """P = (1-q)N(0,1) + qN(shift,1) against Q = (1-q)N(0,1) + qN(-shift,1)."""

    def nodes(c: float, t: float) -> tuple[Array, Array]:
        x, logw = _panels(-14.0 - shift, 14.0 + (1 + 2 * c) * shift, 2 * shift, t)
        loss = _mixture_loss(x, rate, shift)
        return logw + _log_normal(x) + loss, loss - _mixture_loss(-x, rate, shift)

    return Law(nodes)


def swapped_record(rate: float, shift: float) -> Law:
    """Substitution without replacement: rem's positive losses, add's negative ones, an atom."""
    atom = (1 - rate) * (1 - 2 * ndtr(-shift / 2))

    def nodes(c: float, t: float) -> tuple[Array, Array]:
        x, logw = _panels(shift / 2, 14.0 + (1 + c) * shift, shift, t)
        loss, base = _mixture_loss(x, rate, shift), logw + _log_normal(x)
        mass = np.concatenate([base + loss, base, [log(atom) if atom > 0 else -inf]])
        return mass, np.concatenate([loss, -loss, [0.0]])

    return Law(nodes, log_atom=log(atom) if atom > 0 else -inf)


def mixture(weights: Sequence[float] | Array, laws: Sequence[Law]) -> Law:
    """The law when a public coin with these weights first chooses which law applies."""

    def nodes(c: float, t: float) -> tuple[Array, Array]:
        parts = [law.nodes(c, t) for law in laws]
        mass = [log(w) + m for w, (m, _) in zip(weights, parts, strict=True)]
        return np.concatenate(mass), np.concatenate([loss for _, loss in parts])

    atom = sum(w * exp(law.log_atom) for w, law in zip(weights, laws, strict=True))
    return Law(nodes, log_atom=log(atom) if atom > 0 else -inf)


def malicious(*, n: int, batch: int, malicious: int, noise_multiplier: float) -> Law:
    """Substitution without replacement when the honest part of each batch is known."""
    honest = n - malicious
    low, high = max(0, batch - malicious), min(batch, honest)
    members = np.arange(low, high + 1)
    values, weights = _gauss(members / honest, hypergeom(n, honest, batch).pmf(members), 12)
    return mixture(weights, [swapped_record(q, 2 / noise_multiplier) for q in values])


def projected(*, dimension: int, noise_multiplier: float, sample_rate: float) -> tuple[Law, Law]:
    """Poisson add and remove when the shift is R/z, R^2 = chi-squared(k)/k, R public."""
    radius = chi(dimension)
    # Cutting 1e-20 off both tails changes delta by at most steps * 2e-20.
    r, logw = _panels(float(radius.ppf(1e-20)), float(radius.isf(1e-20)), 0.8, 0.0, width=1.5)
    weights = np.exp(logw + radius.logpdf(r))
    keep = weights > 1e-20
    shifts = r[keep] / sqrt(dimension) / noise_multiplier
    kinds = (rem, add)
    first, second = (
        mixture(weights[keep], [kind(sample_rate, float(m)) for m in shifts]) for kind in kinds
    )
    return first, second


def directions(
    *, noise_multiplier: float, sample_rate: float = 1.0, relation: str, sampling: str
) -> tuple[Law, ...]:
    """Every pair that must be composed on its own for this setting; the worst one counts."""
    shift, q = 1 / noise_multiplier, sample_rate
    if sampling == "without-replacement":
        if relation == "substitute":
            return (swapped_record(q, 2 * shift),)
        return rem(q, 2 * shift), add(q, 2 * shift)
    if relation == "substitute":
        return (plus_minus(q if sampling == "poisson" else 1.0, shift),)
    q = q if sampling == "poisson" else 1.0
    return rem(q, shift), add(q, shift)


def delta(steps: Steps, epsilon: float) -> Estimate:
    """The composed delta at `epsilon` >= 0 with its error."""
    c = _contour(steps, epsilon)
    first = Inversion(steps, c, epsilon).delta(epsilon)
    second = Inversion(steps, 0.8 * c, epsilon, finer=1.7).delta(epsilon)
    return Estimate(first, abs(first - second))


def epsilon(steps: Steps, target: float) -> Estimate:
    """The smallest epsilon >= 0 with delta(epsilon) <= target, with its error."""
    guess = _chernoff_epsilon(steps, target)
    for _ in range(2):  # each round moves the contour to the saddle of the better guess
        c = _contour(steps, guess)
        integral = Inversion(steps, c, guess)
        guess = integral.solve(target, guess)
    check = Inversion(steps, 0.8 * c, guess, finer=1.7).solve(target, guess)
    return Estimate(guess, abs(guess - check))


def worst_epsilon(laws: Sequence[Law], count: int, target: float) -> Estimate:
    """The larger epsilon of the given directions, each composed `count` times."""
    worst = epsilon([(laws[0], count)], target)
    for law in laws[1:]:
        # One sum on the contour at hand spares the search for a smaller root.
        c = _contour([(laws[0], count)], worst.value)
        if worst.value < 1e-3 or _delta_on(c, [(law, count)], worst.value) > 0.999 * target:
            worst = max(worst, epsilon([(law, count)], target), key=lambda e: e.value)
    return worst


def _delta_on(c: float, steps: Steps, at: float) -> float:
    """delta(at) from a contour chosen for something else: right to e^-26 of its Chernoff bound."""
    return Inversion(steps, c, at).delta(at)


def worst_delta(laws: Sequence[Law], count: int, at: float) -> Estimate:
    """The larger delta of the given directions, each composed `count` times."""
    return max((delta([(law, count)], at) for law in laws), key=lambda e: e.value)


def gaussian_delta(shift: float, eps: float) -> float:
    """Closed form for N(shift,1) against N(0,1) (Balle and Wang 2018, theorem 8)."""
    left = log_ndtr(shift / 2 - eps / shift)
    right = eps + log_ndtr(-shift / 2 - eps / shift)
    return float(np.exp(left) * -np.expm1(right - left))


def gaussian_epsilon(shift: float, target: float) -> float:
    """Inverse of `gaussian_delta` in epsilon; 0 where even epsilon = 0 is met."""
    if gaussian_delta(shift, 0.0) <= target:
        return 0.0
    high = shift * shift / 2 + 12 * shift
    return float(brentq(lambda e: log(gaussian_delta(shift, e) / target), 0.0, high, xtol=1e-15))


class Inversion:
    """The integrand on one contour, kept so that many epsilons near `near` can be read off."""

    def __init__(self, steps: Steps, c: float, near: float, finer: float = 1.0) -> None:
        self._steps, self._c = steps, c
        self._log_atom = sum(count * law.log_atom for law, count in steps)
        self._peak = _exponent(steps, c, near)
        self._spacing = 2 * pi / _period(steps, c, near, self._peak) / finer
        self._times, self._values = self._sample(near)

    def delta(self, eps: float) -> float:
        """The trapezoid sum."""
        s = self._c + 1j * self._times
        terms = (self._values * np.exp(-s * eps)).real
        return float(self._spacing / pi * (terms.sum() - terms[0] / 2))

    def solve(self, target: float, near: float) -> float:
        """Root of delta(eps) = target, searched outwards from `near`."""

        def excess(eps: float) -> float:
            return log(max(self.delta(eps), 1e-300) / target)

        if self.delta(0.0) <= target and near * self._c < 1:
            return 0.0
        reach = 0.25 / self._c
        while excess(near + reach) > 0 or (near > reach and excess(near - reach) < 0):
            reach *= 1.5
        return float(brentq(excess, max(near - reach, 0.0), near + reach, xtol=1e-15, rtol=1e-14))

    def _sample(self, near: float) -> tuple[Array, NDArray[np.complex128]]:
        """Values on the contour until what is left cannot matter."""
        times, values, done, block = [], [], 0, 24
        while True:
            t = self._spacing * np.arange(done, done + block)
            value = self._integrand(t)
            times.append(t)
            values.append(value)
            done += block
            # The integrand falls at least like 1/t^2, so its tail is at most |last| * t.
            last = np.abs(value[-block // 4 :]).max() * exp(-self._c * near - self._peak) * t[-1]
            if last < 1e-11 * max(1.0 / self._c, self._spacing):
                return np.concatenate(times), np.concatenate(values)
            block = int(1.5 * block)

    def _integrand(self, t: Array) -> NDArray[np.complex128]:
        total: NDArray[np.complex128] = np.zeros(len(t), dtype=np.complex128)
        for law, count in self._steps:
            total += count * _log_transform(law, self._c, t)
        s = self._c + 1j * t
        value: NDArray[np.complex128] = (np.exp(total) - exp(self._log_atom)) / (s * (s + 1))
        return value


def _log_transform(law: Law, c: float, t: Array) -> NDArray[np.complex128]:
    """log E[e^{(c+it)L}], as log E[e^{cL}] plus the log of the tilted law's transform."""
    log_mass, loss = law.nodes(c, float(t[-1]))
    tilted = np.exp(log_mass + c * loss - (log_mass + c * loss).max())
    keep = tilted > 1e-19
    weight, loss = tilted[keep] / tilted[keep].sum(), loss[keep]
    if len(t) * len(loss) > MOST_ELEMENTS:
        raise NoConvergenceError(f"the integrand still matters at t = {t[-1]:.0f}")
    centre = float(weight @ loss)
    loss = loss - centre
    out = np.empty(len(t), dtype=np.complex128)
    size = max(1, ELEMENTS // len(loss))
    for start in range(0, len(t), size):
        part = slice(start, start + size)
        angle = np.outer(t[part], loss)
        real, imag = -2 * (np.sin(angle / 2) ** 2) @ weight, np.sin(angle) @ weight
        # Near 1 the log must keep what is tiny; near 0 the square would lose half the digits.
        squared = np.maximum(2 * real + real**2 + imag**2, -0.9)
        far = np.log(np.maximum(np.hypot(1 + real, imag), 1e-300))
        modulus = np.where(squared > -0.75, 0.5 * np.log1p(squared), far)
        out[part] = modulus + 1j * np.arctan2(imag, 1 + real)
    return out + 1j * t * centre + _log_moment(law, c)


@lru_cache(maxsize=4096)
def _log_moment(law: Law, c: float) -> float:
    """log E[e^{cL}], summed so that nothing of first order in L cancels."""
    log_mass, loss = law.nodes(c, 0.0)
    small = np.abs(loss) * max(c, 1.0) < 1.0
    p, x = np.exp(log_mass[small]), loss[small]
    inner = p @ (np.expm1(c * x) + c * np.expm1(-x))
    m, x = log_mass[~small], loss[~small]
    top = max(0.0, float((m + c * x).max(initial=0.0)))  # keeps e^{cL} finite at large c
    outer = (np.exp(m + c * x - top)).sum()
    rest = inner + (c * (np.exp(m - x) - np.exp(m)) - np.exp(m)).sum()
    if top == 0.0:
        return float(np.log1p(rest + outer))
    return top + float(np.log(outer + (1 + rest) * exp(-top)))


def _exponent(steps: Steps, c: float, eps: float) -> float:
    """Log of the integrand where the contour crosses the real axis; a bound on log delta."""
    total = sum(count * _log_moment(law, c) for law, count in steps)
    return float(total - c * eps - log(c) - log(c + 1))


def _saddle(steps: Steps, eps: float) -> float:
    """The real s that makes the integrand smallest, to a few per cent."""
    c, ratio = 8.0, 2.0
    here = _exponent(steps, c, eps)
    while ratio > 1.05:  # walk downhill; where neither neighbour is lower, shorten the stride
        lower, higher = _exponent(steps, c / ratio, eps), _exponent(steps, c * ratio, eps)
        if min(lower, higher) >= here or c < 1e-2:
            ratio = sqrt(ratio)
        elif lower < higher:
            c, here = c / ratio, lower
        else:
            c, here = c * ratio, higher
    return c


def _contour(steps: Steps, eps: float) -> float:
    """The abscissa, at the saddle or left of it, that asks for the fewest nodes.

    Heavy-tailed losses (projection) have moments only up to some order: near it the aliases die
    slowly. Half of it costs a few digits of cancellation and saves a factor of hundreds.
    """
    best = _saddle(steps, eps)
    peak = _exponent(steps, best, eps)
    options = [f * best for f in (1.0, 0.7, 0.5, 0.35)]
    allowed = [c for c in options if _exponent(steps, c, eps) < peak + 5]
    return min(allowed, key=lambda c: _period(steps, c, eps, peak))


def _period(steps: Steps, c: float, eps: float, log_value: float) -> float:
    """Smallest 2 pi / spacing whose aliases lie e^-ALIAS below delta, by Chernoff bounds."""
    room = ALIAS + 6 - log_value  # 6: the value is a little below the integrand's peak
    right = min(
        (_exponent(steps, f * c, eps) + log(4 * f * (f * c + 1)) + room) / ((f - 1) * c)
        for f in (1.1, 1.2, 1.5, 2.0, 3.0, 5.0)
    )
    return max(room / c, right)


def _chernoff_epsilon(steps: Steps, target: float) -> float:
    """A first guess at epsilon, from above."""

    def height(eps: float) -> float:
        return _exponent(steps, _saddle(steps, eps), eps) - log(target)

    high = 1e-3
    while height(high) > 0:
        high *= 2
    low = high / 2
    for _ in range(5):
        middle = sqrt(low * high)
        low, high = (middle, high) if height(middle) > 0 else (low, middle)
    return low


def _panels(
    low: float, high: float, slope: float, t: float, *, width: float = 0.6
) -> tuple[Array, Array]:
    """Composite Gauss-Legendre nodes and log weights for integrands with phase slope * t * x."""
    # 16 nodes hold 1.2 turns of phase, and the branch points at distance pi / slope, to 1e-15.
    width = min(width, 1.2 / slope, 7.5 / (slope * t) if t > 0 else inf)
    edges = np.linspace(low, high, max(2, int(np.ceil((high - low) / width)) + 1))
    half = np.diff(edges)[:, None] / 2
    x, w = LEGENDRE
    nodes = edges[:-1, None] + half * (1 + x)
    return nodes.ravel(), np.log(half * w).ravel()


def _log_normal(x: Array) -> Array:
    return -0.5 * x * x - 0.5 * log(2 * pi)


def _mixture_loss(x: Array, rate: float, shift: float) -> Array:
    """log of ((1-q)N(0,1) + qN(shift,1)) / N(0,1) at x."""
    u = shift * x - shift * shift / 2
    if rate == 1.0:
        return u
    near: Array = np.log1p(rate * np.expm1(np.minimum(u, 30.0)))
    return np.where(u < 30.0, near, np.logaddexp(np.log1p(-rate), log(rate) + u))


def _gauss(points: Array, weights: Array, count: int) -> tuple[Array, Array]:
    """Gauss quadrature of a discrete measure: exact for polynomials of degree 2*count - 1."""
    weights = weights / weights.sum()
    mean = float(weights @ points)
    spread = sqrt(float(weights @ (points - mean) ** 2))
    count = min(count, int((weights > 0).sum()))
    if spread == 0.0:
        return np.array([mean]), np.array([1.0])
    x = (points - mean) / spread
    basis = [np.sqrt(weights)]  # Lanczos with full reorthogonalisation
    diagonal, off = [], []
    for _ in range(count):
        v = x * basis[-1]
        diagonal.append(float(basis[-1] @ v))
        for b in basis:
            v = v - (b @ v) * b
        off.append(float(np.linalg.norm(v)))
        basis.append(v / off[-1] if off[-1] > 0 else v)
    jacobi = np.diag(diagonal) + np.diag(off[:-1], 1) + np.diag(off[:-1], -1)
    values, vectors = np.linalg.eigh(jacobi)
    return mean + spread * values, vectors[0] ** 2
