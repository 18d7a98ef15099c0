"""The row is on disk before anything of a silo leaves, or is so much as looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import HubbubError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.protocol.agreement.key_agreement import Session
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.round.silo import Charge
from hubbub.core.session.in_process import Federation, Record, federate
from hubbub.core.session.offer import Layout
from ledger.book import STUDY, cap_for, charges, entry


class Witness:
    """A silo's task that notes how many rows were on disk when it was asked for its records."""

    count = capacity = 3

    def __init__(self, rows: Callable[[], int]) -> None:
        self._rows = rows
        self.seen: list[int] = []

    def clipped_sum(self, parameters: object, chosen: object) -> np.ndarray[Any, Any]:
        self.seen.append(self._rows())
        return np.zeros(2)


def party(witnesses: list[Witness], record: Record) -> Federation:
    """Three silos with pairwise masks and two coordinates."""
    round_parameters = RoundParameters(
        dimension=2,
        parameters=0,
        silos=3,
        quorum=3,
        steps=9,
        word_bits=16,
        grid_step=1.0,
        sigma_grid=4.0,
        sample_rate=1.0,
        nodes=0,
    )
    layout = Layout(names=("a", "b", "c"), degree=2)
    return federate(layout, round_parameters, witnesses, study=STUDY, record=record)


def test_p15_the_row_is_on_disk_before_the_records_are_touched_and_a_refusal_touches_none(tmp_path):
    place = tmp_path / "ledger.sqlite"
    with Ledger(place) as ledger:
        ledger.set_cap(cap_for(2))
        assert_paid_in_advance(place, ledger)


def assert_paid_in_advance(place: Path, ledger: Ledger) -> None:
    """Two rounds that the cap of the middle silo allows, and one that it does not."""
    witnesses = [Witness(lambda: charges(place)) for _ in range(3)]

    def record(index: int, _session: Session, charge: Charge) -> None:
        if index == 2:
            ledger.charge(entry(charge.round, attempt=charge.attempt))

    silos, nothing = party(witnesses, record), np.zeros(0, dtype=np.float32)
    silos.sum(1, nothing)
    silos.sum(2, nothing)
    assert witnesses[1].seen == [1, 2]
    with pytest.raises(HubbubError, match="raise the cap"):
        silos.sum(3, nothing)
    assert witnesses[1].seen == [1, 2]
    assert not {2, 3} & silos.rounds.aggregator.attempt.arrived
