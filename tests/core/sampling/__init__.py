"""Shuffled token lists: how they are made, what is caught, and what they hide."""
