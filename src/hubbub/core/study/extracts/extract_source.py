"""Which source a study's records come from piece by piece, and the folder that it has at a silo."""

from __future__ import annotations

from pathlib import Path

from hubbub.core.study.data import Data
from hubbub.core.study.extracts import table_parts
from hubbub.core.study.extracts.cell_stream import CellStream
from hubbub.core.study.extracts.extract import home_of
from hubbub.core.study.site_mapping import mapped_stream, mapping_of
from hubbub.core.study.source import table_source


def opened(data: Data, party: str, folder: Path) -> CellStream:
    """A silo's cells.

    Args:
        data: of the study; its source is one of `Data.is_extracted`.
        party: the silo.
        folder: that its connection, or its files, are in.

    Raises:
        UserError, DataError: nothing here says where they are.
    """
    if (source := table_source(data.source)) is not None:
        stream = source.stream(data, party, folder)
    else:
        stream = table_parts.stream(folder / data.files.replace("{name}", party))
    return mapped_stream(stream, mapping_of(party, home_of(folder), data.patient))
