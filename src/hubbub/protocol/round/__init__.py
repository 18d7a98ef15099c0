"""The round: silo, compute node and aggregator as state machines over bytes.

They do no I/O, read no clock and draw no global randomness; whoever runs them carries the bytes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
