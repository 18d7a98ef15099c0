"""A model that does more for one record than for another is warned of (P19, "Limit")."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn

from hubbub.learning import method_and_work, method_for


class Recurrent(nn.Module):
    """A cell that is unrolled to a record's own length."""

    def __init__(self, length) -> None:
        super().__init__()
        self.length, self.cell, self.last = length, nn.RNNCell(1, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(len(x), 4)
        for place in range(self.length(x)):
            state = self.cell(x[:, place, None], state)
        return self.last(state)


def whole(x: torch.Tensor) -> int:
    return x.shape[1]


def to_padding_of_zeros(x: torch.Tensor) -> int:
    return int((x != 0).sum(1).max())


def to_padding_of_nan(x: torch.Tensor) -> int:
    return int((~x.isnan()).sum(1).max())


def as_the_first_number_says(x: torch.Tensor) -> int:
    return int(x[:, 0].clamp(0, x.shape[1]).max())


def to_a_mark(x: torch.Tensor) -> int:
    ends = (x[0] == -1).nonzero()
    return int(ends[0]) if len(ends) else x.shape[1]


def to_a_rare_number(x: torch.Tensor) -> int:
    return 1 if float(x.max()) == 123.25 else x.shape[1]


class Branching(nn.Module):
    """Does something costly for records that stand out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if x.abs().max() > 5:
            x = torch.linalg.matrix_exp(x[:, :, None] * x[:, None] / 1e4)[:, 0]
        return self.last(x)


def seen(model: nn.Module) -> tuple[str, bool]:
    found = method_and_work(model, (16,), np.zeros(1, np.int64))
    return found.method, found.work_varies


LENGTHS = [to_padding_of_zeros, to_padding_of_nan, as_the_first_number_says, to_a_mark]


@pytest.mark.slow
@pytest.mark.parametrize("length", LENGTHS)
def test_a_loop_to_a_records_own_length_is_seen(length, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        assert method_for(Recurrent(length), (16,), np.zeros(1, np.int64)) == "loop"
    assert "the time it takes reveals something about records" in caplog.text


def test_a_branch_on_what_a_record_holds_is_seen() -> None:
    assert seen(Branching()) == ("loop", True)


@pytest.mark.slow
def test_the_same_work_for_every_record_is_not_warned_of(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        assert seen(Recurrent(whole)) == ("loop", False)
        assert seen(nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 2))) == ("chain", False)
        assert seen(nn.Sequential(nn.Linear(16, 4), nn.LayerNorm(4))) == ("vmap", False)
    assert not caplog.text


@pytest.mark.slow
def test_what_made_up_records_do_not_show_is_not_seen() -> None:
    """Why no difference shows nothing, as the pages say."""
    assert seen(Recurrent(to_a_rare_number)) == ("loop", False)
