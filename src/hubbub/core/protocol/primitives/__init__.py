"""What every message is made of: frames, keys and signatures, residues, randomness, noise."""
