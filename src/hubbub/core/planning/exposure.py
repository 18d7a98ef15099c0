"""Who can learn how much: epsilon for every adversary, from the outsider to all silos but one.

An adversary is a number of noise shares that it can subtract (P3, P4), and a number of records that
are its own (P10); this file counts both and asks `accounts` for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import ceil, exp, inf
from operator import attrgetter
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.number_format import at_most, several
from hubbub.core.planning import accounts, noise_shares
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.noise_shares import NoiseShares, known_shares
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.privacy.dominating_pairs import LEAST_SAMPLED_NOISE, Release
from hubbub.core.study.parties import Parties, Privacy

_epsilon = attrgetter("epsilon")


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
class Adversary:
    """A row of the table before its epsilon is known; `shares` are of silos that tell all."""

    name: str
    colluding: int = 0
    shares: int = 0
    silos: int = 0


@dataclass(frozen=True, kw_only=True)
class Threat:
    """Everything that an exposure depends on besides the adversary.

    Args:
        parties: who takes part, and how many of them may be dishonest or missing.
        privacy: epsilon and delta that are asked for.
        mechanism: of the query that the study's epsilon is calibrated by, with its noise.
        shares: how the stated noise is divided among silos.
        certificate: what is added to the ideal mechanisms.
        beside: of the other queries, each with its noise.
    """

    parties: Parties
    privacy: Privacy
    mechanism: Mechanism
    shares: NoiseShares
    certificate: Certificate
    beside: tuple[Mechanism, ...] = ()

    def __post_init__(self) -> None:
        """Refuses what has no account among such parties, or beside another sum."""
        # P9: an attempt without a silo would draw from a list that others have seen a part of.
        if self.mechanism.has_joint_batches and self.parties.dropouts:
            raise StudyError(
                f"expected parties.dropouts = 0 with joint batches in {self.mechanism.purpose}, "
                f"got {self.parties.dropouts}; a joint batch needs all silos"
            )
        for mechanism in (self.mechanism, *self.beside):
            # P25: a broken enclave would tell the noise of earlier steps.
            if mechanism.noise.epoch > 1 and self.parties.trust != "none":
                raise StudyError(
                    f'expected parties.trust = "none" with correlated noise in {mechanism.purpose},'
                    f' got "{self.parties.trust}", which has no account; choose one of the two'
                )
        # P10: which records are the adversary's own is counted for one sum alone.
        if drawn := [one.purpose for one in self.beside if one.has_joint_batches]:
            raise StudyError(
                f"expected joint batches in {self.mechanism.purpose} alone, got them in "
                f"{drawn[0]} too, which has no account beside it; choose Poisson sampling there"
            )

    def noise_left(self, known: int) -> float:
        """sigma / C that is left against who can subtract so many shares (P3)."""
        return self.mechanism.noise_multiplier * self.shares.left(known)

    def epsilon(
        self, account: accounts.Account, known: int, owned: int, torn: float = 0.0
    ) -> float:
        """Of all steps, charged like this, against who knows so many shares and owns such records.

        `torn`: the probability that its silos take the mask graph apart (P4).
        """
        noise = self.noise_left(known)
        return epsilon_against(
            account,
            self.certificate.after(Certificate(failure=torn)),
            self.privacy.delta,
            self.mechanism.steps,
            self.privacy.epsilon,
            noise,
            owned,
            beside=self.beside,
            left=noise / self.mechanism.noise_multiplier,
        )

    def exposure(self, row: Adversary, known: int, torn: float) -> Exposure:
        """What an adversary learns that can subtract so many shares."""
        owned = owned_records(self.mechanism, self.parties, row.silos)
        return Exposure(
            adversary=row.name,
            colluding_silos=row.colluding,
            known_shares=known,
            noise_multiplier=self.noise_left(known),
            epsilon=self.epsilon(accounts.account_of(self.mechanism), known, owned, torn),
            known_records=owned,
            torn=torn,
        )

    def least(self, row: Adversary) -> Exposure:
        """What an adversary learns at most (P3).

        Who knows the mask keys of more silos than the graph bears for certain may take it apart
        (P4).
        Either the probability of that is paid for, or all noise but one share counts as known: the
        share of the silo whose record it is cannot be subtracted. The smaller epsilon is claimed.
        """
        most = self.shares.most_known
        # P4: a study's graphs are counted whatever they serve, so its queries pay for them once.
        torn = noise_shares.torn_apart(self.parties, row.shares)
        whole = self.exposure(row, min(row.shares, most), torn)
        return min(whole, self.exposure(row, most, 0.0), key=_epsilon) if torn else whole

    @property
    def stated(self) -> Exposure:
        """What the stated adversary learns."""
        return self.least(_insider_row(self.parties, self.parties.colluders))

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        """Epsilon against everybody who might look."""
        return tuple(map(self.least, _adversaries(self.parties)))


@lru_cache(maxsize=4096)  # asked for again by every repetition of a study
def epsilon_against(
    account: accounts.Account,
    certificate: Certificate,
    delta: float,
    steps: int,
    near: float,
    noise: float,
    known_records: int,
    beside: tuple[Mechanism, ...] = (),
    left: float = 1.0,
) -> float:
    """Certified epsilon of the first `steps` steps, the certificate's part included; inf past 50.

    Args:
        steps: attempts, finished or not.
        near: the study's epsilon, for which the certificate's part is already known.
        noise: sigma / C that the adversary does not know.
        known_records: records that are its own.
        beside: what else is asked of the silos, each with its noise.
        left: its share of the noise, for them; see `accounts.released`.
    """
    least = min([noise, *(planned.noise_multiplier * left for planned in beside)])
    # P13: nothing is certified below that, so no epsilon is claimed.
    if noise < accounts.least_certified(account) or least < LEAST_SAMPLED_NOISE:
        return inf
    whole = accounts.releases(account, noise, steps, known_records)
    whole += accounts.released(beside, steps, left)
    return _claimed(certificate, whole, delta, near)


def _claimed(
    certificate: Certificate, whole: Sequence[Release], delta: float, near: float
) -> float:
    """Epsilon of releases at a delta, the certificate's part included; inf past 50."""

    def ideal(share: float) -> float:
        bound = accounts.epsilon_of(whole, share)
        return bound.upper if bound else inf

    return certificate.claim(ideal, delta, near=near)


