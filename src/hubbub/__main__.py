"""`python -m hubbub`: the command line, where its script is not on the path."""

from hubbub.desk.cli.main import program

program()
