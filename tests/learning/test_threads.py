"""Small models run on one thread, and torch's own setting comes back afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn

from hubbub.learning import threads_for
from hubbub.learning.evaluation import Scorer, scores


@pytest.mark.parametrize(("parameters", "inside"), [(27, 1), (10**6, 2)])
def test_the_number_of_threads_follows_the_model_and_comes_back(
    parameters: int, inside: int
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert interrupted(parameters) == inside
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def interrupted(parameters: int) -> int:
    """The number of threads inside, left by an error."""
    with suppress(KeyError), threads_for(parameters):
        inside = torch.get_num_threads()
        raise KeyError
    return inside


# Ends where torch would be loaded, and says what its threads are told then.
_AT_TORCH = """
import os, sys

class Torch:
    def find_spec(self, name, *_):
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"))
            raise SystemExit

sys.meta_path.insert(0, Torch())
import hubbub.%s
hubbub.learning.clipped_sum  # the first name that is used loads torch
"""


@pytest.mark.quick_cases("-PASSIVE-learning", "ACTIVE-ACTIVE-learning")
@pytest.mark.parametrize(
    "module", ["learning", "learning.runs.baselines", "site.network.silo_endpoint"]
)
@pytest.mark.parametrize(("said", "found"), [("", "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_that_wait_sleep_unless_somebody_wants_them_awake(
    module: str, said: str, found: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": said} if said else {}
    told = subprocess.run(
        [sys.executable, "-c", _AT_TORCH % module],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == [found]


def test_predictions_are_made_of_whole_products_as_scores_are() -> None:
    """A caller who asks for short products would predict otherwise than was evaluated."""

    class Asking(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            asked_for.append(torch.get_float32_matmul_precision())
            return super().forward(x)

    asked_for: list[str] = []
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        predicted = scores(Scorer(Asking(3, 2)), np.ones((4, 3), np.float32))
        assert predicted.shape == (4, 2)
        assert (asked_for, torch.get_float32_matmul_precision()) == (["highest"], "medium")
    finally:
        torch.set_float32_matmul_precision(before)
