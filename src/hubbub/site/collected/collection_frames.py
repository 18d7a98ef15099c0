"""What all parties of a collection must have been shown alike: its opening and the nodes' keys.

Theory of operation. The aggregator signs COLLECT, which names the sum and its numbers. Each compute
node makes a sealing key for this collection alone and signs it, with the digest of the COLLECT, in
NODE_KEY. The digest of all of these, in the order of the roster, is what the protocol calls Q: it
is in every seal, in every mask's key, in every deposit and in the set. Whoever was shown another
COLLECT or another key has another Q, and what it sends adds up with nothing (docs/privacy.md P30).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Identity, Keys
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES
from hubbub.core.protocol.primitives.noise import add_noise_and_round
from hubbub.core.protocol.primitives.randomness import KEY_BYTES, SecureSource
from hubbub.core.protocol.primitives.wire import EVERYBODY, Channel, ExpectedFrames, Frame, Tag
from hubbub.core.protocol.round.batches import poisson_rows
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters


@dataclass(frozen=True, kw_only=True)
class CollectionPlace(Channel):
    """Which collection of which study, and who takes part; its `session` is the collection's."""

    @property
    def id(self) -> bytes:
        """Of the collection, 16 bytes."""
        return self.session

    def parsed(self, data: bytes, tag: Tag, sender: int | None = None) -> Frame:
        """A verified frame of this collection to everybody."""
        frame = self.parse(data)
        misplaced = frame.tag is not tag or frame.receiver != EVERYBODY
        if misplaced or (sender is not None and frame.sender != sender):
            who = "" if sender is None else f" of {self.roster.name(sender)}"
            raise ProtocolError(
                f"expected a {tag.name}{who} to everybody, got a {frame.tag.name} of "
                f"{self.roster.name(frame.sender)}",
                culprit="relay",
            )
        return frame


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A collection that is open: verified, and the same at all who have the same Q."""

    place: CollectionPlace
    keys: Mapping[int, Identity] = field(repr=False)  # by node, with those of this collection
    q: bytes  # SHA-256 over COLLECT and all NODE_KEYs

    @classmethod
    def read(cls, place: CollectionPlace, collect: bytes, node_keys: Sequence[bytes]) -> Opening:
        """The opening that these frames make."""
        digest = place.parsed(collect, Tag.COLLECT, 0).digest
        awaited = ExpectedFrames(place, Tag.NODE_KEY, place.roster.nodes)
        frames = {frame.sender: frame for frame in map(awaited.take, node_keys)}
        awaited.check_whole(why="without all nodes' keys nothing can be sealed")
        keys = {node: key_in(place, frames[node], digest) for node in place.roster.nodes}
        whole = b"".join(frames[node].digest for node in place.roster.nodes)
        q = hashlib.sha256(b"hubbub collection v1" + digest + whole).digest()
        return cls(place=place, keys=keys, q=q)


def key_in(place: CollectionPlace, frame: Frame, collect: bytes) -> Identity:
    """The node whose sealing key is the one in its NODE_KEY."""
    node, payload = place.roster.parties[frame.sender], bytes(frame.payload)
    if payload[:DIGEST_BYTES] != collect:
        raise ProtocolError(
            f"expected {node.name} to have been shown this COLLECT, it was shown another",
            culprit="relay",
        )
    try:
        return replace(node, sealing=payload[DIGEST_BYTES:])
    except StudyError:
        raise ProtocolError(
            "expected a sealing key in its NODE_KEY, got other bytes", culprit=node.name
        ) from None


# A seed that a silo draws for a node, how it travels, and the mask that grows from it.
#
# The seal's context has Q, the silo and the node: what was sealed by one silo, for one node, in one
# collection opens nowhere else, so that nobody passes another's seed off as its own (P30).

SEED_BYTES = 32
_SEAL = b"hubbub deposit v1"
SEALED_SEED_BYTES = 1088 + 32 + SEED_BYTES + 16  # as a CONTRIBUTION has them (docs/protocol.md)


def opened_seed(opening: Opening, silo: int, node: int, sealed: bytes, keys: Keys) -> bytes | None:
    """A silo's seed for this node; None if it does not open, or is none."""
    try:
        seed = keys.open(sealed, _context(_SEAL, opening, silo, node))
    except (InvalidTag, ValueError):
        return None
    return seed if len(seed) == SEED_BYTES else None


