"""A real consortium on this machine, with processes and TLS, killed again and again, and for long.

`stage` makes and watches it, `accounts` says whether a run's books are right; `kills` and
`endurance` are the measurements.
"""
