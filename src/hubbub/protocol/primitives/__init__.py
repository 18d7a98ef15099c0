"""What every message is made of: frames, keys and signatures, residues, randomness, noise."""

from hubbub.protocol.primitives.correlated_noise import UNIT, CorrelatedNoise
from hubbub.protocol.primitives.identity import (
    ROLES,
    Identity,
    Keys,
    Roster,
    identity_of,
    plain_identity,
)
from hubbub.protocol.primitives.noise import add_and_round, add_noise_and_round, standard_normal
from hubbub.protocol.primitives.randomness import (
    BLOCK_BYTES,
    CHUNK_BYTES,
    KEY_BYTES,
    MOST_BYTES,
    SecureSource,
    cipher_at,
    keystream_into,
)
from hubbub.protocol.primitives.ring import Residues
from hubbub.protocol.primitives.wire import (
    DIGEST_BYTES,
    EVERYBODY,
    HEADER,
    HEADER_BYTES,
    OVERHEAD,
    SIGNATURE_BYTES,
    SIGNED_FIRST,
    VERSION,
    Frame,
    Tag,
    doubled_by,
    hash_of,
    parse,
    receiver_of,
    seal_ahead,
    sender_of,
    short_of,
    shortened,
    tag_of,
    unverified,
)
