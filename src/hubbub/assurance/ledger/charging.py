"""What an attempt is charged with: a row that says which mechanism it was, and of which session."""

from __future__ import annotations

from hubbub.assurance.ledger.entry import Entry, Kind
from hubbub.planning import WITHOUT_REPLACEMENT, Plan, mechanism_of
from hubbub.protocol import Charge, Session


def entry_of(plan: Plan, session: Session, charge: Charge, kind: Kind) -> Entry:
    """The row that an attempt is charged with; `kind` is that of the plan."""
    return Entry(
        study=session.study,
        session=session.id,
        round=charge.round,
        attempt=charge.attempt,
        kind=kind,
        certificate=plan.certificate,
    )


def kind_of(plan: Plan) -> Kind:
    """What a ledger must know of a plan's mechanism."""
    mechanism = mechanism_of(plan.study)
    how, joint = mechanism.projected, mechanism.sampling == WITHOUT_REPLACEMENT
    listed = plan.study.training.sampling == WITHOUT_REPLACEMENT  # a kept list is drawn by parts
    return Kind(
        noise_multiplier=plan.noise_multiplier,
        sample_rate=mechanism.sample_rate,
        sampling=mechanism.sampling,
        records=mechanism.records if listed else 0,
        known_records=plan.stated.known_records if joint else 0,
        projection=how.kind if how else "",
        dimension=how.dimension if how else 0,
        factor=how.factor if how else 1.0,
        slack=how.slack if how else 0.0,
    )
