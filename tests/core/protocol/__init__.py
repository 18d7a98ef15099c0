"""Tests of the protocol: attacks, faults, golden vectors, fuzzing."""
