"""Which code this user has approved or run on this machine: the code of strangers is not.

An empty file for each name and hash, in `$XDG_STATE_HOME/hubbub/code` or
`~/.local/state/hubbub/code`: outside of every folder that somebody hands over, and believed only if
nobody else can have put it there.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from hubbub.core.disk import make_private


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
    """Take it back."""
    with suppress(OSError, RuntimeError):
        _path(name, digest).unlink(missing_ok=True)


def _is_mine(path: Path) -> bool:
    """Whether a path is this user's, and nobody else may write there; OSError if it is not."""
    status = path.lstat()
    is_plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    if os.name != "posix":
        return is_plain
    return is_plain and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _path(name: str, digest: str) -> Path:
    """The file that stands for code; RuntimeError if this user has no home."""
    key = hashlib.sha256(f"{name}\n{digest}".encode()).hexdigest()
    return user_state() / "code" / key


def user_state() -> Path:
    """What is remembered for this user on this machine; RuntimeError if there is no home."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "hubbub"
