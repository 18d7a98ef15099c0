"""What every message is made of: frames, keys and signatures, residues, randomness, noise."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
