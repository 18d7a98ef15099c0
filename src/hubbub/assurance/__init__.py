"""What lets others believe a run: ledger, transcript, evidence, verification, audit."""
