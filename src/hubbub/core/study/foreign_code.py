"""Code that a study names: hashed as it was read, trusted by hash, and run as it was hashed.

A module comes with the `__init__.py` of each package that it is in. What any of these files imports
besides comes as Python finds it, and is not looked at. Only source can be read by whoever approves
it, and run as the very bytes that were hashed: what is compiled is refused.

`keep` reads the sources of all that a study names, once; `imported` runs what was kept. So neither
a file that is changed in between, nor a `.pyc` that nobody need check, nor a module that got its
name before, runs in the place of what was hashed. A party's approval binds: for a study that `bind`
was told of, `keep` takes no other source.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from zipimport import zipimporter

from hubbub.core.disk import make_private, read_bytes
from hubbub.core.errors import StudyError
from hubbub.core.study.source import OWN
from hubbub.core.study.study import Study

BUILT_IN = "built-in"  # in place of a hash: a part of the interpreter, without a file
MAIN = "__main__"  # the program that runs already, or a notebook
_LOCK = threading.RLock()
_KEPT: dict[str, Source] = {}  # by module
_BOUND: dict[bytes, Mapping[str, object]] = {}  # hashes by name of code, by study id
_RUN: dict[str, tuple[ModuleType, bytes]] = {}  # what was made of which bytes
# What hubbub itself runs on is believed as hubbub is, and is not loaded a second time.
_FOUNDATIONS = frozenset(
    {*sys.stdlib_module_names, "hubbub", "numpy", "scipy", "torch", "safetensors", "cryptography"}
)


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file of a module's source, as it was when it was read."""

    module: str  # its full name
    path: str  # inside a zip file perhaps
    is_package: bool  # it is the `__init__.py` of one
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
    """All files that importing a module runs on the way to it, outermost package first.

    There are none if there is no such module, or if it is a part of the interpreter.
    """

    files: tuple[SourceFile, ...] = ()
    is_built_in: bool = False

    @property
    def digest(self) -> str:
        """The SHA-256 of the file; of several that of what `sha256sum` prints of them, by `name`.

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
    """Where a module is, as an ordinary search says; inside packages by its last name alone."""
    # By its whole name a search would ask for the package as it was imported, and it was not.
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


def code_hashes(study: Study) -> dict[str, str]:
    """By each name of code that is not part of hubbub its source's SHA-256; empty if not here."""
    return {name: source_hash(name) for name in study.own_code}


def source_hash(name: str) -> str:
    """The digest of the source that "python:module:name" would import, as `Source` says.

    StudyError: the module is no Python source.
    """
    return source_of(module_of(name)).digest


def refuse_other_code(study: Study, here: Mapping[str, str]) -> None:
    """Refuse code whose hash here, empty if there is none, is not the one that the study states."""
    stated = dict(study.code)
    for name, digest in here.items():
        if digest not in ("", stated.get(name, digest)):
            raise StudyError(
                f"expected the source of {name} to have the SHA-256 {stated[name]}, as study.code "
                f"says, found {digest}; get the file that all parties agreed on"
            )


def refuse_unstated_code(study: Study) -> None:
    """Refuse a study for several machines some of whose code, that all run alike, has no hash."""
    shared = (name for ask in study.asks for name in ask.shared_code(study))
    for name in shared:
        if name in study.own_code and name not in dict(study.code):
            digest = source_hash(name) or "its SHA-256"
            raise StudyError(
                f"expected study.code to state the SHA-256 of the source of {name}, so that all "
                f'parties run the same, got nothing; add code = {{ "{name}" = "{digest}" }}'
            )


def refuse_changed_code(here: Mapping[str, str], approved: Mapping[str, object]) -> None:
    """Refuse code whose hash here is not the one that was approved, each by the code's name."""
    for name, digest in here.items():
        if approved.get(name) != digest:
            raise StudyError(
                f"expected the source of {name} to be the one that was approved, found another or "
                "none; look at the file, and approve the study again"
            )


