"""Data sets of torch in place of arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import hubbub
from hubbub.core.errors import DataError
from hubbub.learning.runs.array_inputs import arrays_of


class Own(Dataset):
    """Records made one by one, as an image loader makes them."""

    def __init__(self, x: np.ndarray, y: list[str]) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: int) -> tuple[np.ndarray, str]:
        return self.x[place], self.y[place]


def arrays(seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).uniform(-1, 1, (40, 3)).astype(np.float32)
    return x, np.where(x[:, 0] > 0, "ill", "well")


def test_a_data_set_gives_the_arrays_that_it_was_made_of():
    x, y = arrays(0)
    for made in (Own(x, y.tolist()), TensorDataset(torch.tensor(x), torch.tensor(y == "ill"))):
        features, targets = arrays_of("north", made)
        assert features.tobytes() == x.tobytes()
        assert [str(one) in ("ill", "True") for one in targets] == (y == "ill").tolist()


def test_what_is_no_data_set_stays_as_it_is():
    for one in ((1, 2), [1, 2], np.zeros(3), {"a": 1}, torch.zeros(3), 5, None):
        assert arrays_of("north", one) is one


@pytest.mark.slow
def test_fit_takes_data_sets(tmp_path):
    silos = {name: Own(*arrays(seed)) for seed, name in enumerate(("north", "south", "west"))}
    result = hubbub.fit(silos, epsilon=5, steps=2, classes=["well", "ill"], out=tmp_path / "run")
    assert result.predict(np.eye(3, dtype=np.float32)).shape == (3,)


@pytest.mark.parametrize(
    "items",
    [[], [(np.zeros(3), 1), (np.zeros(4), 1)], [np.zeros(3)], [(np.zeros(3), 1, 2)]],
    ids=["none", "shapes", "no pairs", "triples"],
)
def test_a_data_set_of_something_else_is_refused(items):
    class Odd(Dataset):
        def __len__(self) -> int:
            return len(items)

        def __getitem__(self, place: int):
            return items[place]

    with pytest.raises(DataError, match="expected"):
        arrays_of("north", Odd())
