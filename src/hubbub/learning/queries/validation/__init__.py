"""A private validation: how good the trained model is on patients, by one noisy sum at the end.

`layout` says what a record is in the sum, `kinds` what that is for each kind of target;
`noisy_table` gives every score its interval; `validation_query` is the query, which records it
asks, and what it says.
"""
