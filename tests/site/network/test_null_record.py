"""An aggregator that picks the weights, against a silo's real endpoint (P14, P19).

It sends weights at which the model raises on the public null record, or writes to its own tensors.
What it gets of a silo with one record more must be as far off as one record may move it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hubbub.core.errors import ModelError
from hubbub.core.study.foreign_code import source_hash
from hubbub.core.tabular.records import Records
from hubbub.learning.batches import held_back
from hubbub.learning.queries.beside_training import EVALUATION
from hubbub.learning.queries.training_query import TRAINING
from network.relay import NAMES, Watched, opened, setting_of, tiny

MOST = 40
HELD: dict[str, Any] = {}  # "study": whose held-back records all of them are; "ann": fewer of them


def records(party: str) -> Records:
    """Records whose gradients all point one way, all of them trained on or all held back."""
    inputs = np.full((400, 3), 0.5, np.float32)
    inputs += 1e-3 * np.arange(400, dtype=np.float32)[:, None]
    made = Records(inputs=inputs, targets=np.ones(400, np.int64))
    known = HELD.get("study")
    if known is not None:
        kept = held_back(made, 0.5, known)
        made = Records(inputs=inputs[kept], targets=made.targets[kept])
    count = HELD.get(party, MOST)
    found = Records(inputs=made.inputs[:count].copy(), targets=made.targets[:count])
    if party == "ann":
        found.inputs[-1, 0] = HELD.get("last", found.inputs[-1, 0])
    return found


class Fragile(nn.Module):
    """A matrix that is positive definite unless weight times the first feature is below -1."""

    def __init__(self, *_: Any) -> None:
        super().__init__()
        self.weight, self.last = nn.Parameter(torch.full((1,), 0.2)), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        matrix = torch.eye(3) * (1 + (self.weight * x[:, :1, None]).clamp(max=1.0))
        return self.last(torch.linalg.cholesky(matrix).diagonal(dim1=-2, dim2=-1) * x)


class Looked(Fragile):
    """The same with a table, which many rows are given to at once."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = (1 + (self.weight * x[:, 0]).clamp(-10, 1.0)).floor().long()
        return self.last(x * nn.functional.embedding(place, torch.ones(3, 3)))


class Remembering(Fragile):
    """Keeps a running mean, at some weights only."""

    def __init__(self, *_: Any) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight < -0.5:
            self.mean.data += x.detach().mean(0)
        return self.last(x + self.mean)


def always(inputs: tuple[int, ...], outputs: int) -> nn.Module:
    """One that remembers from the start."""
    model = Remembering()
    with torch.no_grad():
        model.weight.fill_(-1.0)
    return model


def gathered(home: Path, model: str, purpose: str = TRAINING) -> Watched:
    name = f"python:{__name__}:{model}"
    made = tiny(
        data={
            "source": f"python:{__name__}:records",
            "target": "x",
            "capacity": MOST,
            "records": MOST * len(NAMES),
        },
        model={"kind": name, "inputs": [3], "outputs": 2},
        privacy={"epsilon": 45.0},
        training={"steps": 4, "sample_rate": 1.0},
    )
    if purpose == EVALUATION:
        made["training"] |= {"evaluate": {"every": 1, "epsilon": 25.0, "holdout": 0.5}}
    made["study"] |= {"code": {name: source_hash(name)}}
    parties = Watched.gather(home, made)
    if purpose == EVALUATION:
        HELD["study"] = parties.study.id
    return parties


def summed(home: Path, model: str, purpose: str, weight: float) -> tuple[np.ndarray, float]:
    """What the aggregator reads at its weights, and the deviation of the noise in it."""
    parties = gathered(home, model, purpose)
    session = opened(parties, purpose=purpose)
    chosen = np.linspace(-0.5, 0.5, session.initial.size, dtype=np.float32)
    chosen[0] = weight
    total, _ = session.rounds.round(1, chosen, 1)
    assert total is not None
    step = session.round_parameters.grid_step
    deviation = session.round_parameters.sigma_grid * step * len(NAMES) ** 0.5
    return np.asarray(total) * step, deviation


@pytest.mark.slow
@pytest.mark.parametrize("model", ["Fragile", "Looked", "Remembering"])
@pytest.mark.parametrize("purpose", [TRAINING, EVALUATION])
def test_one_record_more_moves_what_an_aggregator_reads_by_one_record(
    tmp_path, monkeypatch, purpose, model
) -> None:
    weight, sums = -1.0, []
    for count in (MOST, MOST - 1):
        monkeypatch.setitem(HELD, "study", None)
        monkeypatch.setitem(HELD, "ann", count)
        setting_of.cache_clear()
        total, deviation = summed(tmp_path / str(count) / "same keys", model, purpose, weight)
        sums.append(total)
    assert np.abs(sums[0] - sums[1]).max() <= 1.01 + 6 * 2**0.5 * deviation
    assert 1.01 + 6 * 2**0.5 * deviation < 15  # far below what forty records add


@pytest.mark.slow
@pytest.mark.parametrize("model", ["Fragile", "Looked"])
def test_a_record_at_which_the_model_raises_moves_what_is_read_as_one_exchanged_record(
    tmp_path, monkeypatch, model
) -> None:
    sums = []
    for last in (3.0, 0.5):  # at the first the model raises, at the null record it does not
        monkeypatch.setitem(HELD, "last", last)
        setting_of.cache_clear()
        total, deviation = summed(tmp_path / str(last) / "same keys", model, TRAINING, -0.4)
        sums.append(total)
    assert np.abs(sums[0] - sums[1]).max() <= 2.01 + 6 * 2**0.5 * deviation
    assert min(np.linalg.norm(one) for one in sums) > 50


@pytest.mark.slow
def test_nothing_of_records_is_in_the_file_of_a_silo_whose_model_would_remember(tmp_path) -> None:
    parties = gathered(tmp_path, "Remembering")
    session = opened(parties)
    chosen = session.initial.copy()
    chosen[0] = -1.0
    for number in (1, 2):
        session.rounds.round(number, chosen, 1)
    for name in NAMES:
        plain: Any = parties.seats[name]._prepared(parties.study)
        assert not plain.trained(chosen).mean.any()


def test_a_model_that_remembers_is_refused_before_a_row_is_in_any_ledger(tmp_path) -> None:
    parties = gathered(tmp_path, "always")
    with pytest.raises(ModelError, match=r"it changed \['mean'\]"):
        opened(parties)
    assert not any(parties.rows(name) for name in NAMES)
