"""Lists of tokens: how they are made, what is caught, and what they hide."""
