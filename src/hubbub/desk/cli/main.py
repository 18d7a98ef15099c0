"""`hubbub`: the parser of all commands, how errors become exit codes, and who typed what.

Exit codes: 0, done; 1, the answer is no (a budget refuses, a run is wrong); 2, bad input; 130,
interrupted by Ctrl-C. Errors are one sentence on stderr.
"""

from __future__ import annotations

import argparse
import atexit
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
from hubbub.desk.cli.terminal import INTERRUPTED, add_command, argument, emit, for_machines, warn

# What the overview calls groups of commands, and which file of this room has each, in its order.
# Only the file of the command that was typed is read: a question to the accountant need not wait
# for the network.
_GROUPS: dict[str, dict[str, str]] = {
    "write a study": {
        "init": "drafting_commands",
        "check": "drafting_commands",
        "schema": "schema_command",
        "demo": "comparison_commands",
    },
    "decide beforehand": {
        "plan": "study_commands",
        "compare": "comparison_commands",
        "rehearse": "comparison_commands",
        "epsilon": "accounting_commands",
        "delta": "accounting_commands",
        "noise": "accounting_commands",
    },
    "run it on this machine, and use the results": {
        "run": "run_commands",
        "predict": "model_commands",
        "export": "model_commands",
        "sample": "synthetic_commands",
    },
    "run it between sites": {
        **dict.fromkeys(("keygen", "roster", "relay", "leaf", "approve"), "consortium_commands"),
        **dict.fromkeys(("propose", "inbox"), "inbox_commands"),
        **dict.fromkeys(("serve", "join", "status"), "network_commands"),
        "attest": "attest_commands",
    },
    "check a run, and report it": {
        "verify": "verification_commands",
        "report": "verification_commands",
        "audit": "audit_command",
        "table": "table_command",
        "dossier": "dossier_command",
    },
    "count what was spent": {"ledger": "ledger_commands", "budget": "ledger_commands"},
    "this installation": {"bench": "bench_command", "completion": ""},
}
_FILES = {command: file for group in _GROUPS.values() for command, file in group.items()}

# How each command is typed, once: the line with which its help ends.
_MECHANISM = "--delta 1e-5 --steps 60 --sample-rate 0.2"
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
    "hubbub propose": "hubbub propose study.toml --home hubbub-home",
    "hubbub inbox": "hubbub inbox 4d67e55a --approve",
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
    "hubbub epsilon": f"hubbub epsilon --noise-multiplier 4 {_MECHANISM}",
    "hubbub delta": "hubbub delta --noise-multiplier 4 --epsilon 1 --steps 60 --sample-rate 0.2",
    "hubbub noise": f"hubbub noise --epsilon 1 {_MECHANISM}",
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

_CLOSE = 0.75  # how like an option a word must be before it is offered


