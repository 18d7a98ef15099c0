"""Short pauses and one thread for tests: neither guards anything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hubbub.network import assembly, conductor


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(conductor, "_PAUSE", 0.02)
    monkeypatch.setattr(conductor, "_PING", 20.0)
    monkeypatch.setattr(assembly, "_PING", 20.0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
