"""From a plan to the row that an attempt is charged with, and from rows to what they cost.

A cap's relation need not be the study's own: the plan's pairing of mechanism and law is used
wherever it has a row for the relation; where it has none, one that is dearer (docs/privacy.md P15).
This file knows no cap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from hubbub.core.errors import StudyError
from hubbub.core.ledger.entry import PATIENT, RECORD, Entry, LedgerMechanism
from hubbub.core.planning.accounts import Account, account_of, releases, releases_of_units
from hubbub.core.planning.mechanism import WITHOUT_REPLACEMENT, Mechanism
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.planning.random_projection import Projected, RandomProjection
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.privacy.dominating_pairs import Release, release
from hubbub.core.protocol.agreement.key_agreement import Session
from hubbub.core.protocol.round.silo import Charge


def entry_of(
    planned: PlannedQuery[Query], session: Session, charge: Charge, kind: LedgerMechanism
) -> Entry:
    """The row that an attempt is charged with; `kind` is that of the query."""
    return Entry(
        study=session.study,
        session=session.id,
        round=charge.round,
        attempt=charge.attempt,
        kind=kind,
        certificate=planned.certificate,
        attested=session.attested,
    )


def kind_of(planned: PlannedQuery[Query]) -> LedgerMechanism:
    """What a ledger must know of a query's mechanism."""
    mechanism, account = planned.mechanism, account_of(planned.mechanism)
    how, joint = account.projected, account.sampling == WITHOUT_REPLACEMENT
    return LedgerMechanism(
        noise_multiplier=planned.noise_multiplier,
        sample_rate=account.sample_rate,
        sampling=account.sampling,
        # a kept list is drawn by parts
        records=mechanism.records if mechanism.has_joint_batches else 0,
        known_records=planned.known_records if joint else 0,
        projection=how.kind if how else "",
        dimension=how.dimension if how else 0,
        factor=how.factor if how else 1.0,
        slack=how.slack if how else 0.0,
        unit=mechanism.unit,
        most_per_patient=_most_per_patient(mechanism),
        diameter=mechanism.diameter,
        purpose=mechanism.purpose,
    )


def _most_per_patient(mechanism: Mechanism) -> int:
    """As it is stated; 0 where records of one patient take part in several attempts of a row."""
    whole = mechanism.unit == PATIENT or mechanism.epoch == 1
    return mechanism.most_per_patient if whole else 0


def rows_of(plan: Plan) -> list[tuple[LedgerMechanism, int, Certificate]]:
    """The rows that a whole study writes: of which kind, how many, with which certificate."""
    parts = (plan.main, *plan.beside)
    return [(kind_of(part), part.mechanism.rows, part.certificate) for part in parts]


def attempts_of(plan: Plan) -> dict[LedgerMechanism, int]:
    """How many rows of each kind a whole study writes."""
    counts: Counter[LedgerMechanism] = Counter()
    for kind, rows, _ in rows_of(plan):
        counts[kind] += rows
    return dict(counts)


def unit_of(kinds: Iterable[LedgerMechanism]) -> str:
    """What the epsilon of these entries is about: patients, if they are the unit of any (P21)."""
    return PATIENT if any(kind.unit == PATIENT for kind in kinds) else RECORD


def unknown_to_patients(kinds: Iterable[LedgerMechanism]) -> bool:
    """Whether some entries are of records, and do not say how many of them a patient has."""
    return any(kind.unit == RECORD and not kind.most_per_patient for kind in kinds)


def cost_of(kind: LedgerMechanism, count: int, relation: str, unit: str = RECORD) -> list[Release]:
    """What so many entries of a kind release to the stated adversary of their study.

    Raises:
        StudyError: they are of records, and have no account of a patient with several.
    """
    if unit == PATIENT and kind.unit == RECORD and kind.most_per_patient != 1:
        return _cost_to_patient(kind, count, relation)
    joint = kind.sampling == WITHOUT_REPLACEMENT
    if joint and not (kind.records or kind.projection):
        return [release(kind.step(count), relation)]
    if joint and relation == "add-remove":
        # Who owns records, or sees a projection, may know all batches; a record more or less puts
        # one in another's place, which is twice as long.
        whole = replace(
            kind,
            sampling="full-batch",
            sample_rate=1.0,
            noise_multiplier=kind.noise_multiplier / 2,
            records=0,
            known_records=0,
            factor=1.0,
            slack=0.0,
        )
        return cost_of(whole, count, relation)
    if kind.records and not joint and relation == "add-remove":
        # Of a kept list, parts are taken in turn: another record comes into the place of one that
        # is gone, and is gone from its own: a change of twice the length, and a single one.
        alone = replace(kind, records=0, factor=1.0, slack=0.0)
        twice = replace(alone, noise_multiplier=kind.noise_multiplier / 2)
        return cost_of(twice, count, relation) + cost_of(alone, count, relation)
    account = Account(
        sampling=kind.sampling,
        sample_rate=kind.sample_rate,
        relation=relation,
        records=kind.records,
        projected=_projected(kind, relation),
        diameter=kind.diameter,
    )
    return releases(account, kind.noise_multiplier, count, kind.known_records)


def _cost_to_patient(kind: LedgerMechanism, count: int, relation: str) -> list[Release]:
    """The same for a patient, each of whose records is clipped and sampled by itself (P20)."""
    if not kind.most_per_patient or kind.records:
        raise StudyError(
            "expected studies of records to state data.most_per_patient and to sample by Poisson, "
            "beside one of patients, got others; count them in ledgers of their own"
        )
    account = Account(
        sampling=kind.sampling,
        sample_rate=kind.sample_rate,
        relation=relation,
        records=0,
        projected=_projected(kind, relation),
    )
    return releases_of_units(account, kind.noise_multiplier, count, kind.most_per_patient)


def _projected(kind: LedgerMechanism, relation: str) -> Projected | None:
    """How the projection is charged, if there is one."""
    if not kind.projection:
        return None
    projection = RandomProjection(kind=kind.projection, dimension=kind.dimension)
    return projection.charged_again(kind.sampling, relation, kind.factor, kind.slack)
