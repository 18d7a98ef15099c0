"""How many bytes the parts of a message have; `wire` draws the frame around them."""

import struct

HEADER = struct.Struct("<BB32s16sIIIIQ")
HEADER_BYTES = HEADER.size
SIGNATURE_BYTES = 64
SESSION_BYTES = 16  # of the name of a session
OVERHEAD = HEADER_BYTES + SIGNATURE_BYTES
DIGEST_BYTES = 32  # of SHA-256
LINK_BYTES = 32  # of a silo's joint randomness for one attempt
SHARE_SEAL_BYTES = 16  # what AES-GCM adds to a full share
