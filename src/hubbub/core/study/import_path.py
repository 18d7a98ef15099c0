"""Where a function lives: "module:function", spelled out in a study and looked up elsewhere.

Nothing is imported here. A study is read before anyone has approved it, so reading it must not run
what it names.
"""

from __future__ import annotations

OWN = "python:"  # what a study writes before code that is not part of hubbub
IN_MEMORY = "in-memory"  # what a study calls records or a model that `hubbub.fit` is handed


def is_own(text: str) -> bool:
    """Whether a text is "python:module:name"."""
    module, _, name = text.removeprefix(OWN).partition(":")
    parts = (*module.split("."), name)
    return text.startswith(OWN) and all(part.isidentifier() for part in parts)
