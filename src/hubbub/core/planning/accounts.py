"""The one place that pairs a mechanism with its accounting: what a privacy auditor reads first.

A step of a study draws a batch, sums its clipped gradients, perhaps projects the sum, and adds
Gaussian noise. `releases` says which law accounts for it:

| projection | batches | neighbours | charged as |
|---|---|---|---|
| none | Poisson, or everybody | either | the dominating pair of P1 |
| none | without replacement | substitute | P10: the mixture over the honest part of the batch |
| none | Poisson, correlated noise | either | P25: P1 once in as many steps as there are bands |
| none | parts of a kept shuffled token list | substitute | P9: everybody, once in an epoch |
| fresh, Gaussian | Poisson, or everybody | add-remove | P8 (1): exact, the mixture over the norm |
| fresh, Gaussian | everybody | substitute | the same for x - x', which is all that differs |
| fresh, either | Poisson, or everybody | either | else P8 (7): a mixture over norms no shorter |
| fresh, either | without replacement | substitute | P8 (2): its row for C~, a slack in every step |
| by layers | any | either | P8 (6): the row without projection; clipped after it |
| none, statistics | everybody | substitute | P23: P1, the layout's diameter in place of 2 C |

P8 (1) and (7) are never dearer than P8 (2), which bounds them, so they are taken wherever they are
worked out. Under substitution P8 (2) charges for all three distances of P1: three events a step.
What has no row is refused (without replacement and add-remove: the batch size would show the number
of records). A projection that is kept while gradients follow it has no account at
all (P8 (4)), unless it is by layers, so there is no key for it. An attempt counts from the moment
its projection is public: whoever could discard one for free would have a choice (P8 (3)). This file
knows one adversary at a time: how much noise that one does not know, and how many records are its
own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from hubbub.core.errors import StudyError
from hubbub.core.planning.mechanism import WITHOUT_REPLACEMENT, Mechanism, joint_batch
from hubbub.core.planning.projections import Charged
from hubbub.core.privacy.accountant import Composition, calibrate
from hubbub.core.privacy.arguments import MOST_EPSILON
from hubbub.core.privacy.composition import Bound
from hubbub.core.privacy.dominating_pairs import (
    LEAST_SAMPLED_NOISE,
    Release,
    Step,
    from_above,
    release,
    release_at_quantile,
    release_with_malicious,
)

# The honest parts of a batch are gathered into so many cells: 0.05 % of epsilon, on the dear side.
_CELLS = 40
_MOST_NOISE = 1e6  # of an account; more noise is charged as this


@dataclass(frozen=True, kw_only=True)
class Account:
    """What a step of a mechanism is charged as: all but the noise and the number of steps.

    Args:
        sampling, sample_rate, relation, records: as in `Mechanism`; a kept token list counts as
            everybody (P9), groups that take turns as Poisson batches of theirs (P25).
        projected: how the projection is charged; None without one.
        epoch: a number of attempts that are charged as one step.
        diameter: as in `Mechanism`.
    """

    sampling: str
    sample_rate: float
    relation: str
    records: int
    projected: Charged | None = None
    epoch: int = 1
    diameter: float = 2.0

    @property
    def batch(self) -> int:
        """Records in a joint batch."""
        return joint_batch(self.sample_rate, self.records)


def releases(
    account: Account, noise_multiplier: float, steps: int, known_records: int = 0
) -> list[Release]:
    """What `steps` steps release to one adversary; the table above, row by row.

    Args:
        noise_multiplier: sigma / C of the noise that this adversary does not know (P3).
        steps: attempts, finished or not.
        known_records: records whose part in a batch this adversary knows because it owns them.
    """
    # P9 (e), P25: one step for each epoch, of which one that was begun counts in full.
    charged = ceil(steps / account.epoch)

    def plain(noise: float) -> Release:
        return _unprojected(account, noise, charged, known_records)

    if account.projected is None:
        return [plain(noise_multiplier)]
    step = _step(account, noise_multiplier, charged)
    return [account.projected.release(noise_multiplier, step, account.relation, plain)]


def _unprojected(account: Account, noise: float, steps: int, known_records: int) -> Release:
    """The rows without projection."""
    if account.sampling == WITHOUT_REPLACEMENT:
        return release_with_malicious(
            records=account.records,
            batch=account.batch,
            malicious=known_records,
            noise_multiplier=noise,
            count=steps,
            cells=_CELLS,
        )
    return release(_step(account, noise, steps), account.relation)


def _step(account: Account, noise: float, steps: int, records_per_unit: int = 1) -> Step:
    """All steps, as if nothing were projected; a `Step` takes it that an exchange moves 2 C."""
    # P23: a diameter is of sums over everybody. Who is in a batch by chance may be far from who is
    # not, however near to each other any two are.
    nearer = 1.0
    if account.relation == "substitute" and account.sample_rate == 1:
        nearer = 2.0 / account.diameter
    return Step(
        noise_multiplier=min(noise * nearer, _MOST_NOISE),
        sample_rate=account.sample_rate,
        sampling=account.sampling,
        count=steps,
        records_per_unit=records_per_unit,
    )


def releases_of_units(
    account: Account, noise_multiplier: float, steps: int, records_per_unit: int
) -> list[Release]:
    """What steps release of whoever owns up to so many records, each in a batch of its own (P20).

    Raises:
        StudyError: there is no account of such batches, or of what is projected.
    """
    projected = account.projected
    # P25: parts of one unit may have turns closer than an epoch; P8 has no row for several.
    if account.epoch > 1 or (projected and not projected.clips_after):
        raise StudyError(
            "expected Poisson sampling and no projection but by layers, which have an account of "
            "units of several records, got others; choose these, or state data.patient"
        )
    step = _step(account, noise_multiplier, steps, records_per_unit)
    return [release(step, account.relation)]


def releases_at_quantile(
    account: Account, noise: float, steps: int, known_records: int, slack: float
) -> list[Release]:
    """Joint batches charged the paper's way, at a quantile of their honest part (P10).

    For comparison only: `releases` is never dearer.
    """

    def plain(noise: float) -> Release:
        return release_at_quantile(
            records=account.records,
            batch=account.batch,
            malicious=known_records,
            noise_multiplier=noise,
            count=steps,
            slack=slack,
        )

    return [account.projected.lengthened(noise, plain) if account.projected else plain(noise)]


@lru_cache(maxsize=256)
def account_of(mechanism: Mechanism) -> Account:
    """What every step of a mechanism is charged as.

    Raises:
        StudyError: the table has no row for it, whoever asks for it.
    """
    _refuse_without_row(mechanism)
    account = Account(
        sampling=mechanism.sampling,
        # P25: where groups take turns, that of the group.
        sample_rate=mechanism.noise.charged_rate(mechanism.sample_rate),
        relation=mechanism.relation,
        records=mechanism.records,
        epoch=mechanism.epoch,
        diameter=mechanism.diameter,
    )
    # P9 (c), (e): a kept list amplifies nothing, so everybody counts as being in the batch.
    if mechanism.has_joint_batches and mechanism.tokens != "per-step":
        account = replace(account, sampling="full-batch", sample_rate=1.0)
    if mechanism.projection is None:
        return account
    projected = mechanism.projection.charged(
        account.sampling, account.relation, mechanism.steps, mechanism.delta
    )
    return replace(account, projected=projected)


def _refuse_without_row(mechanism: Mechanism) -> None:
    """Refuse what nothing is proven for; an ask may come from any package."""
    joint, correlated = mechanism.has_joint_batches, mechanism.noise.epoch > 1
    # P10: the size of a joint batch tells how many records there are.
    if joint and mechanism.relation != "substitute":
        raise StudyError(
            f'expected relation = "substitute" with joint batches in {mechanism.purpose}, got '
            f'"{mechanism.relation}", which has no account there; choose that, or Poisson sampling'
        )
    # P25: groups take turns where each record is sampled by itself, and one matrix serves no two.
    if correlated and (joint or mechanism.projection is not None):
        raise StudyError(
            f"expected correlated noise in {mechanism.purpose} with Poisson batches and without a "
            "projection, got another, which has no account; leave one of them out"
        )


def released(
    mechanisms: Iterable[Mechanism], step: int, left: float, many: int = 1
) -> list[Release]:
    """What sums beside a training release to one adversary by the end of so many of its steps.

    Args:
        mechanisms: of the sums, each with its noise.
        step: of the training.
        left: share of the noise's standard deviation that this adversary does not know, in units
            of what the stated one does not (P3).
        many: how many records the unit has (P20).
    """
    whole: list[Release] = []
    for mechanism in mechanisms:
        account, noise = account_of(mechanism), mechanism.noise_multiplier * left
        # P16: as many sums as may have been asked for by then, made or not.
        if count := mechanism.due_by(step):
            whole += (
                releases_of_units(account, noise, count, many)
                if many > 1
                else releases(account, noise, count)
            )
    return whole


def epsilon_of(whole: Iterable[Release], delta: float) -> Bound | None:
    """Certified epsilon; None past 50, where nothing is promised.

    Its lower end is that of the laws from above (P8).
    """
    return _epsilon_of(tuple(whole), delta)


@lru_cache(maxsize=1024)  # an account is asked for again by plan, rows of metrics and evidence
def _epsilon_of(whole: tuple[Release, ...], delta: float) -> Bound | None:
    try:
        bound = Composition(from_above(whole)).epsilon(delta, most=MOST_EPSILON)
    except StudyError:
        return None
    return bound if bound.upper <= MOST_EPSILON else None


@lru_cache(maxsize=256)  # a study that is run is planned again for its evidence
def least_noise(
    account: Account,
    steps: int,
    known_records: int,
    epsilon: float,
    delta: float,
    beside: tuple[Release, ...] = (),
) -> float:
    """The least noise multiplier with which an adversary gets at most (epsilon, delta).

    What is released `beside` the steps is part of it.
    """
    least = least_certified(account)

    def whole(noise: float) -> list[Release]:
        # Below it nothing is certified, and a calibration may try there on its way.
        return [*releases(account, max(noise, least), steps, known_records), *beside]

    return max(calibrate(whole, epsilon, delta), least)


def least_certified(account: Account) -> float:
    """The noise multiplier below which no epsilon is computed."""
    longest = account.projected.factor if account.projected else 1.0
    return LEAST_SAMPLED_NOISE * longest
