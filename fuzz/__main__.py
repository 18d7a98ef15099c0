"""Run one target under the fuzzer, and keep the inputs that reach something new.

    python -m fuzz TARGET [--seconds N] [--found DIR] [--keep]

The fuzzer is atheris, which drives libFuzzer with the coverage of the `hubbub` package. What it
finds lies in a folder of its own; `--keep` then puts the smallest set of small inputs that reaches
the same lines, from the same lines before, into `fuzz/corpus/TARGET`. A crash ends the run with its
trace and leaves the input as `crash-...` in the folder.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "fuzz" / "corpus"
TARGETS = (
    *("wire", "rounds", "agreement", "joint", "mixing", "collection", "offers"),
    *("study", "ledger"),
)
_LONGEST = {"study": 3000}
Arc = tuple[str, int, int]


def main() -> None:
    """Fuzz in a process of its own, which libFuzzer ends as it likes; then sum up."""
    options = _options()
    found = options.found or Path(tempfile.mkdtemp(prefix=f"fuzz-{options.target}-"))
    if options.within:
        _fuzz(options.target, options.seconds, found)
        return
    code = 0
    if options.seconds:
        again = [sys.executable, "-m", "fuzz", options.target, "--within", "--found", str(found)]
        code = subprocess.run(  # noqa: S603 (this very program)
            [*again, "--seconds", str(options.seconds)], cwd=ROOT, check=False
        ).returncode
    if options.keep and not code:
        sys.stdout.write(_keep(options.target, found) + "\n")
    sys.stdout.write(f"inputs in {found}\n")
    sys.exit(code)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=180, help="0: only --keep")
    parser.add_argument("--found", type=Path, help="folder for inputs; else a new one")
    parser.add_argument("--keep", action="store_true", help="renew fuzz/corpus/TARGET")
    parser.add_argument("--within", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _target(name: str) -> Any:
    """The target's module; what it needs of the tests lies beside them."""
    for place in (ROOT / "src", ROOT / "tests", ROOT / "tests/core", ROOT / "tests/site"):
        sys.path.insert(0, str(place))
    return importlib.import_module(f"fuzz.{name}")


def _fuzz(name: str, seconds: int, found: Path) -> None:
    """Under atheris; does not come back."""
    import atheris

    with atheris.instrument_imports(include=["hubbub"]):
        target = _target(name)
    found.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (found / f"seed-{number}").write_bytes(seed)
    limits = ["-timeout=10", "-rss_limit_mb=1024", f"-max_len={_LONGEST.get(name, 1000)}"]
    folders = [str(found), str(CORPUS / name)] if (CORPUS / name).is_dir() else [str(found)]
    arguments = [f"-max_total_time={seconds}", f"-artifact_prefix={found}/", "-reload=0"]
    if words := getattr(target, "WORDS", ()):
        dictionary = found.with_name(f"{found.name}.dict")
        dictionary.write_text("".join(f"{_quoted(word)}\n" for word in words))
        arguments.append(f"-dict={dictionary}")
    ends = ["-print_final_stats=1", "-verbosity=1"]
    atheris.Setup([sys.argv[0], *limits, *arguments, *ends, *folders], target.check)
    atheris.Fuzz()


def _quoted(word: str) -> str:
    """A word as libFuzzer's dictionaries spell it."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"'


def _keep(name: str, found: Path) -> str:
    """Renew the kept corpus from itself and what was found; what it reaches, in a sentence."""
    target, folder = _target(name), CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    files = [file for place in (found, folder) for file in place.iterdir()]
    inputs = {file.read_bytes() for file in files if not file.name.startswith(("crash", "slow"))}
    kept, reached = _smallest(target.check, [*inputs, *target.seeds()])
    for file in folder.iterdir():
        file.unlink()
    for number, data in enumerate(kept):
        (folder / f"{number:03}").write_bytes(data)
    lines = {(file, line) for file, _, line in reached}
    return (
        f"{name}: {len(kept)} of {len(inputs)} inputs kept, {sum(map(len, kept))} bytes; "
        f"{len(lines)} lines and {len(reached)} steps from line to line of hubbub"
    )


def _smallest(
    check: Callable[[bytes], None], inputs: Iterable[bytes]
) -> tuple[list[bytes], set[Arc]]:
    """Inputs, the small ones first, of which each reaches something that none before it does."""
    kept, reached = list[bytes](), set[Arc]()
    for data in sorted(inputs, key=lambda one: (len(one), one)):
        arcs = _arcs(check, data)
        if not arcs <= reached:
            kept.append(data)
            reached |= arcs
    return kept, reached


def _arcs(check: Callable[[bytes], None], data: bytes) -> set[Arc]:
    """Every step from line to line that an input causes within a function of hubbub."""
    arcs = set[Arc]()

    def into(frame: FrameType, _: str, __: object) -> Callable[..., Any] | None:
        file, last = frame.f_code.co_filename, 0
        if "/hubbub/" not in file:
            return None

        def within(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
            nonlocal last
            if event == "line":
                arcs.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return within

        return within

    sys.settrace(into)
    try:
        check(data)
    finally:
        sys.settrace(None)
    return arcs


if __name__ == "__main__":
    main()
