"""`make mutants`: each listed constant of the guarantee, made wrong, must fail a quick test.

`mutants.toml` has a row for each: the statement, what it says, the file, the text and what it
becomes, and the tests that must fail. The text stands once in the file, or the row is out of date,
which is an error too. `ARGS="P3"` takes the rows of one statement, or of files by a part of a name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """One wrong constant; `killed_by` are arguments of pytest."""

    statement: str
    rule: str
    file: str
    old: str
    new: str
    killed_by: list[str]


def survival(source: Path, tests: list[str]) -> str:
    """Why a mutant in a folder is not dead after these tests; empty if one of them fails."""
    if not tests:
        return "no quick test is known that kills it"
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-m", "not slow", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (0, 1):
        return "" if done.returncode else "it lives"
    return f"no quick test is called so: {' '.join(tests)}"


def verdict(mutant: Mutant, source: Path) -> str:
    """Why a row is not as it should be; empty if its mutant dies."""
    path = source / "hubbub" / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return f"its text stands {text.count(mutant.old)} times in {mutant.file}, not once"
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        return survival(source, mutant.killed_by)
    finally:
        path.write_text(text)


def main() -> int:
    """Run all rows, or those that are named; 1 if a mutant lives or a row is out of date."""
    rows = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())["mutant"]
    mutants = [Mutant(**row) for row in rows]
    if words := sys.argv[1:]:
        mutants = [one for one in mutants if one.statement in words or words[0] in one.file]
    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        places: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            shutil.copytree(ROOT / "src", Path(folder) / str(number))
            places.put(Path(folder) / str(number))

        def judged(mutant: Mutant) -> str:
            place = places.get()
            try:
                return verdict(mutant, place)
            finally:
                places.put(place)

        bad = 0
        for mutant, why in zip(mutants, pool.map(judged, mutants), strict=True):
            if why:
                bad += 1
                sys.stdout.write(f"hubbub: {mutant.statement}, {mutant.rule}: {why}\n")
    sys.stdout.write(f"hubbub: {len(mutants) - bad} of {len(mutants)} mutants die\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
