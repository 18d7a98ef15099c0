"""A process that does jobs of layers, from pipe to pipe.

HPKE in `cryptography` holds the interpreter's lock, so threads do not help. A fresh program, unlike
a fork, shares no randomness with its parent, is safe beside threads, and does not import the
caller's script again.
"""

from __future__ import annotations

import struct
import sys
from typing import IO

from hubbub.core.protocol.token_lists.onion_layers import unpacked_job

_LENGTH = struct.Struct("<Q")


def send(pipe: IO[bytes], message: bytes) -> None:
    """One message, with its length before it."""
    pipe.write(_LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes:
    """The next message; nothing once the other side has closed."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return b""
    (size,) = _LENGTH.unpack(head)
    body = pipe.read(size)
    return body if len(body) == size else b""


def main() -> None:
    """Do jobs until there are no more."""
    while job := receive(sys.stdin.buffer):
        send(sys.stdout.buffer, unpacked_job(job).done().packed())
