"""Builds a release: wheel, sdist, SBOM and their hashes, twice, and compares the bytes.

`make release` runs it; RELEASE_KEY names a PEM file with the key that signs the provenance, and
BUILDER who says so. What is built is the last commit, not the folder around this file. The
second build has another path, clock, time zone, umask and order of hashing than the first: whoever
builds the same commit with the pinned tools, wherever and whenever, gets the same files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from deploy import provenance

SUMS = "SHA256SUMS"
LOCKS = (
    "requirements-build.txt",
    "requirements-node.txt",
    "requirements-torch.txt",
    "requirements.txt",
)
PINNED = LOCKS[2:]  # what a silo installs; a compute node less
PINS = ("constraints.txt", *(f"deploy/{name}" for name in LOCKS))
UNNAMED = "urn:hubbub:builder:unnamed"
# What must not matter, and does where a tool writes times, modes or the order of a set.
CIRCUMSTANCES = (
    {"TZ": "UTC", "PYTHONHASHSEED": "1", "LC_ALL": "C", "umask": "022", "mtime": "1000000000"},
    {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2", "umask": "077", "mtime": "1700000000"},
)


class ReleaseError(Exception):
    """Why there is no release, in a sentence."""


def main() -> int:
    """Write the release of the last commit into dist/."""
    root = Path(__file__).resolve().parents[1]
    try:
        for name, digest in release(root, root / "dist").items():
            print(f"{digest}  dist/{name}")
    except ReleaseError as error:
        print(f"hubbub: {error}", file=sys.stderr)
        return 1
    return 0


def release(root: Path, out: Path) -> dict[str, str]:
    """Build twice, compare, and put the files into a folder that then holds nothing else.

    Args:
        root: the checkout; nothing in it may be uncommitted.
        out: the folder; whatever it holds is removed.

    Returns:
        The SHA-256 of each file.

    Raises:
        ReleaseError: something is uncommitted, a tool fails, or the builds differ.
    """
    if _said(root, "git", "status", "--porcelain"):
        raise ReleaseError("expected a checkout without changes, found some; commit or stash them")
    committed = _said(root, "git", "log", "-1", "--format=%ct")
    with tempfile.TemporaryDirectory() as scratch:
        folders = Path(scratch) / "one", Path(scratch) / "another" / "place"
        for folder, circumstances in zip(folders, CIRCUMSTANCES, strict=True):
            _unpack(root, folder / "source", int(circumstances["mtime"]))
            _build(folder, {"SOURCE_DATE_EPOCH": committed, **circumstances})
        made = compared(*(hashes(folder / "made") for folder in folders))
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(folders[0] / "made", out)
        pins = {name: _sha256(folders[0] / "source" / name) for name in PINS}
    (out / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in made.items()))
    _state(out, made, _said(root, "git", "rev-parse", "HEAD"), pins)
    return made


def _state(out: Path, made: Mapping[str, str], commit: str, pins: Mapping[str, str]) -> None:
    """Say what the release was built from, and sign it where there is a key."""
    builder = os.environ.get("BUILDER") or UNNAMED
    payload = provenance.written(
        provenance.statement(made, commit=commit, builder=builder, materials=pins)
    )
    (out / provenance.STATEMENT).write_bytes(payload)
    named = os.environ.get("RELEASE_KEY")
    if not named:
        print(f"hubbub: {provenance.STATEMENT} is not signed: RELEASE_KEY names no key")
        return
    try:
        key = provenance.release_key(Path(named))
    except (OSError, ValueError, TypeError) as error:
        raise ReleaseError(f"expected an Ed25519 key at RELEASE_KEY, got: {error}") from None
    (out / provenance.ENVELOPE).write_text(json.dumps(provenance.signed(payload, key)) + "\n")


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in a folder, by name."""
    return {path.name: _sha256(path) for path in sorted(folder.iterdir())}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compared(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """What two builds have both made.

    Raises:
        ReleaseError: a file is missing in one of them, or differs.
    """
    names = first.keys() | second.keys()
    differing = sorted(name for name in names if first.get(name) != second.get(name))
    if differing:
        raise ReleaseError(
            f"expected two builds of the same bytes, got two of {', '.join(differing)}"
        )
    return dict(first)


def _unpack(root: Path, source: Path, mtime: int) -> None:
    """Lay the last commit into a folder."""
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=root, capture_output=True, check=True)
    subprocess.run(["tar", "-x"], cwd=source, input=archive.stdout, check=True)
    for path in source.rglob("*"):
        os.utime(path, (mtime, mtime))


def _build(folder: Path, settings: Mapping[str, str]) -> None:
    """Wheel (from the sdist), sdist, SBOM and locks of a source, into `made` beside it."""
    source, made = folder / "source", folder / "made"
    _run(source, settings, "build", "--no-isolation", "--outdir", str(made))
    for name in LOCKS:
        shutil.copyfile(source / "deploy" / name, made / name)
    wheel = next(made.glob("*.whl"))
    bom = made / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
    pinned = "".join((made / name).read_text() for name in PINNED)
    _run(
        source,
        settings,
        *("cyclonedx_py", "requirements", "-", "--pyproject", "pyproject.toml"),
        *("--mc-type", "application", "--output-reproducible", "--output-file", str(bom)),
        told=pinned,
    )
    bom.write_text(with_version(bom.read_text(), wheel.name.split("-")[1]))


def with_version(bom: str, version: str) -> str:
    """An SBOM whose subject has a version: CycloneDX's tool reads none that is dynamic."""
    content = json.loads(bom)
    content["metadata"]["component"]["version"] = version
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _run(folder: Path, settings: Mapping[str, str], *module: str, told: str = "") -> None:
    """Run a module of this interpreter, under circumstances."""
    given = {key: value for key, value in settings.items() if key not in ("umask", "mtime")}
    done = subprocess.run(
        [sys.executable, "-m", *module],
        cwd=folder,
        env={**os.environ, **given},
        umask=int(settings["umask"], 8),
        input=told,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"expected {module[0]} to succeed, got:\n{done.stdout}{done.stderr}")


def _said(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"expected a git checkout in {folder}, got: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
