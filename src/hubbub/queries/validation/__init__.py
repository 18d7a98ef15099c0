"""A private validation: how good the trained model is on patients, by one noisy sum at the end.

`layout` says what a record is in the sum, by the target's kind (`risks`, `classes`, `amounts`,
`times`); `noisy_table` gives every score its interval; `whose_records` decides which records are
asked; `validation_query` is the query and `answers` what it says.
"""

from hubbub.queries.validation.usual_bins import usual_bins
from hubbub.queries.validation.validation_answers import (
    VALIDATED,
    foreseen_validation,
    planned_validation,
    validation_of,
    write_validation,
)
from hubbub.queries.validation.validation_query import (
    VALIDATION,
    VALIDATION_SUMS,
    ValidationQuery,
    sums_in,
    sums_of,
)
from hubbub.queries.validation.whose_records import held_back_share, whose_records
