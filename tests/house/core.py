"""The core alone: what a reviewer of the guarantee reads, and what still ties it to the rest.

`make core` prints each import by which a file of the core reaches a file outside it, and fails if
there are more than `MOST_WRONG`; the number only falls. Once it is 0 the core is copied, with its
tests, to an empty folder, and tested there with nothing else installed than it needs.

A name that a package hands out counts as the file that defines it, so a door in between hides
nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
MOST_WRONG = 0

# Which files are the core until they are one folder: rooms, less what is named after them.
_WHOLE_ROOMS = ("privacy", "planning", "protocol", "session", "ledger", "tabular")
_SINGLE_FILES = ("errors", "disk", "settings", "section", "kept_pages", "number_format")
_NO_CORE = re.compile(
    r"protocol/collection/"
    r"|study/(drafting|sql|omop|datasets)/|study/harmonising/data_dictionary"
    r"|study/(model|model_kinds|training|validation|coefficients|asked_statistics"
    r"|usual_training|room_for_columns)\.py|planning/model_size\.py"
    r"|verification/audit/"
    r"|verification/attestation/(dcap|snp|nitro|devices|certificates|software"
    r"|reference_values|roots)"
    r"|verification/replay/replayed_collection"
)
_SOME = {
    "training": "loop|run_folder|run_sessions|checkpoint|local_backend|federated|run_metadata"
    "|prepared_study|spending",
    "queries": "study_queries|vector_query|__init__",
}


def is_core(path: str) -> bool:
    """Whether a file belongs to the core.

    Args:
        path: below `src/hubbub`, with slashes.
    """
    room, _, rest = path.partition("/")
    if not rest:
        return room.removesuffix(".py") in _SINGLE_FILES
    if _NO_CORE.match(path):
        return False
    if room in _SOME:
        return rest.removesuffix(".py") in _SOME[room].split("|")
    return room in _WHOLE_ROOMS or room in ("study", "verification")


class Modules:
    """The modules of the package, and where the names are defined that its packages hand out."""

    def __init__(self) -> None:
        self.files = {self._name(path): path for path in sorted(SOURCE.rglob("*.py"))}
        self._handed: dict[tuple[str, str], tuple[str, str]] = {}
        for module, path in self.files.items():
            if path.name == "__init__.py":
                for text in (path, path.with_suffix(".pyi")):
                    if text.exists():
                        self._handed |= self._handed_by(module, text)

    @staticmethod
    def _name(path: Path) -> str:
        parts = path.relative_to(SOURCE).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _handed_by(self, module: str, text: Path) -> dict[tuple[str, str], tuple[str, str]]:
        return {
            (module, alias or name): (where, name)
            for where, name, alias in _imports(text)
            if where != module and name
        }

    def definer(self, module: str, name: str) -> str:
        """The module that defines a name which is imported from `module`."""
        while f"{module}.{name}" not in self.files:
            if (module, name) not in self._handed:
                return module
            module, name = self._handed[module, name]
        return f"{module}.{name}"

    def core(self) -> list[str]:
        """The modules of the core, its packages' doors included."""
        top = SOURCE / "hubbub"
        return [
            name for name, path in self.files.items() if is_core(path.relative_to(top).as_posix())
        ]

    def wrong_imports(self) -> list[tuple[str, str]]:
        """Pairs of a module of the core and a module outside that it imports."""
        core = self.core()
        reached = {
            (module, self.definer(where, name))
            for module in core
            if self.files[module].name != "__init__.py"  # what a door hands out is looked through
            for where, name, _ in _imports(self.files[module])
        }
        inside = {*core, "hubbub"}
        return sorted(pair for pair in reached if pair[1] in self.files.keys() - inside)


def _imports(path: Path) -> Iterator[tuple[str, str, str]]:
    """What a file imports of hubbub: module, name or nothing, and the name that it gives it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hubbub"):
            yield from ((str(node.module), name.name, name.asname or "") for name in node.names)
        elif isinstance(node, ast.Import):
            named = (name.name for name in node.names if name.name.startswith("hubbub"))
            yield from ((name, "", "") for name in named)


def main() -> int:
    """Print what ties the core to the rest; 1 if it is more than it was."""
    wrong = Modules().wrong_imports()
    files = len({module for module, _ in wrong})
    if "--list" in sys.argv[1:] or len(wrong) > MOST_WRONG:
        sys.stdout.writelines(f"  {module} -> {reached}\n" for module, reached in wrong)
    told = f"hubbub: {len(wrong)} imports in {files} files of the core leave it"
    sys.stdout.write(f"{told}; at most {MOST_WRONG} may\n")
    return int(len(wrong) > MOST_WRONG)


if __name__ == "__main__":
    sys.exit(main())
