"""Where a study's records are found: files, built-in data sets, or a user's own function.

`records(study, party)` is called by a silo for its own name, on its own machine, and for "test" by
whoever evaluates on the public test set. This file knows studies and tables, no models.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from hubbub.core.errors import DataError, HubbubError, StudyError
from hubbub.core.settings import shortened
from hubbub.core.study import cell_stream, extract, foreign_code
from hubbub.core.study.cell_stream import (
    Cells,
    CellStream,
    mapped,
    mapped_stream,
    mapping_of,
    sources_of,
)
from hubbub.core.study.data import Data, groups_of_cells, records_of_cells, target_unified
from hubbub.core.study.extract import home_of
from hubbub.core.study.source import IN_MEMORY, OWN, is_own, set_source, table_source
from hubbub.core.study.study import Study
from hubbub.core.tabular.cells import read_cells
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.records import Records
from hubbub.core.tabular.table import CodedCells, coded_cells

TEST = "test"


def records(study: Study, party: str, *, folder: Path | None = None) -> Records:
    """The records of one silo, or the public test set for "test".

    Paths are relative to `folder`, or to the current directory.

    Raises:
        DataError: the records cannot be read, or are not what the study declares.
        StudyError: the study's function cannot be found.
    """
    return units_of(study.data, party, _read(study, party, folder or Path()))


def units_of(data: Data, party: str, given: Records) -> Records:
    """The records with the patients whose they are, no more of each than the study says.

    A test set is measured record by record, whosever they are.

    DataError: the study and the records differ in what one unit is.
    """
    if party == TEST:
        return given if given.patients is None else replace(given, patients=None)
    if (given.patients is None) == bool(data.patient):
        wanted, got = ("patients", "none") if data.patient else ("no patients", "some")
        raise DataError(
            f"expected {wanted} with the records of {party}, as data.patient says, got {got}; "
            "hand over Records(..., patients=...) or leave data.patient out"
        )
    # P21: no unit has more places than the study says, so its shape tells nothing.
    return given.capped(data.most_per_patient)


def _read(study: Study, party: str, folder: Path) -> Records:
    """What the study's files or function hold for a party."""
    if study.data.is_extracted and party != TEST:
        cells = partial(opened, study.data, party, folder)
        return extract.records_in(study, party, home_of(folder), cells)
    if study.data.is_declared:
        return _from_file(study, party, folder)
    if study.data.source == IN_MEMORY:
        raise StudyError(
            f"expected the records of {party} to be handed over, as the study says, got none; run "
            "the study with hubbub.fit, or name files"
        )
    source = named_object(study.data.source, "data.source")
    options = dict(study.data.options)
    try:
        signature(source).bind(party, **options)
    except (TypeError, ValueError) as error:
        raise StudyError(
            f"expected data.options that {study.data.source} takes, got {sorted(options)} "
            f"({error}); correct them"
        ) from None
    given, raised = attempted(partial(source, party, **options))
    if raised:  # by its kind alone: its words may quote a record
        raise DataError(
            f"expected {study.data.source} to return the records of {party}, it raised {raised}; "
            "call it where the records are to see why"
        )
    if not isinstance(given, Records):
        raise DataError(
            f"expected {study.data.source} to return hubbub.Records, "
            f"got {type(given).__name__}; fix the function"
        )
    return given


def opened(data: Data, party: str, folder: Path) -> CellStream:
    """A silo's cells, of a study whose data are extracted from what is in a folder.

    UserError, DataError: nothing here says where they are.
    """
    if (source := table_source(data.source)) is not None:
        stream = source.stream(data, party, folder)
    else:
        stream = cell_stream.parts_stream(folder / data.files.replace("{name}", party))
    return mapped_stream(stream, mapping_of(party, home_of(folder), data.patient, data.columns))


def attempted(work: Callable[[], Any], *, quotes: bool = False) -> tuple[Any, str]:
    """What a user's code gives, or the kind of what it raised: its words may quote a record.

    With `quotes` the code sees no record, and its words and last line are told too.

    What it prints goes to stderr, since a command's stdout may be for machines.

    Raises:
        HubbubError: as the code raised it; of code that sees records one that no log has.
    """
    try:
        with redirect_stdout(sys.stderr):
            return work(), ""
    except HubbubError as error:
        if quotes or not error.free_of_records:
            raise
        raise DataError(str(error)) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the code is the user's, and raises what it likes)
        if not quotes:
            return None, type(error).__name__
        frame = traceback.extract_tb(error.__traceback__)[-1]
        words = shortened(" ".join(str(error).split()), 300)
        where = f"{Path(frame.filename).name}, line {frame.lineno}"
        return None, f"{type(error).__name__}: {words} ({where})"


def check_readable(study: Study, party: str, folder: Path) -> int:
    """Read all that a study asks of a silo's file; how many units there are, itself private."""
    units = records(study, party, folder=folder).units if study.trains else 0
    cells = statistic_cells(study, party, folder=folder) if study.reads_cells else ()
    return max(units, len(cells))


def asked_of_file(study: Study) -> tuple[Any, ...]:
    """All that says what is read of a silo's file, and how many units it may hold, to compare."""
    columns = study.cell_columns if study.reads_cells else None
    return study.trains, study.shows_counts, study.data, study.parties, study.subgroups, columns