def mask_key(opening: Opening, silo: int, node: int, seed: bytes) -> bytes:
    """The key of the one mask that silo and node share."""
    info = _context(b"hubbub collection mask v1", opening, silo, node)
    return HKDFExpand(algorithm=SHA256(), length=KEY_BYTES, info=info).derive(seed)


def _context(use: bytes, opening: Opening, silo: int, node: int) -> bytes:
    place = opening.place
    ends = silo.to_bytes(4, "little") + node.to_bytes(4, "little")
    return use + place.study + place.id + opening.q + ends


# A silo's one message of a collection: a masked vector, and a sealed seed for every node.
#
# The order of docs/privacy.md P30: sum, noise, rounding, masks. Whoever runs the silo has written
# the ledger's row before `made` is called, and puts what it returns on disk before any of it
# leaves; from then on the same bytes are sent. Nothing in them is a secret: the seeds are sealed,
# the vector is masked, and what both were made of is forgotten when the function returns.


@dataclass(frozen=True, kw_only=True)
class Deposited:
    """What a silo sends: frames that hold no secret."""

    deposit: bytes = field(repr=False)
    vector: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Deposit:
    """How a silo makes its deposit."""

    keys: Keys
    silo: int
    opening: Opening
    round_parameters: RoundParameters
    mask_stream: MaskStream = field(default_factory=MaskStream, repr=False)

    def made(self, task: LocalTask, parameters: Parameters, source: SecureSource) -> Deposited:
        """The deposit of these records, whose row is in the ledger.

        All that is drawn follows from the source, Q and the sum itself: copies of one machine that
        sum other records, or for another opening, draw independently (P30).
        """
        numbers, opening = self.round_parameters, self.opening
        source = source.branch(b"collection" + opening.q)
        rows = poisson_rows(source, task.count, task.capacity, numbers.sample_rate)
        total = task.clipped_sum(parameters, rows)
        encoded = hashlib.sha256(np.ascontiguousarray(total, np.float64).tobytes()).digest()
        source = source.branch(b"sum" + encoded)
        residues = add_noise_and_round(  # P3: a fixed share, since a set may have fewer silos; P5
            total,
            numbers.sigma_grid,
            source,
            numbers.word_bits,
            grid_step=numbers.grid_step,
        )
        seeds = {node: source.bytes(SEED_BYTES) for node in opening.place.roster.nodes}
        return self.sealed(residues, seeds)

    def sealed(self, residues: ring.Residues, seeds: Mapping[int, bytes]) -> Deposited:
        """Noised residues under the masks of these seeds, and the seeds for their nodes."""
        opening, place = self.opening, self.opening.place
        masks = [(mask_key(opening, self.silo, node, seed), False) for node, seed in seeds.items()]
        self.mask_stream.add_all(residues, masks)
        vector = ring.to_bytes(residues)
        parts = [
            opening.keys[node].seal(seed, _context(_SEAL, opening, self.silo, node))
            for node, seed in seeds.items()
        ]
        head = opening.q + hashlib.sha256(vector).digest()
        return Deposited(
            deposit=place.frame(Tag.DEPOSIT, self.silo, head + b"".join(parts)).sealed(self.keys),
            vector=place.frame(Tag.VECTOR, self.silo, vector).sealed(self.keys),
        )


@dataclass(frozen=True, kw_only=True)
class ReadDeposit:
    """A DEPOSIT that was verified; nothing in it was opened."""

    silo: int
    digest: bytes
    q: bytes
    vector: bytes  # its hash
    sealed: Mapping[int, bytes] = field(repr=False)


def read_deposit(place: CollectionPlace, data: bytes) -> ReadDeposit:
    """What a silo has signed."""
    frame = place.parsed(data, Tag.DEPOSIT)
    name, nodes = place.roster.name(frame.sender), place.roster.nodes
    if frame.sender not in place.roster.silos:
        raise ProtocolError("expected a DEPOSIT of a silo, got another's", culprit=name)
    size = 2 * DIGEST_BYTES + SEALED_SEED_BYTES * len(nodes)
    payload = bytes(frame.payload)
    if len(payload) != size:
        raise ProtocolError(f"expected a DEPOSIT of {size} bytes, got {len(payload)}", culprit=name)
    seeds = payload[2 * DIGEST_BYTES :]
    each = (seeds[at : at + SEALED_SEED_BYTES] for at in range(0, len(seeds), SEALED_SEED_BYTES))
    return ReadDeposit(
        silo=frame.sender,
        digest=frame.digest,
        q=payload[:DIGEST_BYTES],
        vector=payload[DIGEST_BYTES : 2 * DIGEST_BYTES],
        sealed=dict(zip(nodes, each, strict=True)),
    )


