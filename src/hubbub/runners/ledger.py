"""The privacy ledger of one data set: what was spent, what may be spent, and a refusal past that.

A row is written and synced to disk before the answer that it pays for leaves the silo; a crash in
between over-counts. Before each row the epsilon after it is computed from the rows alone, over
every study that ever touched the data set (docs/privacy.md P15); past the owner's cap the row is
refused. The cap is a row too, of the same signed chain (`chain.py`), and the latest counts: raising
it takes the ledger's key. What no local file can prove is that it is not an older copy of itself,
with older spending or an older cap: note the `head` elsewhere and ask `verify` for it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict, dataclass
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, NamedTuple, Self

from hubbub.errors import BudgetError, IntegrityError, StudyError
from hubbub.privacy import Certificate, Composition, Step, parameters, release
from hubbub.runners.chain import Chain, Row

_NOTHING_ADDED = Certificate()
_GROWTH = 1.25  # a check that passes for 25 % more steps need not be repeated at each one


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One attempt at one round, and the mechanism that it ran.

    `noise_multiplier` is that of the plan: what is left against the stated adversary (P3). The
    certificate is the plan's, for the whole session: however many of its attempts are in the
    ledger, it is counted once.
    """

    study: bytes
    session: bytes
    round: int
    attempt: int
    noise_multiplier: float
    sample_rate: float
    sampling: str
    certificate: Certificate = _NOTHING_ADDED

    def __post_init__(self) -> None:
        parameters.epsilon(self.certificate.epsilon)
        parameters.within("slack", self.certificate.slack, least=0.0, most=1.0)
        parameters.within("failure", self.certificate.failure, least=0.0, most=1.0)
        parameters.within("delta_factor", self.certificate.delta_factor, least=1.0, most=2.0)
        parameters.whole("round", self.round, least=0, most=2**63 - 1)
        parameters.whole("attempt", self.attempt, least=0, most=2**63 - 1)
        # Refused here, what cannot be composed is never written.
        Step(
            noise_multiplier=self.noise_multiplier,
            sample_rate=self.sample_rate,
            sampling=self.sampling,
        )

    def plain(self) -> dict[str, Any]:
        """The entry as JSON knows it."""
        return {
            "study": self.study.hex(),
            "session": self.session.hex(),
            "round": int(self.round),
            "attempt": int(self.attempt),
            "noise_multiplier": float(self.noise_multiplier),
            "sample_rate": float(self.sample_rate),
            "sampling": self.sampling,
            "certificate": asdict(self.certificate),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Entry:
        """The entry that `plain` gave."""
        keys = {key: bytes.fromhex(plain[key]) for key in ("study", "session")}
        return cls(**{**plain, **keys, "certificate": Certificate(**plain["certificate"])})


@dataclass(frozen=True, kw_only=True)
class Cap:
    """The most that the owner of a data set allows all studies together."""

    epsilon: float
    delta: float
    relation: str

    def __post_init__(self) -> None:
        parameters.epsilon(self.epsilon)
        parameters.delta(self.delta)
        parameters.choice("relation", self.relation, parameters.RELATIONS)

    def plain(self) -> dict[str, Any]:
        """The cap as JSON knows it."""
        return {
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "relation": self.relation,
        }


class Kind(NamedTuple):
    """A mechanism: entries of one kind differ in nothing that costs privacy."""

    noise_multiplier: float
    sample_rate: float
    sampling: str


class Certified(NamedTuple):
    """A session, and the certificate that it counts with."""

    study: bytes
    session: bytes
    certificate: Certificate


class Ledger:
    """The ledger in one file.

    Args:
        path: the file; made if absent, with its key beside it. Keep both outside the run's folder.

    Raises:
        IntegrityError: the file is not a ledger or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._chain = Chain(path)
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._chain.close()

    def charge(self, entry: Entry) -> None:
        """Write an entry durably, or refuse it.

        Raises:
            BudgetError: it would carry the data set past its cap; nothing is written.
            IntegrityError: the disk does not take it, or the ledger was altered; nothing must be
                sent.
        """
        with self._chain.writing():
            last = self._catch_up()
            self._check_cap(entry)
            row = self._chain.append(json.dumps({"charge": entry.plain()}), last)
        self._take_in([row])

    def set_cap(self, cap: Cap) -> None:
        """Set the most that all studies together may spend; the latest cap counts.

        Raises:
            IntegrityError: as for `charge`.
        """
        with self._chain.writing():
            row = self._chain.append(json.dumps({"cap": cap.plain()}), self._catch_up())
        self._take_in([row])

    @property
    def cap(self) -> Cap | None:
        """The cap, if one was set."""
        self._catch_up()
        return self._cap

    def epsilon(self, *, delta: float, relation: str) -> float:
        """Certified upper epsilon of everything in the ledger."""
        self._catch_up()
        return _spent(self._counts, self._sessions, delta, relation) if self._counts else 0.0

    def entries(self) -> Iterator[Entry]:
        """All entries, oldest first."""
        for row in self._chain.after(None):
            said = self._parsed(row)
            if isinstance(said, Entry):
                yield said

    def __len__(self) -> int:
        self._catch_up()
        return self._counts.total()

    @property
    def head(self) -> bytes:
        """The digest of the last row, which stands for all of them."""
        return self._catch_up().digest

    def verify(self, *, head: bytes | None = None) -> int:
        """Recompute the chain and check every signature; the number of entries.

        Args:
            head: a `head` noted earlier outside this disk; None: an older copy is not noticed.

        Raises:
            IntegrityError: naming the first row that does not fit, or an older copy.
        """
        self._forget()
        rows = self._chain.after(None, every_signature=True)
        self._take_in(rows)
        if head is not None and all(row.digest != head for row in rows):
            raise IntegrityError(
                f"expected {self._path} to hold the row that was noted before, it does not: it is "
                "an older copy or another ledger; restore the newest one"
            )
        return len(self)

    def _forget(self) -> None:
        """As if nothing had been read yet."""
        self._last: Row | None = None
        self._counts: Counter[Kind] = Counter()
        self._sessions: set[Certified] = set()
        self._cap: Cap | None = None

    def _catch_up(self) -> Row:
        """Take in what was written since the last look; the last row."""
        return self._take_in(self._chain.after(self._last))

    def _take_in(self, rows: list[Row]) -> Row:
        """Count verified rows; all or, if one cannot be understood, none."""
        said = [self._parsed(row) for row in rows]
        for one in said:
            if isinstance(one, Entry):
                self._counts[_kind(one)] += 1
                self._sessions.add(_certified(one))
            self._cap = one if isinstance(one, Cap) else self._cap
        self._last = rows[-1] if rows else self._last
        assert self._last is not None, "a chain has its genesis"  # noqa: S101
        return self._last

    def _parsed(self, row: Row) -> Entry | Cap | None:
        """What a row says; the genesis says nothing."""
        if row.number == 0:
            return None
        try:
            ((kind, plain),) = json.loads(row.text).items()
            return Cap(**plain) if kind == "cap" else Entry.of({"charge": plain}[kind])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, StudyError):
            raise IntegrityError(
                f"expected row {row.number} of {self._path} to be a charge or a cap, found "
                "something else; use the version of hubbub that wrote it"
            ) from None

    def _check_cap(self, entry: Entry) -> None:
        """P15: the epsilon after this entry, over all studies."""
        cap = self._cap
        if cap is None:
            return
        counts = self._counts + Counter([_kind(entry)])
        sessions = self._sessions | {_certified(entry)}
        ahead = {kind: _rounded_up(count) for kind, count in counts.items()}
        if _spent(ahead, sessions, cap.delta, cap.relation) <= cap.epsilon:
            return
        after = _spent(counts, sessions, cap.delta, cap.relation)
        if after > cap.epsilon:
            raise BudgetError(
                f"expected at most epsilon {cap.epsilon:g} at delta {cap.delta:g} on this data "
                f"set, the next step would make it {after:.4g}; raise the cap with "
                "`hubbub budget set`, or stop"
            )


def _kind(entry: Entry) -> Kind:
    return Kind(entry.noise_multiplier, entry.sample_rate, entry.sampling)


def _certified(entry: Entry) -> Certified:
    return Certified(entry.study, entry.session, entry.certificate)


def _spent(
    counts: Mapping[Kind, int], sessions: Set[Certified], delta: float, relation: str
) -> float:
    """Upper epsilon of kinds of steps, certificates included."""
    kinds = tuple(sorted(counts.items()))
    whole = reduce(Certificate.after, (one.certificate for one in sorted(sessions)), _NOTHING_ADDED)
    return whole.claim(lambda left: _epsilon(kinds, left, relation), delta, near=1.0)


@lru_cache(maxsize=4096)
def _epsilon(counts: tuple[tuple[Kind, int], ...], delta: float, relation: str) -> float:
    """Upper epsilon of kinds of steps; inf past what is certified."""
    steps = [Step(**kind._asdict(), count=count) for kind, count in counts]
    try:
        return Composition([release(s, relation) for s in steps]).epsilon(delta).upper
    except StudyError:
        return float("inf")


def _rounded_up(count: int) -> int:
    """The next number on a geometric grid."""
    level = 1
    while level < count:
        level = max(level + 1, int(level * _GROWTH))
    return level
