"""Secure summation: who shares secrets with whom, and the masks that cancel in the sum."""
