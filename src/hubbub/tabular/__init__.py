"""Tables of records: how the cells of a file become the features and targets of one silo."""

from hubbub.tabular.cell_rule import (
    GAP,
    NUMBER,
    SPELLING,
    CellFault,
    Rule,
    canonical,
    number_in,
    number_rule,
    read_column,
)
from hubbub.tabular.cells import cells_of, is_in_proportion, read_cells
from hubbub.tabular.column import Column
from hubbub.tabular.csv_text import cell_text, csv_text
from hubbub.tabular.declared_columns import columns_from
from hubbub.tabular.levels import Cells, Levels, column_of
from hubbub.tabular.outcome import (
    COUNT,
    KINDS,
    LOG_LINK,
    NUMERIC,
    TIME_TO_EVENT,
    Outcome,
    refuse_other_targets,
)
from hubbub.tabular.patient_keys import patient_key, patient_numbers
from hubbub.tabular.records import MOST_PER_PATIENT, Records, UnitRows, unit_rows
from hubbub.tabular.table import (
    CodedCells,
    class_rule,
    coded_cells,
    encode_inputs,
    encode_table,
)
