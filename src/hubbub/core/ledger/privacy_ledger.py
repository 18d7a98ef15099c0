"""The privacy ledger of one data set: what was spent, what may be spent, and a refusal past that.

A row is written and synced to disk before the answer that it pays for leaves the silo; a crash in
between over-counts. Before each row the epsilon after it is computed from the rows alone, over
every study that ever touched the data set (docs/privacy.md P15); past the owner's cap, or past the
attempts of its study, the row is refused. An adaptive cap lets a study in as a whole, by a row of
its own before the first entry (`privacy_filter.py`, P24). The cap is a row too, of the same signed
chain, and the latest counts: raising it takes the ledger's key. That it is no older copy of itself,
no local file can prove: have others witness its `statement`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Self

from hubbub.core.errors import IntegrityError, NoRoomError, SpentError, UserError
from hubbub.core.ledger.entry import Admission, Cap, Closing, Entry, LedgerMechanism
from hubbub.core.ledger.hash_chain import Chain, Progress, Row
from hubbub.core.ledger.head_statement import HeadStatement
from hubbub.core.ledger.privacy_filter import PrivacyFilter
from hubbub.core.ledger.tally import Tally, attempts_of
from hubbub.core.planning.plan import Plan
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.privacy.remaining_budget import ReferenceLaw

Content = Entry | Cap | Admission | Closing


class Ledger:
    """The ledger in one file; several threads may use it, and several processes the file.

    It is made if absent, with its key beside it: keep both outside the run's folder.
    IntegrityError: it is no ledger, or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._chain = Chain(path)
        self._lock = threading.RLock()  # over what was counted, and up to which row
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, once no thread reads it: SQLite does not survive the one in the other."""
        with self._lock:
            self._chain.close()

    def held(self) -> AbstractContextManager[None]:
        """Keep other runs from the ledger until this ends; UserError if another holds it.

        Two runs that charged it in turn would each find rows beyond its own, and both would stop.
        """
        return self._chain.held()

    def charge(
        self,
        entry: Entry,
        *,
        attempts: int | None = None,
        study_attempts: Mapping[LedgerMechanism, int] | None = None,
        study_certificate: Certificate | None = None,
    ) -> None:
        """Write an entry durably, or refuse it.

        Args:
            entry: what is about to be released.
            attempts: the most entries of its study and mechanism that this ledger may ever hold,
                whichever sessions made them; None: only the cap limits them.
            study_attempts: the same for all mechanisms of its study, which an adaptive cap lets in
                together.
            study_certificate: of all the study's sessions together, so that none of them is
                refused for it later.

        Raises:
            SpentError: the study was closed or has made its attempts; nothing is written.
            BudgetError: the entry would carry the data set past its cap, or leave unknown what its
                patients have lost; nothing is written.
            IntegrityError: the disk does not take it, or the ledger was altered; nothing must be
                sent.
        """
        with self._lock:
            with self._chain.writing():
                # P15: inside the transaction, so that no other process charges between this check
                # and the row.
                last = self._catch_up()
                if entry.study in self._closed:  # P15: what was signed of it stays true
                    raise SpentError(
                        f"expected a study that goes on, {self._path} holds the end of study "
                        f"{entry.study.hex()[:16]}, after which nothing is answered; approve it "
                        "under another name to run it again"
                    )
                self._tally.check_units([entry.kind], self._path)
                self._tally.check_attempts(entry, attempts, self._path)
                let_in = self._check_cap(entry, attempts, study_attempts or {}, study_certificate)
                rows: list[tuple[Row, Content]] = []
                # P24: all of the study is set aside before its first attempt, in the same
                # transaction.
                if let_in is not None:
                    last = self._chain.append(json.dumps({"admit": let_in.to_dict()}), last)
                    rows.append((last, let_in))
                last = self._chain.append(json.dumps({"charge": entry.to_dict()}), last)
            # Counted here once it is on disk: a row that was rolled back was never paid.
            for row, content in [*rows, (last, entry)]:
                self._count(row, content)

    def check_units(self, plan: Plan) -> None:
        """Refuse a study before its first charge whose unit does not go with those before (P21)."""
        self.tally.check_units(attempts_of(plan), self._path)

    def check_room(
        self, plan: Plan, *, beside: Callable[[Iterable[bytes]], Iterable[Plan]]
    ) -> None:
        """Refuse a study before its first charge that the cap could not see through to its end.

        What was begun before keeps its place. A cap for fixed studies holds no place by itself
        (P15): there those that were begun, and are not over, count in full (`beside` gives plans by
        their ids); and where there is none, the study alone is left to `charge`.

        Raises:
            NoRoomError: it has no room as things are; nothing is written.
        """
        with self._lock:
            self._catch_up()
            cap, tally, study = self._cap, self._tally, plan.study
            if cap is None or tally.attempts(study.id):
                return
            if self._filter is not None:  # P24: what it has let in stays so
                names, fits = [], self._filter.has_room(plan, tally)
            else:
                others = list(beside(one for one in tally.studies() if one not in self._closed))
                names = [one.study.name for one in others]
                # P15: each to its end, as each may still make all of its attempts.
                after = reduce(Tally.after, [*others, plan], tally)
                spent = after.epsilon(delta=cap.delta, relation=cap.relation)
                fits = not others or spent <= cap.epsilon
        if not fits:
            begun = f" beside {', '.join(names)}" if names else ""
            raise NoRoomError(
                f"expected room for {study.name}{begun} under the cap of epsilon {cap.epsilon:g} "
                "on this data set, found too little; nothing was charged, and the study waits: "
                f"raise the cap with `hubbub budget set`{', or wait for them' if names else ''}"
            )

    def close_study(self, study: bytes) -> None:
        """Write durably, once, that a study is over: no attempt of it is charged any more (P15).

        IntegrityError: as for `charge`; nothing must be signed of the study then.
        """
        with self._lock:
            with self._chain.writing():
                last = self._catch_up()
                # P15: who asks for the end again gets the same signed word.
                if study in self._closed:
                    return
                closing = Closing(study=study)
                row = self._chain.append(json.dumps({"close": closing.to_dict()}), last)
            self._count(row, closing)

    def check_writable(self) -> None:
        """Refuse a ledger that was altered, or a disk that takes nothing; nothing is counted."""
        with self._lock, self._chain.writing():
            self._catch_up()
            self._chain.rehearse()

    def _check_cap(
        self,
        entry: Entry,
        attempts: int | None,
        study_attempts: Mapping[LedgerMechanism, int],
        certificate: Certificate | None,
    ) -> Admission | None:
        """The cap has room for an entry; under an adaptive one, what is to be let in before it."""
        if self._filter is None:
            if self._cap is not None:
                self._tally.check_cap(entry, self._cap, attempts)
            return None
        whole = entry if certificate is None else replace(entry, certificate=certificate)
        let_in = self._filter.admission(whole, attempts, study_attempts, self._tally)
        if let_in is None:
            self._filter.check(entry, self._tally)
        else:  # P24: let in with what all of its sessions certify
            self._filter.with_admission(let_in).check(whole, self._tally)
        return let_in

    def set_cap(self, cap: Cap) -> None:
        """Set the most that all studies together may spend; the latest cap counts.

        UserError: a reference law is stated, changed or dropped after anything was charged.
        """
        with self._lock:
            with self._chain.writing():
                last = self._catch_up()
                if cap.studies == "adaptive":
                    self._check_law(cap)
                row = self._chain.append(json.dumps({"cap": cap.to_dict()}), last)
            self._count(row, cap)

    def _check_law(self, cap: Cap) -> None:
        """P24: a law that is chosen in view of outputs bounds nothing."""
        if not len(self._tally) or self._law == cap.law:
            return
        raise UserError(
            (
                "expected the --law that was set before the first study, got another or none; "
                "the cap guarantees nothing if the law is chosen after seeing results: repeat the "
                "first one"
            )
            if self._law is not None
            else (
                "expected no --law, because none was set before the first study, got one; it "
                "guarantees nothing if it is chosen after seeing results: leave it out"
            )
        )

    @property
    def cap(self) -> Cap | None:
        """The cap, if one was set."""
        self._catch_up()
        return self._cap

    @property
    def filter(self) -> PrivacyFilter | None:
        """What an adaptive cap has let in, as of now; None without one."""
        self._catch_up()
        return self._filter

    def filter_under(self, cap: Cap) -> PrivacyFilter:
        """What an adaptive cap would have let in, were it set now."""
        self._catch_up()
        return self._filter_under(cap)

    @property
    def tally(self) -> Tally:
        """What all entries come to, as of now; to be read only, while nobody charges."""
        self._catch_up()
        return self._tally

    def epsilon(self, *, delta: float, relation: str) -> float:
        """Certified upper epsilon of everything in the ledger."""
        with self._lock:
            return self.tally.epsilon(delta=delta, relation=relation)

    def spent_on(self, study: bytes, kind: LedgerMechanism | None = None) -> int:
        """How many entries a study has, over all its sessions; of one mechanism if it is given."""
        with self._lock:
            return self.tally.attempts(study, kind)

    def entries(self, after: bytes | None = None) -> Iterator[Entry]:
        """The entries, oldest first; those after an earlier `head` if it is given."""
        return (content for content in self.contents(after) if isinstance(content, Entry))

    def contents(self, after: bytes | None = None) -> Iterator[Content]:
        """What the rows say, as `entries`: charges, caps, studies let in or closed."""
        rows = self._rows()
        return self._said_in(rows[0 if after is None else self._place(rows, after) :])

    def before(self, head: bytes | None) -> Tally:
        """What the entries up to an earlier `head` come to; nothing without one."""
        rows, tally = self._rows(), Tally()
        for content in self._said_in(rows[: 0 if head is None else self._place(rows, head)]):
            if isinstance(content, Entry):
                tally.add(content)
        return tally

    def _rows(self) -> list[Row]:
        with self._lock:
            return self._chain.after(None)

    def _said_in(self, rows: Iterable[Row]) -> Iterator[Content]:
        contents = map(self._parsed, rows)
        return (content for content in contents if content is not None)  # None: of the first row

    def _place(self, rows: list[Row], head: bytes) -> int:
        """The number of the row that follows a head."""
        place = next((row.number + 1 for row in rows if row.digest == head), None)
        if place is None:
            raise IntegrityError(
                f"expected {self._path} to hold the row that was noted before, it does not: it is "
                "an older copy or another ledger; restore the newest one"
            )
        return place

    def __len__(self) -> int:
        return len(self.tally)

    @property
    def head(self) -> bytes:
        """The digest of the last row, which stands for all of them."""
        return self._catch_up().digest

    @property
    def rows(self) -> int:
        """How many rows there are: the genesis, charges, caps, studies let in or closed."""
        return self._catch_up().number + 1

    def statement(self, time: str) -> HeadStatement:
        """What the ledger says of itself, signed, for others to witness; it looks at no clock."""
        head = self._catch_up().head
        return HeadStatement.made(self._chain.public, head, time, self._chain.sign)

    def verify(
        self,
        *,
        head: bytes | None = None,
        witnessed: Iterable[HeadStatement] = (),
        progress: Progress | None = None,
    ) -> int:
        """Recompute the chain and check every signature; the number of entries.

        Without a `head` noted earlier outside this disk, or statements that others kept, an older
        copy may go unnoticed. IntegrityError: it is one, or a row does not fit, the first by name.
        """
        with self._lock:
            rows = self._chain.after(None)
        self._chain.check_signatures(rows, progress)
        with self._lock:
            # From nothing: what was counted before had the last signature of each look alone.
            self._forget()
            self._take_in(rows)
        if head is not None:
            self._place(rows, head)
        for statement in witnessed:
            self._check_statement(statement, rows)
        return len(self)

    def check_statement(self, statement: HeadStatement) -> None:
        """What somebody witnessed of this ledger is still there; of another's, nothing is said.

        IntegrityError: it is not.
        """
        if statement.ledger == self._chain.public:
            self._check_statement(statement, self._rows())

    def _check_statement(self, statement: HeadStatement, rows: list[Row]) -> None:
        if statement.ledger != self._chain.public:
            raise IntegrityError(
                f"expected {self._path} to be ledger {statement.ledger.hex()[:16]}, witnessed at "
                f"{statement.time}, found ledger {self._chain.public.hex()[:16]}: it was begun "
                "anew, or the statement is of another one; restore the ledger that was witnessed"
            )
        if [row.digest for row in rows[statement.rows - 1 :][:1]] != [statement.head]:
            raise IntegrityError(
                f"expected {self._path} to hold the {statement.rows} rows witnessed at "
                f"{statement.time}, found {len(rows)} rows that are not those: an older copy was "
                "put back; restore the newest one"
            )

    def _forget(self) -> None:
        self._last: Row | None = None
        self._tally = Tally()
        self._cap: Cap | None = None
        self._filter: PrivacyFilter | None = None
        # Under a fixed cap: what an adaptive one had let in before it, and who was charged since.
        self._former: PrivacyFilter | None = None
        self._since: dict[bytes, None] = {}
        self._closed: set[bytes] = set()
        # That holds since the first charge, under whatever cap: who has seen outputs sets no other.
        self._law: ReferenceLaw | None = None

    def _catch_up(self) -> Row:
        """Take in what was written since the last look; the last row."""
        with self._lock:
            return self._take_in(self._chain.after(self._last))

    def _take_in(self, rows: list[Row]) -> Row:
        """Count verified rows; all or, if one cannot be understood, none."""
        contents = [self._parsed(row) for row in rows]
        for row, content in zip(rows, contents, strict=True):
            self._count(row, content)
        assert self._last is not None, "a chain has its genesis"  # noqa: S101
        return self._last

    def _count(self, row: Row, content: Content | None) -> None:
        """Count one row that was understood."""
        if isinstance(content, Entry):
            # P24: outputs exist from here on, so the law that is stated now is the only one.
            if not len(self._tally) and self._filter is not None:
                self._law = self._filter.cap.law
            self._tally.add(content)
            if self._former is not None:
                self._since.setdefault(content.study)
        if isinstance(content, Cap):
            self._set_filter(content)
            self._cap = content
        if isinstance(content, Admission) and self._filter is not None:
            self._filter = self._filter.with_admission(content)
        if isinstance(content, Closing):
            self._closed.add(content.study)
        self._last = row

    def _set_filter(self, cap: Cap) -> None:
        """Go on with what was let in: a fixed cap between two adaptive ones forgets none of it."""
        if cap.studies == "adaptive":
            self._filter, self._former = self._filter_under(cap), None
        elif self._filter is not None:
            self._former = self._filter if self._filter.admissions else None
            self._filter, self._since = None, {}

    def _filter_under(self, cap: Cap) -> PrivacyFilter:
        """What counts as let in once this cap is set."""
        if self._filter is not None:
            return self._filter.under(cap)
        if self._former is not None:
            return self._former.resumed(cap, self._since, self._tally)
        return PrivacyFilter.beginning(cap, self._tally)

    def _parsed(self, row: Row) -> Content | None:
        """What a row says; the genesis says nothing."""
        what = "a charge, a cap, a study let in or closed"
        return self._chain.parsed(row, _content, what) if row.number else None


def _content(text: str) -> Content:
    ((kind, plain),) = json.loads(text).items()
    if kind == "admit":
        return Admission.of(plain)
    if kind == "close":
        return Closing.of(plain)
    # A row of a kind that is not known here may be spending, so it is an error and not passed over.
    return Cap.of(plain) if kind == "cap" else Entry.of({"charge": plain}[kind])
