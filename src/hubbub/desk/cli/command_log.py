"""Who typed which command at a party: two lines each in `commands.jsonl` of the party's folder.

The first says who (the user, whoever sudo says it was, and the login that the kernel remembers of
the process whatever it became since), what, about which study, and when; the second how it ended.
`hubbub ledger export --format csv` puts them beside a ledger's rows. The same lines go to
the system's log where there is one, under `authpriv`, where the party's own user cannot alter them.
A password in an address that was typed goes into neither, however it was spelt: of a word with an
@, what follows the last one is kept, and of an address that is none, nothing. What is never typed
is in no line: a passphrase comes by a descriptor.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import re
import syslog
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubbub import __version__
from hubbub.core.disk import PRIVATE, append_line
from hubbub.core.errors import HubbubError

COMMANDS = "commands.jsonl"
_KEYS = "keys.toml"  # of a party's folder; the network's room need not be read to know it
_PLACES = ("home", "ledger", "out")  # options that name such a folder, or a file or folder in it
_NOBODY = 2**32 - 1  # the login of a process that nobody's login started
_SYSTEM = Path("/dev/log")
# All before the last @, which a password may hold, a list repeat, and a URL spell as %40.
_BEFORE_HOST = re.compile(r"\A.*(?:[@\uff20\ufe6b]|%40)", re.DOTALL)
_ADDRESS = re.compile(r"(?:--[\w-]+=)?(?:\w++://[\w.%-]*+(?:\[[\w:.%]*\])?(?::\d*)?/*,?\s*)+")


@dataclass(kw_only=True)
class CommandLog:
    """What is noted of one command.

    Args:
        typed: the words after "hubbub".
    """

    typed: Sequence[str]
    _options: argparse.Namespace | None = field(default=None, repr=False)
    _study: dict[str, str] | None = field(default=None, repr=False)

    def begins(self, options: argparse.Namespace) -> None:
        """Note who has typed what, unless it only looks how a party is."""
        if self.typed[:1] != ["status"] and not getattr(options, "check", False):
            self._options = options
            self._study = _study(options) if _home(options) else None
            self._note()

    def ends(self, code: int) -> None:
        """Note the exit code."""
        self._note(exit_code=code)

    def _note(self, **values: int) -> None:
        """A line; a full disk costs it, and no command."""
        home = _home(self._options)
        if home is None:
            return
        line: dict[str, Any] = {"time": time.time(), "process": os.getpid(), "actor": actor()}
        line["command"] = [_shown(word) for word in self.typed]
        if self._study is not None:
            line["study"] = self._study
        text = json.dumps({**line, "version": __version__, **values})
        with suppress(OSError):
            append_line(home / COMMANDS, text, mode=PRIVATE)
        if _SYSTEM.exists():
            syslog.openlog("hubbub", facility=syslog.LOG_AUTHPRIV)
            syslog.syslog(f"{home.resolve()}: {text}")


def _shown(word: str) -> str:
    """A word that was typed, without what may be a password."""
    shown = _BEFORE_HOST.sub("***@", word)
    return "***" if "//" in shown and ":" in shown and not _ADDRESS.fullmatch(shown) else shown


def actor() -> dict[str, str]:
    """Who runs this process, as the system knows it."""
    actors = {"user": _name(os.getuid())}
    if by := os.environ.get("SUDO_USER"):
        actors["sudo_user"] = by
    with suppress(OSError, ValueError):
        login = int(Path("/proc/self/loginuid").read_text(encoding="ascii"))
        if login != _NOBODY:
            actors["login"] = _name(login)
    return actors


def _name(user: int) -> str:
    """A user's name; the number of one without a name, as in a container."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _study(options: argparse.Namespace) -> dict[str, str] | None:
    """The study that a command is about; None if it names none, or none can be read."""
    file = getattr(options, "study", None)
    if file is None:
        return None
    from hubbub.core.study.study import Study

    with suppress(HubbubError):
        study = Study.load(file)
        return {"id": study.id.hex(), "name": study.name}
    return None


def _home(options: argparse.Namespace | None) -> Path | None:
    """The party's folder that a command is about; None if it is about none."""
    for option in _PLACES:
        place = getattr(options, option, None)
        if isinstance(place, Path):
            folder = place if option == "home" else place.parent
            if (folder / _KEYS).is_file():
                return folder
    return None
