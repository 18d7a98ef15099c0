"""The privacy ledger of a data set: what was spent, what may be spent, and who has seen its head.

`hash_chain` is the signed file; `entry` and `tally` are what its rows say and add up to;
`privacy_filter` says which studies a cap lets in, and which queries a notebook's budget does;
`privacy_ledger` is the ledger itself; `head_statement` is how others vouch for its head. This
package knows mechanisms and numbers; it knows no round and no records.
"""
