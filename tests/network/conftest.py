"""Short pauses and one thread for tests, which guard nothing; and a consortium that is watched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hubbub.network import coordinator
from network.relay import Watched, gathered


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(coordinator, "_PAUSE", 0.02)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def gather(tmp_path: Path) -> Iterator[Any]:
    """A watched consortium; whatever is done to it, the laws hold."""
    made: list[Watched] = []

    def new(nodes: int = 0, **changes: Any) -> Watched:
        made.append(gathered(tmp_path / f"{len(made)}", nodes, **changes))
        return made[-1]

    yield new
    assert [one.broken for one in made if one.broken] == []
