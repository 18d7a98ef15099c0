"""The extract: what a source gave a study at one reading, encoded and sealed, kept at the site.

A table may change while a study goes on, and a view or a grant may go. Nothing of that is seen by
anybody: a study's records are read once, before others are told that this party is there, and what
was read is used until the study is over, withdrawn or begun anew under another id. It lies in the
party's own folder, sealed, for its owner alone:

    extracts/ID-NAME/    by study and silo: arrays
    extracts.key         what they are sealed by
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np

from hubbub.core.disk import locked, sync_folder, why_of
from hubbub.core.errors import DataError
from hubbub.core.study.extracts.cell_stream import CellStream
from hubbub.core.study.extracts.extract_gathering import gather
from hubbub.core.study.extracts.sealed_arrays import (
    HEAD,
    Arrays,
    Seal,
    key_in,
    read_arrays,
    write_head,
)
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records, unit_rows
from hubbub.core.tabular.table import CodedCells

EXTRACTS, _MAKING, _LOCK = "extracts", ".making-", "lock"
SOURCES, _HOME = "sources.toml", "hubbub-home"


def home_of(folder: Path) -> Path:
    """The party's folder: the one that is given, or `hubbub-home` in it."""
    inner = folder / _HOME
    return inner if not (folder / SOURCES).is_file() and inner.is_dir() else folder


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
    names = ("inputs", "targets", "patients", "groups")
    extract = _extract(study, party, home, opened, names)
    return Records(
        inputs=extract["inputs"],
        targets=extract["targets"],
        patients=extract.get("patients"),
        groups=extract.get("groups"),
    )


def cells_in(study: Study, party: str, home: Path, opened: Callable[[], CellStream]) -> CodedCells:
    """A silo's cells for statistics; see `records_in`."""
    extract = _extract(study, party, home, opened, ("cells", "patients"))
    names = list(study.cell_columns)
    units = None
    if "patients" in extract:
        units = unit_rows(np.asarray(extract["patients"]), study.data.most_per_patient)
    return CodedCells({name: extract["cells"][:, k] for k, name in enumerate(names)}, units)


def forget(study: bytes, party: str, home: Path) -> None:
    """Remove a study's extract, and what a process that was killed had begun: it is over here."""
    place = _place(study, party, home)
    shutil.rmtree(place, ignore_errors=True)
    _sweep(place.parent)


def is_kept(study: Study, party: str, home: Path) -> bool:
    """Whether a study's extract is there."""
    return (_place(study.id, party, home) / HEAD).is_file()


def _place(study: bytes, party: str, home: Path) -> Path:
    return home / EXTRACTS / f"{study.hex()[:32]}-{party}"


def make(study: Study, party: str, home: Path, opened: Callable[[], CellStream]) -> None:
    """Read a source, unless it has been read; see `records_in`."""
    if not is_kept(study, party, home):
        _make(study, party, home, opened())


def _extract(
    study: Study,
    party: str,
    home: Path,
    opened: Callable[[], CellStream],
    names: tuple[str, ...],
) -> Arrays:
    """Some arrays of an extract, and what there is of them."""
    make(study, party, home, opened)
    place = _place(study.id, party, home)
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        return read_arrays(place, _seal(study, party, home), names)
    raise DataError(
        f"expected what was read for {study.name} as it was kept in {place.resolve()} for "
        f"{party}, found it altered; bring back a copy, or withdraw the study"
    )


def _seal(study: Study, party: str, home: Path) -> Seal:
    return Seal(key_in(home), f"{study.id.hex()} {party}")


def _make(study: Study, party: str, home: Path, stream: CellStream) -> None:
    """Read a source once; the extract is there whole, or not at all."""
    place = _place(study.id, party, home)
    with ExitStack() as held:
        try:
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _sweep(place.parent)
            scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=_MAKING))  # its owner's alone
            held.callback(shutil.rmtree, scratch, ignore_errors=True)
            held.enter_context(locked(scratch / _LOCK))
            seal = _seal(study, party, home)
        except (OSError, ValueError) as error:
            why = why_of(error) if isinstance(error, OSError) else "a key that is none"
            raise DataError(
                f"expected to keep what is read in {place.parent.resolve()}, got: {why}; see who "
                "may write there"
            ) from None
        write_head(scratch, seal, gather(study, stream, scratch, seal))
        with suppress(OSError):  # another process was first: its extract is the study's
            scratch.rename(place)
            sync_folder(place.parent)


def _sweep(folder: Path) -> None:
    """Remove what a process that was killed has begun."""
    for left in folder.glob(f"{_MAKING}*"):
        with suppress(OSError):  # it is being made
            with locked(left / _LOCK):
                pass
            shutil.rmtree(left, ignore_errors=True)
