"""The code that a study names, by the SHA-256 of its source: found on the disk, never run.

A hash is that of the one file that holds the module; what this file imports has none here.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

from hubbub.errors import StudyError
from hubbub.study.import_path import OWN
from hubbub.study.study import Study


def code_hashes(study: Study) -> dict[str, str]:
    """By each name of code that is not part of hubbub its source's SHA-256; empty if not here."""
    return {name: source_hash(name) for name in study.own_code}


def source_hash(name: str) -> str:
    """The SHA-256, in hexadecimal digits, of the file that "python:module:name" would import.

    Packages on the way are not imported, as an ordinary search for a module does.

    Returns:
        The digits; "built-in" for a module without a file, and nothing if there is no such module.
    """
    spec, places, parts = None, None, name.removeprefix(OWN).partition(":")[0].split(".")
    for depth in range(1, len(parts) + 1):
        spec = _spec(".".join(parts[:depth]), places)
        if spec is None:
            return ""
        places = spec.submodule_search_locations
    if spec is None or not spec.has_location or spec.origin is None:
        return "built-in"
    try:
        return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
    except OSError:
        return ""


def _spec(module: str, places: Sequence[str] | None) -> ModuleSpec | None:
    finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
    found = (finder.find_spec(module, places, None) for finder in finders)
    return next((spec for spec in found if spec is not None), None)


def refuse_other_code(study: Study) -> None:
    """Refuse code whose source is not the one that the study states.

    Raises:
        StudyError: naming the code and its hash here.
    """
    for name, stated in study.code:
        found = source_hash(name)
        if found not in ("", stated):
            raise StudyError(
                f"expected the source of {name} to have the SHA-256 {stated}, as study.code says, "
                f"found {found}; get the file that all parties agreed on"
            )


def refuse_unstated_code(study: Study) -> None:
    """Refuse a study for several machines that leaves it open what is learned and scored.

    Raises:
        StudyError: a loss or metric of the study's own has no hash in `study.code`.
    """
    if study.model is None or study.training is None:
        return
    named = [name for name in (study.model.loss, *study.training.metrics) if name in study.own_code]
    for name in named:
        if name not in dict(study.code):
            found = source_hash(name) or "its SHA-256"
            raise StudyError(
                f"expected study.code to state the SHA-256 of the source of {name}, so that all "
                f'parties run the same, got nothing; add code = {{ "{name}" = "{found}" }}'
            )


def refuse_changed_code(study: Study, approved: Mapping[str, object]) -> None:
    """Refuse code that is not what was approved, file by file.

    Raises:
        StudyError: naming the code.
    """
    for name, found in code_hashes(study).items():
        if approved.get(name) != found:
            raise StudyError(
                f"expected the source of {name} to be the one that was approved, found another or "
                "none; look at the file, and approve the study again"
            )
