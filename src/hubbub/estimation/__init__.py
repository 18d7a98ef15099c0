"""Estimation: how records become vectors of bounded length, and their noisy sum an answer.

Every statistic of a study is a block of one vector; `stack` divides one unit of sensitivity among
them. What a block is and how an answer is read from it is in one file per kind. Nothing here knows
silos, budgets or a network: it stands on the study's columns alone.
"""

from hubbub.estimation.baseline_table import Table
from hubbub.estimation.cox_cells import Cox
from hubbub.estimation.cox_newton import cox
from hubbub.estimation.crosstab import Crosstab
from hubbub.estimation.histogram import Histogram
from hubbub.estimation.linear import Linear
from hubbub.estimation.logistic import Logistic, logistic
from hubbub.estimation.quantiles import Quantiles
from hubbub.estimation.stacking import Stacked, stack
from hubbub.estimation.statistic import (
    Answer,
    Expectation,
    Iterated,
    Levels,
    OneSum,
    Parameters,
)
from hubbub.estimation.survival import Survival
