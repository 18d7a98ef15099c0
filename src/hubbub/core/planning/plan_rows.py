"""One row of what an option of a study says of itself in a plan, for the terminal and the page."""

from __future__ import annotations

import re
from typing import NamedTuple


class PlanRow(NamedTuple):
    """A quantity with what it is.

    Args:
        name: in the field's words.
        value: a number or a text; None if it is not known, or past what is claimed.
        words: what it is, after the name.
        upper: whether it is an epsilon: it is rounded up, and None is past 50.
    """

    name: str
    value: float | str | None
    words: str
    upper: bool = False


# Adversaries in plain words: who is meant by a name in the plan's table.
#
# It reads the names that a plan gives; it knows no numbers but those in them.

STATED = ""  # in the place of an adversary: whom the plan states
# Against whom the epsilon of a run and of each baseline holds: `STATED`, or in words; None: nobody.
AGAINST: dict[str, str | None] = {
    "federated": STATED,
    "trusted": "those who see only models",
    "local-dp": "everybody but the silo itself",
    "alone": "those who see a silo's model",
    "non-private": None,
}
_COALITION = re.compile(r"aggregator \+ (\d+) silos?")
_ENCLAVES = re.compile(r"(.*), (?:no enclave holding|(\d+) enclaves? broken)")
_KNOWN = {
    "outsider (published results)": "anybody who gets the published results, and nothing else",
    "aggregator": "the party that adds up what silos send, with all that it receives",
    "aggregator and all compute nodes but one": "the aggregator, to whom every compute node but "
    "one secretly tells all it knows",
    "one silo": "a silo that looks closely at the published results, and knows its own noise",
}


def explained(adversary: str) -> str:
    """Who an adversary of the plan is; empty if this is no name that a plan gives.

    Example:
        >>> explained("aggregator + 1 silo")
        'the aggregator and 1 silo that secretly share all they know'
    """
    broken = _ENCLAVES.fullmatch(adversary)
    name = broken[1] if broken else adversary
    words = _KNOWN.get(name, "")
    if coalition := _COALITION.fullmatch(name):
        silos = _silos(int(coalition[1]))
        words = f"the aggregator and {silos} that secretly share all they know"
        if not int(coalition[1]):
            words = "the aggregator, with no silo colluding"
    if not (broken and words):
        return words
    whose = f"of {_silos(int(broken[2]))}" if broken[2] else "of all of them"
    return f"{words}, with the protected hardware {whose} broken into"


def spoken(adversary: str) -> str:
    """An adversary as the subject or object of a sentence.

    Example:
        >>> spoken("aggregator + 2 silos"), spoken("those who see only models")
        ('the aggregator together with 2 silos', 'those who see only models')
    """
    coalition = _COALITION.fullmatch(adversary)
    return f"the aggregator together with {_silos(int(coalition[1]))}" if coalition else adversary


def _silos(count: int) -> str:
    return f"{count:,} silo" if count == 1 else f"{count:,} silos"


def promised_against(stated: str, baseline: str | None) -> str | None:
    """Against whom epsilon holds in an arrangement.

    Args:
        stated: the adversary whom the study's plan states.
        baseline: its name; None or "federated" for hubbub.

    Returns:
        An adversary of the plan, or one in a few words; None if nothing is promised to anybody.

    Example:
        >>> promised_against("aggregator + 1 silo", "trusted")
        'those who see only models'
    """
    against = AGAINST[baseline or "federated"]
    return stated if against == STATED else against
