"""hubbub: one model from many silos, with differential privacy that nobody has to be trusted for.

Every name is loaded when it is first used. The accountant, the study and the plan need numpy, scipy
and cryptography only; what trains (`hubbub.run`, `hubbub.learning`) needs the extra `learn`.

The names are in `__init__.pyi`, where type checkers look for them; so are those of other rooms.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

VERSION = "0.1.0"  # for everybody who writes it down
__version__ = VERSION


def on_first_use(room: str) -> Callable[[str], Any]:
    """A room's `__getattr__` (PEP 562): it loads what the room's stub imports, when it is used."""

    def load(name: str) -> Any:
        places = _places(room)
        if name == "__all__":
            return sorted(places)
        if name not in places:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        module = places[name]
        if module == room:
            return importlib.import_module(f"{room}.{name}")
        value = getattr(__import__(module, fromlist=[name]), name)
        setattr(sys.modules[room], name, value)
        return value

    return load


@cache
def _places(room: str) -> dict[str, str]:
    """The names that a room's stub imports, and from where."""
    import ast
    from pathlib import Path

    stub = Path(str(sys.modules[room].__file__)).with_suffix(".pyi")
    lines = ast.parse(stub.read_bytes()).body
    imports = [line for line in lines if isinstance(line, ast.ImportFrom) and line.level == 0]
    return {one.name: str(line.module) for line in imports for one in line.names if one.asname}


__getattr__ = on_first_use(__name__)


def __dir__() -> list[str]:
    """What there is, loaded or not."""
    return sorted({*globals(), *_places(__name__)})
