"""Which files break when a capability's own are deleted: at most one, its registration.

    python tests/house/amputate.py [NAME ...]     the capabilities of that name; all without one
    python tests/house/amputate.py --list         with the files that break

For each capability its files are taken as deleted, and those counted that import one of them, or
what one of them defines through a package that hands it out. Entry points in pyproject.toml are
registrations, and count as one file. `most` in capabilities.toml
says how many break today; the number only falls.
"""

from __future__ import annotations

import fnmatch
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from imports import imports

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

# By capability: its own files below src/hubbub, and how many others break without them today.
CAPABILITIES: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "capabilities.toml").read_text(encoding="utf-8")
)


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """The modules that a file and its stub import, and the names that they take, dotted."""
    package = tuple(path.relative_to(SOURCE).parts[:-1])
    for text in filter(Path.exists, (path, path.with_suffix(".pyi"))):
        for module, name in imports(text, package):
            yield from (module, f"{module}.{name}")


IMPORTED = {name: frozenset(imported(path)) for name, path in MODULES.items()}


def broken_without(patterns: list[str]) -> list[str]:
    """The files that import one of those that match."""
    top = SOURCE / "hubbub"
    gone = {
        name
        for name, path in MODULES.items()
        if any(fnmatch.fnmatch(path.relative_to(top).as_posix(), each) for each in patterns)
    }
    if not gone:
        raise SystemExit(f"expected files that match {patterns}, found none")
    named = [
        path.relative_to(ROOT).as_posix()
        for name, path in MODULES.items()
        if name not in gone and not gone.isdisjoint(IMPORTED[name])
    ]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    registered = any(f'"{name}:' in text for name in gone)
    return [*named, *(["pyproject.toml"] if registered else [])]


def main(arguments: list[str]) -> int:
    """Print the table; 1 if more break than did."""
    wanted = [name for name in arguments if not name.startswith("-")] or list(CAPABILITIES)
    worse = 0
    for name in wanted:
        row = CAPABILITIES[name]
        broken = broken_without(row["files"])
        worse += len(broken) > row["most"]
        sys.stdout.write(f"{name:20} {len(broken):3} files break; at most {row['most']} may\n")
        if "--list" in arguments:
            sys.stdout.writelines(f"    {path}\n" for path in broken)
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
