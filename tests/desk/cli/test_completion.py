"""`hubbub completion`: what shells offer is what the parsers take."""

from __future__ import annotations

import argparse
import json
import subprocess

import pytest

from hubbub.desk.cli.main import _parser, main

# How bash is asked; the last word is what is being typed.
ASK = (
    'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_hubbub; echo "${COMPREPLY[@]}"'
)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    file = tmp_path_factory.mktemp("completion") / "hubbub.bash"
    with pytest.MonkeyPatch.context() as patch, file.open("w", encoding="utf-8") as stream:
        patch.setattr("sys.stdout", stream)
        assert main(["completion", "bash"]) == 0
    return file


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("hubbub pl", {"plan"}),
        ("hubbub plan --se", {"--set"}),
        ("hubbub ledger ", {"show", "verify", "export", "head", "missing", "witness"}),
        ("hubbub ledger show --d", {"--delta"}),
        ("hubbub verify --h", {"--help"}),  # and not what `ledger verify` takes
        ("hubbub epsilon --relation ", {"add-remove", "substitute"}),
        ("hubbub run st", {"study.toml"}),
        ("hubbub audit study.toml --out st", {"study.toml"}),
    ],
)
def test_bash_offers_commands_options_choices_and_files(line, wanted, script, tmp_path):
    (tmp_path / "study.toml").touch()
    command = ["bash", "-c", ASK, str(script), *line.split(" ")]
    words = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert set(words.stdout.split()) == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_option_of_every_command_is_in_the_scripts(shell, capsys):
    assert main(["completion", shell, "--json"]) == 0
    text = json.loads(capsys.readouterr().out)["script"]
    waiting, options = [_parser()], set()
    while waiting:
        for action in waiting.pop()._actions:
            options |= {name for name in action.option_strings if name.startswith("--")}
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()
    assert {"--noise-multiplier", "--baseline", "--collateral"} <= options
    assert all(option.removeprefix("--") in text for option in options)


def test_the_overview_names_each_command_once_in_a_group(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    (commands,) = (one for one in _parser()._actions if one.metavar == "COMMAND")
    lines = [line.split()[0] for line in shown.splitlines() if line[:2] == "  " != line[2:4]]
    assert sorted(one for one in lines if one[0] != "-") == sorted(commands.choices)
    assert "count what was spent:" in shown
    assert "positional arguments" not in shown
