"""Tables of records: how the cells of a file become the features and targets of one silo."""

from __future__ import annotations

from hubbub.tabular.cells import read_cells
from hubbub.tabular.column import Column, columns_from
from hubbub.tabular.records import Records
from hubbub.tabular.table import encode_table, read_table

__all__ = ["Column", "Records", "columns_from", "encode_table", "read_cells", "read_table"]
