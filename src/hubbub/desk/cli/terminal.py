"""What commands take, print and ask: arguments, one JSON object for machines, tables for people.

Everything that is printed goes through here, so that stdout holds one object where it should, and
no text that came from others moves the cursor.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hubbub.core.disk import json_value, read_bytes, why_of
from hubbub.core.errors import UncountedWarning, UserError

if TYPE_CHECKING:
    from rich.progress import Progress

    from hubbub.desk.report.sheet import Sheet

INTERRUPTED = 130  # the exit code after Ctrl-C: 128 and the number of the signal


def console(**options: Any) -> Console:
    """A console; with NO_COLOR in the environment it prints no bold letters either."""
    plain: Any = {"color_system": None} if os.environ.get("NO_COLOR") else {}
    return Console(**options, **plain)


_out, _err = console(), console(stderr=True)
_QUIET_SECONDS = 60.0  # after which progress is told, even if it is little
# Where `emit` writes while everything else that is printed goes to stderr.
_machine: ContextVar[TextIO | None] = ContextVar("_machine", default=None)


class Argument(NamedTuple):
    """One argument of a command, as argparse takes it."""

    name: str
    settings: dict[str, Any]


def argument(name: str, words: str, kind: Callable[[str], Any] = str, **settings: Any) -> Argument:
    """One argument: a word that must be typed, or an option with dashes, as in "--out FILE"."""
    name, *values = name.split()
    how: dict[str, Any] = {} if kind is str else {"type": kind}
    how = {"action": "store_true"} if kind is bool else how
    if values:  # what the help calls them
        how["metavar"] = tuple(values) if values[1:] else values[0]
    return Argument(name, {"help": words, **how, **settings})


STUDY = argument("study", "the study's TOML file", Path)
AUDIT = argument("--audit", "file of hubbub audit --out, which the evidence will hold", Path)
TRUST_WORDS = (
    "trust the code of its own that the run's study names, although this machine has not run "
    "it before"
)
TRUST_CODE = argument("--trust-code", TRUST_WORDS, bool)
DEVICE = argument(
    "--device", "auto (a GPU if there is one), cpu or cuda; default auto", default="auto"
)
LEDGERS = argument("--ledgers", "folder of the silos' ledgers", Path)


def add_command(
    commands: Any,
    name: str,
    words: str,
    function: Callable[[argparse.Namespace], int],
    *arguments: Argument | tuple[Argument, ...],
) -> argparse.ArgumentParser:
    """A command, whose own help says what the overview says of it; all of them take --json.

    Of options in a tuple at most one is typed.
    """
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, description=words)
    for own in (argument("--json", "print one JSON object and nothing else", bool), *arguments):
        if isinstance(own, Argument):
            parser.add_argument(own.name, **own.settings)
            continue
        group = parser.add_mutually_exclusive_group()
        for option in own:
            group.add_argument(option.name, **option.settings)
    parser.set_defaults(command=function)
    return parser


def add_family(commands: Any, name: str, words: str, metavar: str) -> Any:
    """Commands with a first word in common."""
    parser = commands.add_parser(name, help=words, description=words)
    return parser.add_subparsers(metavar=metavar, required=True)


@contextmanager
def for_machines() -> Iterator[None]:
    """Stdout is `emit`'s alone: a user's model may print, too, and that goes to stderr."""
    token = _machine.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _machine.reset(token)


def emit(content: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    print(json.dumps(content, allow_nan=False), file=_machine.get() or sys.stdout, flush=True)


def answer(options: argparse.Namespace, content: dict[str, Any], *lines: str) -> None:
    """The content for machines, or these lines for people."""
    if options.json:
        emit(content)
        return
    for line in lines:
        say(line)


def say(text: str) -> None:
    """A line for people."""
    _out.print(_printable(text), highlight=False, markup=False, soft_wrap=True)


@contextmanager
def writing(path: Path, what: str = "file") -> Iterator[None]:
    """The disk's errors with a file, or what else somebody has named, as ours."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"expected a {what} that can be written, got {path}: {why_of(error)}; name another"
        ) from None


def warn(text: str) -> None:
    """A line on stderr."""
    print(f"hubbub: {_printable(text)}", file=sys.stderr)


@contextmanager
def warnings_told() -> Iterator[None]:
    """Every warning is a line on stderr, without the place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UncountedWarning)
        warnings.showwarning = lambda message, *_, **__: warn(str(message))
        yield


def table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    texts: int = 1,
    is_named: bool = False,
) -> None:
    """A table: columns of text, then of numbers; short names of rows may be kept in one piece."""
    named = Text(_printable(title))
    shown = Table(title=named, title_justify="left", title_style="bold", header_style="bold")
    # A long name that stays in one piece would leave the other columns a letter or two.
    is_short = is_named and all(2 * len(row[0]) <= _out.width for row in rows)
    for index, name in enumerate(header):
        shown.add_column(
            name,
            justify="left" if index < texts else "right",
            overflow="fold",
            no_wrap=is_short and index == 0,
        )
    for row in rows:
        shown.add_row(*(Text(_printable(cell)) for cell in row))
    _out.print(shown)


def _printable(text: str) -> str:
    """A text that may come from anybody: nothing in it moves the cursor or breaks a line."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def read_answers(folder: Path) -> dict[str, Any]:
    """The answers in the folder of a run as plain values, by name; none if it asked nothing."""
    from hubbub.estimation.queries.statistics_query import ANSWERS  # which takes long to import

    path = folder / ANSWERS
    return dict(json_value(read_bytes(path))["statistics"]) if path.is_file() else {}


