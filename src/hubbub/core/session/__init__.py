"""The order of the protocol, once: set-up, rounds, token lists, and who answers what."""
