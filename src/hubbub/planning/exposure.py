"""Who can learn how much: epsilon for every adversary, from the outsider to all silos but one.

An adversary is a number of noise shares that it can subtract (P3, P4), and a number of records that
are its own (P10); this file counts both and asks `mechanisms` for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, sqrt
from operator import attrgetter

from hubbub.planning import auxiliary_queries, mask_degree, mechanisms
from hubbub.privacy import LEAST_SAMPLED_NOISE, Certificate
from hubbub.study import Study


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """What one adversary can learn about a record.

    Args:
        adversary: in words.
        colluding_silos: silos that tell it all they know.
        known_shares: noise shares it can subtract: theirs, and that of a silo that merely looks at
            the result, which knows its own (P3).
        noise_multiplier: sigma / C that is left against it (P3).
        epsilon: certified upper bound at the study's delta, what finite precision adds included;
            inf past 50.
        known_records: records of its own, whose part in a joint batch it knows (P10); 0 where
            batches are not joint.
        torn: probability that its silos take the mask graph apart, beyond what the plan's
            certificate counts already (P4); in epsilon. Where it is not 0 the row holds for silos
            that were corrupted before the graph was drawn, else whenever they are.
    """

    adversary: str
    colluding_silos: int
    known_shares: int
    noise_multiplier: float
    epsilon: float
    known_records: int = 0
    torn: float = 0.0

    def certified(self, certificate: Certificate) -> Certificate:
        """What is added to the ideal mechanism against this adversary, the plan's part included."""
        return certificate.after(Certificate(failure=self.torn))


@dataclass(frozen=True, kw_only=True)
class _Adversary:
    """A row of the table before its epsilon is known; `shares` are of silos that tell all."""

    name: str
    colluding: int = 0
    shares: int = 0
    silos: int = 0


def exposures_of(
    study: Study,
    noise: float,
    shares: int,
    certificate: Certificate,
    degree: int,
    queries: tuple[auxiliary_queries.PricedQuery, ...] = (),
) -> tuple[Exposure, ...]:
    """Epsilon against everybody who might look (P3).

    Who knows the mask keys of more silos than the graph bears for certain may take it apart (P4).
    Either the probability of that is paid for, or all noise but one share counts as known: the
    share of the silo whose record it is cannot be subtracted. The smaller epsilon is claimed.
    """
    most = sharing_silos(study) - study.parties.dropouts - 1
    mechanism = mechanisms.mechanism_of(study)

    def exposure(row: _Adversary, known: int, torn: float) -> Exposure:
        left, owned = noise_left(study, noise, shares, known), owned_records(study, row.silos)
        found = epsilon_against(
            mechanism,
            certificate.after(Certificate(failure=torn)),
            study.privacy.delta,
            study.training.steps,
            study.privacy.epsilon,
            left,
            owned,
            queries=queries,
            left=left / noise,
        )
        return Exposure(
            adversary=row.name,
            colluding_silos=row.colluding,
            known_shares=known,
            noise_multiplier=left,
            epsilon=found,
            known_records=owned,
            torn=torn,
        )

    def least(row: _Adversary) -> Exposure:
        larger = row.shares > study.parties.colluders + 1  # than the one the plan pays for
        odds = mask_degree.torn_apart(study, row.shares, degree) if larger else 0.0
        torn = (1 + len(queries)) * odds
        whole = exposure(row, min(row.shares, most), torn)
        return min(whole, exposure(row, most, 0.0), key=attrgetter("epsilon")) if torn else whole

    return tuple(map(least, _adversaries(study, degree)))


