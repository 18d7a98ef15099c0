"""A compute node in networked studies: it holds keys and adds masks, once for each attempt.

It needs no records and, where the study says how many parameters the model has, no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.planning.study_queries import plan
from hubbub.core.session.ask import Call
from hubbub.core.session.node_party import NodeParty
from hubbub.core.session.party import Membership, Party
from hubbub.core.session.session_offer import RefusedError, SessionOffer, check_apart, planned_for
from hubbub.core.study.study import Study
from hubbub.site.network.collection.node_side import NodeSide
from hubbub.site.network.endpoint import Endpoint
from hubbub.site.network.session_state import SessionState


class NodeEndpoint(Endpoint):
    """A compute node in networked studies; see `Endpoint`."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._plans: dict[bytes, Plan] = {}
        self.collections = NodeSide(
            self.party_folder, self.event_log, self.prepared, self._mask_stream
        )

    def prepared(self, study: Study, offer: SessionOffer) -> tuple[Plan, PlannedQuery[Query]]:
        """The plan, from public numbers alone."""
        if study.id not in self._plans:
            check_apart(study)
            self._plans[study.id] = plan(study)
        whole = self._plans[study.id]
        if whole.dimension is None:
            raise RefusedError(
                "failed",
                "expected a study that says how many parameters its model has, got one that needs "
                'records or code for it; state model.inputs, or use kind = "logistic" or "mlp"',
            )
        return whole, planned_for(whole, offer.purpose)

    def party(
        self,
        study: Study,
        _offer: SessionOffer,
        _plan: Plan,
        _planned: PlannedQuery[Query],
        membership: Membership,
    ) -> Party:
        """The node in a new session."""
        return NodeParty(membership, permit=partial(self._permit, study))

    def answer_to(self, state: SessionState, call: Call, parts: Sequence[bytes]) -> list[bytes]:
        """The answer to a call of an open session."""
        answered = state.party.take(call, parts)()
        if call is Call.TOTAL:
            self.event_log.answered()
        return answered
