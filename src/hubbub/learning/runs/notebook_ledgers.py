"""Where queries of tables in memory are charged, and their answers kept: memory, or a folder.

In memory a ledger is of one silo's table, by its name and its cells: whoever makes the same silos
again, as a notebook's cell does that is run twice, finds what was charged, as long as the program
runs. A folder holds the same for longer: the silos' ledgers, and a run's folder for each query. A
query that was answered is never asked again: asked twice it would be two releases. Beside the
ledgers in a folder stands, under a key that is there too, of which tables each query was asked: an
answer is given again for these alone. This file knows no rule by which a query is let in.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Protocol

from hubbub.core.disk import PRIVATE, file_name, fresh, locked, read_bytes, why_of, write_all
from hubbub.core.errors import SpentError, UserError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.tally import Tally
from hubbub.core.planning.plan_values import Plan
from hubbub.core.runs import prepared_study
from hubbub.core.study.study import Study
from hubbub.learning.runs import run_study, uncounted
from hubbub.learning.runs.conclusion import answered_in
from hubbub.learning.runs.result import Result

_LETTERS = 16  # of a study's id, in a folder's name
_KEY = 32  # bytes


class NotebookLedgers(Protocol):
    """What counts a notebook's queries."""

    def alone(self) -> AbstractContextManager[object]:
        """Nobody else charges them until this ends."""

    def tallies(self) -> Sequence[Tally]:
        """What was charged at each silo."""

    def answer(self, plan: Plan) -> Result | None:
        """What a query has given, if it was answered."""

    def release(self, prepared: prepared_study.PreparedStudy) -> Result:
        """Charge a query and ask it."""


@dataclass(frozen=True, kw_only=True)
class InMemoryLedgers:
    """Ledgers that last as long as the program.

    Args:
        tables: a digest of each silo's table, by the silo's name.
    """

    tables: Mapping[str, str] = field(repr=False)

    def alone(self) -> AbstractContextManager[object]:
        """Other threads wait."""
        return _one_at_a_time

    def tallies(self) -> Sequence[Tally]:
        """What was charged at each silo."""
        return [_charged.get(one, Tally()) for one in self.tables.items()]

    def answer(self, plan: Plan) -> Result | None:
        """What a query has given, if it was answered."""
        return _answers.get(self._key(plan.study))

    def release(self, prepared: prepared_study.PreparedStudy) -> Result:
        """Charge a query and ask it."""
        uncounted.warn_if_uncounted(self.tables)
        for one, tally in zip(self.tables.items(), self.tallies(), strict=True):
            _charged[one] = tally.after(prepared.plan)
        result = run_study.run_prepared(prepared, None)
        return _answers.setdefault(self._key(prepared.study), result)

    def _key(self, study: Study) -> tuple[bytes, frozenset[tuple[str, str]]]:
        """A study of these tables."""
        return study.id, frozenset(self.tables.items())


@dataclass(frozen=True, kw_only=True)
class FolderLedgers:
    """Ledgers in a folder, with a folder beside them for what each query has given.

    Args:
        home: of both.
        tables: a digest of each silo's table, by the silo's name.
    """

    home: Path
    tables: Mapping[str, str] = field(repr=False)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Other programs are refused, other threads wait; UserError if another program is first."""
        with _one_at_a_time, ExitStack() as stack:
            try:
                self.home.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.home / "lock"))
            except BlockingIOError:
                raise UserError(
                    f"expected to be the only program that asks out of {self.home}, another one "
                    "does; wait for it"
                ) from None
            except OSError as error:
                raise UserError(
                    f"expected a folder that can be written, got {self.home}: {why_of(error)}; "
                    "choose another out"
                ) from None
            yield

    def tallies(self) -> Sequence[Tally]:
        """What was charged at each silo."""
        return [_read(self._ledgers / f"{name}.sqlite") for name in self.tables]

    def answer(self, plan: Plan) -> Result | None:
        """What a query has given, if it was answered; SpentError if it was asked of others."""
        result = answered_in(self._folder(plan.study), plan)
        mark = self._mark(plan.study)
        if result is None or not mark.exists():
            return result
        if not hmac.compare_digest(read_bytes(mark, most=_KEY), self._marked(plan.study)):
            raise SpentError(
                f"expected the tables of which this was asked out of {self.home} before, got "
                "others; ask with another epsilon, which is another release"
            )
        return result

    def release(self, prepared: prepared_study.PreparedStudy) -> Result:
        """Charge a query and ask it."""
        uncounted.warn_if_uncounted(dict.fromkeys(self.tables, self._ledgers.resolve()))
        marked = self._marked(prepared.study)
        with fresh(self._mark(prepared.study), mode=PRIVATE) as file:
            write_all(file, marked)
        out = self._folder(prepared.study)
        return run_study.run_prepared(prepared, out, ledgers=self._ledgers)

    @property
    def _ledgers(self) -> Path:
        return self.home / "ledgers"

    def _mark(self, study: Study) -> Path:
        """Where it stands of which tables a query was asked."""
        return self._ledgers / f"{study.id.hex()}.tables"

    def _marked(self, study: Study) -> bytes:
        """What stands for a query of these tables: nobody without the key learns of a cell."""
        path = self._ledgers / "tables.key"
        key = read_bytes(path, most=_KEY) if path.exists() else b""
        if len(key) < _KEY:  # new, or torn by a crash
            self._ledgers.mkdir(parents=True, exist_ok=True)
            key = os.urandom(_KEY)
            with fresh(path, mode=PRIVATE) as file:
                write_all(file, key)
        told = json.dumps([study.id.hex(), sorted(self.tables.items())]).encode()
        return hmac.digest(key, told, "sha256")

    def _folder(self, study: Study) -> Path:
        return self.home / f"{file_name(study.name)}-{study.id.hex()[:_LETTERS]}"


_one_at_a_time = RLock()
_charged: dict[tuple[str, str], Tally] = {}
_answers: dict[tuple[bytes, frozenset[tuple[str, str]]], Result] = {}


def _read(path: Path) -> Tally:
    """What a ledger's file says; nothing where there is none yet."""
    if not path.exists():
        return Tally()
    with Ledger(path) as ledger:
        return ledger.tally
