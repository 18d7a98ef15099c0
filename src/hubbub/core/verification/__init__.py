"""What lets others believe a run: transcript, evidence, a run played again, audit, attestation.

`replay` and `audit` need models, and are imported by their own names.
"""
