"""What lets others believe a run: transcript, evidence, a run played again, attestation."""
