"""One series of noisy sums in one session: every attempt charged first, and what it came to.

A run's training is a series, and so is whatever else it asks of the silos in the same way. This
file knows what an attempt costs and who writes it down; it does not know what is summed, or why.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import BudgetError
from hubbub.privacy import Certificate
from hubbub.round import Charge
from hubbub.round.terms import Parameters
from hubbub.runners.federation import Federation
from hubbub.runners.ledger import Entry, Ledger
from hubbub.study import Study


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What the ledger must know of one attempt's mechanism."""

    noise_multiplier: float
    sample_rate: float
    sampling: str
    certificate: Certificate


@dataclass(frozen=True, kw_only=True)
class Series:
    """Rounds of one mechanism.

    Args:
        parties: everybody, after a set-up of their own.
        names: the silos', in the order of the roster.
        cost: of one attempt.
        ledgers: the silos' by roster index; empty where nothing is written down.
    """

    parties: Federation
    names: tuple[str, ...]
    cost: Cost
    ledgers: Mapping[int, Ledger] = field(default_factory=dict, repr=False)

    def round(
        self, number: int, parameters: Parameters, attempts: int
    ) -> tuple[NDArray[np.int64] | None, int]:
        """A round's sum in grid steps, None if every attempt failed, and the attempts made."""
        record = self._record if self.ledgers else None
        return self.parties.round(number, parameters, attempts=attempts, record=record)

    def _record(self, index: int, charge: Charge) -> None:
        """P15: in the ledger before the answer exists."""
        session = self.parties.sessions[index]
        entry = Entry(
            study=session.study,
            session=session.id,
            round=charge.round,
            attempt=charge.attempt,
            noise_multiplier=self.cost.noise_multiplier,
            sample_rate=self.cost.sample_rate,
            sampling=self.cost.sampling,
            certificate=self.cost.certificate,
        )
        try:
            self.ledgers[index].charge(entry)
        except BudgetError as error:
            raise BudgetError(f"{self.names[index - 1]}: {error}") from None


def opened_ledgers(home: Path | None, study: Study, stack: ExitStack) -> dict[int, Ledger]:
    """Every silo's ledger by roster index; none without a folder for them."""
    if home is None:
        return {}
    return {
        index: stack.enter_context(Ledger(home / f"{name}.sqlite"))
        for index, name in enumerate(study.parties.names, 1)
    }


def charged_in(ledgers: Mapping[int, Ledger], sessions: frozenset[bytes]) -> int:
    """How many attempts of these sessions some silo has paid for."""
    made = {
        (entry.session, entry.round, entry.attempt)
        for ledger in ledgers.values()
        for entry in ledger.entries()
        if entry.session in sessions
    }
    return len(made)
