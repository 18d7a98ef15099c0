"""Hiding one silo's vector of a million coordinates: hubbub, its peers, and what physics allows."""
