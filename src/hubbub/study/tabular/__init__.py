"""Tables of records: how the cells of a file become the features and targets of one silo."""

from hubbub.study.tabular.cells import cells_of, read_cells
from hubbub.study.tabular.column import Column, canonical, columns_from, number_in
from hubbub.study.tabular.csv_text import cell_text, csv_text
from hubbub.study.tabular.outcome import (
    AMOUNT,
    COUNT,
    KINDS,
    TIME_TO_EVENT,
    Outcome,
    refuse_other_targets,
)
from hubbub.study.tabular.patient_keys import patient_key, patient_numbers
from hubbub.study.tabular.records import MOST_PER_PATIENT, Records, UnitRows, unit_rows
from hubbub.study.tabular.table import (
    CodedCells,
    coded_cells,
    encode_inputs,
    encode_table,
)
