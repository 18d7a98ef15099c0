"""Wide residual networks: their size, that records do not meet, and clipped sums of them."""

from __future__ import annotations

import pytest
import torch

from hubbub import Study
from hubbub.core.errors import StudyError
from hubbub.learning import build_model, clipped_sum
from hubbub.learning.models import default_loss

torch.set_num_threads(1)


def test_wrn_16_4_has_the_published_size_and_is_made_alike_everywhere() -> None:
    model, again = (
        build_model("wide-resnet", inputs=(3, 32, 32), outputs=10, seed=b"s") for _ in range(2)
    )
    size = sum(p.numel() for p in model.parameters())
    assert 2.74e6 < size < 2.76e6  # De et al. 2022: 2.7M
    assert all(map(torch.equal, model.parameters(), again.parameters()))
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_for_times_it_ends_in_hazards_as_other_models_do() -> None:
    images = torch.zeros(2, 1, 16, 16)
    for kind, sizes in (("wide-resnet", {"depth": 10, "width": 1}), ("cnn", {})):
        model = build_model(kind, inputs=(1, 16, 16), outputs=1, seed=b"s", intervals=5, **sizes)
        assert model(images).shape == (2, 5)


def test_its_clipped_sum_by_vmap_is_the_one_record_by_record() -> None:
    model = build_model("wide-resnet", inputs=(1, 8, 8), outputs=1, seed=b"s", depth=10, width=1)
    torch.manual_seed(0)
    images, targets = torch.randn(3, 1, 8, 8), torch.tensor([0.0, 1.0, 1.0])
    assert model(images).shape == (3,)
    sums = {
        method: clipped_sum(
            model.double(), default_loss(1), images.double(), targets.double(), 0.5, method=method
        ).vector
        for method in ("vmap", "loop")
    }
    torch.testing.assert_close(sums["vmap"], sums["loop"])
    assert 0 < sums["loop"].norm() <= 1.5


def test_a_kernel_is_of_mean_0_and_length_1() -> None:
    model = build_model("wide-resnet", inputs=(1, 8, 8), outputs=1, seed=b"s", depth=10, width=1)
    first = model[0]
    with torch.no_grad():
        before = first(torch.ones(1, 1, 8, 8))
        first.weight.mul_(7).add_(3)
        torch.testing.assert_close(first(torch.ones(1, 1, 8, 8)), before)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("depth = 17", "10, 16, 22, 28"),
        ("hidden = [4]", "model.hidden"),
        ("inputs = [5]", "channels, height, width"),
    ],
)
def test_what_no_such_network_has_is_refused(model: str, said: str) -> None:
    text = f"""
        [study]
        name = "images"
        [parties]
        silos = 4
        [data]
        source = "python:somewhere:images"
        [model]
        kind = "wide-resnet"
        outputs = 10
        {model}
        [training]
        steps = 2
        sample_rate = 0.5
        [privacy]
        epsilon = 1.0
    """
    with pytest.raises(StudyError, match=said):
        Study.parse(text)
    with pytest.raises(StudyError, match="depth of 10"):
        build_model("wide-resnet", inputs=(1, 8, 8), outputs=1, seed=b"", depth=9)
    with pytest.raises(StudyError, match="height, width"):
        build_model("wide-resnet", inputs=(8,), outputs=1, seed=b"")
