"""Measurements beside peers and physical limits; each module's first lines say how to run it."""
