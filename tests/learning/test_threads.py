"""Small models run on one thread, and torch's own setting comes back afterwards."""

from __future__ import annotations

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
        with pytest.raises(KeyError), threads_for(parameters):
            assert torch.get_num_threads() == inside
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
