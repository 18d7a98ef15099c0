"""`hubbub`: the parser of all commands, and how errors become exit codes.

Exit codes: 0, done; 1, the answer is no (a budget refuses, a check fails); 2, bad input; 130,
interrupted by Ctrl-C. Errors are one sentence on stderr.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

from hubbub import __version__
from hubbub.core.disk import why_of
from hubbub.core.errors import HubbubError, UserError, with_extra
from hubbub.desk.cli.command_examples import EXAMPLES
from hubbub.desk.cli.command_log import CommandLog
from hubbub.desk.cli.completion_command import COMPLETION
from hubbub.desk.cli.output import INTERRUPTED, for_machines, warn

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
