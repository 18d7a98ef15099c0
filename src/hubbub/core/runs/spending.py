"""What the records of a run have spent in all, once it is over, and which charge it was.

A study's epsilon speaks of that study alone. What people have to know is what everything that was
ever asked of the same records comes to, and that is what the silos' ledgers say (docs/privacy.md
P15). This file reads ledgers and writes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.ledger.entry import Cap
from hubbub.core.ledger.privacy_filter import PrivacyFilter
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.tally import Tally
from hubbub.core.study.parties import Privacy


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What the records of the silo that has spent most have spent, this run included."""

    silo: str  # its name; "every silo" where all have spent alike
    before: float | None  # of all that was charged before the run; None past what is certified
    epsilon: float | None  # of all that was ever charged, the run's included: *spent in all*
    delta: float  # at which both are counted, as the study's
    relation: str
    charge: int  # this is the so-manieth charge; a run that was resumed is several
    cap: float | None = None  # the most that the silo allows all studies together
    left: float | None = None  # of the cap, as the cap counts it

    def to_dict(self) -> dict[str, Any]:
        """The spending as plain values."""
        return asdict(self)


def spending(
    ledgers: Mapping[str, Ledger], heads: Mapping[str, bytes | None], privacy: Privacy
) -> Spending | None:
    """What the silo that has spent most has spent; None where nothing is written down.

    `heads` are what ledgers ended with before the run; of one without, all is the run's.
    """
    if not ledgers:
        return None
    spent = {name: certified(ledger.tally, privacy) for name, ledger in ledgers.items()}
    name = max(spent, key=lambda name: inf if (own := spent[name]) is None else own)
    ledger = ledgers[name]
    # A charge is a session: of those that one study was asked in for several purposes, the most
    # that any purpose had.
    sessions: dict[bytes, dict[str, set[bytes]]] = {}
    for entry in ledger.entries():
        of_study = sessions.setdefault(entry.study, {})
        of_study.setdefault(entry.kind.purpose, set()).add(entry.session)
    return Spending(
        silo="every silo" if len(spent) > 1 and len({*spent.values()}) == 1 else name,
        before=certified(ledger.before(heads.get(name)), privacy),
        epsilon=spent[name],
        delta=privacy.delta,
        relation=privacy.relation,
        charge=sum(max(map(len, purposes.values())) for purposes in sessions.values()),
        cap=None if ledger.cap is None else ledger.cap.epsilon,
        left=left_under(ledger.cap, ledger.filter, ledger.tally),
    )


def set_caps(ledgers: Iterable[Ledger], privacy: Privacy) -> None:
    """Give each ledger without a cap the one that a study proposes, for adaptive studies (P24)."""
    if not privacy.cap:
        return
    cap = Cap(
        epsilon=privacy.cap, delta=privacy.delta, relation=privacy.relation, studies="adaptive"
    )
    for ledger in ledgers:
        if ledger.cap is None:
            ledger.set_cap(cap)


def certified(tally: Tally, privacy: Privacy) -> float | None:
    """Epsilon of all that was charged, at a study's delta; None past what is certified."""
    try:
        epsilon = tally.epsilon(delta=privacy.delta, relation=privacy.relation)
    except StudyError:
        return None
    return epsilon if epsilon < inf else None


def left_under(cap: Cap | None, let_in: PrivacyFilter | None, tally: Tally) -> float | None:
    """How much epsilon of a cap is left, as it counts it; None without one."""
    if cap is None:
        return None
    if let_in is not None:
        return max(0.0, cap.epsilon - let_in.epsilon(tally))
    return max(0.0, cap.epsilon - tally.epsilon(delta=cap.delta, relation=cap.relation))
