"""Secure summation: who shares secrets with whom, and the masks that cancel in the sum."""

from hubbub import on_first_use

__getattr__ = on_first_use(__name__)
