"""Short pauses, long patience, one thread, nothing worked out twice. A watched consortium."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from hubbub.learning.runs import preparing
from hubbub.site.network import (
    coordinator,
    endpoint,
    folder_files,
    local_line,
    monitor,
    party_folder,
)
from hubbub.site.network.nats import relay_connection, server
from network.consortium import planned, sent_home
from network.relay import Watched, gathered

# Seconds that a machine with much else to do may stand still in a log-in or a request.
PATIENCE = 60
# What files say, by their text.
KEYS, IDENTITIES = cache(folder_files.keys_of), cache(folder_files.identities)


@pytest.fixture(autouse=True, scope="module")
def patient() -> Iterator[None]:
    """For a whole file, whose relay may be made before its first test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relay_connection, "CONNECT_SECONDS", float(PATIENCE))
        patch.setattr(relay_connection, "_SECONDS", 2.0 * PATIENCE)
        patch.setattr(server, "_LOGIN_SECONDS", PATIENCE)
        patch.setattr(server, "_TAKEN_SECONDS", float(PATIENCE))
        patch.setattr(monitor._Quiet, "timeout", PATIENCE)
        patch.setattr(local_line, "_STALLED", float(PATIENCE))
        yield


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(coordinator, "_PAUSE", 0.02)
    monkeypatch.setattr(relay_connection, "_PAUSES", (0.02, 0.2))
    monkeypatch.setattr(relay_connection, "_UNKNOWN_SECONDS", 0.5)
    monkeypatch.setattr(server, "_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(preparing, "plan_study", planned)
    monkeypatch.setattr(endpoint, "plan", planned)
    monkeypatch.setattr(party_folder, "keys_of", KEYS)
    monkeypatch.setattr(folder_files, "identities", IDENTITIES)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def after_each_file() -> Iterator[None]:
    """What a fixture gathered for a whole file is closed after it."""
    with sent_home():
        yield


@pytest.fixture(autouse=True)
def after_each_test() -> Iterator[None]:
    """A ledger left open keeps its files open until the process ends."""
    with sent_home():
        yield


@pytest.fixture
def gather(tmp_path: Path) -> Iterator[Any]:
    """A watched consortium; whatever is done to it, the laws hold."""
    made: list[Watched] = []

    def new(nodes: int = 0, **changes: Any) -> Watched:
        made.append(gathered(tmp_path / f"{len(made)}", nodes, **changes))
        return made[-1]

    yield new
    assert [one.broken for one in made if one.broken] == []
