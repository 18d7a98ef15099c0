"""What every message is made of: frames, keys and signatures, residues, randomness, noise."""

from hubbub import on_first_use

__getattr__ = on_first_use(__name__)
