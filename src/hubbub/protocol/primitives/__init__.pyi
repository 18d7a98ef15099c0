from .correlated_noise import (
    UNIT as UNIT,
    CorrelatedNoise as CorrelatedNoise,
)
from .expected_frames import (
    ExpectedFrames as ExpectedFrames,
)
from .identity import (
    ROLES as ROLES,
    Identity as Identity,
    Keys as Keys,
    Roster as Roster,
    identity_of as identity_of,
    plain_identity as plain_identity,
)
from .message_sizes import (
    DIGEST_BYTES as DIGEST_BYTES,
    HEADER as HEADER,
    HEADER_BYTES as HEADER_BYTES,
    LINK_BYTES as LINK_BYTES,
    OVERHEAD as OVERHEAD,
    SHARE_SEAL_BYTES as SHARE_SEAL_BYTES,
    SIGNATURE_BYTES as SIGNATURE_BYTES,
)
from .noise import (
    add_and_round as add_and_round,
    add_noise_and_round as add_noise_and_round,
    standard_normal as standard_normal,
)
from .randomness import (
    BLOCK_BYTES as BLOCK_BYTES,
    CHUNK_BYTES as CHUNK_BYTES,
    KEY_BYTES as KEY_BYTES,
    MOST_BYTES as MOST_BYTES,
    SecureSource as SecureSource,
    cipher_at as cipher_at,
    keystream_into as keystream_into,
)
from .ring import (
    Residues as Residues,
)
from .silo_set import (
    bits_of as bits_of,
    set_of as set_of,
)
from .wire import (
    EVERYBODY as EVERYBODY,
    SIGNED_FIRST as SIGNED_FIRST,
    VERSION as VERSION,
    Frame as Frame,
    Tag as Tag,
    doubled_by as doubled_by,
    hash_of as hash_of,
    parse as parse,
    receiver_of as receiver_of,
    seal_ahead as seal_ahead,
    sender_of as sender_of,
    short_of as short_of,
    shortened as shortened,
    tag_of as tag_of,
    unverified as unverified,
)
