"""The table `[privacy]`: what is promised to every record. How it is kept is the plan's affair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubbub.section import Section

_RELATIONS = ("add-remove", "substitute")


def privacy_from(table: Mapping[str, Any]) -> Privacy:
    """The promise that a table states."""
    section = Section("privacy", table, ("epsilon", "delta", "relation"))
    return Privacy(
        epsilon=section.number("epsilon", None, least=1e-3, most=50),
        delta=section.number("delta", None, least=1e-12, most=0.1),
        relation=section.text("relation", Privacy.relation, options=_RELATIONS),
    )


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What is promised to every record.

    Args:
        epsilon: against the stated adversary, from 0.001 to 50; no unit.
        delta: a probability, from 1e-12 to 0.1.
        relation: between neighbouring data sets: "add-remove" or "substitute".
    """

    epsilon: float
    delta: float
    relation: str = "add-remove"
