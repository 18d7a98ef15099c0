"""Where the passphrase of a party's keys comes from: a descriptor, the system, or a person."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from getpass import getpass
from pathlib import Path

from hubbub.core.disk import why_of
from hubbub.core.errors import UserError

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
    """A new passphrase; empty only where none is wanted."""
    if given := _given(options):
        return given
    if not options.passphrase:
        return ""
    first = _asked("New passphrase of this party's keys: ", options)
    if first != _asked("The same again: ", options):
        raise UserError("expected the same passphrase twice, got two; nothing was made, try again")
    return first


def _given(options: argparse.Namespace) -> str:
    """The passphrase that nobody has to be asked for; empty only if no source of one is named."""
    number = options.passphrase_fd
    if number is not None:
        try:
            with open(number, "rb") as file:  # noqa: PTH123 (a descriptor)
                content = file.read(_MOST)
        except (OSError, ValueError, TypeError) as error:  # no number of a descriptor
            raise UserError(
                f"expected a passphrase on descriptor {number}, got: "
                f"{getattr(error, 'strerror', None) or 'no such number'}; open it for this command"
            ) from None
        return _line(content, f"on descriptor {number}")
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        return ""
    try:
        content = (Path(folder) / CREDENTIAL).read_bytes()
    except FileNotFoundError:  # the directory is there for any credential
        return ""
    except OSError as error:
        raise UserError(
            f"expected systemd's credential {CREDENTIAL} to be readable, got: {why_of(error)}; see "
            "LoadCredential in the unit"
        ) from None
    return _line(content, f"in systemd's credential {CREDENTIAL}")


def _line(content: bytes, where: str) -> str:
    """The first line; who names a source means it to hold something."""
    line = content.decode(errors="replace").split("\n", 1)[0]
    if not any(letter.isprintable() and not letter.isspace() for letter in line):
        raise UserError(
            f"expected a passphrase {where}, found an empty first line; see what writes it, or "
            "leave it out for keys without one"
        )
    return line


def _asked(question: str, options: argparse.Namespace) -> str:
    if options.json or not sys.stdin.isatty():
        raise UserError(
            "expected the passphrase of the keys, found nobody to ask; name --passphrase-fd, or "
            f"give systemd's credential {CREDENTIAL}"
        )
    return _line(getpass(question).encode(), "to be typed")