def statistic_cells(study: Study, party: str, *, folder: Path | None = None) -> CodedCells:
    """The cells of one silo that a study's statistics are made of; see `records`.

    DataError: they cannot be read, or are not what the study declares.
    """
    if study.data.is_extracted:
        source = partial(opened, study.data, party, folder or Path())
        return extract.cells_in(study, party, home_of(folder or Path()), source)
    data, columns = study.data, list(study.cell_columns.values())
    path = file_of(study, party, folder or Path())
    if path is None:
        return coded_cells(_built_in_cells(study, party), columns, party)
    named = [*(column.name for column in columns), *filter(None, [data.patient])]
    cells = _site_cells(path, named, party, folder or Path(), data)
    unified = target_unified(data, cells)
    return coded_cells(
        unified, columns, path.name, patient=data.patient, most=data.most_per_patient
    )


def _built_in_cells(study: Study, party: str) -> dict[str, Sequence[str]]:
    """The cells of a built-in source; beside a model, without its test set."""
    public = set_source(study.data.source)
    assert public is not None, "cells come from files or from a public set"  # noqa: S101
    source, name = public
    options = ({"split": 0} if study.trains else {}) | dict(study.data.options)
    try:
        return dict(source.cells(name)(party, **options))
    except TypeError:
        raise StudyError(
            f"expected data.options that {study.data.source} takes, got {sorted(options)}; "
            "correct them"
        ) from None


def encoding(study: Study) -> tuple[tuple[Column, ...], str]:
    """How a table of new records becomes features: the columns, and the target's name.

    Without columns all but the target are numbers, used as they are.
    """
    if public := set_source(study.data.source):
        source, name = public
        if source.function(name):  # a name that it lacks is refused where records are read
            return source.encoding(name)
    return study.data.features, study.data.target


def takes_split(study: Study) -> bool:
    """Whether the study's function takes an option `split`, for a public split of its own."""
    if study.data.is_declared or study.data.source == IN_MEMORY:
        return False
    if is_own(study.data.source):
        foreign_code.keep(study, [study.data.source])
    source = named_object(study.data.source, "data.source")
    return "split" in signature(source).parameters


def has_test_set(study: Study) -> bool:
    """Whether the study names a public test set."""
    declared = study.data.is_declared or study.data.source == IN_MEMORY
    return bool(study.data.test) or not declared


def named_object(place: str, key: str) -> Callable[..., Any]:
    """The callable at "module:name" or "python:module:name"."""
    module, _, name = place.removeprefix(OWN).partition(":")
    value, why = None, f"{module} has no {name!r}"
    if public := set_source(place):
        value = public[0].function(name)
    else:
        try:  # what the module says may quote a record
            with redirect_stdout(sys.stderr):
                value = getattr(foreign_code.imported(module), name, None)
        except HubbubError:
            raise
        except ModuleNotFoundError as error:
            why = f"no module named {error.name!r}"
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the user's module raises what it likes)
            why = f"importing it raised {type(error).__name__}"
    if value is None:
        raise StudyError(
            f"expected {key} to name something importable, got {place!r} ({why}); "
            "check the spelling, and that the module is installed here or its folder is in "
            "PYTHONPATH"
        )
    if not callable(value):
        raise StudyError(f"expected {key} to name a function, got {place!r}; name a function")
    return value


def check_file(study: Study, party: str, folder: Path) -> None:
    """Refuse, by its name, that the file of a silo, or of the test set for "test", is not there."""
    path = file_of(study, party, folder)
    in_parts = study.data.is_extracted and party != TEST
    if path is not None and not (path.is_dir() if in_parts else path.is_file()):
        raise DataError(
            f"expected the records of {party} for {study.name} in {path.resolve()}, found no such "
            "file; put it there, or name the folder with --data"
        )


def check_kept(study: Study, party: str, folder: Path) -> None:
    """Refuse to read anew, while others wait, what is read once (docs/privacy.md P31)."""
    if study.data.is_extracted and not extract.is_kept(study, party, home_of(folder)):
        raise DataError(
            f"expected what was read for {study.name} in {home_of(folder).resolve()}, found it "
            "gone; run hubbub join --check, which reads it, with the same --data"
        )


def forget(study: Study, party: str, folder: Path) -> None:
    """Remove what was kept of a silo's records for a study that is over here."""
    if study.data.is_extracted:
        extract.forget(study.id, party, home_of(folder))


def forget_all(study: Study, folder: Path) -> None:
    """The same of every silo: a run in one process that begins reads its records once more."""
    for name in study.parties.names:
        forget(study, name, folder)


def file_of(study: Study, party: str, folder: Path) -> Path | None:
    """The file of a silo's records, or of the test set for "test"; None if there is none."""
    data = study.data
    named = data.test if party == TEST else data.files.replace("{name}", party)
    return folder / named if named else None


def _site_cells(path: Path, named: Sequence[str], party: str, folder: Path, data: Data) -> Cells:
    """The cells of a file as the study names and spells them, by the site's mapping if any."""
    # A test file is everybody's, and no site's mapping is about it.
    is_test = party == TEST
    mapping = {} if is_test else mapping_of(party, home_of(folder), data.patient, data.columns)
    return mapped(read_cells(path, sources_of(named, mapping)), mapping)


def _from_file(study: Study, party: str, folder: Path) -> Records:
    """One silo's file, or the public test file."""
    data, path = study.data, file_of(study, party, folder)
    if path is None:
        raise DataError("expected data.test to name a public test file, got nothing; add it")
    patient = "" if party == TEST else data.patient
    by = study.subgroups if party != TEST else ()
    columns = (*data.features, *(levels.column for levels in by))
    named = [*data.targets, *filter(None, [patient]), *(column.name for column in columns)]
    try:
        cells = _site_cells(path, named if data.features else (), party, folder, data)
        of_file = records_of_cells(data, cells, path.name, patient=patient)
        groups = groups_of_cells(data, by, cells, path.name) if by else None
        return of_file if groups is None else replace(of_file, groups=groups)
    except DataError as error:
        raise DataError(f"{error} (hubbub check lists all that is wrong at once)") from None
