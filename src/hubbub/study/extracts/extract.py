"""The extract: what a source gave a study at one reading, encoded, kept at the site.

A table may change while a study goes on, and a view or a grant may go. Nothing of that is seen by
anybody: a study's records are read once, before others are told that this party is there, and what
was read is used until the study is over, withdrawn or begun anew under another id. It lies in the
party's own folder, for its owner alone, as files of records do:

    extracts/ID-NAME/    by study and silo: arrays, and extract.json with their SHA-256
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from hubbub.disk import json_value, read_text, sync_folder, why_of, write_text
from hubbub.errors import DataError
from hubbub.study.data import columns_of
from hubbub.study.extracts.cell_stream import CellStream
from hubbub.study.extracts.extract_gathering import Arrays, gather
from hubbub.study.study import Study
from hubbub.tabular import CodedCells, Records, unit_rows

EXTRACTS, _HEAD = "extracts", "extract.json"


def records_in(study: Study, party: str, home: Path, opened: Callable[[], CellStream]) -> Records:
    """A silo's records: those of its extract, which is made where there is none yet.

    Args:
        study: whose extract it is.
        party: the silo.
        home: the folder that extracts are in.
        opened: the source.

    Raises:
        DataError: the source cannot be read, or the extract was damaged.
    """
    found = _extract(study, party, home, opened)
    return Records(inputs=found["inputs"], targets=found["targets"], patients=found.get("patients"))


def cells_in(study: Study, party: str, home: Path, opened: Callable[[], CellStream]) -> CodedCells:
    """A silo's cells for statistics; see `records_in`."""
    found = _extract(study, party, home, opened)
    names = list(columns_of(study.data))
    units = None
    if "patients" in found:
        units = unit_rows(np.asarray(found["patients"]), study.data.most_per_patient)
    return CodedCells({name: found["cells"][:, k] for k, name in enumerate(names)}, units)


def forget(study: bytes, party: str, home: Path) -> None:
    """Remove a study's extract: the study is over here."""
    shutil.rmtree(_place(study, party, home), ignore_errors=True)


def is_kept(study: Study, party: str, home: Path) -> bool:
    """Whether a study's extract is there."""
    return (_place(study.id, party, home) / _HEAD).is_file()


def _place(study: bytes, party: str, home: Path) -> Path:
    return home / EXTRACTS / f"{study.hex()[:32]}-{party}"


def _extract(study: Study, party: str, home: Path, opened: Callable[[], CellStream]) -> Arrays:
    """The arrays of an extract."""
    place = _place(study.id, party, home)
    if not (place / _HEAD).is_file():
        _make(study, place, opened())
    return _read(study, party, place)


def _make(study: Study, place: Path, stream: CellStream) -> None:
    """Read a source once; the extract is there whole, or not at all."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = Path(tempfile.mkdtemp(dir=place.parent, prefix=".making-"))  # for its owner alone
    except OSError as error:
        raise DataError(
            f"expected to keep what is read in {place.parent.resolve()}, got: {why_of(error)}; see "
            "who may write there"
        ) from None
    try:
        names = gather(study, stream, made)
        hashes = {name: _sha256(made / f"{name}.npy") for name in names}
        write_text(made / _HEAD, json.dumps({"study": study.id.hex(), "arrays": hashes}))
        with suppress(OSError):  # another process was first: its extract is the study's
            made.rename(place)
            sync_folder(place.parent)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _read(study: Study, party: str, place: Path) -> Arrays:
    """The arrays, checked; they stay on disk until they are used."""
    found: Arrays | None = None
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        head = json_value(read_text(place / _HEAD))
        if head["study"] == study.id.hex():
            hashes = head["arrays"].items()
            if all(_sha256(place / f"{name}.npy") == digest for name, digest in hashes):
                found = {
                    name: np.load(place / f"{name}.npy", mmap_mode="r", allow_pickle=False)
                    for name, _ in hashes
                }
    if found is None:
        raise DataError(
            f"expected what was read for {study.name} as it was kept in {place.resolve()} for "
            f"{party}, found it altered; bring back a copy, or withdraw the study"
        )
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
