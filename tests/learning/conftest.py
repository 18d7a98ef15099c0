"""With `--device cuda`, sums of these files are made there: models and records are born on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

BORN_THERE = ("test_clipped_sum.py", "test_device_sums.py", "test_wide_resnet.py")
# Whose records come from NumPy, whose numbers from a generator of the processor's, or which ask
# for what only a processor gives: the sums of pieces, or the model's own type.
ON_A_PROCESSOR = (
    "task",
    "on_a_processor",
    "stay_on_a_device",
    "published_size",
    "passes_the_clip",
    "rounded_towards",
)


@pytest.fixture(autouse=True)
def small_models_by_pieces(request: pytest.FixtureRequest, monkeypatch) -> None:
    """The models here stand for large ones, whose sums a processor makes by pieces."""
    if request.path.parent == Path(__file__).parent and request.path.name != "test_small_models.py":
        from hubbub.learning import device_sums

        monkeypatch.setattr(device_sums, "_SMALL", 0)


@pytest.fixture(autouse=True)
def born_on_the_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing without the option."""
    device, name = str(request.config.getoption("--device")), request.node.name
    if not device or request.path.name not in BORN_THERE or any(s in name for s in ON_A_PROCESSOR):
        yield
        return
    import torch

    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)
