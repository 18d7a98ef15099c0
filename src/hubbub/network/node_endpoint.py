"""A compute node's seat: it holds keys and adds masks, once for each attempt.

It needs no records and, where the study says how many parameters the model has, no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hubbub.errors import ProtocolError
from hubbub.network.endpoint import Draw, Endpoint, Handler, Sitting, planned
from hubbub.network.envelope import Call
from hubbub.network.event_log import EventLog
from hubbub.network.party_folder import PartyFolder
from hubbub.planning import Plan
from hubbub.protocol.agreement.key_agreement import Session
from hubbub.protocol.agreement.mask_stream import MaskStream
from hubbub.protocol.round import ComputeNode, RoundParameters
from hubbub.session.in_process import round_parameters_of
from hubbub.session.session_offer import RefusedError, SessionOffer, part_of_plan
from hubbub.study import Study


class NodeEndpoint(Endpoint):
    """A compute node in networked studies; see `Seat`."""

    def __init__(
        self,
        site: PartyFolder,
        event_log: EventLog,
        *,
        mask_stream: MaskStream | None = None,
        draw: Draw | None = None,
    ) -> None:
        self._mask_stream = mask_stream or MaskStream()
        self._plans: dict[bytes, Plan] = {}
        self._nodes: dict[bytes, ComputeNode] = {}
        super().__init__(site, event_log, draw)

    def rounds(self) -> Mapping[Call, Handler]:
        """A request for the total of masks."""
        return {Call.TOTAL: self._total}

    def prepared(self, study: Study, opening: SessionOffer) -> tuple[Plan, RoundParameters]:
        """The plan, from public numbers alone."""
        if study.id not in self._plans:
            self._plans[study.id] = planned(study)
        whole = self._plans[study.id]
        parameters = whole.dimension
        if parameters is None:
            raise RefusedError(
                "failed",
                "expected a study that says how many parameters its model has, got one that needs "
                'records or code for it; state model.inputs, or use kind = "logistic" or "mlp"',
            )
        plan, numbers = part_of_plan(whole, opening.purpose)
        return plan, round_parameters_of(plan, numbers or parameters, parameters=parameters)

    def seated(self, sitting: Sitting, agreed: Session) -> None:
        """Requests may come."""
        open_here = {one.session for one in self._sittings.values()}
        self._nodes = {key: one for key, one in self._nodes.items() if key in open_here}
        self._nodes[agreed.id] = ComputeNode(
            keys=self.site.keys,
            roster=self.roster,
            terms=sitting.terms,
            session=agreed,
            mask_stream=self._mask_stream,
        )
        self.event_log.note("seated")

    def _total(self, sitting: Sitting, parts: Sequence[bytes]) -> list[bytes]:
        """With full shares, what the silos sent for this node comes with the request."""
        if sitting.session not in self._nodes:
            raise RefusedError("no-session", "expected a session that is set up, got a request")
        if not parts:
            raise ProtocolError("expected a REQUEST, got nothing", culprit="relay")
        node = self._nodes[sitting.session]
        for share in parts[1:]:
            node.keep(share)
        total = node.total(parts[0])
        self.event_log.add(answers=1, bytes_sent=len(total))
        return [total]
