"""The command line: `hubbub COMMAND`, one file for each family of commands."""