def show_answers(statistics: Mapping[str, Mapping[str, Any]]) -> None:
    """All answers, by name as plain values."""
    from hubbub.desk.report.answers import sheet_of

    for name, answer in statistics.items():
        show(sheet_of(name, answer))


def show(sheet: Sheet) -> None:
    """The tables of a sheet, and its sentences and notes."""
    before = f"{sheet.name}: " if sheet.name else ""
    for part in sheet.tables:
        table(f"{before}{part.caption}", part.head, part.rows)
    for words in (*sheet.sentences, *sheet.notes):
        say(f"{before}{words}")


class Lines:
    """Progress where there is no terminal: a line for every tenth, and for every minute.

    Args:
        title: of what goes on; where it begins again, models are counted.
        total: how much there is to do.
        tell: what to do with a line.
        clock: seconds since some moment.
        unit: what is counted.
    """

    def __init__(
        self,
        title: str,
        total: int,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        unit: str = "step",
    ) -> None:
        self._title, self._total, self._tell, self._clock = title, max(total, 1), tell, clock
        self._unit = unit
        self._pass, self._done = 0, total
        self._first, self._began = 0, clock()  # how much was done when it was first heard of, when
        self._tenths, self._last = 0, clock()  # of the newest line

    def reach(self, done: int, note: str) -> None:
        """So many done in all: tell, if it is time to."""
        now, tenths = self._clock(), 10 * done // self._total
        if done <= self._done:
            self._pass, self._first, self._began = self._pass + 1, done, now
            self._tenths, self._last = 10 * (done - 1) // self._total, now
        self._done = done
        if tenths > self._tenths or now - self._last >= _QUIET_SECONDS:
            self._tenths, self._last = tenths, now
            again = f", model {self._pass}" if self._pass > 1 else ""
            said = [f"{self._title}{again}: {self._unit} {done} of {self._total}", note]
            # How long it will take yet, as far as that is known.
            left, since = self._total - done, done - self._first
            if left and since:
                seconds = (now - self._began) / since * left
                time_left = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
                said.append(f"about {time_left} left")
            self._tell(", ".join(filter(None, said)))


class Bar:
    """A progress bar on a terminal; elsewhere lines if there are any, and else silent."""

    def __init__(self, progress: Progress, task: Any, lines: Lines | None = None) -> None:
        self._progress, self._task, self._lines, self._done = progress, task, lines, 0
        self.shown = not progress.disable  # whether there is a terminal

    def advance(self, note: str = "") -> None:
        """One more done."""
        self.reach(self._done + 1, note)

    def note(self, note: str) -> None:
        """What takes long just now."""
        self._progress.update(self._task, note=note)

    def reach(self, done: int, note: str = "") -> None:
        """So many done in all."""
        self._done = done
        self._progress.update(self._task, completed=done, note=note)
        if self._lines is not None:
            self._lines.reach(done, note)


@contextmanager
def bar(title: str, total: int, *, quiet: bool, lines: str = "") -> Iterator[Bar]:
    """A progress bar with a title, a count, a note and the time left; on stderr.

    Where there is no terminal, lines, if somebody says what they count.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    shown = not quiet and _err.is_terminal
    with Progress(*columns, console=_err, disable=not shown, transient=True) as progress:
        told = None
        if lines and not quiet and not shown:
            told = Lines(title, total, tell, unit=lines)
        yield Bar(progress, progress.add_task(title, total=total, note=""), told)


def tell(text: str) -> None:
    """A line of progress on stderr, seen at once."""
    print(_printable(text), file=sys.stderr, flush=True)


def moment(seconds: float | None) -> str:
    """A time as people and programs read it; nothing where it is not known."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def finite(epsilon: float) -> float | None:
    """An epsilon as JSON knows it: None past all bounds."""
    return epsilon if epsilon < float("inf") else None


# Where the passphrase of a party's keys comes from: a descriptor, the system, or a person.

CREDENTIAL = "hubbub-passphrase"  # systemd's LoadCredential
_MOST = 4096


PASSPHRASE = argument(
    "--passphrase-fd N",
    "descriptor to read the keys' passphrase from; default: systemd's credential "
    f"{CREDENTIAL}, or ask",
    int,
)


def unlock(options: argparse.Namespace) -> Callable[[], str]:
    """What gives the passphrase, where it is needed."""
    return lambda: (
        _given_passphrase(options)
        or _asked_passphrase("Passphrase of this party's keys: ", options)
    )


def chosen_passphrase(options: argparse.Namespace) -> str:
    """A new passphrase; empty only where none is wanted."""
    if given := _given_passphrase(options):
        return given
    if not options.passphrase:
        return ""
    first = _asked_passphrase("New passphrase of this party's keys: ", options)
    if first != _asked_passphrase("The same again: ", options):
        raise UserError(
            "expected the same passphrase twice, got two different ones; no keys were made, "
            "try again"
        )
    return first


def _given_passphrase(options: argparse.Namespace) -> str:
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
            f"expected a passphrase {where}, found an empty first line; check the program "
            "that writes it, or leave it out for keys without a passphrase"
        )
    return line


def _asked_passphrase(question: str, options: argparse.Namespace) -> str:
    if options.json or not sys.stdin.isatty():
        raise UserError(
            "expected the passphrase of the keys, found no terminal to ask on; give "
            f"--passphrase-fd, or systemd's credential {CREDENTIAL}"
        )
    typed = ""
    with suppress(EOFError):  # who ends the input has typed none
        typed = getpass(question)
    return _line(typed.encode(), "to be typed")
