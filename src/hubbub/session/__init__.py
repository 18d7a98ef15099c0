"""The order of the protocol, once: set-up, rounds, token lists, and who answers what."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
