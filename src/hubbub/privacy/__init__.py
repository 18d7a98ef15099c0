"""Privacy accounting: certified bounds on what the noise of a study promises.

Knows distributions and numbers only: nothing of silos, vectors or models. The way in is
`questions.py`; `tradeoff.py` is the whole curve and what it leaves to attacks; `mechanism.py` is
the table of dominating pairs, `projected_step.py` that of projections; `residue.py` what a budget
leaves to studies that are chosen later; `laws.py`, `coarse_law.py`, `tilting.py`, `discretise.py`
and `composition.py` are the numerics, in the order in which the data go through. SciPy takes longer
to import than most answers take: only functions that need it load it.
"""

from hubbub.privacy.accountant import Bound, Composition
from hubbub.privacy.arguments import (
    LEAST_DELTA,
    LEAST_EPSILON,
    MOST_DIMENSION,
    MOST_EPSILON,
    RELATIONS,
    SAMPLINGS,
    whole,
)
from hubbub.privacy.calibration import calibrate
from hubbub.privacy.canary_guesses import (
    LOOKS,
    Rates,
    Rule,
    Trials,
    chosen_rule,
    lower_bound,
    rates_of,
    surest_rule,
    widest_rule,
    worst_distance,
    worst_rates,
)
from hubbub.privacy.certificate import Certificate
from hubbub.privacy.effort import limited
from hubbub.privacy.mechanism import (
    LEAST_SAMPLED_NOISE,
    Release,
    Step,
    from_above,
    honest_rate,
    release,
    release_at_quantile,
    release_with_malicious,
    with_slack,
)
from hubbub.privacy.projected_step import (
    projection_factor,
    release_by_signs,
    release_projected,
)
from hubbub.privacy.questions import (
    attack_power,
    composed_epsilon,
    delta,
    epsilon,
    malicious_epsilon,
    noise_multiplier,
    projected_epsilon,
    projection_bound,
    trade_off,
)
from hubbub.privacy.residue import (
    Residue,
    StudyLaw,
    first_residue,
    kept_for_certificates,
    least_epsilon,
    remaining,
)
from hubbub.privacy.roots import root
from hubbub.privacy.tradeoff import TradeOff, power_bound, upper_curve
