"""Sources that are read once, piece by piece, and kept encoded for a study's life."""
