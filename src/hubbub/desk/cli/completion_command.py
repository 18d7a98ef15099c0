"""`hubbub completion`: a script by which a shell completes commands, options and their choices.

It is written from the parsers of all commands, once: to ask them at every press of a key would take
a second each time. It knows nothing of files, which the shell completes as it does elsewhere.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.desk.cli.terminal import add_command, emit

COMPLETION = "completion"
_WORDS = "a script that completes commands and options in bash, zsh or fish"


def add_commands(commands: Any) -> None:
    """Register the command."""
    parser = add_command(commands, COMPLETION, _WORDS, _completion)
    words = (
        "bash reads ~/.local/share/bash-completion/completions/hubbub, fish "
        "~/.config/fish/completions/hubbub.fish; zsh sources the script after compinit"
    )
    parser.add_argument("shell", choices=list(_SCRIPTS), help=words)
    parser.set_defaults(commands=commands)


def _completion(options: argparse.Namespace) -> int:
    script = _SCRIPTS[options.shell]([*_levels(options.commands, ())])
    if options.json:
        emit({"script": script})
    else:
        sys.stdout.write(script)
    return 0


@dataclass(frozen=True, kw_only=True)
class _Level:
    """What may be typed after some commands.

    Args:
        path: the commands, from the first.
        commands: further ones, with what each does.
        options: with what each does.
        choices: of an option, or of the arguments under the empty name.
    """

    path: tuple[str, ...]
    commands: dict[str, str]
    options: dict[str, str]
    choices: dict[str, tuple[str, ...]]


def _levels(action: Any, path: tuple[str, ...]) -> Iterator[_Level]:
    """The commands of subparsers, and theirs in turn."""
    told = {one.dest: one.help or "" for one in action._choices_actions}  # noqa: SLF001 (no other way)
    yield _Level(path=path, commands=told, options={}, choices={})
    for name, parser in action.choices.items():
        yield from _levels_of(parser, (*path, name))


def _levels_of(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[_Level]:
    """One command: what it takes, or its own commands."""
    options, choices = dict[str, str](), dict[str, tuple[str, ...]]()
    for action in parser._actions:  # noqa: SLF001 (no other way)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 (no other way)
            yield from _levels(action, path)
            return
        names = [name for name in action.option_strings if name.startswith("--")]
        options |= dict.fromkeys(names, action.help or "")
        if action.choices:
            choices |= dict.fromkeys(names or [""], tuple(map(str, action.choices)))
    yield _Level(path=path, commands={}, options=options, choices=choices)


def _bash(levels: Sequence[_Level]) -> str:
    """For bash, whose own completion of files is taken where no word fits."""
    known = "|".join(f'"{" ".join(("", *one.path))}"' for one in levels if one.path)
    # The first case that fits is taken, so what is longer stands before what it begins with.
    cases = [line for level in reversed(levels) for line in _bash_cases(level)]
    return "\n".join(
        [
            "_hubbub() {",
            '    local path="" word words="" options=""',
            '    for word in "${COMP_WORDS[@]:1:$((COMP_CWORD-1))}"; do',
            f'        case "$path $word" in {known}) path="$path $word" ;; esac',
            "    done",
            '    case "$path ${COMP_WORDS[COMP_CWORD-1]}" in',
            *cases,
            "    esac",
            '    case "${COMP_WORDS[COMP_CWORD]}" in -*) words="$options" ;; esac',
            '    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))',
            "}",
            "complete -o default -F _hubbub hubbub",
            "",
        ]
    )


def _bash_cases(level: _Level) -> Iterator[str]:
    """First what may follow an option, then what may follow anything else."""
    path = "".join(f" {name}" for name in level.path)
    for option, choices in level.choices.items():
        if option:
            yield f'        "{path} {option}") words="{" ".join(choices)}" ;;'
    words = " ".join([*level.commands, *level.choices.get("", ())])
    before = f'"{path} "*' if path else "*"
    yield f'        {before}) words="{words}" options="{" ".join(level.options)}" ;;'


def _zsh(levels: Sequence[_Level]) -> str:
    """For zsh, which takes bash's."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash(levels)}"


def _fish(levels: Sequence[_Level]) -> str:
    """For fish, which shows what each word does."""
    return _FISH + "".join(f"{line}\n" for level in levels for line in _fish_lines(level))


_FISH = """function __hubbub_after
    set -l words (commandline -opc)
    test "$words[2..$argv[1]]" = "$argv[2..]"
end
"""


def _fish_lines(level: _Level) -> Iterator[str]:
    depth = len(level.path) + 1  # with the program's own name
    seen = [f"__hubbub_after {depth} {' '.join(level.path)}"] if level.path else []
    seen += [f"test (count (commandline -opc)) -eq {depth}"] if level.commands else []
    start = f"complete -c hubbub -n {shlex.quote('; and '.join(seen))}"
    for name, told in level.commands.items():
        yield f"{start} -f -a {name} -d {shlex.quote(told)}"
    for option, told in level.options.items():
        choices = level.choices.get(option)
        takes = f" -x -a {shlex.quote(' '.join(choices))}" if choices else ""
        yield f"{start} -l {option[2:]}{takes} -d {shlex.quote(told)}"
    if words := level.choices.get(""):
        yield f"{start} -a {shlex.quote(' '.join(words))}"


_SCRIPTS: dict[str, Callable[[Sequence[_Level]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
