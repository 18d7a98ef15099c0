"""Privacy accounting: certified bounds on what the noise of a study promises.

Knows distributions and numbers only: nothing of silos, vectors or models. The way in is
`questions.py`, of projections `projected_step.py`; `tradeoff.py` is the whole curve and what
it leaves to attacks; `dominating_pairs.py` is their table, `projected_step.py` that of projections;
`remaining_budget.py` what a budget leaves to studies that are chosen later; `laws.py`,
`transform.py`, `discretise.py` and `composition.py` are the numerics, in the order in which the
data go through. SciPy takes longer to import than most answers take: only functions that need it
load it.
"""
