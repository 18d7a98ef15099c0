"""Which rows of an extract stand where: an order that follows from the rows themselves.

A database gives rows in any order. Rows of a person are put in that of `data.order`, then of a hash
of what is encoded of them; people in that of a hash of their rows. So which of a person's rows are
the first ones depends on that person's rows alone, engines that hold the same rows give the same
bytes (docs/privacy.md P31), and nothing that is kept follows from whose rows they are: keys of
people tell only which rows are one person's, by a hash whose key is forgotten.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from hubbub.core.tabular.records import first_rows

Hashes = NDArray[np.uint64]  # (n, 2)
_BYTES = 16


@dataclass
class RowOrder:
    """What is kept in memory of each row until all have come.

    Args:
        ordered: whether rows come in an order that is theirs.
    """

    ordered: bool
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _people: list[Hashes] = field(default_factory=list, repr=False)
    _orders: list[NDArray[np.float64]] = field(default_factory=list, repr=False)
    _rows: list[Hashes] = field(default_factory=list, repr=False)

    def add(
        self,
        people: list[str],
        order: NDArray[np.float64],
        encoded: list[NDArray[np.generic]],
    ) -> None:
        """More rows.

        Args:
            people: whose each is.
            order: (n,) what puts a person's in order.
            encoded: (n, ...) of what is kept of each.
        """
        known = {person: self._hash(person) for person in set(people)}
        self._people.append(_hashes(b"".join([known[person] for person in people])))
        if self.ordered:
            return
        self._orders.append(order)
        self._rows.append(_row_hashes(encoded, len(people)))

    def chosen(self, most: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which rows stay, in their final order, and the number of each one's person, from 0.

        Args:
            most: rows of a person.
        """
        units = _numbers(_all(self._people))
        if self.ordered:
            units = _as_they_come(units)
            rows = np.arange(len(units), dtype=np.intp)
            rows = rows[first_rows(units, most)]
            return rows, units[rows]
        hashes = _all(self._rows)
        order = np.concatenate(self._orders) if self._orders else np.empty(0)
        rows = np.lexsort((hashes[:, 1], hashes[:, 0], order, units)).astype(np.intp)
        rows = rows[first_rows(units[rows], most)]
        return _people_in_order(rows, units[rows], hashes)

    def _hash(self, person: str) -> bytes:
        return blake2b(person.encode(), digest_size=_BYTES, key=self._key).digest()


def _people_in_order(
    rows: NDArray[np.intp], units: NDArray[np.intp], hashes: Hashes
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows, which lie person by person, with people put in the order of what they have."""
    starts = np.flatnonzero(np.diff(units, prepend=-1))
    counts = np.diff(starts, append=len(units))
    own = hashes[rows[starts]]
    for unit in np.flatnonzero(counts > 1):
        start = starts[unit]
        content = hashes[rows[start : start + counts[unit]]].tobytes()
        own[unit] = _hashes(blake2b(content, digest_size=_BYTES).digest())[0]
    ranks = np.lexsort((own[:, 1], own[:, 0]))
    begin = np.repeat(starts[ranks] - _ends(counts[ranks]), counts[ranks])
    placed = rows[begin + np.arange(len(rows))]
    return placed, np.repeat(np.arange(len(ranks), dtype=np.intp), counts[ranks])


def _ends(counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """How many come before each."""
    return np.asarray(np.cumsum(counts) - counts)


def _row_hashes(encoded: list[NDArray[np.generic]], rows: int) -> Hashes:
    """Of the bytes of each row."""
    if not rows:
        return _hashes(b"")
    parts = [np.ascontiguousarray(one).reshape(rows, -1).view(np.uint8) for one in encoded]
    content = np.hstack(parts)
    width, flat = content.shape[1], content.tobytes()
    ends = range(0, len(flat), width)
    return _hashes(
        b"".join(blake2b(flat[k : k + width], digest_size=_BYTES).digest() for k in ends)
    )


def _hashes(content: bytes) -> Hashes:
    return np.frombuffer(content, dtype="<u8").reshape(-1, 2)


def _all(several: list[Hashes]) -> Hashes:
    return np.concatenate(several) if several else np.empty((0, 2), dtype="<u8")


def _numbers(people: Hashes) -> NDArray[np.intp]:
    """(n,): the number of each row's person, from 0."""
    order = np.lexsort((people[:, 1], people[:, 0]))
    ordered = people[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    units = np.empty(len(order), dtype=np.intp)
    units[order] = np.cumsum(first) - 1
    return units


def _as_they_come(units: NDArray[np.intp]) -> NDArray[np.intp]:
    """The numbers of people in the order in which they come."""
    _, firsts = np.unique(units, return_index=True)
    rank = np.empty(len(firsts), dtype=np.intp)
    rank[np.argsort(firsts)] = np.arange(len(firsts))
    return rank[units]
