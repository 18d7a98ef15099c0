"""Where the passphrase of a party's keys comes from: a descriptor, the system, or a person."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from getpass import getpass
from pathlib import Path

from hubbub.errors import UserError

CREDENTIAL = "hubbub-passphrase"  # systemd's LoadCredential
_MOST = 4096


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option with which a passphrase is handed over."""
    parser.add_argument(
        "--passphrase-fd",
        type=int,
        metavar="N",
        help="descriptor to read the keys' passphrase from; default: systemd's credential "
        f"{CREDENTIAL}, or ask",
    )


def unlock(options: argparse.Namespace) -> Callable[[], str]:
    """What gives the passphrase, where it is needed."""
    return lambda: _given(options) or _asked("Passphrase of this party's keys: ", options)


def chosen(options: argparse.Namespace) -> str:
    """A new passphrase; empty if none is wanted."""
    if given := _given(options):
        return given
    if not options.passphrase:
        return ""
    first = _asked("New passphrase of this party's keys: ", options)
    if first != _asked("The same again: ", options):
        raise UserError("expected the same passphrase twice, got two; nothing was made, try again")
    return first


def _given(options: argparse.Namespace) -> str:
    """The passphrase that nobody has to be asked for."""
    if options.passphrase_fd is not None:
        try:
            with open(options.passphrase_fd, "rb") as file:  # noqa: PTH123 (a descriptor)
                return _line(file.read(_MOST))
        except (OSError, ValueError, TypeError) as error:  # no number of a descriptor
            raise UserError(
                f"expected a passphrase on descriptor {options.passphrase_fd}, got: "
                f"{getattr(error, 'strerror', None) or 'no such number'}; open it for this command"
            ) from None
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(folder or ".") / CREDENTIAL
    return _line(path.read_bytes()) if folder and path.is_file() else ""


def _line(content: bytes) -> str:
    return content.decode(errors="replace").split("\n", 1)[0]


def _asked(question: str, options: argparse.Namespace) -> str:
    if options.json or not sys.stdin.isatty():
        raise UserError(
            "expected the passphrase of the keys, found nobody to ask; name --passphrase-fd, or "
            f"give systemd's credential {CREDENTIAL}"
        )
    return getpass(question)
