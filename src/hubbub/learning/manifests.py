"""Records that a manifest lists, a file each, for data functions of one's own (docs/data.md)."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.disk import read_bytes
from hubbub.core.errors import DataError
from hubbub.core.tabular.cells import canonical, read_cells
from hubbub.core.tabular.records import Records, patient_key

_MOST_BYTES = 1 << 30  # of a file that a manifest lists
_COLUMNS = ("path", "label", "sha256")


def manifest_records(
    manifest: str | Path, *, classes: Sequence[str], patients: bool = False
) -> Records:
    r"""The records that a manifest lists.

    Guarantees:
        1. A file whose SHA-256 is not the manifest's is refused.
        2. No error has a label, a path or a row of the manifest.

    Args:
        manifest: a CSV or Parquet file with the columns `path` (relative to the manifest), `label`
            and `sha256`, one row a record; with `patients` also `patient`.
        classes: the labels, in the order of the class numbers.
        patients: whether rows with one `patient` are one unit.

    Returns:
        Inputs as float32: of `.npy` files as they are; of images (with Pillow) from 0 to 1, shape
        (channels, height, width). Targets float32 of two classes, int64 of more.

    Raises:
        DataError: a file is not what the manifest says, or files differ in shape.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "one.npy", np.zeros((2, 3)))
    >>> digest = hashlib.sha256((folder / "one.npy").read_bytes()).hexdigest()
    >>> written = (folder / "list.csv").write_text(f"path,label,sha256\none.npy,ill,{digest}\n")
    >>> manifest_records(folder / "list.csv", classes=["well", "ill"])
    <Records of shape (2, 3), targets float32>
    """
    path = Path(manifest)
    cells = read_cells(path)
    wanted = (*_COLUMNS, *(["patient"] if patients else []))
    if absent := [name for name in wanted if name not in cells]:
        raise DataError(
            f"expected a column {absent[0]!r} in {path.name}, found none of that name; write "
            "path,label,sha256"
        )
    numbers = {canonical(label): place for place, label in enumerate(classes)}
    targets = [numbers.get(canonical(label)) for label in cells["label"]]
    if not targets or None in targets:
        raise DataError(
            f"expected labels out of {list(classes)} in {path.name}, found others or none; correct "
            "them, or add them to classes"
        )
    return Records(
        inputs=_stacked(path, cells["path"], cells["sha256"]),
        targets=np.array(targets, dtype=np.float32 if len(classes) == 2 else np.int64),
        patients=np.array([patient_key(text) for text in cells["patient"]]) if patients else None,
    )


def _stacked(manifest: Path, paths: Sequence[str], hashes: Sequence[str]) -> NDArray[np.float32]:
    stack: NDArray[np.float32] | None = None
    for place, (name, digest) in enumerate(zip(paths, hashes, strict=True)):
        array = _listed(manifest, name, digest)
        if stack is None:
            stack = np.empty((len(paths), *array.shape), dtype=np.float32)
        if array.shape != stack.shape[1:]:
            raise DataError(
                f"expected files of one shape in {manifest.name}, found several; resize or pad them"
            )
        stack[place] = array
    assert stack is not None, "a manifest with rows"  # noqa: S101
    return stack


def _listed(manifest: Path, name: str, digest: str) -> NDArray[np.float32]:
    """One file; what its reader says may name a person, and is not passed on."""
    array: NDArray[np.float32] | None = None
    with suppress(Exception):
        content = read_bytes(manifest.parent / name, most=_MOST_BYTES)
        if hashlib.sha256(content).hexdigest() == digest.lower():
            array = _array(name, content)
    if array is None:
        raise DataError(
            f"expected each file of {manifest.name} as its sha256 says, found one that is not "
            "there, is another or cannot be read; write the manifest anew"
        )
    return array


def _array(name: str, content: bytes) -> NDArray[np.float32]:
    if name.lower().endswith(".npy"):
        read: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
        return read.astype(np.float32)
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        pixels = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return planes.astype(np.float32) / np.float32(255)
