"""What parties may be called: short plain words, and none that means somebody else.

Messages to people say who is to blame by a name, and names become parts of paths. So nobody may be
called as one calls what is no party (the relay, everybody, the public test set), nor as another
role is called. This file knows no study and no keys.
"""

from __future__ import annotations

import re

from hubbub.errors import StudyError

# No space, so that " and " stands between names only; and never "..".
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_NOBODY = frozenset({"relay", "everybody", "test"})
_NODE = "node-"


def is_name(name: str) -> bool:
    """Whether a name is short and plain."""
    return _NAME.fullmatch(name) is not None


def is_reserved(name: str, role: str = "silo") -> bool:
    """Whether a name means something else than a party with this role."""
    another = (name == "aggregator" and role != "aggregator") or (
        name.startswith(_NODE) and role != "node"
    )
    return another or name in _NOBODY


def check_name(name: str, role: str) -> None:
    """Refuse what no party with this role can be called.

    Raises:
        StudyError: it is no short name of plain letters, or means somebody else.
    """
    if not is_name(name):
        raise StudyError(
            "expected a name of up to 64 letters a-z and digits, with '-', '_' and '.' inside, got "
            f"{name[:80]!r}; choose another"
        )
    if is_reserved(name, role):
        raise StudyError(
            f"expected a name that means nobody else, got {name!r} for a {role}; choose another "
            "than relay, everybody, test, aggregator and node-…"
        )