def read_vector(
    place: CollectionPlace, data: bytes, deposit: ReadDeposit, numbers: RoundParameters
) -> ring.Residues:
    """The masked residues that belong to a deposit."""
    frame: Frame = place.parsed(data, Tag.VECTOR, deposit.silo)
    name = place.roster.name(deposit.silo)
    if hashlib.sha256(frame.payload).digest() != deposit.vector:
        raise ProtocolError(
            f"expected the vector that {name} has signed with its deposit, got another",
            culprit="relay",
        )
    if len(frame.payload) != numbers.masked_bytes:
        raise ProtocolError(
            f"expected a VECTOR of {numbers.masked_bytes} bytes, got {len(frame.payload)}",
            culprit=name,
        )
    return ring.from_bytes(frame.payload, numbers.dimension, numbers.word_bits)


# Whose deposits are summed: a set with the digest of exactly these deposits, signed once.
#
# A SET names silos by a bitmap, so that each is in it once, and gives the digest of the DEPOSIT of
# each. All that nodes promise and tell is for the digest of one SET.


@dataclass(frozen=True, kw_only=True)
class FixedSet:
    """A SET that was verified."""

    digest: bytes  # of the frame, which stands for all of it
    deposits: Mapping[int, bytes] = field(repr=False)  # by silo, the digest of its DEPOSIT

    @classmethod
    def read(cls, opening: Opening, data: bytes, numbers: RoundParameters) -> FixedSet:
        """The set in a frame."""
        frame = opening.place.parsed(data, Tag.SET, 0)
        sender, payload = opening.place.roster.name(0), bytes(frame.payload)
        bits = DIGEST_BYTES + (numbers.silos + 7) // 8
        if payload[:DIGEST_BYTES] != opening.q:
            raise ProtocolError(
                "expected a SET of this opening, got one of another: the parties were shown "
                "different things",
                culprit=sender,
            )
        everybody = frozenset(opening.place.roster.silos)
        silos = sorted(numbers.read_silos(payload[DIGEST_BYTES:bits], sender, everybody))
        if len(payload) != bits + DIGEST_BYTES * len(silos):
            raise ProtocolError(
                f"expected the digests of {len(silos)} deposits in a SET, got others",
                culprit=sender,
            )
        starts = range(bits, len(payload), DIGEST_BYTES)
        digests = (payload[start : start + DIGEST_BYTES] for start in starts)
        return cls(digest=frame.digest, deposits=dict(zip(silos, digests, strict=True)))

    def of(self, opening: Opening, deposits: Sequence[bytes]) -> dict[int, ReadDeposit]:
        """The deposits of just this set, by silo."""
        deposits_read: dict[int, ReadDeposit] = {}
        for data in deposits:
            deposit = read_deposit(opening.place, data)
            if deposit.silo in deposits_read or self.deposits.get(deposit.silo) != deposit.digest:
                raise ProtocolError(
                    "expected the deposits of the SET, each once, got another or one twice",
                    culprit="relay",
                )
            check_opening(opening, deposit)
            deposits_read[deposit.silo] = deposit
        if len(deposits_read) < len(self.deposits):
            raise ProtocolError(
                f"expected the {len(self.deposits)} deposits of the SET, got {len(deposits_read)}",
                culprit="relay",
            )
        return deposits_read


def fixed_set(
    opening: Opening, keys: Keys, deposits: Mapping[int, bytes], numbers: RoundParameters
) -> bytes:
    """The aggregator's SET of these deposits, by silo the digest of its DEPOSIT."""
    digests = b"".join(deposits[silo] for silo in sorted(deposits))
    payload = opening.q + numbers.bitmap(deposits) + digests
    return opening.place.frame(Tag.SET, 0, payload).sealed(keys)


def check_opening(opening: Opening, deposit: ReadDeposit) -> None:
    """Refuse a deposit for another opening."""
    if deposit.q != opening.q:
        raise ProtocolError(
            f"expected a deposit of {opening.place.roster.name(deposit.silo)} for this opening, "
            "got one for another: it was shown other frames",
            culprit="relay",
        )
