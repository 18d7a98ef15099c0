"""The privacy ledger of a data set: what was spent, what may be spent, and who has seen its head.

`row`, `ledger_key`, `noted_head` and `hash_chain` are the signed file; `entry`, `row_cost` and
`tally` what its rows say and add up to; `privacy_filter` which studies a cap lets in,
`sums_budget` which queries a notebook does; `privacy_ledger` the ledger itself; `statement` and
`witness` how others vouch for its head. This package knows mechanisms and numbers; it knows no
round and no records.
"""
