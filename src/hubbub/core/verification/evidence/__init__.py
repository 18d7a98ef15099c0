"""Evidence of a run: one signed file, and what can be shown with nothing but that file.

`collecting` puts it together, `evidence_file` signs and reads it and says what a finding is,
`claims` checks it.
"""
