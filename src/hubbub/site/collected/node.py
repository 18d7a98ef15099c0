"""A compute node in a collection: one key, one promise, one total, and nothing after it.

Theory of operation. All that a node has is a `NodeState`, which is on its disk before anything that
follows from it is sent. From the state and a request follow the next state and a frame; a request
that comes again gets the same frame. A promise is made once, for one SET, and a total is told once
all nodes have promised that SET; then the key is gone from the state. So one honest node that keeps
its disk makes that of the whole collection one sum is told at most (docs/privacy.md P30).

Before a set is fixed, `look` says whose seeds do not open. It keeps nothing: the seal stands it to
be asked about any bytes (CCA).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import ExpectedFrames, Tag, digest_by_party, doubled_by
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.site.collected.collection_frames import (
    CollectionPlace,
    FixedSet,
    Opening,
    ReadDeposit,
    check_opening,
    mask_key,
    opened_seed,
    read_deposit,
)


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """What a node has of a collection; each field is set once."""

    collect: bytes = field(repr=False)
    node_key: bytes = field(repr=False)
    secret: Keys | None = field(repr=False)  # of this collection; None once they are erased
    fixed: bytes = field(default=b"", repr=False)  # the SET that it has promised
    promise: bytes = field(default=b"", repr=False)
    total: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, kw_only=True)
class CollectionNode:
    """One compute node in one collection."""

    keys: Keys
    node: int  # its place in the roster
    place: CollectionPlace
    round_parameters: RoundParameters
    mask_stream: MaskStream = field(default_factory=MaskStream, repr=False)

    def begin(self, collect: bytes, secret: Keys | None = None) -> NodeState:
        """Make the key of a collection that was never seen here; it is for this one alone."""
        digest = self.place.parsed(collect, Tag.COLLECT, 0).digest
        secret = secret or Keys.generate(self.keys.identity.name, "node")
        frame = self.place.frame(Tag.NODE_KEY, self.node, digest + secret.identity.sealing)
        return NodeState(collect=collect, node_key=frame.sealed(self.keys), secret=secret)

    def check_same(self, state: NodeState, collect: bytes) -> None:
        """Refuse a second opening of a collection."""
        which = "that I have made my key for, got another of the same collection"
        self._check_same(Tag.COLLECT, which, collect, state.collect)

    def look(
        self, state: NodeState, node_keys: Sequence[bytes], deposits: Sequence[bytes]
    ) -> bytes:
        """Whose seeds do not open, of deposits that may become the set."""
        opening = self._opening(state, node_keys)
        deposits_read: dict[int, ReadDeposit] = {}
        for data in deposits:
            deposit = read_deposit(self.place, data)
            if deposit.silo in deposits_read:
                raise ProtocolError("expected one deposit of a silo, got two", culprit="relay")
            check_opening(opening, deposit)
            deposits_read[deposit.silo] = deposit
        closed = self._closed(state, opening, deposits_read)
        shown = digest_of_shown(opening, {silo: one.digest for silo, one in deposits_read.items()})
        payload = self.round_parameters.named_payload(closed, shown)
        return self.place.frame(Tag.LOOKED, self.node, payload).sealed(self.keys)

    def promised(
        self,
        state: NodeState,
        node_keys: Sequence[bytes],
        fixed: bytes,
        deposits: Sequence[bytes],
    ) -> NodeState:
        """The word that the total of just these deposits is told, and of no others.

        Raises:
            ProtocolError: another set was promised; the set has fewer silos than the quorum; a
                deposit is missing, doubled, another, or for another opening; or a seed does not
                open, whose silo is named. Nothing is promised then.
        """
        if state.promise:
            which = "that I have promised, got another; of a collection there is one"
            self._check_same(Tag.SET, which, fixed, state.fixed)
            return state
        opening = self._opening(state, node_keys)
        named = FixedSet.read(opening, fixed, self.round_parameters)
        fixed_set = named.of(opening, deposits)
        for silo in sorted(self._closed(state, opening, fixed_set)):
            raise ProtocolError(
                "expected a seed that is sealed to my key of this collection, got one that does "
                "not open; nothing is promised",
                culprit=self.place.roster.name(silo),
            )
        promise = self.place.frame(Tag.SET_PROMISE, self.node, named.digest).sealed(self.keys)
        return replace(state, fixed=fixed, promise=promise)

    def told(
        self,
        state: NodeState,
        node_keys: Sequence[bytes],
        deposits: Sequence[bytes],
        promises: Sequence[bytes],
    ) -> NodeState:
        """The total of the masks of the set that all have promised; the key is gone after it."""
        if state.total:
            return replace(state, secret=None)
        if not state.promise:
            raise ProtocolError("expected a SET before the promises, got none", culprit="relay")
        opening = self._opening(state, node_keys)
        named = FixedSet.read(opening, state.fixed, self.round_parameters)
        # Every node has promised this set.
        awaited = ExpectedFrames(self.place, Tag.SET_PROMISE, self.place.roster.nodes)
        for frame in map(awaited.take, promises):
            if bytes(frame.payload) != named.digest:
                raise ProtocolError(
                    f"expected {self.place.roster.name(frame.sender)} to promise the SET that I "
                    "was shown, it has promised another; nothing is told",
                    culprit="relay",
                )
        awaited.check_whole(why="without it nothing is told")
        numbers = self.round_parameters
        residues = ring.zeros(numbers.dimension, numbers.word_bits)
        keys = []
        for silo, deposit in sorted(named.of(opening, deposits).items()):
            seed = self._seed(state, opening, deposit)
            assert seed is not None, "seen when it was promised"  # noqa: S101
            keys.append((mask_key(opening, silo, self.node, seed), False))
        self.mask_stream.add_all(residues, keys)
        payload = ring.to_bytes(residues) + named.digest
        total = self.place.frame(Tag.SET_TOTAL, self.node, payload).sealed(self.keys)
        return replace(state, total=total, secret=None)

    def _check_same(self, tag: Tag, which: str, *frames: bytes) -> None:
        """See that a frame of the aggregator's is the one that was taken before."""
        shown, kept = (self.place.parsed(one, tag, 0) for one in frames)
        if shown.digest != kept.digest:
            raise ProtocolError(
                f"expected the {tag.name} {which}",
                culprit=doubled_by(shown, kept.digest, self.place.roster.name(0)),
            )

    def _opening(self, state: NodeState, node_keys: Sequence[bytes]) -> Opening:
        """The opening that these keys make with mine, while I have it."""
        opening = Opening.read(self.place, state.collect, node_keys)
        mine = self.place.parsed(state.node_key, Tag.NODE_KEY, self.node)
        if opening.keys[self.node].sealing != bytes(mine.payload)[32:]:
            raise ProtocolError(
                "expected my own NODE_KEY back, got another that I have signed: this machine was "
                "set back to an earlier state, or its folder was copied; the collection is lost",
                culprit=self.place.roster.name(self.node),
            )
        if state.secret is None:
            raise ProtocolError("expected a collection whose key is here, its key was erased")
        return opening

    def _closed(
        self, state: NodeState, opening: Opening, deposits: Mapping[int, ReadDeposit]
    ) -> list[int]:
        """Silos whose seeds for this node do not open."""
        each = deposits.items()
        return [silo for silo, one in each if self._seed(state, opening, one) is None]

    def _seed(self, state: NodeState, opening: Opening, deposit: ReadDeposit) -> bytes | None:
        assert state.secret is not None, "looked at in _opening"  # noqa: S101
        sealed = deposit.sealed[self.node]
        return opened_seed(opening, deposit.silo, self.node, sealed, state.secret)


def digest_of_shown(opening: Opening, deposits: Mapping[int, bytes]) -> bytes:
    """SHA-256 over deposits that a node was shown, by silo their digests."""
    return digest_by_party(b"hubbub looked v1" + opening.q, deposits)
