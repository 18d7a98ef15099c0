"""One runnable file per figure: `python -m experiments.NAME [--small]`.

Each writes a CSV, a PNG and the commands with the versions that made them into `results/`. What
needs studies goes through hubbub's public names only; torch's threads are the user's
(OMP_NUM_THREADS).
"""
