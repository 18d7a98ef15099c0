"""A frozen feature extractor, run once per data set and kept on disk.

The cache is keyed by what the features depend on: the extractor's layers and weights, and the
records. It holds features of private records, so it stays on the silo's machine, readable by its
owner only. The extractor must be public: trained on other data, or it leaks.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.errors import IntegrityError


def frozen_features(
    extractor: nn.Module, inputs: torch.Tensor, cache: Path, *, chunk: int = 256
) -> NDArray[Any]:
    """The outputs of `extractor` in eval mode, from the cache where they have been computed before.

    Args:
        extractor: any module; its mode is put back afterwards.
        inputs: records (n, ...), of the shape and dtype that the extractor takes.
        cache: a folder, made if missing.
        chunk: how many records are evaluated at once, at least 1.

    Returns:
        (n, ...), in the dtype and of the shape that the extractor gives.

    Raises:
        IntegrityError: the cached file cannot be read.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     frozen_features(nn.Flatten(), torch.zeros(3, 2, 2), Path(folder)).shape
    (3, 4)
    """
    path = cache / f"features-{_key(extractor, inputs)}.npy"
    if not path.exists():
        _store(path, _computed(extractor, inputs, chunk))
    try:
        features: NDArray[Any] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise IntegrityError(
            f"expected a whole array in the cache {path}, found that it cannot be read; delete it"
        ) from error
    return features


def _key(extractor: nn.Module, inputs: torch.Tensor) -> str:
    """SHA-256 over the extractor's layers and weights and the records."""
    digest = hashlib.sha256(repr(extractor).encode())
    for name, tensor in (*extractor.state_dict().items(), ("inputs", inputs)):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


@torch.no_grad()
def _computed(extractor: nn.Module, inputs: torch.Tensor, chunk: int) -> NDArray[Any]:
    """Run the extractor chunk by chunk."""
    training = extractor.training
    extractor.eval()
    try:
        pieces = [extractor(piece) for piece in inputs.split(chunk)]
    finally:
        extractor.train(training)
    features: NDArray[Any] = torch.cat(pieces).cpu().numpy()
    return features


def _store(path: Path, features: NDArray[Any]) -> None:
    """Write the array whole or not at all, for its owner's eyes."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Two silos of one machine may hold the same records: each writes a file of its own.
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        np.save(file, features, allow_pickle=False)
    Path(file.name).replace(path)
