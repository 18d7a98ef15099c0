"""What a ledger held before a run is not counted as the run's own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

import hubbub
from hubbub.core.errors import BudgetError
from hubbub.core.ledger.privacy_ledger import Entry, Ledger
from hubbub.core.ledger.tally import kind_of
from hubbub.core.protocol.round.silo import Charge
from hubbub.core.runs import local_backend
from hubbub.core.runs.federated import SessionPlan
from hubbub.core.runs.local_backend import LocalBackend
from hubbub.core.session.offer import round_parameters_of


@pytest.mark.parametrize("has_plan", [True, False])
def test_p15_what_a_run_made_with_noise_of_other_digits_is_not_there_once_more(
    tmp_path, monkeypatch, has_plan
):
    """As far apart as two calibrations that are both like a third: one run's, and its resuming."""
    study = hubbub.Study.from_table(
        {
            "study": {"name": "p"},
            "parties": {"silos": 3, "colluders": 0},
            "data": {"source": "in-memory", "records": 90},
            "model": {"kind": "logistic", "inputs": [3]},
            "training": {"steps": 3, "sample_rate": 0.2},
            "privacy": {"epsilon": 2.0, "delta": 1e-5},
        }
    )
    plan, seen = hubbub.plan(study), {}
    kind = kind_of(plan.main)
    ours = replace(kind, noise_multiplier=kind.noise_multiplier * (1 + 1.5e-6))
    federation = SimpleNamespace(rounds=None)
    monkeypatch.setattr(
        local_backend, "federate", lambda *_, **named: seen.update(named) or federation
    )

    def row(number, kind):
        return Entry(study=study.id, session=b"e" * 16, round=number, attempt=0, kind=kind)

    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.charge(row(1, kind))  # by a run before
        head = ledger.head
        for number in (1, 2):
            ledger.charge(row(number, ours))
        assert [ledger.before(head).attempts(study.id), len(ledger.before(None))] == [1, 0]
        backend = LocalBackend(
            study=study,
            keys=(),
            ledgers={1: ledger},
            folder=SimpleNamespace(head=lambda _: head),
            plan=plan if has_plan else None,
        )
        wanted = SessionPlan(
            plan=plan,
            planned=plan.main,
            round_parameters=round_parameters_of(plan.main),
            tasks=(),
        )
        backend.set_up(wanted)
        session = SimpleNamespace(study=study.id, id=b"f" * 16, attested=())
        seen["record"](1, session, Charge(round=3, attempt=0))
        with pytest.raises(BudgetError, match="at most 4 attempts"):
            seen["record"](1, session, Charge(round=3, attempt=1))
