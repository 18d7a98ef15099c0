"""The code that a study names, by the SHA-256 of its source, beside what was agreed and approved.

Nothing is run here. `source_code` says which files a hash is of.
"""

from __future__ import annotations

from collections.abc import Mapping

from hubbub.core.errors import StudyError
from hubbub.core.study.source_code import module_of, source_of
from hubbub.core.study.study import Study


def code_hashes(study: Study) -> dict[str, str]:
    """By each name of code that is not part of hubbub its source's SHA-256; empty if not here."""
    return {name: source_hash(name) for name in study.own_code}


def source_hash(name: str) -> str:
    """The SHA-256, in hexadecimal digits, of the source that "python:module:name" would import.

    Returns:
        The digits: of the module's file, or, of a module in packages that have an `__init__.py`, of
        what `sha256sum` prints of these and of the module, outermost first, by their paths below
        the folder that is searched. "built-in" for a module without a file, and nothing if there is
        no such module.

    Raises:
        StudyError: the module is no Python source.
    """
    return source_of(module_of(name)).digest


def refuse_other_code(study: Study, here: Mapping[str, str]) -> None:
    """Refuse code whose source is not the one that the study states.

    Args:
        study: states some hashes, or none.
        here: hashes by the names of code; empty for what is not here.

    Raises:
        StudyError: naming the code and its hash here.
    """
    stated = dict(study.code)
    for name, digest in here.items():
        if digest not in ("", stated.get(name, digest)):
            raise StudyError(
                f"expected the source of {name} to have the SHA-256 {stated[name]}, as study.code "
                f"says, found {digest}; get the file that all parties agreed on"
            )


def refuse_unstated_code(study: Study) -> None:
    """Refuse a study for several machines that leaves it open what is learned and scored.

    Raises:
        StudyError: code that all must run alike has no hash in `study.code`.
    """
    shared = [name for ask in study.asks for name in ask.shared_code(study)]
    for name in filter(study.own_code.__contains__, shared):
        if name not in dict(study.code):
            digest = source_hash(name) or "its SHA-256"
            raise StudyError(
                f"expected study.code to state the SHA-256 of the source of {name}, so that all "
                f'parties run the same, got nothing; add code = {{ "{name}" = "{digest}" }}'
            )


def refuse_changed_code(here: Mapping[str, str], approved: Mapping[str, object]) -> None:
    """Refuse code that is not what was approved.

    Args:
        here: hashes by the names of code, as it is here.
        approved: the same, as it was approved.

    Raises:
        StudyError: naming the code.
    """
    for name, digest in here.items():
        if approved.get(name) != digest:
            raise StudyError(
                f"expected the source of {name} to be the one that was approved, found another or "
                "none; look at the file, and approve the study again"
            )
