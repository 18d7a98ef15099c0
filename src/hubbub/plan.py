"""The plan: everything that follows from a study before the first record is touched.

This is the one file that pairs the mechanism (noise shares, grid, mask graph) with its accounting,
and what a privacy auditor reads first. The chain is short: the noise multiplier is calibrated so
that the stated adversary gets at most the study's epsilon (P1-P3); it is divided into shares that
survive colluders and drop-outs (P3, P4); the shares fix the grid and the word (P5, P7); what finite
precision and the mask graph may add is computed and paid for in the calibration (P4-P6).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import exp, expm1, inf, log, pi, prod, sqrt
from typing import Any

from hubbub import sources
from hubbub.errors import DataError, StudyError
from hubbub.privacy import (
    Composition,
    Release,
    Step,
    calibrate,
    power_bound,
    release,
)
from hubbub.study import Privacy, Study, Training
from hubbub.summation import graph
from hubbub.wire import OVERHEAD

# Share of the record's clipping norm that is given up so that float32 sums stay within it (P14).
CLIP_MARGIN = 2.0**-8
_LEAST_GRID_SIGMA, _MOST_GRID_SIGMA = 4, 16
_UNKNOWN_BATCH = 1 << 14  # aligned records that must fit a word when the study states no number
_ASSUMED_DIMENSION = 10**7  # for the certificate, when the model's size is not known yet


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """What one adversary can learn about a record.

    Args:
        adversary: in words.
        colluding_silos: silos that tell it all they know.
        known_shares: noise shares it can subtract: theirs, and that of a silo that merely looks at
            the result, which knows its own (P3).
        noise_multiplier: sigma / C that is left against it (P3).
        epsilon: certified upper bound at the study's delta; inf past 50.
    """

    adversary: str
    colluding_silos: int
    known_shares: int
    noise_multiplier: float
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What finite precision and the mask graph add to the ideal mechanism (P4-P6)."""

    epsilon: float
    delta: float
    delta_factor: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What follows from a study; made by `plan`."""

    study: Study
    dimension: int | None
    noise_multiplier: float
    shares: int
    sharing: int
    degree: int
    word_bits: int
    share_sigma_grid: float
    capacity: int
    certificate: Certificate
    exposures: tuple[Exposure, ...]
    attack_power: float
    warnings: tuple[str, ...]

    @property
    def clip(self) -> float:
        """C, the sensitivity of the sum to one record."""
        return self.study.training.clip

    @property
    def record_clip(self) -> float:
        """The norm to which records are clipped: C less the margin for float sums (P14)."""
        return self.clip * (1 - CLIP_MARGIN)

    @property
    def share_sigma(self) -> float:
        """Standard deviation of each silo's noise, in units of the gradient sum (P3)."""
        return self.noise_multiplier * self.clip / sqrt(self.shares)

    @property
    def total_noise_multiplier(self) -> float:
        """sigma / C of the noise in the revealed sum when every silo takes part."""
        return self.noise_multiplier * sqrt(self.study.parties.silos / self.shares)

    @property
    def grid_step(self) -> float:
        """Width of a grid step in units of the gradient sum (P5)."""
        return self.share_sigma / self.share_sigma_grid

    @property
    def quorum(self) -> int:
        """The least number of silos in a round; below it nothing is revealed (P3)."""
        return self.study.parties.silos - self.study.parties.dropouts

    @property
    def divisor(self) -> float:
        """Public constant by which the noisy sum is divided: the expected batch (P14)."""
        training, records = self.study.training, self.study.data.records
        return training.sample_rate * records if records else 1.0

    @property
    def upload_bytes_per_step(self) -> int | None:
        """Bytes that one silo sends in a step."""
        if self.dimension is None:
            return None
        copies = self.nodes_per_silo if self.study.parties.shares == "full" else 1
        return copies * (self.dimension * self.word_bits // 8 + OVERHEAD)

    @property
    def nodes_per_silo(self) -> int:
        """Compute nodes whose masks a silo adds."""
        return self.study.parties.nodes_per_silo or self.study.parties.compute_nodes

    def epsilon(self, adversary: str = "") -> float:
        """Epsilon against an adversary of `exposures`, the stated one by default.

        Raises:
            StudyError: no such adversary.
        """
        name = adversary or stated_adversary(self.study)
        for one in self.exposures:
            if one.adversary == name:
                return one.epsilon
        known = ", ".join(one.adversary for one in self.exposures)
        raise StudyError(f"expected one of the adversaries {known}, got {adversary!r}; choose one")

    def epsilon_after(self, steps: int) -> float:
        """Certified epsilon of the stated adversary after the first `steps` steps."""
        if steps == self.study.training.steps:
            return self.stated.epsilon
        study, noise = self.study, self.stated.noise_multiplier
        return _epsilon_after(study.training, study.privacy, noise, self.certificate, steps)

    @cached_property
    def stated(self) -> Exposure:
        """The adversary against whom the noise is calibrated."""
        name = stated_adversary(self.study)
        return next(one for one in self.exposures if one.adversary == name)

    def as_json(self) -> dict[str, Any]:
        """The plan as plain values; an epsilon past 50 is null."""
        return {
            "study": self.study.name,
            "study_id": self.study.id.hex(),
            "relation": self.study.privacy.relation,
            "silos": self.study.parties.silos,
            "compute_nodes": self.study.parties.compute_nodes,
            "steps": self.study.training.steps,
            "sample_rate": self.study.training.sample_rate,
            "noise_multiplier": self.noise_multiplier,
            "total_noise_multiplier": self.total_noise_multiplier,
            "share_sigma": self.share_sigma,
            "share_sigma_grid": self.share_sigma_grid,
            "grid_step": self.grid_step,
            "word_bits": self.word_bits,
            "capacity": self.capacity,
            "dimension": self.dimension,
            "upload_bytes_per_step": self.upload_bytes_per_step,
            "degree": self.degree,
            "quorum": self.quorum,
            "delta": self.study.privacy.delta,
            "certificate": asdict(self.certificate),
            "attack_power_at_1_percent": self.attack_power,
            "epsilon": [
                {**asdict(one), "epsilon": one.epsilon if one.epsilon < inf else None}
                for one in self.exposures
            ],
            "stated_adversary": stated_adversary(self.study),
            "warnings": list(self.warnings),
        }

    def json(self) -> str:
        """`as_json` as text."""
        return json.dumps(self.as_json(), indent=2)


def plan(study: Study, *, dimension: int | None = None) -> Plan:
    """What follows from a study: noise, shares, grid, word, and epsilon for every adversary.

    Guarantees:
        1. The stated adversary (the aggregator with `colluders` silos, one of them watching the
           rounds from inside) gets at most study.privacy.epsilon at study.privacy.delta, the
           certificate's additions included.

    Args:
        study: the study.
        dimension: number of trainable parameters, where the model is not a built-in one.

    Raises:
        StudyError: the study asks for something that cannot be certified.
    """
    dimension = dimension if dimension is not None else model_dimension(study)
    parties = study.parties
    sharing = sharing_silos(study)
    shares = sharing - parties.dropouts - _known(study, parties.colluders)
    if shares < 1:
        raise StudyError(
            f"expected parties.nodes_per_silo to leave at least one noise share, got {sharing} "
            f"silos that share a sum; raise nodes_per_silo or lower colluders and dropouts"
        )
    certificate = _certificate(study, dimension)
    noise = _calibrated(study, certificate)
    word_bits, sigma_grid, capacity = _grid(study, noise, shares)
    return Plan(
        study=study,
        dimension=dimension,
        noise_multiplier=noise,
        shares=shares,
        sharing=sharing,
        degree=graph.degree(parties.silos, parties.colluders, parties.dropouts),
        word_bits=word_bits,
        share_sigma_grid=sigma_grid,
        capacity=capacity,
        certificate=certificate,
        exposures=_exposures(study, noise, shares, sharing, certificate),
        attack_power=power_bound(Composition(_releases(study, noise)), 0.01),
        warnings=_warnings(study, dimension),
    )


def sharing_silos(study: Study) -> int:
    """Silos in the smallest sum that can be isolated, before colluders and drop-outs (P4)."""
    parties = study.parties
    if 0 < parties.nodes_per_silo < parties.compute_nodes:
        # Consecutive nodes on a circle: one honest node may be the only one for its own silos. The
        # N mod M silos that are over use the first nodes once more than the last.
        each, over = divmod(parties.silos, parties.compute_nodes)
        spared = parties.compute_nodes - over
        return parties.nodes_per_silo * each + max(0, parties.nodes_per_silo - spared)
    return parties.silos


def stated_adversary(study: Study) -> str:
    """The name of the adversary to whom the study's epsilon is promised."""
    return _insider(study.parties.colluders)


def noise_left(study: Study, noise: float, shares: int, known: int) -> float:
    """z_eff of P3: what is left of the noise when `known` shares can be subtracted."""
    left = sharing_silos(study) - study.parties.dropouts - known
    return noise * sqrt(max(left, 0) / shares)


def model_dimension(study: Study) -> int | None:
    """Trainable parameters of a built-in model; None if the records' shape is not public yet."""
    model, shape = study.model, record_shape(study)
    if shape is None or model.kind.startswith("python:"):
        return None
    if model.kind == "cnn":
        return None
    widths = (prod(shape), *model.hidden, model.outputs)
    return sum(low * high + (high if model.bias else 0) for low, high in pairwise(widths))


def record_shape(study: Study) -> tuple[int, ...] | None:
    """Shape of one record's features: stated, or that of the public test set."""
    if study.model.inputs:
        return study.model.inputs
    if not sources.has_test_set(study):
        return None
    try:
        return tuple(sources.records(study, sources.TEST).inputs.shape[1:])
    except DataError:
        return None


def releases(
    training: Training, relation: str, noise_multiplier: float, steps: int
) -> list[Release]:
    """What `steps` steps release to an adversary who faces this much noise (P1)."""
    step = Step(
        noise_multiplier=noise_multiplier,
        sample_rate=training.sample_rate,
        sampling=training.sampling,
        count=steps,
    )
    return [release(step, relation)]


@lru_cache(maxsize=4096)
def _epsilon_after(
    training: Training, privacy: Privacy, noise: float, certificate: Certificate, steps: int
) -> float:
    """Certified epsilon after so many steps; asked for again by every repetition of a study."""
    delta = _ideal_delta(privacy.delta, certificate)
    done = Composition(releases(training, privacy.relation, noise, steps)).epsilon(delta)
    return done.upper + certificate.epsilon


def _releases(study: Study, noise: float) -> list[Release]:
    """All steps of a study."""
    return releases(study.training, study.privacy.relation, noise, study.training.steps)


def _calibrated(study: Study, certificate: Certificate) -> float:
    """The least noise with which epsilon and delta hold after the certificate is paid for."""
    privacy = study.privacy
    epsilon = privacy.epsilon - certificate.epsilon
    delta = _ideal_delta(privacy.delta, certificate)
    if epsilon < 0.5 * privacy.epsilon or delta < 0.5 * privacy.delta:
        raise StudyError(
            f"expected an epsilon and delta well above what finite precision adds "
            f"({certificate.epsilon:.2g}, {certificate.delta:.2g}), got {privacy.epsilon:g} and "
            f"{privacy.delta:g}; raise them or take fewer steps"
        )
    return calibrate(lambda noise: _releases(study, noise), epsilon, delta)


def _ideal_delta(delta: float, certificate: Certificate) -> float:
    """The delta that the ideal mechanism may use."""
    return (delta - certificate.delta) / certificate.delta_factor


def _certificate(study: Study, dimension: int | None) -> Certificate:
    """P5 (rounding), P6 (sampler, by the martingale bound) and P4 (graph), for the whole study."""
    draws = float(study.training.steps) * (dimension or _ASSUMED_DIMENSION) * study.parties.silos
    sigma = float(_LEAST_GRID_SIGMA)
    rounding = 2 * draws * exp(-((pi * sigma) ** 2))
    outcome = _outcome_error(float(_MOST_GRID_SIGMA))
    slack = 1e-3 * study.privacy.delta / (1 + exp(study.privacy.epsilon))
    drift = draws * outcome**2 + outcome * sqrt(2 * draws * log(1 / slack))
    lost_tail = draws * 1e-20  # grain of the tail's 64-bit uniforms, in total variation
    graph_failure = _graph_failure(study)
    return Certificate(
        epsilon=2 * (rounding + drift),
        delta=(1 + exp(study.privacy.epsilon)) * (slack + lost_tail) + graph_failure,
        delta_factor=1 + expm1(rounding + drift),
    )


def _outcome_error(sigma_grid: float) -> float:
    """Relative error of one outcome's probability in float64 (P6 iii, with r = 4, T = 9, a = 1)."""
    reach = 9 * sigma_grid
    shift = 2.0**-53 * (5 * reach + 1)
    slope = (reach + 1) / sigma_grid**2
    return 2 * shift * (1 + slope) * exp(slope * shift)


def _graph_failure(study: Study) -> float:
    """Probability that the mask graph falls apart; nothing on a complete one (P4)."""
    parties = study.parties
    degree = graph.degree(parties.silos, parties.colluders, parties.dropouts)
    if parties.compute_nodes or degree >= parties.silos - 1:
        return 0.0
    return float(2.0**-graph.FAILURE_BITS)


def _grid(study: Study, noise: float, shares: int) -> tuple[int, float, int]:
    """Word, grid standard deviation of a share, and how many aligned records fit (P7)."""
    share = noise / sqrt(shares)  # in units of C
    needed = _largest_batch(study)
    for bits in (16, 32, 64):
        sigma = float(_MOST_GRID_SIGMA)
        while sigma >= _LEAST_GRID_SIGMA:
            spread = 12 * sigma * sqrt(study.parties.silos)
            capacity = int((2.0 ** (bits - 1) - 1 - spread) * share / sigma)
            if capacity >= needed:
                return bits, sigma, capacity
            sigma /= 2
    raise StudyError(
        "expected a noise multiplier at which a 64-bit word holds the sum, "
        f"got {noise:.3g}; ask for a smaller epsilon"
    )


def _largest_batch(study: Study) -> int:
    """A batch size exceeded with probability below 2^-100; a default if n is not public."""
    records = study.data.records
    if not records:
        return _UNKNOWN_BATCH
    mean = study.training.sample_rate * records
    return min(records, int(mean + 12 * sqrt(mean) + 48) + 1)


def _exposures(
    study: Study, noise: float, shares: int, sharing: int, certificate: Certificate
) -> tuple[Exposure, ...]:
    """Epsilon against everybody who might look, from the outsider to all silos but one (P3)."""
    rows = [("outsider (published models)", 0, 0), ("aggregator", 0, 0)]
    most = sharing - study.parties.dropouts - 1
    if study.parties.compute_nodes > 1:
        # A silo that does not use the honest node is left with its own share (P4).
        subset = 0 < study.parties.nodes_per_silo < study.parties.compute_nodes
        rows.append(("aggregator and all compute nodes but one", 0, most if subset else 0))
    rows.append(("one silo", 0, _known(study, 0)))
    rows += [(_insider(t), t, _known(study, t)) for t in _curve(study)]
    if study.parties.trust == "tee":
        colluders = study.parties.colluders
        rows.append((f"{_insider(colluders)}, no enclave holding", colluders, colluders + 1))
    known = {min(row[2], most) for row in rows}
    left = {k: noise_left(study, noise, shares, k) for k in known}
    epsilons = {k: _epsilon(study, left[k], certificate) for k in known}
    return tuple(
        Exposure(
            adversary=name,
            colluding_silos=colluding,
            known_shares=min(shares_known, most),
            noise_multiplier=left[min(shares_known, most)],
            epsilon=epsilons[min(shares_known, most)],
        )
        for name, colluding, shares_known in rows
    )


def _known(study: Study, colluders: int) -> int:
    """Noise shares known to so many silos and to a further one that looks on (P3).

    Attested enclaves keep a silo's share from its own owner.
    """
    return 0 if study.parties.trust == "tee" else colluders + 1


def _insider(colluders: int) -> str:
    """The name of a coalition of the aggregator with silos."""
    silos = f"{colluders} silo" + ("" if colluders == 1 else "s")
    return f"aggregator + {silos}"


def _curve(study: Study) -> list[int]:
    """Numbers of colluders for the table: up to T + 2 one by one, then ever sparser, to N - 1."""
    most = study.parties.silos - 1
    wanted = {t for t in range(1, most + 1) if t <= 3 or abs(t - study.parties.colluders) <= 2}
    wanted |= {most, study.parties.colluders} | {round(most * share) for share in (0.25, 0.5, 0.75)}
    return sorted(t for t in wanted if 0 <= t <= most)


def _epsilon(study: Study, noise: float, certificate: Certificate) -> float:
    """Certified epsilon at the study's delta; inf past 50."""
    try:
        ideal = Composition(_releases(study, noise)).epsilon(
            _ideal_delta(study.privacy.delta, certificate)
        )
    except StudyError:
        return inf
    return ideal.upper + certificate.epsilon if ideal.upper <= 50 else inf


def _warnings(study: Study, dimension: int | None) -> tuple[str, ...]:
    """What a reader should know before approving the study."""
    found = []
    parties, privacy, data = study.parties, study.privacy, study.data
    if parties.colluders == 0:
        found.append("colluders = 0: one silo that helps the aggregator weakens the guarantee")
    if parties.compute_nodes == 1:
        found.append("compute_nodes = 1: that node and the aggregator together see each silo's sum")
    if data.records and privacy.delta > 1 / data.records:
        found.append(f"delta = {privacy.delta:g} is above 1 / records = {1 / data.records:.2g}")
    if not data.records:
        found.append("data.records is not stated: the sum is not divided by the expected batch")
    if dimension is None:
        found.append("the model's size is not known yet: bytes per step are left open")
    if privacy.epsilon > 8:
        found.append(f"epsilon = {privacy.epsilon:g} promises little; aim below 8")
    return tuple(found)
