from . import learning as learning
from .verification.audit import (
    Audit as Audit,
    audit as audit,
)
from .planning import (
    Plan as Plan,
)
from .privacy import (
    Bound as Bound,
    JointBatches as JointBatches,
    ProjectedStep as ProjectedStep,
    Step as Step,
    TradeOff as TradeOff,
    attack_power as attack_power,
    composed_epsilon as composed_epsilon,
    delta as delta,
    epsilon as epsilon,
    malicious_epsilon as malicious_epsilon,
    noise_multiplier as noise_multiplier,
    projected_epsilon as projected_epsilon,
    projection_bound as projection_bound,
    trade_off as trade_off,
)
from .queries import (
    plan as plan,
)
from .session import (
    PrivateSum as PrivateSum,
    private_sum as private_sum,
    secure_sum as secure_sum,
)
from .synthesis import (
    SyntheticData as SyntheticData,
    combine as combine,
)
from .study import (
    Study as Study,
    manifest_records as manifest_records,
)
from .tabular import (
    Column as Column,
    Records as Records,
)
from .training import (
    Result as Result,
    TrainedModel as TrainedModel,
    fit as fit,
    load as load,
    rehearse as rehearse,
    resume as resume,
    run as run,
    statistics as statistics,
    synthesize as synthesize,
    synthetic as synthetic,
)

VERSION: str
__version__: str
__all__: list[str]
