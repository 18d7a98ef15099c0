"""A real consortium on this machine, with processes and TLS, under failures, for long, and timed.

`stage` makes and watches it, `accounts` says whether a run's books are right, `blows` what is done
to it. `failures`, `kills`, `endurance`, `steps` and `capture` are the measurements.
"""
