"""The table `[study]`: the name, what is kept of a run, and which code all parties agree on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hubbub.core.section import Section
from hubbub.core.settings import one_of, table, text
from hubbub.core.study import import_path

HASHES = "hashes"  # what a run keeps of masked vectors unless the study says otherwise
_SHA256 = re.compile(r"[0-9a-f]{64}")
HEAD = {
    "name": text("Part of the study id.", "text, 1 to 200 characters"),
    "transcript": one_of(
        "hashes",
        "full",
        says='With `"full"` a run keeps masked vectors, and `hubbub verify` can [make every sum '
        "again](evidence.md).",
        default='`"hashes"`',
    ),
    "code": table(
        "SHA-256 of the [source of each module](data.md#your-own-function) that the study names. "
        "Demanded for `model.loss` and `training.metrics` among machines.",
        'table from `"python:module:name"` to 64 digits 0–9, a–f',
        default="none",
    ),
}


def head_from(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The table `[study]`: the name, what is kept of a run, and which code all parties agree on."""
    section = Section("study", stated, tuple(HEAD))
    name = HEAD["name"].read(section, "name", None)
    if not 1 <= len(name) <= 200:
        raise section.refusal("name", "1 to 200 printable characters", "choose another name")
    transcript = HEAD["transcript"].read(section, "transcript", HASHES)
    return {"name": name, "transcript": transcript, "code": _code(section)}


def _code(section: Section) -> tuple[tuple[str, str], ...]:
    """The hashes of code by its name."""
    stated = section.table("code") if "code" in section else {}
    hashes = (isinstance(one, str) and _SHA256.fullmatch(one) for one in stated.values())
    if not all(map(import_path.is_own, stated)) or not all(hashes):
        wanted = 'a table from "python:module:name" to 64 small hexadecimal digits'
        raise section.refusal("code", wanted, "write what sha256sum prints of the module's file")
    return tuple(sorted(stated.items()))
