"""`make mutants`: each listed constant of the guarantee, made wrong, must fail a quick test.

`mutants.toml` has a row for each: the statement, what it says, the end of the file's path, the text
and what it becomes, and the test that must fail. The text stands once in the file, or the row is
out of date, which is an error too. `ARGS="P3"` takes the rows of one statement, or of files by a
part of a name.

What tests import of others is imported once: each mutant is a fork that has hubbub still to import.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import sys
import tempfile
import tomllib
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ["hypothesis", "mpmath", "numpy", "pytest", "scipy.optimize", "scipy.stats", "torch"]


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
    with tempfile.TemporaryDirectory() as source:
        # Links, so that 13 MB are not copied; the mutant's file is another, never a link's end.
        shutil.copytree(ROOT / "src", source, dirs_exist_ok=True, copy_function=os.symlink)
        if why := staleness(mutant, source):
            return why
        for path in Path(source).rglob(mutant.file):
            text = path.read_text()
            path.unlink()
            path.write_text(text.replace(mutant.old, mutant.new))
        sys.path.insert(0, source)
        os.environ["PYTHONPATH"] = source  # of processes that a test starts
        return survival(mutant.killed_by)


def staleness(mutant: Mutant, source: str | Path = ROOT / "src") -> str:
    """Why a row is out of date; empty if its text stands once in its file."""
    times = sum(path.read_text().count(mutant.old) for path in Path(source).rglob(mutant.file))
    return "" if times == 1 else f"its text stands {times} times in {mutant.file}, not once"


def listed() -> list[Mutant]:
    """All rows."""
    rows = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())["mutant"]
    return [Mutant(**row) for row in rows]


def survival(tests: list[str]) -> str:
    """Why the hubbub that is found first is not dead after these tests; empty if one fails."""
    import pytest

    os.chdir(ROOT)
    options = ["-n", "0", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    options += ["--assert=plain"]  # nobody reads why a test fails
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        end = pytest.main([*options, *tests])
    if end in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return "it lives" if end is pytest.ExitCode.OK else ""
    return f"no quick test is called so: {' '.join(tests)}"


def main() -> int:
    """Run all rows, or those that are named; 1 if a mutant lives or a row is out of date."""
    mutants = listed()
    if words := sys.argv[1:]:
        mutants = [one for one in mutants if one.statement in words or words[0] in one.file]
    os.environ["OMP_NUM_THREADS"] = "1"
    forks, bad = multiprocessing.get_context("forkserver"), 0
    forks.set_forkserver_preload(HEAVY)
    with ProcessPoolExecutor(mp_context=forks, max_tasks_per_child=1) as pool:
        for mutant, why in zip(mutants, pool.map(verdict, mutants), strict=True):
            if why:
                bad += 1
                sys.stdout.write(f"hubbub: {mutant.statement}, {mutant.rule}: {why}\n")
    sys.stdout.write(f"hubbub: {len(mutants) - bad} of {len(mutants)} mutants die\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
