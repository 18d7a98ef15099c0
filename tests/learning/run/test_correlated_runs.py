"""Runs with correlated noise (P25): charges, kills, evidence, a rehearsal, and every baseline."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from math import ceil
from pathlib import Path

import numpy as np
import pytest

import hubbub
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.protocol.primitives.correlated_noise import CorrelatedNoise
from hubbub.core.protocol.primitives.wire import Frame
from hubbub.core.protocol.round.round_parameters import PresentThroughout, RoundParameters
from hubbub.core.verification.replay.checking import verify
from hubbub.learning.runs import baselines
from run.finished import a_study

BANDS, STEPS = 3, 8
NOISE = (
    (
        'optimizer = { name = "adam", lr = 0.1 }',
        f'optimizer = {{ name = "sgd", lr = 0.5 }}\nnoise = "correlated"\nbands = {BANDS}',
    ),
)


def study(steps: int = STEPS, *more: tuple[str, str]) -> hubbub.Study:
    return a_study(steps=steps, changes=(*NOISE, *more))


def charged(home: Path) -> dict[str, list[tuple[bytes, int, int]]]:
    """What the ledgers hold, by silo."""
    found = {}
    for path in sorted(home.glob("*.sqlite")):
        with Ledger(path) as ledger:
            found[path.stem] = [(one.session, one.round, one.attempt) for one in ledger.entries()]
    return found


def falsehoods(folder: Path) -> list[str]:
    return [str(one) for one in verify(folder) if not one.holds]


def test_p25_a_row_is_charged_for_each_part_of_a_session_and_all_of_it_verifies(
    tmp_path: Path,
) -> None:
    result = hubbub.run(study(), tmp_path / "run")
    for rows in charged(tmp_path / "ledgers").values():
        assert [(number, attempt) for _, number, attempt in rows] == [(1, 0), (4, 0), (7, 0)]
    assert result.epsilon == pytest.approx(result.plan.epsilon())
    assert falsehoods(tmp_path / "run") == []
    evidence = json.loads((tmp_path / "run/evidence.json").read_text())
    assert {part["attempts"] for part in evidence["silos"]} == {9}
    with Ledger(tmp_path / "ledgers" / "hungary.sqlite") as ledger:
        spent = ledger.epsilon(delta=1e-5, relation="add-remove")
    assert spent == pytest.approx(result.plan.epsilon(), rel=1e-3)


@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("at", [2, 3])
def test_p25_a_run_that_goes_on_begins_a_new_block_and_pays_no_more(
    tmp_path: Path, at: int
) -> None:
    """The rows of the lost session are spent; so many attempts fewer are left."""

    def stop(step: int, _: Mapping[str, float]) -> None:
        if step == at:
            raise KeyboardInterrupt

    one = study(9)
    with contextlib.suppress(KeyboardInterrupt):
        hubbub.run(one, tmp_path / "run", progress=stop)
    result = hubbub.resume(tmp_path / "run")
    for rows in charged(tmp_path / "ledgers").values():
        sessions = Counter(session for session, _, _ in rows)
        assert next(iter(sessions.values())) == ceil(at / BANDS)
        assert sum(sessions.values()) <= ceil(9 / BANDS)
    assert result.steps == at + 9 - BANDS * ceil(at / BANDS)
    assert result.epsilon <= result.plan.epsilon() * (1 + 1e-9)
    assert falsehoods(tmp_path / "run") == []


def test_p25_an_aggregator_that_lost_count_is_found_by_those_who_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its silos must have been altered, too: they took any number for the next."""
    real = RoundParameters.model_parts
    monkeypatch.setattr(
        RoundParameters,
        "model_parts",
        lambda round_parameters, active, model, row: real(
            round_parameters, active, model, row + (row > 2)
        ),
    )
    with monkeypatch.context() as patch:  # the verifier is as it was
        patch.setattr(PresentThroughout, "follow", altered)
        hubbub.run(study(4), tmp_path / "run")
    assert any("expected attempt 3 of the session" in one for one in falsehoods(tmp_path / "run"))


def altered(self: PresentThroughout, model: Frame, *_: object) -> None:
    """A silo that takes any number for the next."""
    self.row = self._numbers.row_of(model)


@pytest.mark.slow
def test_p25_a_rehearsal_has_the_noise_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all shares: the root of N times as much, in the same rows."""
    made: list[CorrelatedNoise] = []

    class Seen(CorrelatedNoise):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(baselines, "CorrelatedNoise", Seen)
    (result,) = hubbub.rehearse(study(5))
    round_parameters = result.plan.main.share_sigma_grid
    assert made[0]._sigma == pytest.approx(round_parameters * 2)
    assert made[0].last == 5
    assert len(made) == 1


@pytest.mark.slow
@pytest.mark.parametrize("baseline", ["trusted", "local-dp", "alone", "non-private"])
def test_baselines_have_the_batches_and_the_noise_of_the_study(baseline: str) -> None:
    """P17: each is made as the study is."""
    result = hubbub.run(study(4), baseline=baseline)
    assert np.isfinite(result.final["loss"])
