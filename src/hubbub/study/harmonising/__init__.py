"""What sites agree on about cells, and how one site's are brought to it."""
