"""What other libraries claim, held against certified brackets: see `__main__.py`."""
