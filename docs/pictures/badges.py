"""The badges of README.md: `python docs/pictures/badges.py` writes them from the tree.

Each says a thing that a command shows (docs/project/releases.md); none asks a server.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from hubbub import VERSION

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_DIGIT, _EDGE, _HEIGHT = 6.4, 8, 20  # pixels: of a letter, beside a text, of a badge
_DRAWN = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img"\
 aria-label="{name}: {value}" font-family="system-ui, sans-serif" font-size="11" fill="#fff">
<title>{name}: {value}</title>
<rect width="{width}" height="{height}" rx="4" fill="#33475b"/>
<path d="M{left} 0h{inner}a4 4 0 0 1 4 4v12a4 4 0 0 1-4 4h-{inner}z" fill="#2f6f73"/>
<text x="{edge}" y="14">{name}</text><text x="{begin}" y="14">{value}</text>
</svg>
"""


def badges() -> dict[str, str]:
    """The text of each file, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    said = {
        "version": VERSION,
        "python": f"{pythons[0]} to {pythons[-1]}",
        "licence": project["license"].split(" AND ")[0],
        "build": "byte for byte",
    }
    return {f"badge-{name}.svg": drawn(name, value) for name, value in said.items()}


def drawn(name: str, value: str) -> str:
    """A badge as SVG."""
    left, right = (round(_DIGIT * len(text) + 2 * _EDGE) for text in (name, value))
    return _DRAWN.format(
        name=name,
        value=value,
        width=left + right,
        height=_HEIGHT,
        left=left,
        inner=right - 4,
        edge=_EDGE,
        begin=left + _EDGE,
    )


if __name__ == "__main__":
    for file, text in badges().items():
        (HERE / file).write_text(text, encoding="utf-8")
