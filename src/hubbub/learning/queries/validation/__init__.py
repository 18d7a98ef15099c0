"""A private validation: how good the trained model is on patients, by one noisy sum at the end.

`layout` says what a record is in the sum, by the target's kind (`risks`, `classes`, `amounts`,
`times`); `noisy_table` gives every score its interval; `whose_records` decides which records are
asked; `validation_query` is the query and `answers` what it says.
"""
