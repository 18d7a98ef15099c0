from hubbub.estimation.answer import (
    Answer as Answer,
    Curve as Curve,
    Estimate as Estimate,
    Expectation as Expectation,
    NoisyTest as NoisyTest,
)
from hubbub.estimation.baseline_table import (
    Table as Table,
)
from hubbub.estimation.cox_cells import (
    Cox as Cox,
)
from hubbub.estimation.cox_newton import (
    NewtonCox as NewtonCox,
    cox as cox,
)
from hubbub.estimation.crosstab import (
    Crosstab as Crosstab,
)
from hubbub.estimation.histogram import (
    Histogram as Histogram,
)
from hubbub.estimation.levels import (
    Cells as Cells,
    Levels as Levels,
)
from hubbub.estimation.linear import (
    Linear as Linear,
)
from hubbub.estimation.logistic_cells import (
    Logistic as Logistic,
)
from hubbub.estimation.logistic_newton import (
    NewtonLogistic as NewtonLogistic,
    logistic as logistic,
)
from hubbub.estimation.quantiles import (
    Quantiles as Quantiles,
)
from hubbub.estimation.stacking import (
    Stacked as Stacked,
    stack as stack,
)
from hubbub.estimation.statistic import (
    Iterated as Iterated,
    OneSum as OneSum,
    Parameters as Parameters,
    Statistic as Statistic,
)
from hubbub.estimation.survival import (
    Survival as Survival,
)