@lru_cache(maxsize=4096)  # asked for again by every repetition of a study
def epsilon_against(
    mechanism: mechanisms.Mechanism,
    certificate: Certificate,
    delta: float,
    steps: int,
    near: float,
    noise: float,
    known_records: int,
    queries: tuple[auxiliary_queries.PricedQuery, ...] = (),
    left: float = 1.0,
) -> float:
    """Certified epsilon of the first `steps` steps, the certificate's part included; inf past 50.

    Args:
        mechanism: what every step does.
        certificate: what to add.
        delta: the study's.
        steps: attempts, finished or not.
        near: the study's epsilon, for which the certificate's part is already known.
        noise: sigma / C that the adversary does not know.
        known_records: records that are its own.
        queries: what else is asked of the silos.
        left: its share of the noise, for them; see `PricedAside.release`.
    """
    least = min([noise, *(query.noise_multiplier * left for query in queries)])
    if noise < mechanisms.least_certified(mechanism) or least < LEAST_SAMPLED_NOISE:
        return inf
    whole = mechanisms.releases(mechanism, noise, steps, known_records)
    whole += auxiliary_queries.released(queries, steps, left, mechanism.relation)

    def ideal(share: float) -> float:
        found = mechanisms.epsilon_of(whole, share)
        return found.upper if found else inf

    return certificate.claim(ideal, delta, near=near)


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


def stated_of(study: Study, exposures: tuple[Exposure, ...]) -> Exposure:
    """What the stated adversary can learn, among all."""
    return next(one for one in exposures if one.adversary == stated_adversary(study))


def noise_left(study: Study, noise: float, shares: int, known: int) -> float:
    """z_eff of P3: what is left of the noise when `known` shares can be subtracted."""
    left = sharing_silos(study) - study.parties.dropouts - known
    return noise * sqrt(max(left, 0) / shares)


def known_shares(study: Study, colluders: int) -> int:
    """Noise shares known to so many silos and to a further one that looks on (P3).

    Attested enclaves keep a silo's share from its own owner.
    """
    return 0 if study.parties.trust == "tee" else colluders + 1


def owned_records(study: Study, silos: int) -> int:
    """The most records of so many silos; 0 unless batches are joint (P10).

    If the study does not state how many each silo holds, all hold equally many, rounded up. One
    record at least is somebody else's.
    """
    training = study.training
    if training.sampling != mechanisms.WITHOUT_REPLACEMENT or training.tokens != "per-step":
        return 0
    records, parties = study.data.records, study.parties
    most = min(silos, parties.silos - 1)
    owned = sum(sorted(study.data.counts)[-most:]) if most and study.data.counts else None
    return min(ceil(records * most / parties.silos) if owned is None else owned, records - 1)


def _adversaries(study: Study, degree: int) -> list[_Adversary]:
    """All rows of the table."""
    parties = study.parties
    rows = [_Adversary(name="outsider (published models)"), _Adversary(name="aggregator")]
    if parties.compute_nodes > 1:
        # A silo that does not use the honest node is left with its own share (P4).
        subset = 0 < parties.nodes_per_silo < parties.compute_nodes
        all_but_one = parties.silos if subset else 0
        name = "aggregator and all compute nodes but one"
        rows.append(_Adversary(name=name, shares=all_but_one))
    rows.append(_Adversary(name="one silo", shares=known_shares(study, 0), silos=1))
    rows += [
        _Adversary(name=_insider(t), colluding=t, shares=known_shares(study, t), silos=t + 1)
        for t in sorted({*_curve(study), *_turns(study, degree)})
    ]
    if parties.trust == "tee":
        t = parties.colluders
        rows += [
            _Adversary(
                name=f"{_insider(t)}, {k} {'enclave' if k == 1 else 'enclaves'} broken",
                colluding=t,
                shares=k,
                silos=t + 1,
            )
            for k in sorted({1, 2, parties.silos // 2, parties.silos - 1} - {0, t + 1})
            if k < parties.silos
        ]
        name = without_belief(study)
        rows.append(_Adversary(name=name, colluding=t, shares=t + 1, silos=t + 1))
    return rows


def without_belief(study: Study) -> str:
    """The name of the stated adversary where no enclave keeps a share from its silo."""
    return f"{_insider(study.parties.colluders)}, no enclave holding"


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


def _turns(study: Study, degree: int) -> set[int]:
    """Where the promise of a sparse mask graph changes (P4); not told of an earlier run's."""
    if not mask_degree.is_sparse(study, degree) or degree != mask_degree.mask_degree(study):
        return set()
    certain = mask_degree.borne_at_any_time(study, degree)
    likely = mask_degree.borne_if_drawn_later(study, degree)
    return {certain, likely, likely + 1} & set(range(study.parties.silos))
