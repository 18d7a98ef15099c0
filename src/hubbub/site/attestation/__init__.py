"""Evidence of machines: how vendors' platforms make it, and how each is verified."""
