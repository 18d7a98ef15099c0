"""Settings chosen on records that are public or made up, so that no private file is opened.

Candidates are rehearsed all at once by linear models of NumPy (`linear_rehearsals`), on records
made from a study's bounds alone (`made_up_records`), or on a public file; `tuner` scores them by
loss, and `tuned_text` writes the study. Nothing here reads a silo's records, knows a
ledger or needs torch.
"""
