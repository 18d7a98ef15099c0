"""What people write for the dossier: a TOML file of a text for each blank, by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

import tomli_w

from hubbub.core.errors import UserError
from hubbub.desk.report.dossier.chapters import CHAPTERS
from hubbub.desk.report.dossier.dossier_parts import Blank


def blanks_of() -> dict[str, Blank]:
    """All blanks by name, in order."""
    return {part.name: part for one in CHAPTERS for part in one.parts if isinstance(part, Blank)}


def draft_of() -> str:
    """A file with every blank open, and what is asked above it."""
    lines = ["# What only people can write: a text for each name. Open ones stay open by name.", ""]
    for name, blank in blanks_of().items():
        lines += [f"# {blank.ask}", tomli_w.dumps({name: ""})]
    return "\n".join(lines)


def read_written(text: str, where: str) -> Mapping[str, str]:
    """What people have written, by name.

    Raises:
        UserError: the text is no TOML, a name is unknown, or a value is no text.
    """
    try:
        written = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"expected TOML in {where}, got: {error}; mend it") from None
    known = blanks_of()
    odd = sorted(set(written) - set(known))
    if odd:
        raise UserError(
            f"expected names of blanks in {where}, got {', '.join(odd)}; they are "
            f"{', '.join(known)}"
        )
    other = [name for name, value in written.items() if not isinstance(value, str)]
    if other:
        raise UserError(f"expected texts in {where}, got something else for {', '.join(other)}")
    return written
