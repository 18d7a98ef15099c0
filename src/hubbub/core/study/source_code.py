"""The sources of code that a study names: found on the disk, read once, and never run here.

A module inside packages comes with the `__init__.py` of each of them, since Python runs these
first. What any of these files imports besides is not looked at. Only Python source can be read by
whoever approves it, and only of source can the very bytes be run that were hashed: a compiled
module (`.so`, or a `.pyc` without its `.py`) is refused, unless hubbub itself runs on it.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from zipimport import zipimporter

from hubbub.core.disk import read_bytes
from hubbub.core.errors import StudyError
from hubbub.core.study.import_path import OWN

BUILT_IN = "built-in"  # in place of a hash: a part of the interpreter, without a file
MAIN = "__main__"  # the program that runs already, or a notebook
# What hubbub itself runs on is believed as hubbub is, and is not loaded a second time.
_FOUNDATIONS = frozenset(
    {*sys.stdlib_module_names, "hubbub", "numpy", "scipy", "torch", "safetensors", "cryptography"}
)


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file of a module's source, as it was when it was read.

    Args:
        module: its full name.
        path: where it lies; inside a zip file perhaps.
        is_package: it is the `__init__.py` of a package.
        content: its bytes.
    """

    module: str
    path: str
    is_package: bool
    content: bytes = field(repr=False)

    @property
    def sha256(self) -> str:
        """Of its bytes, hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def name(self) -> str:
        """Its path below the folder from which it is imported."""
        return self.module.replace(".", "/") + ("/__init__.py" if self.is_package else ".py")


@dataclass(frozen=True, kw_only=True)
class Source:
    """All files that importing a module runs on the way to it.

    Args:
        files: outermost package first; none if there is no such module, or it is built in.
        is_built_in: it is a part of the interpreter.
    """

    files: tuple[SourceFile, ...] = ()
    is_built_in: bool = False

    @property
    def digest(self) -> str:
        """The SHA-256 of the file; of several files that of what `sha256sum` prints of them.

        "built-in" for a module without a file, and nothing if there is no such module.
        """
        if len(self.files) < 2:
            return self.files[0].sha256 if self.files else BUILT_IN if self.is_built_in else ""
        listed = "".join(f"{file.sha256}  {file.name}\n" for file in self.files)
        return hashlib.sha256(listed.encode()).hexdigest()


def module_of(place: str) -> str:
    """The module in "python:module:name"."""
    return place.removeprefix(OWN).partition(":")[0]


def source_of(module: str) -> Source:
    """What importing a module would run, packages on the way included; nothing is imported.

    Raises:
        StudyError: it is no Python source, or cannot be read.
    """
    if module == MAIN:
        return Source(is_built_in=True)
    importlib.invalidate_caches()  # a file that was put there a moment ago is seen
    files: list[SourceFile] = []
    places: list[str] | None = None
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        name = ".".join(names[:depth])
        spec = _spec(name, places) if depth == 1 or places is not None else None
        if spec is None:
            return Source()
        if spec.has_location and spec.origin is not None:
            files.append(_read(name, spec))
        elif spec.submodule_search_locations is None:
            return Source(is_built_in=depth == len(names))
        locations = spec.submodule_search_locations
        places = None if locations is None else list(locations)
    is_file = bool(files) and files[-1].module == module  # else a folder without __init__.py
    return Source(files=tuple(files) if is_file else ())


def is_foundation(module: str, path: str) -> bool:
    """Whether a file is a part of what hubbub itself runs on, and is loaded already."""
    origin = getattr(getattr(sys.modules.get(module), "__spec__", None), "origin", None)
    return module.partition(".")[0] in _FOUNDATIONS and origin == path


def _spec(module: str, places: Sequence[str] | None) -> ModuleSpec | None:
    """Where a module is, as an ordinary search says; inside packages by its last name alone.

    By its whole name a search would ask for the package as it was imported, and it was not.
    """
    if places is not None:
        return PathFinder.find_spec(module.rpartition(".")[2], places)
    finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
    specs = (finder.find_spec(module, None, None) for finder in finders)
    return next((spec for spec in specs if spec is not None), None)


def _read(module: str, spec: ModuleSpec) -> SourceFile:
    """The bytes of a module's source."""
    path = str(spec.origin)
    if not path.endswith(".py") and not is_foundation(module, path):
        raise StudyError(
            f"expected {module} as Python source, which can be read and hashed, found {path}; "
            "have the study name a .py file, which may import it"
        )
    loader: object = spec.loader
    try:
        content = (
            loader.get_data(path) if isinstance(loader, zipimporter) else read_bytes(Path(path))
        )
    except OSError as error:
        raise StudyError(
            f"expected to read the source of {module} in {path}, got: {error.strerror}; see what "
            "lies there"
        ) from None
    is_package = spec.submodule_search_locations is not None
    return SourceFile(module=module, path=path, is_package=is_package, content=content)
