"""How a refusal quotes what it found: short, on one line, spelled as in the file."""

from __future__ import annotations

import json
import re

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def key_of(key: str) -> str:
    """A key as it is written in TOML."""
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key)


def shown(value: object) -> str:
    """A value of the file, shortened, for an error message."""
    return shortened(json.dumps(value, default=str), 80)


def shortened(text: str, longest: int) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= longest else text[: longest - 3] + "..."
