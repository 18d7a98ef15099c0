"""What the ledgers hold: what each silo says that it has spent, on this study and in all.

It reads the parts that the silos have signed for the evidence, as plain values; it opens no ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hubbub.core.number_format import NOT_KNOWN, amount, at_most
from hubbub.desk.report.markup import Html, section, table, tag

Part = Mapping[str, Any]

_SHOWN = 25  # beyond so many silos nobody reads the table


def ledgers(parts: Sequence[Part]) -> Html:
    """The section; without parts it says where to look."""
    words = (
        "Every silo keeps a ledger of its own, outside this run. What an answer costs is written "
        "into it, and is on disk, before the answer leaves; when the most that the silo "
        "allows is reached, it refuses. A crash can make a ledger count too much, never too little."
    )
    if not parts:
        hint = tag("p", "What the ledgers hold, ", tag("code", "hubbub ledger show"), " says.")
        return section("What the ledgers say", tag("p", words), hint)
    rows = [_row(part) for part in parts[:_SHOWN]]
    more = len(parts) - len(rows)
    note = [tag("p", f"{amount(more)} more silos are in the evidence.")] if more else []
    caption = (
        "What each silo has signed about its ledger, after this study. An attempt is one try at a "
        "step; the head is a fingerprint of all rows"
    )
    head = ("Silo", "attempts charged", "rows in all", "ε spent in all", "head")
    body = table(caption, head, rows, numeric=(1, 2, 3))
    return section("What the ledgers say", tag("p", words), body, *note)


def _row(part: Part) -> tuple[Html | str, ...]:
    spent, ledger = NOT_KNOWN, part["ledger"]
    if total := part["data_set"]:
        spent = f"{at_most(total['epsilon'])} at δ = {amount(total['delta'])}"
    head = tag("code", f"{ledger['head'][:16]}…")
    return part["silo"], amount(part["attempts"]), amount(ledger["rows"]), spent, head
