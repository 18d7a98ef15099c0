"""A seed that a silo draws for a node, how it travels, and the mask that grows from it.

The seal's context has Q, the silo and the node: what was sealed by one silo, for one node, in one
collection opens nowhere else, so that nobody passes another's seed off as its own (P30).
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.randomness import KEY_BYTES
from hubbub.site.collected.collection_opening import Opening

SEED_BYTES = 32
SEALED_SEED_BYTES = 1088 + 32 + SEED_BYTES + 16  # as a CONTRIBUTION has them (docs/protocol.md)


def sealed_seed(opening: Opening, silo: int, node: int, seed: bytes) -> bytes:
    """A seed for a node, which that node's key of this collection alone opens."""
    return opening.keys[node].seal(seed, _context(b"hubbub deposit v1", opening, silo, node))


def opened_seed(opening: Opening, silo: int, node: int, sealed: bytes, keys: Keys) -> bytes | None:
    """A silo's seed for this node; None if it does not open, or is none.

    Args:
        opening: of the collection.
        silo, node: who has sealed it, for whom.
        sealed: it.
        keys: the node's, of this collection.
    """
    try:
        seed = keys.open(sealed, _context(b"hubbub deposit v1", opening, silo, node))
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
