"""Running a study: the loop, the run's folder, the baselines, and where its sums come from.

All I/O, clocks and disks of a run are in here. `loop.py` knows no parties, `federated.py` no
machines, `run_sessions.py` no model; `run_study.py` puts them together in one process.
"""