def program() -> None:
    """Run the command that was typed, and leave without freeing each object of the process.

    That takes a second of a processor where torch was read: a stopped service would stand there,
    on a machine with much else to do for half a minute. mypy leaves in the same way.
    """
    codes: list[int] = []

    @atexit.register  # before all that libraries register, so it is run after them
    def leave() -> None:
        if codes:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):  # nobody reads it any more
                    stream.flush()
            os._exit(codes[0])

    codes.append(main())
    sys.exit(codes[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    # What is said goes nowhere where a shell has closed stdout or stderr: `>&-`, `2>&-`.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal of few letters still shows a table
    note = CommandLog(typed=list(sys.argv[1:] if arguments is None else arguments))
    code = _run(note)
    note.ends(code)
    return code


def _run(note: CommandLog) -> int:
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
        if error.name != "torch":
            raise
        warn(f"expected torch to be installed for this command; {with_extra('learn')}")
        return 2
    except KeyboardInterrupt:
        charges = note.typed[:1] in (["compare"], ["demo"])  # `run` and `serve` say more themselves
        warn(f"interrupted{'; charges already in the ledgers stay' if charges else ''}")
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return 1
    except OSError as error:
        _forget_stdout()
        where = f"{error.filename}: " if error.filename else ""
        warn(
            f"expected to be able to read and write here, got: {where}{why_of(error)}; check the "
            "disk and the permissions"
        )
        return 2


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
        options, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {shlex.join(rest)}{self._near(rest[0])}")
        return options, rest

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
        options = [option for action in self._actions for option in action.option_strings]
        close = [option for option in options if len(bare) > 2 and bare in option]
        close += get_close_matches(word, options, n=1, cutoff=_CLOSE)
        return f" (did you mean {close[0]}?)" if close and word.startswith("-") else ""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")


def _parser(typed: Sequence[str] = ()) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hubbub",
        usage="hubbub COMMAND ...",
        description="Train one model, or compute statistics, across many sites (silos) with "
        "differential privacy, without a party that everybody has to trust.",
    )
    parser.add_argument("--version", action="version", version=f"hubbub {__version__}")
    # The commands stand in groups of their own, which argparse has for arguments alone.
    commands = parser.add_subparsers(
        prog="hubbub", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    # All files where the word is no command, or is about all of them.
    file = _FILES.get(typed[0] if typed else "")
    for name in [file] if file else dict.fromkeys(filter(None, _FILES.values())):
        importlib.import_module(f"hubbub.desk.cli.{name}").add_commands(commands)
    _add_completion(commands)
    actions = {action.dest: action for action in commands._choices_actions}  # noqa: SLF001 (no other way)
    for name in filter(actions.get, _FILES):  # in the order of the overview
        commands.choices[name] = commands.choices.pop(name)
    for title, group in _GROUPS.items():
        shown = [actions[name] for name in group if name in actions]
        parser.add_argument_group(title)._group_actions.extend(shown)  # noqa: SLF001 (no other way)
    return parser


# Who typed which command at a party: two lines each in `commands.jsonl` of the party's folder.
#
# The first says who (the user, whoever sudo says it was, and the login that the kernel remembers of
# the process whatever it became since), what, about which study, and when; the second how it ended.
# `hubbub ledger export --format csv` puts them beside a ledger's rows. The same lines go to the
# system's log where there is one, under `authpriv`, where the party's own user cannot alter them.
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
    """What is noted of one command."""

    typed: Sequence[str]  # the words after "hubbub"
    _options: argparse.Namespace | None = field(default=None, repr=False)
    _study: dict[str, str] | None = field(default=None, repr=False)

    def begins(self, options: argparse.Namespace) -> None:
        """Note who has typed what, unless it only looks how a party is."""
        if self.typed[:1] != ["status"] and not getattr(options, "check", False):
            self._options = options
            self._study = _study(options) if _home(options) else None
            self._note()

    def ends(self, code: int) -> None:
        """Note the exit code, and the study if only the command itself knows it."""
        self._study = self._study or getattr(self._options, "about", None)
        self._note(exit_code=code)

    def _note(self, **values: int) -> None:
        """A line; a full disk costs it, and no command."""
        home = _home(self._options)
        if home is None:
            return
        # Whoever reads the log pairs both lines of a command by process and words.
        line: dict[str, Any] = {"time": time.time(), "process": os.getpid(), "actor": actor()}
        line["command"] = [_shown(word) for word in self.typed]
        if self._study is not None:
            line["study"] = self._study
        text = json.dumps({**line, "version": __version__, **values})
        with suppress(OSError):
            append_line(home / COMMANDS, text, mode=PRIVATE)
        if _SYSTEM.exists():
            syslog.openlog("hubbub", facility=syslog.LOG_AUTHPRIV)
            where = str(home.resolve()).encode(errors="backslashreplace").decode()
            syslog.syslog(f"{where}: {text}")


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


# `hubbub completion`: a script by which a shell completes commands, options, choices and files. It
# is written from the parsers of all commands, once: to ask them at every press of a key would take
# a second each time.


def _add_completion(commands: Any) -> None:
    add_command(
        commands,
        "completion",
        "a script that completes commands and options in bash, zsh or fish",
        _completion,
        argument(
            "shell",
            "bash reads ~/.local/share/bash-completion/completions/hubbub, fish "
            "~/.config/fish/completions/hubbub.fish, zsh the file _hubbub in its $fpath",
            choices=["bash", "zsh", "fish"],
        ),
    )


def _completion(options: argparse.Namespace) -> int:
    import shtab  # no other command waits for it

    script = shtab.complete(_completable(_parser(), shtab.FILE), options.shell)
    if options.json:
        emit({"script": script})
    else:
        sys.stdout.write(f"{script}\n")
    return 0


def _completable(parser: argparse.ArgumentParser, files: Any) -> argparse.ArgumentParser:
    """The parser, with its files marked and its commands shown, as shtab wants both."""
    for action in parser._actions:  # noqa: SLF001 (no other way)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 (no other way)
            action.help = None  # shtab passes over what is suppressed
            for command in action.choices.values():
                _completable(command, files)
        elif action.type is Path:
            action.complete = files  # type: ignore[attr-defined]  # as shtab is told it
    return parser


if __name__ == "__main__":
    sys.exit(main())
