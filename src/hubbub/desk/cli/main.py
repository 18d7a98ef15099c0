"""`hubbub`: the parser of all commands, and how errors become exit codes.

Exit codes: 0, done; 1, the answer is no (a budget refuses, a check fails); 2, bad input; 130,
interrupted by Ctrl-C. Errors are one sentence on stderr.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pwd
import re
import shlex
import sys
import syslog
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

from hubbub import __version__
from hubbub.core.disk import PRIVATE, append_line, why_of
from hubbub.core.errors import HubbubError, UserError, with_extra
from hubbub.desk.cli.completion_command import COMPLETION
from hubbub.desk.cli.terminal import INTERRUPTED, for_machines, warn

# How each command is typed, once: the line with which its help ends.

_KEYS = "--delta 1e-5 --steps 60 --sample-rate 0.2"
EXAMPLES = {
    "hubbub": "hubbub init north.csv south.csv west.csv --target died",
    "hubbub init": "hubbub init north.csv south.csv west.csv --target died",
    "hubbub check": "hubbub check study.toml --silo north --data /srv/records",
    "hubbub schema": "hubbub schema --out study.schema.json",
    "hubbub demo": "hubbub demo --out runs/demo",
    "hubbub plan": "hubbub plan study.toml",
    "hubbub run": "hubbub run study.toml --out runs/first",
    "hubbub compare": "hubbub compare study.toml --repeats 5",
    "hubbub rehearse": "hubbub rehearse study.toml --repeats 5",
    "hubbub predict": "hubbub predict runs/first new.csv --out scores.csv",
    "hubbub export": "hubbub export runs/first --onnx model.onnx",
    "hubbub sample": "hubbub sample runs/first --records 1000 --out records.csv",
    "hubbub keygen": "hubbub keygen north --home hubbub-home",
    "hubbub roster": "hubbub roster aggregator.id north.id south.id --out roster.toml",
    "hubbub relay": "hubbub relay roster.toml --out relay",
    "hubbub leaf": "hubbub leaf roster.toml --relay tls://leaf.internal "
    "--hub tls://hub.example.org:7422 --out hubbub-leaf",
    "hubbub approve": "hubbub approve study.toml --roster roster.toml",
    "hubbub serve": "hubbub serve study.toml --home hubbub-home",
    "hubbub join": "hubbub join --check --data /srv/records",
    "hubbub status": "hubbub status hubbub-home",
    "hubbub verify": "hubbub verify runs/first",
    "hubbub report": "hubbub report runs/first",
    "hubbub table": "hubbub table runs/first --format html,docx --figures pdf",
    "hubbub dossier": "hubbub dossier runs/first --fill written.toml",
    "hubbub audit": "hubbub audit study.toml --runs 5 --out audit.json",
    "hubbub attest": "hubbub attest measure",
    "hubbub attest quote": "hubbub attest quote --platform snp --report-data HEX --out report.bin",
    "hubbub attest verify": "hubbub attest verify report.bin --policy policy.toml --collateral "
    "chain.pem",
    "hubbub attest measure": "hubbub attest measure --platform tdx",
    "hubbub epsilon": f"hubbub epsilon --noise-multiplier 4 {_KEYS}",
    "hubbub delta": "hubbub delta --noise-multiplier 4 --epsilon 1 --steps 60 --sample-rate 0.2",
    "hubbub noise": f"hubbub noise --epsilon 1 {_KEYS}",
    "hubbub ledger": "hubbub ledger show ledgers/north.sqlite",
    "hubbub ledger show": "hubbub ledger show ledgers/north.sqlite",
    "hubbub ledger verify": "hubbub ledger verify ledgers/north.sqlite",
    "hubbub ledger export": "hubbub ledger export ledgers/north.sqlite",
    "hubbub ledger head": "hubbub ledger head ledgers/north.sqlite --json",
    "hubbub ledger missing": "hubbub ledger missing ledgers/south.sqlite south runs/1f2e",
    "hubbub ledger witness": "hubbub ledger witness statement.json --key south.key",
    "hubbub budget": "hubbub budget set ledgers/north.sqlite --epsilon 3 --delta 1e-5",
    "hubbub budget set": "hubbub budget set ledgers/north.sqlite --epsilon 3 --delta 1e-5 --new",
    "hubbub completion": "hubbub completion bash",
    "hubbub bench": "hubbub bench --json",
}


# Who typed which command at a party: two lines each in `commands.jsonl` of the party's folder.
#
# The first says who (the user, whoever sudo says it was, and the login that the kernel remembers of
# the process whatever it became since), what, about which study, and when; the second how it ended.
# `hubbub ledger export --format csv` puts them beside a ledger's rows. The same lines go to
# the system's log where there is one, under `authpriv`, where the party's own user cannot alter
# them.
# A password in an address that was typed goes into neither, however it was spelt: of a word with an
# @, what follows the last one is kept, and of an address that is none, nothing. What is never typed
# is in no line: a passphrase comes by a descriptor.

COMMANDS = "commands.jsonl"
_PARTY_KEYS = "keys.toml"  # of a party's folder; the network's room need not be read to know it
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
    actors = {"user": _user_name(os.getuid())}
    if by := os.environ.get("SUDO_USER"):
        actors["sudo_user"] = by
    with suppress(OSError, ValueError):
        login = int(Path("/proc/self/loginuid").read_text(encoding="ascii"))
        if login != _NOBODY:
            actors["login"] = _user_name(login)
    return actors


def _user_name(user: int) -> str:
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
            if (folder / _PARTY_KEYS).is_file():
                return folder
    return None


# What the overview calls groups of commands, and which file of this room has which, in its order.
# Only the file of the command that was typed is read: a question to the accountant need not wait
# for the network.
_GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "write a study": {
        "drafting_commands": ("init",),
        "check_command": ("check",),
        "schema_command": ("schema",),
        "demo_command": ("demo",),
    },
    "decide beforehand": {
        "plan_command": ("plan",),
        "comparison_commands": ("compare", "rehearse"),
        "accounting_commands": ("epsilon", "delta", "noise"),
    },
    "run it on this machine, and use what it gives": {
        "training_commands": ("run",),
        "model_commands": ("predict", "export"),
        "synthetic_commands": ("sample",),
    },
    "run it between sites": {
        "consortium_commands": ("keygen", "roster", "relay", "leaf", "approve"),
        "network_commands": ("serve", "join", "status"),
        "attest_commands": ("attest",),
    },
    "check a run, and tell others": {
        "verification_commands": ("verify", "report", "audit"),
        "table_command": ("table",),
        "dossier_command": ("dossier",),
    },
    "count what was spent": {"ledger_commands": ("ledger", "budget")},
    "this installation": {
        "bench_command": ("bench",),
        "completion_command": ("completion",),
    },
}
_FAMILIES = {name: own for group in _GROUPS.values() for name, own in group.items()}

_CLOSE = 0.75  # how like an option a word must be before it is offered


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    _open_what_is_closed()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal of few letters still shows a table
    note = CommandLog(typed=list(sys.argv[1:] if arguments is None else arguments))
    code = _done(note)
    note.ends(code)
    return code


def _done(note: CommandLog) -> int:
    """Run the command that was typed; errors are sentences."""
    try:
        options = _parser(note.typed).parse_args(note.typed)
        note.begins(options)
        with for_machines() if options.json else nullcontext():
            code = int(options.command(options))
        sys.stdout.flush()  # here, where a reader who has hung up can still be told apart
        return code
    except UserError as error:
        warn(str(error))
        return 2
    except HubbubError as error:
        warn(str(error))
        return 1
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        warn(f"expected {error.name} to be installed for this command; {with_extra('learn')}")
        return 2
    except KeyboardInterrupt:
        warn("interrupted; what the ledger holds has been charged")
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return 1
    except OSError as error:
        _forget_stdout()
        said = str(error) or why_of(error)
        warn(f"expected to read and write here, got: {said}; check the disk and the permissions")
        return 2


def _open_what_is_closed() -> None:
    """What is said goes nowhere where a shell has closed stdout or stderr: `>&-`, `2>&-`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def _forget_stdout() -> None:
    """Let the interpreter's last flush go nowhere instead of failing aloud."""
    with suppress(OSError):  # a stdout that is no file has nothing to forget
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """Refuses like every other part of hubbub: in one sentence; its help ends with an example."""

    def format_help(self) -> str:
        """The help, and a line that can be typed, which is not broken."""
        example = EXAMPLES.get(self.prog)
        return super().format_help() + (f"\nexample: {example}\n" if example else "")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse here what is not known, with the help of the command that does not know it."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {shlex.join(rest)}{self._near(rest[0])}")
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is none of the choices, by the one that somebody may have meant."""
        choices = [str(choice) for choice in action.choices or ()]
        close = get_close_matches(str(value), choices, n=1, cutoff=_CLOSE)
        if close and str(value) not in choices:
            raise argparse.ArgumentError(action, f"got {value!r}; did you mean {close[0]}?")
        super()._check_value(action, value)

    def _near(self, word: str) -> str:
        """The option that somebody may have meant."""
        bare = word.lstrip("-").partition("=")[0]
        options = [
            option_string for action in self._actions for option_string in action.option_strings
        ]
        close = [option for option in options if len(bare) > 2 and bare in option]
        close += get_close_matches(word, options, n=1, cutoff=_CLOSE)
        return f" (did you mean {close[0]}?)" if close and word.startswith("-") else ""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")


def _families(typed: Sequence[str]) -> Sequence[str]:
    """The file of the command that was typed; all where it is none, or is about all of them."""
    word = typed[0] if typed else ""
    named = [name for name, own in _FAMILIES.items() if word in own and word != COMPLETION]
    return named or list(_FAMILIES)


def _parser(typed: Sequence[str] = ()) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hubbub",
        usage="hubbub COMMAND ...",
        description="Train one model over many silos, with differential privacy that nobody has "
        "to be trusted for.",
    )
    parser.add_argument("--version", action="version", version=f"hubbub {__version__}")
    # The commands stand in groups of their own, which argparse has for arguments alone.
    commands = parser.add_subparsers(
        prog="hubbub", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    for family in _families(typed):
        importlib.import_module(f"hubbub.desk.cli.{family}").add_commands(commands)
    told = {one.dest: one for one in commands._choices_actions}  # noqa: SLF001 (no other way)
    for title, group in _GROUPS.items():
        own = [told[name] for names in group.values() for name in names if name in told]
        parser.add_argument_group(title)._group_actions.extend(own)  # noqa: SLF001 (no other way)
    return parser


if __name__ == "__main__":
    sys.exit(main())
