from hubbub.estimation.asked_keys import (
    COMMON as COMMON,
    KEYS as KEYS,
)
from hubbub.estimation.baseline_table import (
    Table as Table,
)
from hubbub.estimation.cox_cells import (
    Cox as Cox,
)
from hubbub.estimation.cox_newton import (
    cox as cox,
)
from hubbub.estimation.crosstab import (
    Crosstab as Crosstab,
)
from hubbub.estimation.histogram import (
    Histogram as Histogram,
)
from hubbub.estimation.kinds import (
    KINDS as KINDS,
    register as register,
    statistic_from as statistic_from,
)
from hubbub.estimation.linear import (
    Linear as Linear,
)
from hubbub.estimation.logistic_regression import (
    Logistic as Logistic,
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
    Answer as Answer,
    Expectation as Expectation,
    Iterated as Iterated,
    Levels as Levels,
    OneSum as OneSum,
    Parameters as Parameters,
)
from hubbub.estimation.survival import (
    Survival as Survival,
)
