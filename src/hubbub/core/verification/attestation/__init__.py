"""Attestation: evidence of which code a party runs on which machine, and whether it is enough.

`policy` has what evidence says, who verifies it and what is enough; `study_attestation` is what a
session asks. Verifiers of platforms' evidence, and makers of it, register from outside.
"""
