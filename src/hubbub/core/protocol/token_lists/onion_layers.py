"""The layers around a token: how they are put on, how one is peeled off, and how a form is named.

A *form* is what a token looks like in one of the lists: inside as many HPKE layers as there are
silos left to mix. All forms of a list have the same length. A form's *name* is a hash of it that
belongs to its list alone; lists stand in the order of their names. The work comes in jobs that any
process can do: bytes in, bytes out. This file knows no parties and no order of events.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from numpy.typing import NDArray

Names = NDArray[np.bytes_]
Forms = NDArray[np.uint8]

TOKEN_BYTES = 16
NAME_BYTES = 32
KEY_BYTES = 32
LAYER_BYTES = 32 + 16  # the encapsulated key and the authentication tag
_WRAPS, _PEELS = 64, 512  # tokens a job: some 50 ms with ten layers, so that bars move
# Not the roster's hybrid: there a layer has 1136 bytes, and they are nested (docs/sampling.md).
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_INFO = b"hubbub mix layer v1"
_COUNT = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")


def form_bytes(layers: int) -> int:
    """Length of a form with so many layers left."""
    return TOKEN_BYTES + LAYER_BYTES * layers


def names_in(payload: bytes | memoryview) -> Names:
    """The names in a payload; compare them only with each other, elements lose trailing zeros."""
    return np.frombuffer(payload, dtype=f"S{NAME_BYTES}")


def forms_in(payload: bytes | memoryview, size: int) -> Forms:
    """The forms in a payload, one a row."""
    return np.frombuffer(payload, dtype=np.uint8).reshape(-1, size)


def is_ascending(names: Names) -> bool:
    """Whether names stand in order and none is there twice."""
    return bool(np.all(names[1:] > names[:-1]))


def ranks_of(own: Names, names: Names) -> NDArray[np.intp]:
    """Where each name stands in an ascending list; -1 where it does not."""
    if not names.size:
        return np.full(own.size, -1, dtype=np.intp)
    ranks = np.searchsorted(names, own)
    ranks[names[np.minimum(ranks, names.size - 1)] != own] = -1
    return ranks


def named(place: bytes, forms: bytes | memoryview, size: int) -> bytes:
    """The names of forms of equal size, one after another."""
    view = memoryview(forms)
    parts = (view[start : start + size] for start in range(0, len(view), size))
    return b"".join(hashlib.sha256(b"".join((place, part))).digest() for part in parts)


def is_public(key: bytes) -> bool:
    """Whether anything can be sealed to a key: it is no point of small order."""
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        return False
    return True


def public_of(private: bytes) -> bytes:
    """The public half of a private key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def fresh_private() -> bytes:
    """A new private key, from the operating system's generator."""
    return X25519PrivateKey.generate().private_bytes_raw()


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a job came to; `bad` are the places of forms that do not open, whose rows are zero."""

    forms: bytes = field(repr=False)
    names: bytes = field(repr=False)
    bad: tuple[int, ...] = ()

    def packed(self) -> bytes:
        """As bytes for another process."""
        return packed([self.forms, self.names, *map(_COUNT.pack, self.bad)])

    @classmethod
    def unpacked(cls, data: bytes) -> Done:
        """From `packed`."""
        forms, names, *bad = unpacked(data)
        return cls(forms=forms, names=names, bad=tuple(_COUNT.unpack(one)[0] for one in bad))


@dataclass(frozen=True, kw_only=True)
class Wrap:
    """A job: put all layers on some tokens.

    Args:
        tokens: one after another.
        publics: the keys of the layers, the outermost first.
        places: what the names of the lists are bound to, list 0 first; one more than keys.
    """

    tokens: bytes = field(repr=False)
    publics: tuple[bytes, ...]
    places: tuple[bytes, ...]

    @property
    def operations(self) -> int:
        """HPKE operations that this job takes."""
        return len(self.tokens) // TOKEN_BYTES * len(self.publics)

    def done(self) -> Done:
        """The forms of list 0, and the names of all lists' forms, list 0 first."""
        forms = [
            self.tokens[start : start + TOKEN_BYTES]
            for start in range(0, len(self.tokens), TOKEN_BYTES)
        ]
        names = [_names(self.places[-1], forms)]
        # The last mixer's layer lies innermost, so it is put on first.
        for layer in range(len(self.publics), 0, -1):
            key = X25519PublicKey.from_public_bytes(self.publics[layer - 1])
            info = _INFO + self.places[layer]
            forms = [_SUITE.encrypt(form, key, info=info) for form in forms]
            names.append(_names(self.places[layer - 1], forms))
        return Done(forms=b"".join(forms), names=b"".join(reversed(names)))

    def packed(self) -> bytes:
        """As bytes for another process."""
        return b"W" + packed([self.tokens, b"".join(self.publics), *self.places])


