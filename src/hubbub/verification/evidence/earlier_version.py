"""What to do with a run that an earlier hubbub has made.

Evidence is verified by the version that it names. This one may call wrong what the other wrote in
another form; it says so beside what it finds, and takes nothing back for it: whoever alters a run
can name any version.
"""

from __future__ import annotations

from pathlib import Path

from hubbub import VERSION
from hubbub.errors import HubbubError
from hubbub.verification.evidence.collecting import FILE
from hubbub.verification.evidence.evidence_file import load


def former_version(path: Path) -> str:
    """A sentence, if a run's evidence names an earlier minor version of hubbub; else nothing.

    Args:
        path: the folder of a run, or its evidence.
    """
    try:
        content = load(path / FILE if path.is_dir() else path)
    except HubbubError:
        return ""
    versions = content.get("versions")
    named = versions.get("hubbub") if isinstance(versions, dict) else None
    if not isinstance(named, str) or not _is_earlier(named):
        return ""
    return (
        f"its evidence says that hubbub {named} has made it: verify it by that version before you "
        f"believe what {VERSION} calls wrong (docs/project/releases.md)"
    )


def _is_earlier(version: str) -> bool:
    try:
        return _minor(version) < _minor(VERSION)
    except ValueError:
        return False


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
