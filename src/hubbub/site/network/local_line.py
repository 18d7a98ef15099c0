"""A party's door on its own machine: a Unix socket, at which others hand requests in.

Whatever carries a study's envelopes from machine to machine may need a foot at the party: Flower's
ClientApp is one, and Flower has it run code that the server sends. Such a foot holds no key and
reads no record. It hands bytes in here and takes bytes back, and may run as another user: it can do
what a relay can. This file knows envelopes, and neither studies nor what carries them.

    who?      "who?", a nonce (16 bytes)      -> a READY of no study, whose session is the nonce
    else      a request, see `envelope.py`    -> its answer
    both ways length (8 bytes, little-endian), bytes
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.disk import why_of
from hubbub.core.errors import HubbubError, ProtocolError, UserError

if TYPE_CHECKING:  # whoever only hands bytes in needs no cryptography
    from hubbub.core.protocol.primitives.identity import Roster
    from hubbub.site.network.party_folder import PartyFolder

SOCKET = "line.sock"  # in a party's folder, unless another place is named
_WHO, _NONCE = b"who?", 16
_NO_STUDY = bytes(32)
_STALLED = 10.0  # seconds in which a visitor says how much it brings, and then brings it
_SLOWEST = 1 << 20  # bytes that it has a second more for
_MOST = 1 << 30  # bytes


class LocalLine:
    """A party at its door; one visitor at a time.

    Args:
        path: of the socket; its owner and its group may write to it.
        most: bytes that a request may have, as things are.
    """

    def __init__(
        self,
        path: Path,
        party_folder: PartyFolder,
        answer: Callable[[bytes], bytes],
        most: Callable[[], int],
    ) -> None:
        self._path, self._party_folder = path, party_folder
        self._answer, self._most = answer, most
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> LocalLine:
        try:
            if self._path.exists() and stat.S_ISSOCK(self._path.stat().st_mode):
                if is_answered(self._path):
                    raise UserError(
                        f"expected nobody to answer at {self._path}, another process does; end "
                        "it, or name another --socket"
                    )
                self._path.unlink()  # of a process that was killed
            with _short(self._path) as path:
                self._listening.bind(path)
            self._path.chmod(0o660)
            self._listening.listen()  # before which nobody comes in, whatever the mode was
        except (OSError, UserError) as error:
            self._listening.close()
            if isinstance(error, UserError):
                raise
            raise UserError(
                f"expected to listen at {self._path}, got: {why_of(error)}; name another --socket"
            ) from None
        return self

    def __exit__(self, *_: Any) -> None:
        self._listening.close()
        self._path.unlink(missing_ok=True)

    @property
    def silence(self) -> None:
        """Not known here: who carries for the aggregator comes and goes."""

    def step(self, seconds: float) -> bool:
        """Answer the next visitor, if one comes within so many seconds; whether one came."""
        self._listening.settimeout(seconds)
        try:
            visitor, _ = self._listening.accept()
        except TimeoutError:
            return False
        # Who leaves too soon is not answered; nor is who asks a party that has no roster.
        with visitor, suppress(OSError, HubbubError):
            visitor.settimeout(_STALLED)
            request = _received(visitor, self._most())
            asks_who = request.startswith(_WHO) and len(request) == len(_WHO) + _NONCE
            _send(visitor, self._named(request) if asks_who else self._answer(request))
        return True

    def _named(self, request: bytes) -> bytes:
        """Who answers here, signed for whoever asks; of no study, so that it is of no other use."""
        from hubbub.core.protocol.primitives.wire import Frame, Tag

        return Frame(
            tag=Tag.READY,
            study=_NO_STUDY,
            session=request[len(_WHO) :],
            sender=self._party_folder.index,
            receiver=0,
            payload=b"",
        ).sealed(self._party_folder.keys)


def handed_in(path: Path, request: bytes, seconds: float) -> bytes:
    """The answer of the party at a socket, which begins within so many seconds; else OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor, _short(path) as short:
        visitor.settimeout(seconds)
        visitor.connect(short)
        _send(visitor, request)
        return _received(visitor)


def who(nonce: bytes) -> bytes:
    """The request to say who answers."""
    return _WHO + nonce


def new_nonce() -> bytes:
    """What no answer was signed for before."""
    return secrets.token_bytes(_NONCE)


def name_in(answer: bytes, roster: Roster, nonce: bytes) -> str:
    """The name of the party that has signed the answer to `who`; ProtocolError if none has."""
    from hubbub.core.protocol.primitives.wire import Tag, parse

    frame = parse(answer, roster, study=_NO_STUDY, session=nonce)
    if frame.tag is not Tag.READY or frame.sender == 0:
        raise ProtocolError("expected a silo or a node to say who it is, got another frame")
    return roster.name(frame.sender)


def _send(line: socket.socket, data: bytes) -> None:
    line.sendall(len(data).to_bytes(8, "little"))
    line.sendall(data)


def _received(line: socket.socket, most: int = _MOST) -> bytes:
    """What comes, of so many bytes at most."""
    seconds = line.gettimeout() or 0.0
    size = int.from_bytes(_exactly(line, 8, seconds), "little")
    if not 0 < size <= most:
        raise OSError("other bytes than may come")
    return _exactly(line, size, seconds + size / _SLOWEST)


def _exactly(line: socket.socket, size: int, seconds: float) -> bytes:
    """So many bytes, within so many seconds in all: one now and then holds nobody up."""
    end, data = time.monotonic() + seconds, bytearray()
    while len(data) < size:
        line.settimeout(max(1e-3, end - time.monotonic()))
        piece = line.recv(min(size - len(data), _SLOWEST))
        if not piece or time.monotonic() > end:
            raise OSError("it ended too soon, or takes too long")
        data += piece
    return bytes(data)


def is_answered(path: Path) -> bool:
    """Whether a process listens at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor, _short(path) as short:
        return visitor.connect_ex(short) == 0


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A path of few bytes, as a socket's must be, however deep its folder is."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
