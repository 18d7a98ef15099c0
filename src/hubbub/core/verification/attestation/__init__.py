"""Attestation: evidence of which code a party runs on which machine, and whether it is enough.

`snp`, `nitro`, `dcap` and `software` verify a platform's evidence, pure functions over bytes with
the time as an argument; `attested_claims` is what they find, `platforms` picks one of them, and
`policy` says what is enough. `devices` makes this machine's evidence, and `study_attestation` is
what a session asks.
"""
