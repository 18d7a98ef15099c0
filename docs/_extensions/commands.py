"""The page of commands, written from the parsers that the commands themselves use.

A page holds the line `<!-- commands -->`; what stands there on the site is made anew each time.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterator
from typing import Any

MARK = "<!-- commands -->"
_OPTION = re.compile(r"(?<![\w`-])(--[a-z][a-z-]*)")
EVERYWHERE = {"help", "json"}  # the page says it once


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    made = importlib.import_module("hubbub.desk.cli.main")._parser()
    assert isinstance(made, argparse.ArgumentParser)
    return made


def families(of: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """A parser's commands: what each does in a line, and its parser."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            told = {one.dest: one.help or "" for one in action._choices_actions}
            return {name: (told.get(name, ""), one) for name, one in action.choices.items()}
    return {}


def written(of: argparse.ArgumentParser, level: int = 2) -> Iterator[str]:
    """A section for each command: what it does, how it is called, what it takes."""
    for told, one in families(of).values():
        yield f"{'#' * level} `{one.prog}`\n"
        yield f"{_sentence(one.description or told)}\n"
        below = families(one)
        if not below:
            yield f"```text\n{_usage(one)}\n```\n"
            yield from _arguments(one)
            if one.epilog:
                yield f"```text\n{one.epilog}\n```\n"
        yield from written(one, level + 1)


def _usage(of: argparse.ArgumentParser) -> str:
    usage = re.sub(r"\s+", " ", of.format_usage().removeprefix("usage: "))
    return usage.replace(" [-h] [--json]", "").strip()


def _arguments(of: argparse.ArgumentParser) -> Iterator[str]:
    rows = [one for one in of._actions if one.dest not in EVERYWHERE]
    if rows:
        yield "\n".join(["| argument | meaning |", "|---|---|", *map(_row, rows)]) + "\n"


def _row(action: argparse.Action) -> str:
    named = ", ".join(action.option_strings) or action.metavar or action.dest
    takes = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    value = f" {takes}" if action.option_strings and takes else ""
    choices = f"; one of {', '.join(map(str, action.choices))}" if action.choices else ""
    told = _plain((action.help or "").replace("%(default)s", str(action.default)))
    return f"| `{named}{value}` | {told}{choices} |"


def _sentence(text: str) -> str:
    """A text with a large letter at its head and a full stop at its end."""
    plain = _plain(text)
    return plain and plain[0].upper() + plain[1:].rstrip(".") + "."


def _plain(text: str) -> str:
    """A text in which Markdown finds nothing of its own but options."""
    return _OPTION.sub(r"`\1`", text.strip().replace("<", "&lt;").replace("|", r"\|"))


def _fill(app: Any, docname: str, source: list[str]) -> None:
    if MARK in source[0]:
        source[0] = source[0].replace(MARK, "\n".join(written(parser())))


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
