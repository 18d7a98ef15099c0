"""The core alone: copied to an empty folder with its tests, and run there, nothing else installed.

    python tests/house/core.py [ARGS OF PYTEST]     or --list: which files of tests these are

Beside the core lie numpy, scipy, cryptography and safetensors, what these and hubbub's own list of
names need, and the tools of the tests; no other room of hubbub, no entry point, no package of
anybody. Of the tests in `tests/core` those run that import no more than that. `MORE` names files
whose studies train models or ask for statistics, or whose oracle is not there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

from imports import imports

ROOT = Path(__file__).resolve().parents[2]
DOORS = ("__init__.py", "__init__.pyi", "errors.py", "py.typed")
NEEDED = (
    "numpy",
    "scipy",
    "cryptography",
    "cffi",
    "pycparser",
    "lazy-loader",
    "packaging",
    "safetensors",
    "tomli-w",
)
TOOLS = ("pytest", "iniconfig", "pluggy", "pygments", "hypothesis", "sortedcontainers")
TOOLS_OF_CORES = ("pytest-xdist", "execnet")
MORE = (
    "core/session/test_check_apart.py",
    "core/planning/test_silo_capacity.py",
    "core/study/test_imported_code.py",
    "core/study/test_node_hosts.py",
    "core/study/test_study.py",
    "core/study/test_study_ids.py",
    "core/privacy/test_corners.py",
    "core/protocol/test_announced_shares.py",
    "core/protocol/test_fuzz_corpus.py",
    "core/protocol/test_projection.py",
    "core/protocol/test_receivers.py",
    "core/ledger/test_before_a_run.py",
    "core/ledger/test_cost.py",
    "core/ledger/test_reference_law.py",
    "core/ledger/test_tampering.py",
)


def bare(folder: Path) -> Path:
    """The core and what it needs, in an empty folder; where its packages lie."""
    source, site = folder / "src/hubbub", folder / "site"
    source.mkdir(parents=True)
    site.mkdir()
    for name in DOORS:
        shutil.copy(ROOT / "src/hubbub" / name, source)
    shutil.copytree(
        ROOT / "src/hubbub/core", source / "core", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in (*NEEDED, *TOOLS, *TOOLS_OF_CORES):
        package = metadata.distribution(name)
        for top in {path.parts[0] for path in package.files or () if path.parts[0] != ".."}:
            there = Path(str(package.locate_file(top)))
            if there.exists() and not (site / top).exists():
                (site / top).symlink_to(there)
    return site


def tests_of_the_core(folder: Path, site: Path) -> Iterator[Path]:
    """Copies their tests, without those that import more than is there."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(
        ROOT / "tests/core", folder / "tests/core", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "tests/conftest.py", folder / "tests")
    packages = {path.name.partition(".")[0] for path in site.iterdir()} | set(
        sys.stdlib_module_names
    )
    for path in sorted(folder.glob("tests/**/test_*.py")):
        if path.relative_to(folder / "tests").as_posix() not in MORE and _runs(
            path, folder, packages
        ):
            yield path.relative_to(folder)


def _runs(path: Path, folder: Path, packages: set[str]) -> bool:
    """Whether all that a file imports is there, through the tests' own files, too."""
    left, seen = [path], set()
    while left:
        file = left.pop()
        seen.add(file)
        for name in _imported(file, folder):
            found = _file_of(name, folder)
            if found is None and (_file_of(name, ROOT) or name.partition(".")[0] not in packages):
                return False
            if found is not None and "src" not in found.parts and found not in seen:
                left.append(found)
    return True


@cache
def _file_of(module: str, root: Path) -> Path | None:
    """The file of a module of hubbub's, of its tests or beside them."""
    tails = (f"{module.replace('.', '/')}{end}" for end in (".py", "/__init__.py"))
    paths = (
        root / top / tail
        for tail in tails
        for top in ("src", "tests", "tests/core", "tests/site", ".")
    )
    return next((path for path in paths if path.is_file()), None)


@cache
def _imported(path: Path, folder: Path) -> set[str]:
    """Modules that a file imports, those that are taken by their names from packages, too."""
    taken = set(imports(path, path.relative_to(folder).parts[:-1]))
    inner = {f"{module}.{name}" for module, name in taken if name}
    return {module for module, _ in taken} | {name for name in inner if _file_of(name, ROOT)}


def main(arguments: list[str]) -> int:
    """Run the core's tests; what pytest returns."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        site = bare(folder)
        chosen = [path.as_posix() for path in tests_of_the_core(folder, site)]
        if arguments == ["--list"]:
            sys.stdout.write("\n".join(chosen) + "\n")
            return 0
        lines = sum(
            len(path.read_text(encoding="utf-8").splitlines())
            for path in folder.glob("src/hubbub/core/**/*.py")
        )
        sys.stdout.write(
            f"hubbub: the core alone, {lines:,} lines, by {len(chosen)} files of tests\n"
        )
        sys.stdout.flush()
        paths = os.pathsep.join(str(folder / one) for one in ("src", ".", "site"))
        command = [sys.executable, "-S", "-s", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        return subprocess.run(
            [*command, "-m", "not slow", *arguments, *chosen],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": ""},
            check=False,
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
