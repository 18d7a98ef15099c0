"""The protocol as pure state machines: frames in, frames out; no clock, disk, socket or torch.

`wire` is the frame of every message and `identity` who signs it; `agreement/` sets a session up,
`round/` is one sum, `projection/` the random projections, `token_lists/` the mixnet. The order in
which all of it is asked for is in `hubbub.session`.
"""

from hubbub.protocol.identity import ROLES, Identity, Keys, Roster
from hubbub.protocol.noise import standard_normal
from hubbub.protocol.randomness import (
    BLOCK_BYTES,
    CHUNK_BYTES,
    KEY_BYTES,
    MOST_BYTES,
    SecureSource,
    cipher_at,
    keystream_into,
)
from hubbub.protocol.ring import Residues
from hubbub.protocol.wire import (
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
    parse,
    receiver_of,
    sender_of,
    tag_of,
    unverified,
)

__all__ = [
    "BLOCK_BYTES",
    "CHUNK_BYTES",
    "DIGEST_BYTES",
    "EVERYBODY",
    "HEADER",
    "HEADER_BYTES",
    "KEY_BYTES",
    "MOST_BYTES",
    "OVERHEAD",
    "ROLES",
    "SIGNATURE_BYTES",
    "SIGNED_FIRST",
    "VERSION",
    "Frame",
    "Identity",
    "Keys",
    "Residues",
    "Roster",
    "SecureSource",
    "Tag",
    "cipher_at",
    "doubled_by",
    "keystream_into",
    "parse",
    "receiver_of",
    "sender_of",
    "standard_normal",
    "tag_of",
    "unverified",
]
