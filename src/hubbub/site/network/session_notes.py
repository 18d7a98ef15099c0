"""Sessions opened here, mask graphs drawn, attempts paid for: what no restart may forget.

    sessions             ids of the sessions that were opened, none of which is opened twice
    graphs               ids of the studies for which a mask graph was drawn, once for each; and
                         when each was approved, and used in an answer
    results              ids of the studies of which a RESULT was shown, with its digest: each has
                         one
    paid                 at an aggregator: the most attempts of a study, by purpose, that each silo
                         has said to have paid for

Lines are added and never changed. This file knows ids; it must not know studies or keys.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hubbub.core.disk import why_of
from hubbub.core.errors import HubbubError, IntegrityError
from hubbub.core.protocol.agreement import mask_graph

SESSIONS, GRAPHS, PAID, RESULTS = "sessions", "graphs", "paid", "results"
MOST_GRAPHS = mask_graph.MOST_GRAPHS  # of a study; the plan pays for all of them (P4)
MOST_FRUITLESS = 16  # graphs beyond twice those that served an answer, for each approval
_APPROVAL, _ANSWER = ":approved", ":answered"  # what a line of `graphs` ends with


class FruitlessError(HubbubError):
    """As many mask graphs of a study were drawn in vain as may be; people should look."""


@dataclass(frozen=True)
class SessionNotes:
    """The notes in a party's folder."""

    home: Path

    def open_session(self, session: bytes) -> bool:
        """Note a session on disk, before anything is said in it; False if it was opened before.

        A party that was restarted remembers no key of an old session. What it would say there now
        would stand beside what it has said, and two true signatures for one place blame it.

        Raises:
            IntegrityError: the disk does not take it; nothing must be said.
        """
        return self._note(SESSIONS, session.hex().encode(), lambda _: 1)

    def take_result(self, study: bytes, digest: bytes) -> bool:
        """Note on disk which RESULT of a study is about to be believed; False if another was.

        Raises:
            IntegrityError: the disk does not take it; nothing must be said.
        """
        if self.result(study) is None:
            self._note(RESULTS, f"{study.hex()}:{digest.hex()}".encode(), lambda _: 1)
        return self.result(study) == digest

    def result(self, study: bytes) -> bytes | None:
        """The digest of the RESULT of a study that was shown first; None if none was."""
        line = re.compile(re.escape(study.hex().encode()) + rb":([0-9a-f]{64})")
        with suppress(FileNotFoundError):
            for one in (self.home / RESULTS).read_bytes().split():
                if signed := line.fullmatch(one):
                    return bytes.fromhex(signed[1].decode())
        return None

    def draw_graph(self, study: bytes) -> bool:
        """Note on disk that a mask graph is about to be drawn; False if there were too many.

        Whoever sets sessions up again and again sees a new graph each time, and may wait for one
        that comes apart.

        Raises:
            FruitlessError: too many of them came to nothing.
            IntegrityError: the disk does not take it; nothing must be said.
        """

        def most(lines: Counter[bytes]) -> int:
            approved, used = (lines[_mark(study, word)] for word in (_APPROVAL, _ANSWER))
            if lines[_mark(study)] >= MOST_FRUITLESS * max(1, approved) + 2 * used:
                raise FruitlessError(
                    f"expected at most {MOST_FRUITLESS} mask graphs more than were of use, got "
                    "one more; find out who does not do its part, then approve the study again"
                )
            return MOST_GRAPHS

        return self._note(GRAPHS, _mark(study), most)

    def use_graph(self, study: bytes) -> None:
        """Note that an attempt was answered with a graph; what is not noted counts as not used."""
        with suppress(IntegrityError):
            self._note(GRAPHS, _mark(study, _ANSWER), lambda _: MOST_GRAPHS)

    def approve_graphs(self, study: bytes) -> None:
        """Note that the party's people have approved a study: it may draw in vain anew.

        Raises:
            IntegrityError: the disk does not take it.
        """
        self._note(GRAPHS, _mark(study, _APPROVAL), lambda _: MOST_GRAPHS)

    def most_paid(self, study: bytes, purpose: str, said: Mapping[int, int]) -> dict[int, int]:
        """The most attempts that each silo has ever said to have paid for, these among them.

        Silos that have paid may be away when a run is gone on with.

        Args:
            study, purpose: of the attempts.
            said: now, by silo.

        Raises:
            IntegrityError: the disk does not take it.
        """
        start, most = f"{study.hex()}:{purpose}:".encode(), dict[int, int]()
        with suppress(FileNotFoundError):
            for line in (self.home / PAID).read_bytes().split():
                if paid := re.fullmatch(re.escape(start) + rb"(\d+):(\d+)", line):
                    silo, attempts = map(int, paid.groups())
                    most[silo] = max(most.get(silo, 0), attempts)
        for silo, attempts in said.items():
            if attempts > most.get(silo, 0):
                most[silo] = attempts
                self._note(PAID, start + f"{silo}:{attempts}".encode(), lambda _: 1)
        return most

    def _note(self, name: str, line: bytes, most: Callable[[Counter[bytes]], int]) -> bool:
        """Add a line to a file and have it on disk, unless it is there so many times already.

        The file is locked meanwhile: nobody keeps a party's people, or who hands in jobs, from
        starting it twice.
        """
        try:
            with (self.home / name).open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                lines = Counter(file.read().split())
                if lines[line] >= most(lines):
                    return False
                file.write(b"\n%s\n" % line)  # past whatever a crash has torn
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise IntegrityError(
                f"expected to note a line in {self.home / name}, the disk says: "
                f"{why_of(error)}; make room, or see who may write there"
            ) from None
        return True


def _mark(study: bytes, word: str = "") -> bytes:
    """A line of `graphs`."""
    return f"{study.hex()}{word}".encode()
