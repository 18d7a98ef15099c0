"""The page of log events: each line of `events.jsonl` as the code has it, and what to do about it.

`python docs/_extensions/events.py` writes `docs/reference/events.md` anew. What helps stands here;
a warning of the code without a remedy is an error, and so is a remedy for one that it has no more.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from hubbub.site.network.event_log import _SENTENCES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "events.md"
_ROOMS = ("core/session", "site")
_LEVELS = {"note": "info", "warn": "warning"}
_RESTORED = "[An older copy](../howto/runbooks.md#back-up-and-restore) was restored at that party."
# By warning: what to do.
REMEDIES = {
    "attempt": "If it repeats, look at the party named before.",
    "complaint": "Nothing: the run stops, and names the liar.",
    "declined": "Fix the [reason](wire.md#refusals) at that party.",
    "garbled": "Install the same version everywhere; if it repeats, ask that party's people.",
    "lost": "Nothing. What was charged stays charged.",
    "missing": "`hubbub status` at that party; a longer `--deadline` for a slow one.",
    "new-ledger": "Nothing, for another data set; else "
    "[restore](../howto/runbooks.md#back-up-and-restore) the ledger at that party.",
    "older": _RESTORED,
    "refused": "Fix it here; `hubbub join --check` tries everything at once.",
    "relay": "See the relay's log, in `relay/`.",
    "reminder": "Have them run the command.",
    "revoked": "Nothing, if your people meant it; else `hubbub approve` again.",
    "seed": "Compare both parties' clocks, versions and keys; rotate the key of whoever is wrong.",
    "set-back": _RESTORED,
    "silent": "`join` tries again. Ask the aggregator's people whether `serve` still runs.",
    "stopped": "Fix it and start again; nothing is charged twice.",
    "twice": "If nobody started a second, [rotate its keys](../howto/runbooks.md#rotate-a-key).",
    "unbelieved": "Ask that party's people.",
    "unconnected": "[What may be in the way](../network.md#networks).",
    "unsigned": "Have these parties connect once, then serve again.",
    "version": "[Upgrade](../howto/runbooks.md#upgrade).",
    "waiting": "Start `hubbub join` there.",
}
_HEAD = """# Log events

For an administrator. Each line of a party's `events.jsonl` is a JSON object with `time`, `level`,
`party` and `event`, and the values in italics below. No value is of a record, a key or a vector.
"""


def events() -> dict[str, str]:
    """The level of each event that the code notes; a warning if it ever is one."""
    paths = sorted(p for room in _ROOMS for p in (ROOT / "src/hubbub" / room).rglob("*.py"))
    return events_in(paths)


def events_in(paths: Iterable[Path]) -> dict[str, str]:
    """The same, in some files: calls of `note` and `warn` that begin with a plain word."""
    levels: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr=call), args=[ast.Constant(str(event)), *_]):
                    if call in _LEVELS:
                        levels[event].add(_LEVELS[call])
    return {event: max(seen) for event, seen in levels.items()}  # "warning" after "info"


def page() -> str:
    """The page.

    Raises:
        ValueError: an event without a sentence, a sentence of no event, or a warning without a
            remedy here.
    """
    levels = events()
    warnings = {event for event, level in levels.items() if level == "warning"}
    for expected, odd in (
        ("a sentence of each event", set(levels) ^ set(_SENTENCES)),
        ("a remedy for each warning", warnings ^ set(REMEDIES)),
    ):
        if odd:
            raise ValueError(f"expected {expected}, not: {sorted(odd)}")
    rows = {event: _row(event) for event in sorted(levels)}
    return "\n".join(
        [
            _HEAD,
            "## Warnings\n\n| event | line | what to do |\n|---|---|---|",
            *(f"{rows[event]} {REMEDIES[event]} |" for event in rows if event in warnings),
            "\n## Information\n\n| event | line |\n|---|---|",
            *(row for event, row in rows.items() if event not in warnings),
            "",
        ]
    )


def _row(event: str) -> str:
    line = re.sub(r"\{(\w+)[^}]*\}", r"*\1*", _SENTENCES[event])
    return f"| `{event}` | {line.replace('**', '* *')} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
