"""Code that a study names, run: the very bytes that were read, hashed and compared, and no others.

`keep` reads the sources of all that a study names, once; `imported` runs what was kept. So neither
a file that is changed in between, nor a `.pyc` that says of itself that nobody need check it, nor a
module that got its name before, runs in the place of what was hashed. Packages on the way are kept
and run in the same manner. What these files import besides comes as Python finds it.

A party's approval binds: for a study that `bind` was told of, `keep` takes no other source.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from hubbub.core.errors import StudyError
from hubbub.core.study import code_hashes, known_code
from hubbub.core.study.source_code import Source, SourceFile, is_foundation, module_of, source_of
from hubbub.core.study.study import Study

_LOCK = threading.RLock()
_KEPT: dict[str, Source] = {}  # by module
_BOUND: dict[bytes, Mapping[str, object]] = {}  # hashes by name of code, by study id
_RUN: dict[str, tuple[ModuleType, bytes]] = {}  # what was made of which bytes


def bind(study: Study, approved: Mapping[str, object]) -> None:
    """Have `keep` take just these sources for a study: those that were approved."""
    _BOUND[study.id] = dict(approved)


def unbind(study: bytes) -> None:
    """Forget what was approved of a study's code."""
    _BOUND.pop(study, None)


def keep(study: Study, names: Iterable[str] | None = None) -> dict[str, str]:
    """Read the sources of all code that a study names, for `imported`; nothing is run.

    Args:
        study: names the code.
        names: only these of its `own_code`.

    Returns:
        By name, the hash of what was kept.

    Raises:
        StudyError: a source is not the one that the study states, or that was approved here.
    """
    named = study.own_code if names is None else tuple(names)
    sources = {module: source_of(module) for module in set(map(module_of, named))}
    digests = {name: sources[module_of(name)].digest for name in named}
    code_hashes.refuse_other_code(study, digests)
    if study.id in _BOUND:
        code_hashes.refuse_changed_code(digests, _BOUND[study.id])
    with _LOCK:
        _KEPT.update(sources)
    return digests


def keep_known(study: Study, names: Iterable[str], *, trusted: bool) -> None:
    """Read sources like `keep`, of a study that came with somebody's folder.

    Args:
        study: names the code.
        names: what of its `own_code` is about to run.
        trusted: whoever asks says that it may, though it is not known here.

    Raises:
        StudyError: as for `keep`; or this user has neither approved nor run the code before.
    """
    for name, digest in keep(study, names).items():
        if digest and not trusted and not known_code.knows(name, digest):
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
        with _found_first(source):
            module_object = importlib.import_module(module)
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
    """Finds what was kept, before anything else is looked for.

    Args:
        source: that is imported; it may import what was kept of others.
    """

    def __init__(self, source: Source) -> None:
        self._sources = (source, *_KEPT.values())

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Of a file of a kept module; None of all others."""
        files = (file for source in self._sources for file in source.files)
        file = next((one for one in files if one.module == name), None)
        if file is None:
            return None
        places = [str(Path(file.path).parent)] if file.is_package else None
        return spec_from_file_location(
            name, file.path, loader=_Kept(file), submodule_search_locations=places
        )


@contextmanager
def _found_first(source: Source) -> Iterator[None]:
    """Have kept sources come first, as long as something is imported."""
    finder = _Finder(source)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
