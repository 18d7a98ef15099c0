"""The table `[privacy]`: what is promised to every record. How it is kept is the plan's affair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from hubbub.core.errors import StudyError
from hubbub.core.settings import later, number, one_of, read, settings


def privacy_from(table: Mapping[str, Any]) -> Privacy:
    """The promise that a table states."""
    privacy: Privacy = read(Privacy, "privacy", table)
    if 0 < privacy.cap < privacy.epsilon:
        raise StudyError(
            f"expected privacy.cap to be at least privacy.epsilon = {privacy.epsilon:g}, got "
            f"{privacy.cap:g}; raise it, or leave it out"
        )
    return privacy


@settings
class Privacy:
    """What is promised to every record."""

    epsilon: Annotated[
        float,
        number(
            0.001,
            50,
            "What is promised against the aggregator together with `colluders` silos, all parts "
            "included.",
        ),
    ]
    delta: Annotated[float, number(1e-12, 0.1, "The delta that belongs to it.")]
    relation: Annotated[
        str,
        one_of(
            "add-remove",
            "substitute",
            says="Neighbours [differ](privacy.md#p1) in a record that is there or not, or "
            'exchanged, as `"without-replacement"` asks for.',
        ),
    ] = "add-remove"
    cap: Annotated[
        float,
        later(
            number(
                0,
                50,
                "Epsilon that all studies of the same records together may come to. The study's "
                "first charge sets it, for [adaptive studies](ledger.md#what-you-do), in each "
                "silo's ledger that has no cap; one that a silo has set itself counts instead. "
                "0: none.",
            )
        ),
    ] = 0.0
