"""`make mutants`: each listed constant of the guarantee, made wrong, must fail a quick test.

`mutants.toml` has a row for each: the statement, what it says, the end of the file's path, the text
and what it becomes, and the test that must fail. The text stands once in the file, or the row is
out of date, which is an error too, as is a test that does not pass as long as nothing is wrong.
`ARGS="P3"` takes the rows of one statement, or of files by a part of a name.

What tests import of others is imported once: each mutant is a fork that has hubbub still to import,
from a folder of links to all files but the one that it makes wrong.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
MEMORY = Path("/dev/shm")  # noqa: S108 (a folder of its own is made in it)
HEAVY = [
    "hypothesis",
    "mpmath",
    "numpy",
    "pytest",
    "_pytest.python",
    "scipy.optimize",
    "scipy.stats",
    "torch",
    "cryptography.x509",
    "cryptography.hazmat.primitives.hpke",
    "cryptography.hazmat.primitives.kdf.scrypt",
    "cryptography.hazmat.primitives.serialization.ssh",
    "safetensors.torch",
    "sqlite3",
    "nats.aio.client",
    "rich.table",
]


class Mutant(NamedTuple):
    """One wrong constant; `killed_by` are arguments of pytest."""

    statement: str
    rule: str
    file: str
    old: str
    new: str
    killed_by: list[str]


def verdict(mutant: Mutant) -> str:
    """Why a row is not as it should be, in a process of its own; empty if its mutant dies."""
    if why := staleness(mutant):
        return why
    with own_folder() as made:
        (path,) = files_of(mutant)
        text = path.read_text(encoding="utf-8").replace(mutant.old, mutant.new)
        source = made / "src"
        beside(SOURCE, path, source)
        (source / path.relative_to(SOURCE)).write_text(text, encoding="utf-8")
        end, told = ended(mutant.killed_by, source, made)
    if end == 1:
        return ""
    return "it lives" if end == 0 else f"{' '.join(mutant.killed_by)} did not run:\n{told}"


def soundness(mutants: list[Mutant]) -> str:
    """Why a test of these rows says nothing of its mutant; empty if all pass without one."""
    with own_folder() as made:
        tests = sorted({test for one in mutants for test in one.killed_by})
        end, told = ended(tests, SOURCE, made)
    return "" if end == 0 else f"expected tests that pass without a mutant, found\n{told}"


def staleness(mutant: Mutant) -> str:
    """Why a row is out of date; empty if its text stands once in its file."""
    times = sum(path.read_text(encoding="utf-8").count(mutant.old) for path in files_of(mutant))
    return "" if times == 1 else f"its text stands {times} times in {mutant.file}, not once"


def files_of(mutant: Mutant) -> list[Path]:
    """Those that end as the row says; one, or the row is out of date."""
    return [path for path in _files() if path.as_posix().endswith(f"/{mutant.file}")]


@cache
def _files() -> list[Path]:
    return list(SOURCE.rglob("*.py"))


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder, in memory if there is any, in which all is that tests write; it goes with them."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="hubbub-mutant-", dir=memory) as made:
        os.environ["TMPDIR"] = tempfile.tempdir = made
        yield Path(made)


def beside(folder: Path, left_out: Path, made: Path) -> None:
    """A folder with links to all that another holds, but for one file and what was compiled of it.

    Folders on the way to the file are no links, so that nothing is written beside the true one.
    """
    made.mkdir()
    for entry in folder.iterdir():
        if left_out.is_relative_to(entry) and entry != left_out:
            beside(entry, left_out, made / entry.name)
        elif entry.name == "__pycache__":
            (made / entry.name).mkdir()
            for each in entry.iterdir():
                if not each.name.startswith(f"{left_out.stem}."):
                    (made / entry.name / each.name).symlink_to(each)
        elif entry != left_out:
            (made / entry.name).symlink_to(entry)


def ended(tests: list[str], source: Path, folder: Path) -> tuple[int, str]:
    """How pytest ended, 0 or 1 if tests ran; what it said.

    Args:
        tests: arguments of pytest.
        source: holds the hubbub that is tested.
        folder: of what they write.
    """
    import pytest

    os.chdir(ROOT)
    sys.path.insert(0, str(source))
    os.environ["PYTHONPATH"] = str(source)  # of processes that a test starts
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    options += ["--assert=plain", "--tb=line", f"--basetemp={folder / 'tests'}"]
    with redirect_stdout(io.StringIO()) as told, redirect_stderr(told):
        end = pytest.main([*options, *tests])
    return int(end), told.getvalue()


def listed() -> list[Mutant]:
    """All rows."""
    rows = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())["mutant"]
    return [Mutant(**row) for row in rows]


def main() -> int:
    """Run all rows, or those that are named; 1 unless all die by tests that pass without them."""
    mutants = listed()
    if words := sys.argv[1:]:
        mutants = [one for one in mutants if one.statement in words or words[0] in one.file]
    if not mutants:
        sys.exit(f"hubbub: expected a statement or a part of a file's name, found {words}")
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    forks, bad = multiprocessing.get_context("forkserver"), 0
    forks.set_forkserver_preload(HEAVY)
    with ProcessPoolExecutor(mp_context=forks, max_tasks_per_child=1) as pool:
        sound = pool.submit(soundness, mutants)  # the longest, so that it is begun first
        for mutant, why in zip(mutants, pool.map(verdict, mutants), strict=True):
            if why:
                bad += 1
                sys.stdout.write(f"hubbub: {mutant.statement}, {mutant.rule}: {why}\n")
        if why := sound.result():
            sys.stdout.write(f"hubbub: {why}\n")
    sys.stdout.write(f"hubbub: {len(mutants) - bad} of {len(mutants)} mutants die\n")
    return int(bad > 0 or bool(why))


if __name__ == "__main__":
    sys.exit(main())
