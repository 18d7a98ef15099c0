"""What turns a run into something to read: found by entry points; none is named here.

A package registers a function under the entry point `hubbub.renderers`:

    text        of a `Result`: what a terminal shows
    notebook    of a `Result`: HTML
    page        of a `Result` and a path: writes one HTML file
    folder      of a run's folder: writes the report of what lies there
    NAME        of values that a query releases under this name: what is to be said of them
    plan of NAME    of what an ask foresees of its table NAME, and the study: a sheet

The first four are hubbub's: a package has them where hubbub's are not installed. The last two are
of a package's own ask.
"""

from __future__ import annotations

from typing import Any

from hubbub.core.errors import UserError
from hubbub.core.registered import loaded, registered

ENTRY_POINTS = "hubbub.renderers"


def render(renderer: str, *about: Any, **options: Any) -> Any:
    """What a renderer makes.

    Raises:
        UserError: none of this name is installed.
    """
    if point := registered(ENTRY_POINTS).get(renderer):
        return loaded(point)(*about, **options)
    raise UserError(
        f"expected a package that registers {renderer} under {ENTRY_POINTS}, found none; install "
        "hubbub whole"
    )
