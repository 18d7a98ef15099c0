"""The table `[privacy]`: what is promised to every record. How it is kept is the plan's affair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubbub.section import Section

_RELATIONS = ("add-remove", "substitute")


def privacy_from(table: Mapping[str, Any]) -> Privacy:
    """The promise that a table states."""
    section = Section("privacy", table, ("epsilon", "delta", "relation", "cap"))
    made = Privacy(
        epsilon=section.number("epsilon", None, least=1e-3, most=50),
        delta=section.number("delta", None, least=1e-12, most=0.1),
        relation=section.text("relation", Privacy.relation, options=_RELATIONS),
        cap=section.number("cap", Privacy.cap, least=0, most=50),
    )
    if 0 < made.cap < made.epsilon:
        raise section.refusal(
            "cap", f"at least privacy.epsilon = {made.epsilon:g}", "raise it, or leave it out"
        )
    return made


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What is promised to every record.

    Args:
        epsilon: against the stated adversary, from 0.001 to 50; no unit.
        delta: a probability, from 1e-12 to 0.1.
        relation: between neighbouring data sets: "add-remove" or "substitute".
        cap: epsilon that all studies of a silo's records together may come to: what a run in one
            process sets for each ledger that has no cap yet; 0: it sets none.
    """

    epsilon: float
    delta: float
    relation: str = "add-remove"
    cap: float = 0.0
