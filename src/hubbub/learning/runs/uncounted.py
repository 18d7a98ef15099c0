"""What is learned in memory beside what other ledgers count, or none: who does so is told.

Each release keeps its own promise. Two that no common ledger adds up promise less together, and
nobody sees how much. The names of silos are remembered for as long as the program runs, with where
their ledgers are, and nothing of their records; whether two silos of one name hold the same records
is not known here. Of a file of records this user's state remembers, by its path, which ledgers
have counted it, in `$XDG_STATE_HOME/hubbub/ledgers` or `~/.local/state/hubbub/ledgers`.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hubbub.core.disk import PRIVATE, read_text, write_text
from hubbub.core.errors import UncountedWarning
from hubbub.core.number_format import few
from hubbub.core.study import silo_records
from hubbub.core.study.foreign_code import user_state
from hubbub.core.study.study import Study

_SHOWN = 5  # names
_ledgers_of: dict[str, set[Path | str | None]] = {}


def warn_if_uncounted(ledgers: Mapping[str, Path | str | None]) -> None:
    """Warn where a silo was asked before, and not by these ledgers; call before it is asked.

    By each silo's name they are a folder, or what stands for one in memory; None: no ledger.
    """
    apart = []
    for name, here in ledgers.items():
        before = _ledgers_of.setdefault(name, set())
        if before - {here} or (here is None and before):
            apart.append(name)
        before.add(here)
    if apart:
        counted = all(ledgers[name] is not None for name in apart)
        warnings.warn(
            "expected one folder of ledgers for all that is learned from "
            f"{few(apart, _SHOWN)}, found an earlier release that "
            f"{'these ledgers do not count' if counted else 'no ledger counts'}: the epsilons of "
            "both add up; state out each time, in one folder, unless these are other records, or "
            "public ones",
            UncountedWarning,
            stacklevel=3,
        )


def folder_for(study: Study, out: Path, stated: Path | None) -> Path:
    """The folder of a run's ledgers, which is the one that its files have, wherever results go.

    Who lets another folder count them, or has them counted under another silo's name, is warned
    (`UncountedWarning`). Ledgers of files that have none are beside `out`.
    """
    here = (stated or counted_in(study) or out.parent / "ledgers").resolve()
    apart: dict[str, list[Path]] = {}
    for name, path in _files(study).items():
        own = here / f"{name}.sqlite"
        if others := [book for book in _noted(path) if book != own]:
            apart[name] = others
        _note(path, [*others, own])
    if apart:
        where = ", ".join(sorted({str(book) for books in apart.values() for book in books}))
        warnings.warn(
            f"the same files of {few([*apart], _SHOWN)} were counted in {where}, but this run is "
            f"counted in {here}: the epsilons of both add up, and no ledger counts their sum; use "
            "the same folder for --ledgers each time, and the same name for each silo",
            UncountedWarning,
            stacklevel=2,
        )
    return here


def counted_in(study: Study) -> Path | None:
    """The folder of ledgers that has counted a study's files last, if one has."""
    books = [book for path in _files(study).values() for book in _noted(path)[-1:]]
    return books[0].parent if books else None


def _files(study: Study) -> dict[str, Path]:
    """Each silo's file of records, if there are files."""
    if not study.data.files:
        return {}
    named = {name: silo_records.file_of(study, name, Path()) for name in study.parties.names}
    return {name: path.resolve() for name, path in named.items() if path is not None}


def _noted(path: Path) -> list[Path]:
    """The ledgers that have counted a file, the last one last."""
    with suppress(OSError, ValueError, RuntimeError):
        books = map(Path, read_text(_state_of(path)).splitlines())
        return [book for book in books if book.is_file()]
    return []


def _note(path: Path, books: list[Path]) -> None:
    """Remember ledgers; where nothing can be written, nothing is."""
    with suppress(OSError, ValueError, RuntimeError):
        state = _state_of(path)
        state.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_text(state, "".join(f"{book}\n" for book in books), mode=PRIVATE)


def _state_of(path: Path) -> Path:
    return user_state() / "ledgers" / hashlib.sha256(str(path).encode()).hexdigest()
