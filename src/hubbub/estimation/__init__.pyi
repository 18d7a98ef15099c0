from .key_notes import (
    COMMON as COMMON,
    KEYS as KEYS,
)
from .baseline_table import (
    Table as Table,
)
from .centres import (
    Centres as Centres,
)
from .cox_cells import (
    Cox as Cox,
)
from .cox_newton import (
    cox as cox,
)
from .crosstab import (
    Crosstab as Crosstab,
)
from .histogram import (
    Histogram as Histogram,
)
from .incidence import (
    Incidence as Incidence,
)
from .kinds import (
    KINDS as KINDS,
    register as register,
    statistic_from as statistic_from,
)
from .linear import (
    Linear as Linear,
)
from .linear_of_logarithms import (
    LogLinear as LogLinear,
    log_linear as log_linear,
)
from .logistic_regression import (
    Logistic as Logistic,
    NewtonLogistic as NewtonLogistic,
    logistic as logistic,
)
from .multiplicity import (
    adjusted as adjusted,
)
from .model_regression import (
    ModelRegression as ModelRegression,
)
from .multinomial_regression import (
    NewtonMultinomial as NewtonMultinomial,
)
from .newton_sums import (
    Scored as Scored,
    Sum as Sum,
    FAR as FAR,
)
from .poisson_regression import (
    NewtonPoisson as NewtonPoisson,
)
from .prefix_coding import (
    PrefixCode as PrefixCode,
)
from .quantiles import (
    Quantiles as Quantiles,
)
from .rates import (
    EventRates as EventRates,
)
from .stacking import (
    Stacked as Stacked,
    stack as stack,
)
from .statistic import (
    Answer as Answer,
    Estimate as Estimate,
    Expectation as Expectation,
    Iterated as Iterated,
    Levels as Levels,
    OneSum as OneSum,
    Parameters as Parameters,
)
from .survival import (
    Survival as Survival,
)
