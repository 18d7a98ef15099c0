"""Small models run on one thread, and torch's own setting comes back afterwards."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch

from hubbub.learning import threads_for


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
