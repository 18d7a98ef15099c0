from .accountant import (
    Composition as Composition,
)
from .arguments import (
    LEAST_DELTA as LEAST_DELTA,
    LEAST_EPSILON as LEAST_EPSILON,
    MOST_DIMENSION as MOST_DIMENSION,
    MOST_EPSILON as MOST_EPSILON,
    RELATIONS as RELATIONS,
    SAMPLINGS as SAMPLINGS,
    whole as whole,
)
from .bound import (
    Bound as Bound,
)
from .calibration import (
    calibrate as calibrate,
)
from .canary_guesses import (
    LOOKS as LOOKS,
    Rates as Rates,
    Rule as Rule,
    Trials as Trials,
    chosen_rule as chosen_rule,
    lower_bound as lower_bound,
    rates_of as rates_of,
    surest_rule as surest_rule,
    widest_rule as widest_rule,
    worst_distance as worst_distance,
    worst_rates as worst_rates,
)
from .certificate import (
    Certificate as Certificate,
)
from .effort import (
    limited as limited,
)
from .dominating_pairs import (
    LEAST_SAMPLED_NOISE as LEAST_SAMPLED_NOISE,
    Release as Release,
    Step as Step,
    from_above as from_above,
    honest_rate as honest_rate,
    release as release,
    release_at_quantile as release_at_quantile,
    release_with_malicious as release_with_malicious,
    with_slack as with_slack,
)
from .events import (
    Event as Event,
    JointBatches as JointBatches,
    ProjectedStep as ProjectedStep,
)
from .shorthands import (
    composed_epsilon as composed_epsilon,
    malicious_epsilon as malicious_epsilon,
    projected_epsilon as projected_epsilon,
)
from .projected_questions import (
    projection_bound as projection_bound,
)
from .projected_step import (
    projection_factor as projection_factor,
    release_by_signs as release_by_signs,
    release_projected as release_projected,
)
from .questions import (
    attack_power as attack_power,
    delta as delta,
    epsilon as epsilon,
    noise_multiplier as noise_multiplier,
    trade_off as trade_off,
)
from .reference_law import (
    ReferenceLaw as ReferenceLaw,
)
from .remaining_budget import (
    RemainingBudget as RemainingBudget,
    StudyLaw as StudyLaw,
    first_remaining_budget as first_remaining_budget,
    kept_for_certificates as kept_for_certificates,
    least_epsilon as least_epsilon,
    remaining as remaining,
)
from .roots import (
    root as root,
)
from .tradeoff import (
    TradeOff as TradeOff,
    power_bound as power_bound,
    upper_curve as upper_curve,
)
