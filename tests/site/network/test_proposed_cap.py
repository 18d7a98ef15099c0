"""A cap that a study proposes binds each silo's own ledger among machines, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hubbub.core.errors import BudgetError
from hubbub.core.ledger.entry import Cap
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.site.network.waiting import Timeouts
from network.consortium import HOSPITALS, Consortium, table

SOON = Timeouts(deadline=300.0, opening=300.0, waiting=1.0, ask_again=0.0, ping=300.0)


def capped(home: Path, cap: float) -> Consortium:
    return Consortium.gather(home, table(HOSPITALS, privacy={"cap": cap}))


def cap_of(home: Path, name: str) -> Cap | None:
    with Ledger(home / name / "ledger.sqlite") as ledger:
        return ledger.cap


@pytest.mark.slow
def test_p24_every_silos_ledger_takes_the_cap_before_the_first_charge_and_keeps_it(
    tmp_path: Path,
) -> None:
    parties = capped(tmp_path, 1.0)
    parties.serve()
    parties.close()
    found = {name: cap_of(tmp_path, name) for name in HOSPITALS}
    wanted = Cap(epsilon=1.0, delta=1e-5, relation="add-remove", studies="adaptive")
    assert found == dict.fromkeys(HOSPITALS, wanted)

    again = replace(parties.study, name="a second consortium", toml="")
    for site in parties.sites.values():
        site.approve(again, site.roster)
    parties.study = again
    for name in HOSPITALS:
        parties.start(name)
    rows = {name: list(parties.seats[name]._ledger.entries()) for name in HOSPITALS}  # type: ignore[attr-defined]
    with pytest.raises(BudgetError, match="its ledger refuses the attempt: a cap"):
        parties.serve(timeouts=SOON, out=tmp_path / "again")
    after = {name: list(parties.seats[name]._ledger.entries()) for name in HOSPITALS}  # type: ignore[attr-defined]
    assert after == rows


def test_p24_a_cap_that_a_silo_has_set_itself_counts(tmp_path: Path) -> None:
    parties = capped(tmp_path, 1.0)
    own = Cap(epsilon=5.0, delta=1e-5, relation="add-remove", studies="adaptive")
    parties.seats["hungary"]._ledger.set_cap(own)  # type: ignore[attr-defined]
    parties.serve()
    parties.close()
    assert cap_of(tmp_path, "hungary") == own


@pytest.mark.slow
def test_a_study_that_proposes_no_cap_sets_none(tmp_path: Path) -> None:
    parties = capped(tmp_path, 0.0)
    parties.serve()
    parties.close()
    assert cap_of(tmp_path, "cleveland") is None
