"""Data sets of the experiments: sources that a study names as `python:experiments.datasets:mnist`.

Each is a function that is called with a party's name and returns its `Records`, as every source is.
None is shipped: they are read from the folder of downloaded data, and fetched once if not there.
"""

from __future__ import annotations

from experiments.datasets.flamby_sets import BRCA_SILOS, flamby_brca, flamby_heart
from experiments.datasets.images import cifar10, mnist
from experiments.datasets.rand_insurance import RAND_COLUMNS, RAND_SITES, rand
from experiments.datasets.spam_mails import spam

__all__ = [
    "BRCA_SILOS",
    "RAND_COLUMNS",
    "RAND_SITES",
    "cifar10",
    "flamby_brca",
    "flamby_heart",
    "mnist",
    "rand",
    "spam",
]