def note(name: str, digest: str) -> None:
    """Remember code by its name and hash; where nothing can be written, it stays unknown."""
    if digest and not knows(name, digest):
        path = _path(name, digest)
        with suppress(OSError, RuntimeError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            make_private(path)


def knows(name: str, digest: str) -> bool:
    """Whether code was noted here, by this user."""
    try:
        return all(map(_is_mine, (_path(name, digest), _path(name, digest).parent)))
    except (OSError, RuntimeError):
        return False


def forget(name: str, digest: str) -> None:
    """Take the note back."""
    with suppress(OSError, RuntimeError):
        _path(name, digest).unlink(missing_ok=True)


def _is_mine(path: Path) -> bool:
    """Whether a path is this user's, and nobody else may write there; OSError if it is not."""
    status = path.lstat()
    is_plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return is_plain and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _path(name: str, digest: str) -> Path:
    """The file that stands for code; RuntimeError if this user has no home."""
    key = hashlib.sha256(f"{name}\n{digest}".encode()).hexdigest()
    return user_state() / "code" / key


def user_state() -> Path:
    """What is remembered for this user on this machine; RuntimeError if there is no home.

    It lies outside of every folder that somebody hands over, and which code this user has approved
    or run, an empty file for each says, if nobody else can have put it there.
    """
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "hubbub"


def bind(study: Study, approved: Mapping[str, object]) -> None:
    """Have `keep` take just these sources for a study: those that were approved."""
    _BOUND[study.id] = dict(approved)


def unbind(study: bytes) -> None:
    """Forget what was approved of a study's code."""
    _BOUND.pop(study, None)


def keep(study: Study, names: Iterable[str] | None = None) -> dict[str, str]:
    """Read the sources of a study's `own_code`, or of some of it, for `imported`; nothing is run.

    Returns:
        By name, the hash of what was kept.

    Raises:
        StudyError: a source is not the one that the study states, or that was approved here.
    """
    named = study.own_code if names is None else tuple(names)
    sources = {module: source_of(module) for module in set(map(module_of, named))}
    digests = {name: sources[module_of(name)].digest for name in named}
    refuse_other_code(study, digests)
    if study.id in _BOUND:
        refuse_changed_code(digests, _BOUND[study.id])
    with _LOCK:
        # After the refusals: what is imported later is made of these bytes.
        _KEPT.update(sources)
    return digests


def keep_known(study: Study, names: Iterable[str], *, trusted: bool) -> None:
    """Read sources like `keep`, of a study that came with somebody's folder, and are about to run.

    If they are not `trusted` by whoever asks, this user must have approved or run them before.

    StudyError: as for `keep`; or this user has neither approved nor run the code before.
    """
    for name, digest in keep(study, names).items():
        if digest and not trusted and not knows(name, digest):
            raise StudyError(
                f"expected code that was approved or run by this user before, found {name} with "
                f"the SHA-256 {digest}; read it, and say --trust-code (in Python trust_code=True) "
                "if it may run here"
            )


def imported(module: str) -> ModuleType:
    """The module made of the bytes that were kept of it; they are read now if none were.

    Raises:
        ModuleNotFoundError: there is no such module.
        Exception: as the module's code raises it.
    """
    with _LOCK:
        if module not in _KEPT:
            _KEPT[module] = source_of(module)
        source = _KEPT[module]
        if not source.digest:
            raise ModuleNotFoundError(f"no module named {module!r}", name=module)
        _forget_others(source.files)
        finder = _Finder(source)
        sys.meta_path.insert(0, finder)
        try:
            module_object = importlib.import_module(module)
        finally:
            sys.meta_path.remove(finder)
        for file in source.files:
            _RUN[file.module] = (sys.modules[file.module], file.content)
        return module_object


def _forget_others(files: Sequence[SourceFile]) -> None:
    """Take modules of these names out that were not made of these bytes, and all inside them."""
    for place, file in enumerate(files):
        ran = _RUN.get(file.module, (None, b""))
        is_it = ran[0] is sys.modules.get(file.module) and ran[1] == file.content
        if not is_it and not is_foundation(file.module, file.path):
            for other in files[place:]:
                sys.modules.pop(other.module, None)
            return


class _Kept(SourceFileLoader):
    """Loads a module from the bytes that were kept."""

    def __init__(self, file: SourceFile) -> None:
        super().__init__(file.module, file.path)
        self._content = file.content

    def get_code(self, _: str) -> CodeType:
        """Compiled here: no `.pyc` is looked at, nor the file."""
        code: CodeType = self.source_to_code(self._content, self.path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Run it; a package knows what of it is loaded already, as one that was run first would."""
        before = f"{module.__name__}."
        for name, part in list(sys.modules.items()):
            last = name.removeprefix(before)
            if name.startswith(before) and "." not in last:
                setattr(module, last, part)
        super().exec_module(module)


class _Finder:
    """Finds what was kept, before anything else is looked for."""

    def __init__(self, source: Source) -> None:
        sources = (source, *_KEPT.values())  # what is imported may import what was kept of others
        self._files = {file.module: file for kept in reversed(sources) for file in kept.files}

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Of a file of a kept module; None of all others."""
        if (file := self._files.get(name)) is None:
            return None
        places = [str(Path(file.path).parent)] if file.is_package else None
        return spec_from_file_location(
            name, file.path, loader=_Kept(file), submodule_search_locations=places
        )
