"""The diagram of rooms, and what each holds, from the contract that the linter enforces.

`python docs/_extensions/rooms.py` writes `docs/reference/rooms.md` and `docs/pictures/rooms.svg`
anew. What a room is stands in its own docstring.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "rooms.md"
PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"
_WIDTH, _ROW, _GAP = 760, 34, 6
_HEAD = """# Rooms

For a developer. A file imports only from its own row and from rows below it, as `make check` shows.

![Which room may import which](../pictures/rooms.svg)
"""


def layers(contract: str) -> list[list[str]]:
    """A contract's layers, from the top, each with the modules that are side by side in it.

    Raises:
        LookupError: no contract has that name.
    """
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    for each in tools["importlinter"]["contracts"]:
        if each["id"] == contract:
            return [[name.strip(" ()") for name in layer.split("|")] for layer in each["layers"]]
    raise LookupError(contract)


def summary(module: str) -> str:
    """The first line of a module's docstring.

    Raises:
        ValueError: the module is not there, or says nothing of itself.
    """
    base = ROOT / "src" / module.replace(".", "/")
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.exists() and (said := ast.get_docstring(ast.parse(path.read_text("utf-8")))):
            return said.splitlines()[0]
    raise ValueError(f"expected a docstring in {module}")


def page() -> str:
    """The page."""
    return "\n".join(
        [
            _HEAD,
            *_table("hubbub", layers("rooms")),
            "\n## Within the core\n",
            *_table("hubbub.core", layers("core")),
            "",
        ]
    )


def _table(package: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| | what it is |\n|---|---|"
    for row in rows:
        yield from (f"| `{name}` | {summary(f'{package}.{name}')} |" for name in row)


def picture() -> str:
    """The picture: a row for each layer, the highest at the top, the core's own within it."""
    above, within = layers("rooms")[:-1], layers("core")
    lines = list(_rows(above, 0, 0, _WIDTH))
    top = len(above) * (_ROW + _GAP)
    height = (len(within) + 1) * (_ROW + _GAP) + _GAP
    lines += [_box(0, top, _WIDTH, height, "core", "start")]
    lines += _rows(within, 2 * _GAP, top + _ROW, _WIDTH - 4 * _GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top + height}" '
        'font-family="sans-serif" font-size="14">\n' + "\n".join(lines) + "\n</svg>\n"
    )


def _rows(rows: Sequence[Sequence[str]], left: int, top: int, width: int) -> Iterator[str]:
    for place, names in enumerate(rows):
        each = (width - _GAP * (len(names) - 1)) // len(names)
        for column, name in enumerate(names):
            x, y = left + column * (each + _GAP), top + place * (_ROW + _GAP)
            yield _box(x, y, each, _ROW, name)


def _box(x: int, y: int, width: int, height: int, name: str, anchor: str = "middle") -> str:
    at = x + (width // 2 if anchor == "middle" else 2 * _GAP)
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="#eef3f8" '
        f'stroke="#456"/><text x="{at}" y="{y + 22}" text-anchor="{anchor}" fill="#123">'
        f"{escape(name)}</text>"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
