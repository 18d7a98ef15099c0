"""Rosters, identities and other small texts as files; and whether a study is of a roster."""

from __future__ import annotations

from pathlib import Path

from hubbub.disk import read_text
from hubbub.errors import StudyError, UserError
from hubbub.network.key_files import identities
from hubbub.protocol import Identity, Roster
from hubbub.study import Study


def check_roster(study: Study, roster: Roster) -> None:
    """A study is of exactly one roster, and of the parties in it.

    Raises:
        StudyError: it names another, or other parties.
    """
    if study.parties.roster != roster.digest.hex():
        found = study.parties.roster[:16] or "nothing"
        raise StudyError(
            f'expected parties.roster = "{roster.digest.hex()}", the digest of the roster, got '
            f"{found}; write it into the study, so that nobody's key can be exchanged"
        )
    silos = tuple(roster.name(index) for index in roster.silos)
    if silos != study.parties.names:
        raise StudyError(
            f"expected the roster to list the silos {', '.join(study.parties.names)}, in this "
            f"order, got {', '.join(silos) or 'none'}; sort one of the two"
        )
    if len(roster.nodes) != study.parties.compute_nodes:
        raise StudyError(
            f"expected {study.parties.compute_nodes} compute nodes in the roster, got "
            f"{len(roster.nodes)}; fix parties.compute_nodes or the roster"
        )


def read_roster(path: Path) -> Roster:
    """The roster in a file.

    Raises:
        UserError: it cannot be read.
        StudyError: it is no roster.
    """
    return Roster(parties=tuple(identities(text_of(path))))


def read_identity(path: Path) -> Identity:
    """The one identity in a file."""
    found = identities(text_of(path))
    if len(found) != 1:
        raise StudyError(f"expected one identity in {path}, found {len(found)}; ask for it again")
    return found[0]


def text_of(path: Path) -> str:
    """A small text file."""
    try:
        return read_text(path)
    except OSError as error:
        raise UserError(
            f"expected a readable file, got {path}: {error.strerror}; check the path"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"expected a text file, got {path}; check the path") from None
