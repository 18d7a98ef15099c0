"""A compute node in one session: what it is asked becomes what it answers; see `party.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.key_agreement import Session
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.session import ask, party


class NodeParty(party.Party):
    """A compute node in one session: it holds keys and adds masks, once for each attempt."""

    def __init__(self, membership: party.Membership, permit: party.Permit = lambda: None) -> None:
        super().__init__(membership, permit)
        self.node: ComputeNode | None = None

    def _round_calls(self) -> Mapping[ask.Call, party.Handler]:
        return {
            ask.Call.SHARES: self._shares,
            ask.Call.PROMISE: self._promise,
            ask.Call.TOTAL: self._total,
        }

    def _begin_rounds(self, agreed: Session) -> None:
        me = self._me
        self.node = ComputeNode(
            keys=me.keys,
            roster=me.roster,
            round_parameters=me.round_parameters,
            session=agreed,
            mask_stream=me.mask_stream,
        )

    @property
    def _ready_node(self) -> ComputeNode:
        assert self.node is not None, "the session is set up"  # noqa: S101
        return self.node

    def _shares(self, parts: Sequence[bytes]) -> party.Work:
        """What the silos have sent for this node, with full shares; no total is made of it yet."""
        node = self._ready_node
        if not parts:
            raise ProtocolError("expected an ARRIVED, got nothing", culprit="relay")
        for share in parts[1:]:
            node.keep(share)
        return lambda: [node.held(parts[0])]

    def _promise(self, parts: Sequence[bytes]) -> party.Work:
        """The word that a total is told of the silos of a REQUEST, and of no others."""
        node = self._ready_node
        if len(parts) != 1:
            raise ProtocolError(f"expected one REQUEST, got {len(parts)} frames", culprit="relay")
        return lambda: [node.promise(parts[0])]

    def _total(self, parts: Sequence[bytes]) -> party.Work:
        """The total of what those silos share with this node, once all nodes have promised it."""
        node = self._ready_node
        return lambda: [node.total(parts)]
