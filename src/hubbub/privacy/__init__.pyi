from hubbub.privacy.accountant import (
    Composition as Composition,
)
from hubbub.privacy.arguments import (
    LEAST_DELTA as LEAST_DELTA,
    LEAST_EPSILON as LEAST_EPSILON,
    MOST_DIMENSION as MOST_DIMENSION,
    MOST_EPSILON as MOST_EPSILON,
    RELATIONS as RELATIONS,
    SAMPLINGS as SAMPLINGS,
    whole as whole,
)
from hubbub.privacy.bound import (
    Bound as Bound,
)
from hubbub.privacy.calibration import (
    calibrate as calibrate,
)
from hubbub.privacy.canary_guesses import (
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
from hubbub.privacy.certificate import (
    Certificate as Certificate,
)
from hubbub.privacy.effort import (
    limited as limited,
)
from hubbub.privacy.dominating_pairs import (
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
from hubbub.privacy.events import (
    Event as Event,
    JointBatches as JointBatches,
    ProjectedStep as ProjectedStep,
)
from hubbub.privacy.former_names import (
    composed_epsilon as composed_epsilon,
    malicious_epsilon as malicious_epsilon,
    projected_epsilon as projected_epsilon,
)
from hubbub.privacy.projected_questions import (
    projection_bound as projection_bound,
)
from hubbub.privacy.projected_step import (
    projection_factor as projection_factor,
    release_by_signs as release_by_signs,
    release_projected as release_projected,
)
from hubbub.privacy.questions import (
    attack_power as attack_power,
    delta as delta,
    epsilon as epsilon,
    noise_multiplier as noise_multiplier,
    trade_off as trade_off,
)
from hubbub.privacy.reference_law import (
    ReferenceLaw as ReferenceLaw,
)
from hubbub.privacy.remaining_budget import (
    RemainingBudget as RemainingBudget,
    StudyLaw as StudyLaw,
    first_remaining_budget as first_remaining_budget,
    kept_for_certificates as kept_for_certificates,
    least_epsilon as least_epsilon,
    remaining as remaining,
)
from hubbub.privacy.roots import (
    root as root,
)
from hubbub.privacy.tradeoff import (
    TradeOff as TradeOff,
    power_bound as power_bound,
    upper_curve as upper_curve,
)