def stated_adversary(parties: Parties) -> str:
    """The name of the adversary to whom the study's epsilon is promised."""
    return _insider(parties.colluders)


def stated_of(parties: Parties, exposures: tuple[Exposure, ...]) -> Exposure:
    """What the stated adversary can learn, among all."""
    return next(
        exposure for exposure in exposures if exposure.adversary == stated_adversary(parties)
    )


def owned_records(mechanism: Mechanism, parties: Parties, silos: int) -> int:
    """The most records of so many silos; 0 unless batches are joint (P10).

    If it is not stated how many each silo holds, all hold equally many, rounded up. One record at
    least is somebody else's.
    """
    if not mechanism.has_joint_batches or mechanism.tokens != "per-step":
        return 0
    records, counts = mechanism.records, mechanism.counts
    most = min(silos, parties.silos - 1)
    # P10: of the largest silos, since nobody knows which ones are corrupted.
    owned = sum(sorted(counts)[-most:]) if most and counts else None
    return min(ceil(records * most / parties.silos) if owned is None else owned, records - 1)


def _adversaries(parties: Parties) -> list[Adversary]:
    """All rows of the table."""
    # P3: neither of these two adds noise, so neither can subtract a share.
    rows = [Adversary(name="outsider (published results)"), Adversary(name="aggregator")]
    if parties.compute_nodes > 1:
        # A silo that does not use the honest node is left with its own share (P4).
        subset = 0 < parties.nodes_per_silo < parties.compute_nodes
        all_but_one = parties.silos if subset else 0
        name = "aggregator and all compute nodes but one"
        rows.append(Adversary(name=name, shares=all_but_one))
    rows.append(Adversary(name="one silo", shares=known_shares(parties, 0), silos=1))
    rows += [_insider_row(parties, t) for t in sorted({*_curve(parties), *_turns(parties)})]
    if parties.trust == "tee":
        t = parties.colluders
        rows += [
            Adversary(
                name=f"{_insider(t)}, {k} {'enclave' if k == 1 else 'enclaves'} broken",
                colluding=t,
                shares=k,
                silos=t + 1,
            )
            for k in sorted({1, 2, parties.silos // 2, parties.silos - 1} - {0, t + 1})
            if k < parties.silos
        ]
        name = without_belief(parties)
        rows.append(Adversary(name=name, colluding=t, shares=t + 1, silos=t + 1))
    return rows


def without_belief(parties: Parties) -> str:
    """The name of the stated adversary where no enclave keeps a share from its silo."""
    return f"{_insider(parties.colluders)}, no enclave holding"


def _insider_row(parties: Parties, t: int) -> Adversary:
    """The row of the aggregator with so many silos, and one that looks on."""
    return Adversary(name=_insider(t), colluding=t, shares=known_shares(parties, t), silos=t + 1)


def _insider(colluders: int) -> str:
    """The name of a coalition of the aggregator with silos."""
    silos = f"{colluders} silo" + ("" if colluders == 1 else "s")
    return f"aggregator + {silos}"


def _curve(parties: Parties) -> list[int]:
    """Numbers of colluders for the table: up to T + 2 one by one, then ever sparser, to N - 1."""
    most = parties.silos - 1
    wanted = {t for t in range(1, most + 1) if t <= 3 or abs(t - parties.colluders) <= 2}
    wanted |= {most, parties.colluders} | {round(most * share) for share in (0.25, 0.5, 0.75)}
    # Without a colluder it is the row "one silo", but where nothing more is promised.
    return sorted(t for t in wanted if min(1, parties.colluders) <= t <= most)


def _turns(parties: Parties) -> set[int]:
    """Where the promise of a sparse mask graph changes (P4)."""
    if not noise_shares.is_sparse(parties):
        return set()
    likely = noise_shares.borne_if_drawn_later(parties)
    turns = {noise_shares.borne_at_any_time(parties), likely, likely + 1}
    return turns & set(range(parties.silos))


# What a study promises a patient, as a whole and not record by record (docs/privacy.md P20, P21).
#
# Where the study says whose records they are, a patient of a silo is the unit, and the study's
# epsilon is the patient's; who is a patient of two silos is two units. Where it only says how many
# records a patient may have, each is a unit of its own, and the patient's epsilon is larger.


@dataclass(frozen=True, kw_only=True)
class PatientPromise:
    """Epsilon of a patient, against the stated adversary at the study's delta.

    Args:
        records: the most that a patient has, public; in one silo where the patient is the unit.
        is_unit: whether all of a patient's records in a silo are one unit.
        epsilon: of a patient; inf past 50, None where there is no account.
        in_two_silos: of one who has records in two silos, which are two units; the same.
    """

    records: int
    is_unit: bool
    epsilon: float | None
    in_two_silos: float | None

    @property
    def who(self) -> str:
        """Whose epsilon it is."""
        return f"a patient with up to {several(self.records, 'record')}"

    def warning(self, stated: float, delta: float) -> str:
        """What a reader should know who expects that much of epsilon at that delta."""
        if self.is_unit:
            both = f"epsilon of both together is {_told(self.in_two_silos)}"
            if self.in_two_silos is None:
                larger = min(1.0, (1 + exp(stated)) * delta)
                both = (
                    f"epsilon of both together is at most {2 * stated:.4g}, at delta {larger:.2g}"
                )
            return (
                f"the unit is a patient, with up to {several(self.records, 'record')} in a silo; a "
                f"patient of two silos is two units: {both}"
            )
        return (
            f"each record is a unit: epsilon of {self.who} is {_told(self.epsilon)}, that of a "
            f"record {stated:.4g}; name the patients' column in data.patient to protect patients"
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values; past 50 it is None."""
        plain = asdict(self)
        return {k: None if v == inf else v for k, v in plain.items()} | {"who": self.who}


def patient_promise(threat: Threat, stated: Exposure) -> PatientPromise | None:
    """What a patient is promised; None if the study says nothing of patients."""
    most = threat.mechanism.most_per_patient
    if not most:
        return None
    is_unit = threat.mechanism.unit == "patient"
    many = 2 if is_unit else most
    epsilon = stated.epsilon if many == 1 else _of_many(threat, stated, many)
    return PatientPromise(
        records=most,
        is_unit=is_unit,
        epsilon=stated.epsilon if is_unit else epsilon,
        in_two_silos=epsilon if is_unit else None,
    )


def _of_many(threat: Threat, stated: Exposure, many: int) -> float | None:
    """Epsilon of a unit with so many parts in every sum (P20); None if it has no account."""
    mechanism = threat.mechanism
    account, steps = accounts.account_of(mechanism), mechanism.steps
    try:
        whole = accounts.releases_of_units(account, stated.noise_multiplier, steps, many)
        # P20: in each other sum the unit has as many parts.
        whole += accounts.released(threat.beside, steps, 1.0, many)
    except StudyError:
        return None
    certified = stated.certified(threat.certificate)
    return _claimed(certified, whole, threat.privacy.delta, stated.epsilon)


def _told(epsilon: float | None) -> str:
    if epsilon is None:
        return "not known (there is no account of it)"
    return "more than 50" if epsilon == inf else f"at most {at_most(epsilon)}"
