"""A compute node in collections: its key, its promise and its total, each on disk before it leaves.

    key         the secret key of this collection, sealed to the node's own
    opened      COLLECT, NODE_KEY
    promise     SET, SET_PROMISE
    total       SET_TOTAL; then `key` is overwritten and removed

Nothing else than that, and a withdrawal of the study (`party_folder.py`), removes a key: what is
not to be seen for a moment, or cannot be read, is no sign of either.

The secret is sealed to the long-term key, which a passphrase may close: whoever reads this folder
alone opens nothing (docs/privacy.md P30).
"""

from __future__ import annotations

from dataclasses import replace

from cryptography.exceptions import InvalidTag

from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.ask import Call
from hubbub.site.collected.collection_opening import CollectionPlace
from hubbub.site.collected.node import CollectionNode, NodeState
from hubbub.site.network.collection.asked import AskedCollection
from hubbub.site.network.collection.kept_frames import KEY, OPENED
from hubbub.site.network.collection.party_side import PartySide

_PARTS = ("signing", "lattice", "curve")
_SIZES = (32, 64, 32)


class NodeSide(PartySide):
    """A compute node's part in collections; see `PartySide`."""

    def answer_to(
        self,
        call: Call,
        asked: AskedCollection,
        _plan: Plan,
        _planned: PlannedQuery[Query],
        numbers: RoundParameters,
    ) -> list[bytes]:
        """A key, a look at seeds, a promise, or a total."""
        node = CollectionNode(
            keys=self._folder.keys,
            node=self._folder.index,
            place=asked.place,
            round_parameters=numbers,
            mask_stream=self._mask_stream,
        )
        state = self._state(asked.place)
        if state is not None:
            node.check_same(state, asked.collect)
        if call is Call.COLLECT_KEY:
            return [self._begun(node, asked, state).node_key]
        if state is None:
            raise ProtocolError(
                "expected a collection that I have made a key for, got another: this machine was "
                "set back to an earlier state, or the id is wrong; the collection is lost",
                culprit="relay",
            )
        keys, deposits = asked.all(Tag.NODE_KEY), asked.all(Tag.DEPOSIT)
        if call is Call.COLLECT_LOOK:
            return [node.look(state, keys, deposits)]
        if call is Call.COLLECT_PROMISE:
            after = node.promised(state, keys, asked.one(Tag.SET), deposits)
            self._keep(asked.place, state, after)
            return [after.promise]
        if call is Call.COLLECT_TOTAL:
            after = node.told(state, keys, deposits, asked.all(Tag.SET_PROMISE))
            self._keep(asked.place, state, after)
            self._log.answered()
            self._log.note("told", study=asked.study.name)
            return [after.total]
        raise ProtocolError(f"expected a call for a node, got {call.name}", culprit="relay")

    def _begun(
        self, node: CollectionNode, asked: AskedCollection, state: NodeState | None
    ) -> NodeState:
        """The key of a collection, made once."""
        if state is not None:
            return state
        # A key without its `opened` was shown to nobody, or that file is not to be seen at this
        # moment: it is taken, and never made anew in the place of one that seeds are sealed to.
        kept = self.kept(asked.place.id)
        sealed = kept.erasable(KEY)
        begun = node.begin(asked.collect, self._secret(asked.place, sealed[0]) if sealed else None)
        if not sealed:
            assert begun.secret is not None, "a new state has its key"  # noqa: S101
            kept.erase(KEY)  # one that was overwritten, if any
            kept.keep(KEY, self._sealed(asked.place, begun.secret))
        kept.keep(OPENED, begun.collect, begun.node_key)  # from now on it is this key
        return begun

    def _state(self, place: CollectionPlace) -> NodeState | None:
        """All that is on disk; what a crash has left half done is done now."""
        kept = self.kept(place.id)
        opened, promise, total = kept.in_order({OPENED: 2, "promise": 2, "total": 1})
        if opened is None:
            return None
        place.parsed(opened[0], Tag.COLLECT, 0)  # else the id is in use, in another study
        state = NodeState(collect=opened[0], node_key=opened[1], secret=None)
        if promise:
            state = replace(state, fixed=promise[0], promise=promise[1])
        if total:
            state = replace(state, total=total[0])
            kept.erase(KEY)
            return state
        key = kept.erasable(KEY)
        return replace(state, secret=self._secret(place, key[0]) if key else None)

    def _keep(self, place: CollectionPlace, before: NodeState, after: NodeState) -> None:
        """What is new in a state, in the order in which a crash may come."""
        kept = self.kept(place.id)
        if after.promise != before.promise:
            kept.keep("promise", after.fixed, after.promise)
        if after.total != before.total:
            kept.keep("total", after.total)
        if after.secret is None:
            kept.erase(KEY)

    def _sealed(self, place: CollectionPlace, secret: Keys) -> bytes:
        parts = secret.secret_parts()
        whole = b"".join(parts[name] for name in _PARTS)
        return self._folder.keys.identity.seal(whole, _context(place))

    def _secret(self, place: CollectionPlace, sealed: bytes) -> Keys:
        """The keys that `_sealed` has sealed."""
        try:
            whole = self._folder.keys.open(sealed, _context(place))
        except (InvalidTag, ValueError):
            raise IntegrityError(
                f"expected the key of collection {place.id.hex()[:16]} as it was kept, it was "
                "altered; the collection is lost"
            ) from None
        ends = [sum(_SIZES[:n]) for n in range(len(_SIZES) + 1)]
        parts = {name: whole[a:b] for name, a, b in zip(_PARTS, ends, ends[1:], strict=False)}
        return Keys.restored(self._folder.name, "node", **parts)


def _context(place: CollectionPlace) -> bytes:
    return b"hubbub node key v1" + place.study + place.id
