"""Which source a study's records come from piece by piece, and the folder that it has at a silo."""

from __future__ import annotations

from pathlib import Path

from hubbub.study.data import Data
from hubbub.study.extracts import table_parts
from hubbub.study.extracts.cell_stream import CellStream
from hubbub.study.harmonising.site_mapping import mapped_stream, mapping_of
from hubbub.study.sql.connection import home_of


def opened(data: Data, party: str, folder: Path) -> CellStream:
    """A silo's cells.

    Args:
        data: of the study; its source is one of `Data.is_extracted`.
        party: the silo.
        folder: that its connection, or its files, are in.

    Raises:
        UserError, DataError: nothing here says where they are.
    """
    from hubbub.study.omop import compiling
    from hubbub.study.sql import source

    mapping = mapping_of(party, home_of(folder), data.patient)
    if data.files:
        return mapped_stream(
            table_parts.stream(folder / data.files.replace("{name}", party)), mapping
        )
    if data.omop is not None:
        stream = source.stream_of(compiling.compiled(data.omop), party, folder)
    else:
        stream = source.stream(data, party, folder)
    return mapped_stream(stream, mapping)
