"""A silo's one message of a collection: a masked vector, and a sealed seed for every node.

The order of docs/privacy.md P30: sum, noise, rounding, masks. Whoever runs the silo has written the
ledger's row before `made` is called, and puts what it returns on disk before any of it leaves; from
then on the same bytes are sent. Nothing in them is a secret: the seeds are sealed, the vector is
masked, and what both were made of is forgotten when the function returns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.mask_stream import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES
from hubbub.core.protocol.primitives.noise import add_noise_and_round
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Frame, Tag
from hubbub.core.protocol.round.batch_rows import poisson_rows
from hubbub.core.protocol.round.projected_sum import LocalTask
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters
from hubbub.site.collected.collection_opening import CollectionPlace, Opening
from hubbub.site.collected.seeds import SEALED_SEED_BYTES, SEED_BYTES, mask_key, sealed_seed


@dataclass(frozen=True, kw_only=True)
class Deposited:
    """What a silo sends: frames that hold no secret.

    Args:
        deposit: DEPOSIT: Q, the hash of the vector, the sealed seeds.
        vector: VECTOR: the masked residues.
    """

    deposit: bytes = field(repr=False)
    vector: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Deposit:
    """How a silo makes its deposit.

    Args:
        keys, silo: the silo's own, and its place in the roster.
        opening: of the collection.
        round_parameters: the numbers of the sum.
        mask_stream: adds masks.
    """

    keys: Keys
    silo: int
    opening: Opening
    round_parameters: RoundParameters
    mask_stream: MaskStream = field(default_factory=MaskStream, repr=False)

    def made(self, task: LocalTask, parameters: Parameters, source: SecureSource) -> Deposited:
        """The deposit of these records, whose row is in the ledger.

        All that is drawn follows from the source, Q and the sum itself: copies of one machine that
        sum other records, or for another opening, draw independently (P30).

        Args:
            task: the silo's records.
            parameters: at which the sum is taken.
            source: the silo's randomness.
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
        parts = [sealed_seed(opening, self.silo, node, seed) for node, seed in seeds.items()]
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
    """What a silo has signed.

    Raises:
        ProtocolError: it is no DEPOSIT of a silo of this collection.
    """
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
    """The masked residues that belong to a deposit.

    Raises:
        ProtocolError: they are others than the silo has signed with its seeds.
    """
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
