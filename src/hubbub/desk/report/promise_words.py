"""Promises that no longer hold, in words: they come first, wherever a study or a run is shown.

It reads the plan's plain values, and what the ledgers said after a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.core.number_format import at_most
from hubbub.core.planning.adversary_words import spoken

_WEAK = 8.0  # beyond which a promise is called weak
_ROOM = 1e-3  # what epsilons of one study may differ by, relative


def broken(plan: Mapping[str, Any], spending: Mapping[str, Any] | None = None) -> list[str]:
    """What does not hold though a reader of the study's epsilon would believe it.

    Args:
        plan: the plan as plain values.
        spending: what the records have spent in all, as `Spending.to_dict` gives it; None: not
            known.
    """
    rows = {row["adversary"]: row["epsilon"] for row in plan["epsilon"]}
    stated = rows[plan["stated_adversary"]]
    sentences = []
    if stated is None:
        sentences.append(
            f"no promise to anybody: against {spoken(plan['stated_adversary'])} epsilon"
        )
        sentences[-1] += " is past 50"
    sentences += _to_patients(plan.get("patient"), stated)
    if spending is not None and stated is not None:
        sentences += _in_all(spending, stated)
    return sentences


def spent_words(spending: Mapping[str, Any]) -> str:
    """What the records have spent in all, and which charge this was, in one sentence."""
    before = spending["before"]
    was = f", {at_most(before)} before it" if before != 0 else ""
    cap, left = spending["cap"], spending["left"]
    allowed = "no cap is set: hubbub budget set LEDGER sets one"
    if cap is not None:
        allowed = f"the cap is {cap:g}, of which {left:.3g} is left"
    return (
        f"spent in all: epsilon {at_most(spending['epsilon'])} at delta {spending['delta']:g}, by "
        f"the records of {spending['silo']}{was}; this was charge {spending['charge']}; {allowed}"
    )


def _to_patients(found: Mapping[str, Any] | None, stated: float | None) -> list[str]:
    """What holds for who has several records, where each record is a unit."""
    if found is None or found["is_unit"]:
        return []
    epsilon = found["epsilon"]
    if epsilon is None:
        return [
            f"no promise to patients: each record is a unit, and for {found['who']} epsilon is "
            "past 50 or has no account; data.patient makes the patient the unit"
        ]
    if epsilon > max(_WEAK, stated or 0.0):
        return [
            f"a weak promise to patients: for {found['who']} epsilon is {at_most(epsilon)}, not "
            f"{at_most(stated)}; data.patient makes the patient the unit"
        ]
    return []


def _in_all(spending: Mapping[str, Any], stated: float) -> list[str]:
    """What all studies of the records come to, where it is more than this one's epsilon."""
    epsilon, times = spending["epsilon"], spending["charge"]
    if epsilon is None:
        return [
            f"no promise any more: in {times} charges the records of {spending['silo']} have "
            "spent more than any epsilon that can be certified; ask them nothing else"
        ]
    if epsilon <= stated * (1 + _ROOM):
        return []
    return [
        f"epsilon {at_most(stated)} is this study's alone: in {times} charges the records have "
        f"spent {at_most(epsilon)} in all, and that is what holds for them now"
    ]