@dataclass(frozen=True, kw_only=True)
class Peel:
    """A job: take one layer off some forms.

    Args:
        private: the key of the layer.
        place: what the names of the list that comes out are bound to.
        forms: one after another.
        size: length of each.
    """

    private: bytes = field(repr=False)
    place: bytes
    forms: bytes = field(repr=False)
    size: int

    @property
    def operations(self) -> int:
        """HPKE operations that this job takes."""
        return len(self.forms) // self.size

    def done(self) -> Done:
        """The inner forms and their names, in the same order."""
        key, info = X25519PrivateKey.from_private_bytes(self.private), _INFO + self.place
        inner, bad = [], []
        for number, start in enumerate(range(0, len(self.forms), self.size)):
            try:
                form = _SUITE.decrypt(self.forms[start : start + self.size], key, info=info)
            except (InvalidTag, ValueError):
                # It keeps its place, so that those after it keep theirs.
                form = bytes(self.size - LAYER_BYTES)
                bad.append(number)
            inner.append(form)
        return Done(forms=b"".join(inner), names=_names(self.place, inner), bad=tuple(bad))

    def packed(self) -> bytes:
        """As bytes for another process."""
        return b"P" + packed([self.private, self.place, self.forms, _COUNT.pack(self.size)])


Job = Wrap | Peel
# Does jobs, anywhere, and gives their results in the order of the jobs.
Executor = Callable[[Iterable[Job]], Iterator[Done]]


def in_this_thread(jobs: Iterable[Job]) -> Iterator[Done]:
    """The plainest `Executor`."""
    return (job.done() for job in jobs)


def unpacked_job(data: bytes) -> Job:
    """From a job's `packed`."""
    parts = unpacked(data[1:])
    if data[:1] == b"W":
        publics = tuple(parts[1][at : at + KEY_BYTES] for at in range(0, len(parts[1]), KEY_BYTES))
        return Wrap(tokens=parts[0], publics=publics, places=tuple(parts[2:]))
    private, place, forms, size = parts
    return Peel(private=private, place=place, forms=forms, size=_COUNT.unpack(size)[0])


def wrapped(
    tokens: bytes, publics: Sequence[bytes], places: Sequence[bytes], executor: Executor
) -> tuple[Forms, list[Names]]:
    """Forms of list 0 and the names in every list, in the order of the tokens."""
    pieces = _pieces(tokens, TOKEN_BYTES, _WRAPS)
    jobs = [Wrap(tokens=piece, publics=tuple(publics), places=tuple(places)) for piece in pieces]
    done = list(executor(jobs))
    columns: list[list[bytes]] = [[] for _ in places]
    for one in done:
        size = len(one.names) // len(places)
        for turn, column in enumerate(columns):
            column.append(one.names[size * turn : size * (turn + 1)])
    forms = forms_in(b"".join(one.forms for one in done), form_bytes(len(publics)))
    return forms, [names_in(b"".join(column)) for column in columns]


def peeled(private: bytes, place: bytes, forms: bytes, size: int, executor: Executor) -> Done:
    """All forms with one layer less, in the same order; `bad` are places in the whole list."""
    pieces = _pieces(forms, size, _PEELS)
    jobs = [Peel(private=private, place=place, forms=piece, size=size) for piece in pieces]
    done = list(executor(jobs))
    return Done(
        forms=b"".join(one.forms for one in done),
        names=b"".join(one.names for one in done),
        bad=tuple(turn * _PEELS + at for turn, one in enumerate(done) for at in one.bad),
    )


def _pieces(whole: bytes, size: int, count: int) -> list[bytes]:
    return [whole[at : at + size * count] for at in range(0, len(whole), size * count)]


def _names(place: bytes, forms: Sequence[bytes]) -> bytes:
    return b"".join(hashlib.sha256(place + form).digest() for form in forms)


def packed(parts: Sequence[bytes]) -> bytes:
    """Several byte strings as one."""
    lengths = b"".join(_LENGTH.pack(len(part)) for part in parts)
    return b"".join((_COUNT.pack(len(parts)), lengths, *parts))


def unpacked(data: bytes) -> list[bytes]:
    """From `packed`."""
    count = _COUNT.unpack_from(data)[0]
    at, parts = _COUNT.size + _LENGTH.size * count, []
    for number in range(count):
        size = _LENGTH.unpack_from(data, _COUNT.size + _LENGTH.size * number)[0]
        parts.append(data[at : at + size])
        at += size
    return parts
