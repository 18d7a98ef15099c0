"""The order of the protocol, once: set-up, rounds, token lists, and who answers what."""

from hubbub import on_first_use

__getattr__ = on_first_use(__name__)
