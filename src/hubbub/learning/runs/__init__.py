"""Running a study: the loop, the run's folder, the baselines, and where its sums come from.

`run_study.py` puts the loop, the sessions and the model of `hubbub.core.runs` together in one
process.
"""
