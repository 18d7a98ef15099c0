"""`hubbub completion`: what shells offer is what the parsers take."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from hubbub.desk.cli.main import _bash, _fish, _levels, _parser, _zsh, main

SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
# How each shell is asked; the last word is what is being typed.
ASK = {
    "bash": 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hubbub; '
    'echo "${COMPREPLY[@]}"',
    "zsh": 'source "$0"; emulate ksh; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hubbub; '
    'echo "${COMPREPLY[@]}"',
}


@pytest.fixture(scope="module")
def levels():
    parser = _parser()
    (commands,) = (one for one in parser._actions if one.metavar == "COMMAND")
    return [*_levels(commands, ())]


def offered(shell: str, script: Path, line: str) -> set[str]:
    """What a shell completes a line with."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} to ask")
    if shell == "fish":
        ask = f"source {shlex.quote(str(script))}; complete -C {shlex.quote(line)}"
        command = [path, "--no-config", "-c", ask]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return {one.partition("\t")[0] for one in lines.splitlines()}
    command = [path, "-c", ASK[shell], str(script), *line.split(" ")]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    typed = line.rpartition(" ")[2]
    # zsh leaves out only later what does not begin like this.
    return {word for word in words if shell == "bash" or word.startswith(typed)}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_offers_commands_options_and_choices(shell, levels, tmp_path):
    script = tmp_path / f"hubbub.{shell}"
    script.write_text(SCRIPTS[shell](levels), encoding="utf-8")
    for line, wanted in (
        ("hubbub pl", {"plan"}),
        ("hubbub plan --se", {"--set"}),
        ("hubbub ledger ", {"show", "verify", "export", "head", "missing", "witness"}),
        ("hubbub ledger show --d", {"--delta"}),
        ("hubbub verify --h", {"--help"}),  # and not what `ledger verify` takes
        ("hubbub epsilon --relation ", {"add-remove", "substitute"}),
    ):
        assert offered(shell, script, line) == wanted


def test_every_command_and_option_is_in_the_scripts(levels):
    known = {" ".join(one.path) for one in levels}
    assert {"", "run", "ledger show", "completion"} <= known
    run = next(one for one in levels if one.path == ("run",))
    assert {"--out", "--baseline", "--help"} <= run.options.keys()
    for name, script in SCRIPTS.items():
        text = script(levels)
        assert all(option.removeprefix("--") in text for one in levels for option in one.options)
        assert ("bashcompinit" in text) == (name == "zsh")


def test_the_overview_names_each_command_once_in_a_group(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    (commands,) = (one for one in _parser()._actions if one.metavar == "COMMAND")
    lines = [line.split()[0] for line in shown.splitlines() if line[:2] == "  " != line[2:4]]
    assert sorted(one for one in lines if one[0] != "-") == sorted(commands.choices)
    assert "count what was spent:" in shown
    assert "positional arguments" not in shown
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out.endswith("complete -o default -F _hubbub hubbub\n")
