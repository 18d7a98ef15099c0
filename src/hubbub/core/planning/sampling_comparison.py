"""What joint batches, drawn without replacement, cost beside Poisson sampling (P1, P10).

All of it is for the reader who chooses between the two; no epsilon of the plan depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from hubbub.core.number_format import at_most
from hubbub.core.planning import accounts, exposure, noise_shares
from hubbub.core.planning.mechanism import WITHOUT_REPLACEMENT
from hubbub.core.planning.plan_rows import PlanRow

_SLACK_SHARE = 0.1  # of delta, for the quantile
_MOST_ROWS = 9  # of the comparison for 0 to T colluders; with more of them some are left out


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Joint batches beside Poisson sampling, against the aggregator with some silos.

    Args:
        colluding_silos: from 0 to the T of the study; a further silo looks on from inside (P3).
        known_records: records that all of these own, if all silos hold equally many (P10).
        noise_multiplier: sigma / C that is left against them; of both.
        epsilon: of joint batches, the exact mixture; None past 50.
        epsilon_poisson: of Poisson sampling at the same rate; None past 50.
    """

    colluding_silos: int
    known_records: int
    noise_multiplier: float
    epsilon: float | None
    epsilon_poisson: float | None


@dataclass(frozen=True, kw_only=True)
class SamplingComparison:
    """The same adversary, noise and delta under other accounts and under Poisson sampling.

    Args:
        known_records: records that the stated adversary owns.
        epsilon: the plan's, the exact mixture over the honest part of the batch.
        epsilon_nobody: if nobody's part in the batch were known; None past 50, as in the next.
        epsilon_slack: the paper's account, at a quantile of the honest part.
        slack: probability of a larger part, paid in every step; already in `epsilon_slack`.
        epsilon_poisson: Poisson sampling at the same rate, where owning records tells nothing.
        noise_poisson: noise multiplier with which Poisson sampling would keep the study's epsilon.
        colluders: both against 0 to T colluding silos.
    """

    known_records: int
    epsilon: float
    epsilon_nobody: float | None
    epsilon_slack: float | None
    slack: float
    epsilon_poisson: float | None
    noise_poisson: float
    colluders: tuple[Compared, ...] = ()

    def rows(self) -> list[PlanRow]:
        """What a plan says of joint batches."""
        nobody = "sampling without replacement, nobody malicious"
        paid = f"the same with {self.slack:.4g} of δ paid in every step; not used here"
        whose = "whose part in each joint batch it knows"
        poisson = "at the same noise; owning records tells nothing"
        return [
            PlanRow("records of the promised adversary", self.known_records, whose),
            PlanRow("ε if it knew none of them", self.epsilon_nobody, nobody, upper=True),
            PlanRow("ε by a quantile of the honest part", self.epsilon_slack, paid, upper=True),
            PlanRow("ε under Poisson sampling", self.epsilon_poisson, poisson, upper=True),
            PlanRow("noise under Poisson sampling", self.noise_poisson, "for the same ε"),
        ]


def joint_batches(threat: exposure.Threat, stated: exposure.Exposure) -> SamplingComparison | None:
    """The comparison, or None if batches are not joint; what else is asked is in all of it."""
    account = accounts.account_of(threat.mechanism)
    if account.sampling != WITHOUT_REPLACEMENT:
        return None
    certificate, privacy, steps = threat.certificate, threat.privacy, threat.mechanism.steps
    noise, known = stated.noise_multiplier, stated.known_records
    delta = certificate.ideal_delta(privacy.delta, privacy.epsilon)
    # P10: the quantile may be passed in every step, so each has its part of delta.
    slack = _SLACK_SHARE * delta / steps
    poisson = replace(account, sampling="poisson")
    beside = tuple(accounts.released(threat.beside, steps, 1.0))
    nobody = accounts.epsilon_of([*accounts.releases(account, noise, steps), *beside], delta)
    quantile = accounts.epsilon_of(
        [*accounts.releases_at_quantile(account, noise, steps, known, slack), *beside], delta
    )
    other = accounts.epsilon_of([*accounts.releases(poisson, noise, steps), *beside], delta)
    # From 0 colluders to T, both included, as many as a table holds.
    most, colluders = min(threat.parties.colluders + 1, _MOST_ROWS), threat.parties.colluders
    tabled = {round(colluders * place / max(most - 1, 1)) for place in range(most)}
    return SamplingComparison(
        known_records=known,
        epsilon=stated.epsilon,
        epsilon_nobody=nobody.upper + certificate.epsilon if nobody else None,
        epsilon_slack=quantile.upper + certificate.epsilon if quantile else None,
        slack=slack,
        epsilon_poisson=other.upper + certificate.epsilon if other else None,
        noise_poisson=accounts.least_noise(
            poisson, steps, 0, privacy.epsilon - certificate.epsilon, delta, beside
        ),
        colluders=tuple(_against(threat, account, colluding) for colluding in sorted(tabled)),
    )


def _against(threat: exposure.Threat, account: accounts.Account, colluding: int) -> Compared:
    """One row; that of joint batches says what the plan's exposure to the same silos says."""
    parties = threat.parties
    known = noise_shares.known_shares(parties, colluding)
    owned = exposure.owned_records(threat.mechanism, parties, colluding + 1)

    def spent(account: accounts.Account, owned: int) -> float | None:
        epsilon = threat.epsilon(account, known, owned)
        return epsilon if epsilon < inf else None

    return Compared(
        colluding_silos=colluding,
        known_records=owned,
        noise_multiplier=threat.noise_left(known),
        epsilon=spent(account, owned),
        epsilon_poisson=spent(replace(account, sampling="poisson"), 0),
    )


def as_table(found: SamplingComparison) -> list[tuple[str, str, str, str]]:
    """For people: who looks, records they own, epsilon of joint batches, epsilon of Poisson."""
    return [
        (
            f"aggregator + {colluder.colluding_silos} silo" + "s" * (colluder.colluding_silos != 1),
            str(colluder.known_records),
            at_most(colluder.epsilon),
            at_most(colluder.epsilon_poisson),
        )
        for colluder in found.colluders
    ]


def advice(found: SamplingComparison, noise_multiplier: float) -> str | None:
    """What to say if Poisson sampling is better, and by how much."""
    saved = 1 - found.noise_poisson / noise_multiplier
    if found.epsilon_poisson is None or saved < 0.005:
        return None
    return (
        f'sampling = "without-replacement": with "poisson" at the same rate the noise could be '
        f"{100 * saved:.0f} % smaller ({found.noise_poisson:.4g} instead of "
        f"{noise_multiplier:.4g}), or epsilon {found.epsilon_poisson:.3g} instead of "
        f"{found.epsilon:.3g}"
    )
