"""The command line: `hubbub COMMAND`, one file for each family of commands."""

from hubbub.cli.main import main
