from . import (
    learning as learning,
)
from .planning.plan_values import (
    Plan as Plan,
)
from .privacy.bound import (
    Bound as Bound,
)
from .privacy.dominating_pairs import (
    Step as Step,
)
from .privacy.events import (
    JointBatches as JointBatches,
    ProjectedStep as ProjectedStep,
)
from .privacy.projected_questions import (
    projection_bound as projection_bound,
)
from .privacy.questions import (
    attack_power as attack_power,
    delta as delta,
    epsilon as epsilon,
    noise_multiplier as noise_multiplier,
    trade_off as trade_off,
)
from .privacy.shorthands import (
    composed_epsilon as composed_epsilon,
    malicious_epsilon as malicious_epsilon,
    projected_epsilon as projected_epsilon,
)
from .privacy.tradeoff import (
    TradeOff as TradeOff,
)
from .queries.study_queries import (
    plan as plan,
)
from .session.secure_sums import (
    PrivateSum as PrivateSum,
    private_sum as private_sum,
    secure_sum as secure_sum,
)
from .study.manifest import (
    manifest_records as manifest_records,
)
from .study.study import (
    Study as Study,
)
from .synthesis.release import (
    SyntheticData as SyntheticData,
)
from .synthesis.share_intervals import (
    combine as combine,
)
from .tabular.column import (
    Column as Column,
)
from .tabular.records import (
    Records as Records,
)
from .training.in_memory import (
    fit as fit,
)
from .report.rehearsal import (
    rehearse as rehearse,
)
from .training.result import (
    Result as Result,
)
from .training.run_study import (
    resume as resume,
    run as run,
)
from .training.statistics_context import (
    statistics as statistics,
)
from .training.synthesis_in_memory import (
    synthesize as synthesize,
    synthetic as synthetic,
)
from .training.trained_model import (
    TrainedModel as TrainedModel,
    load as load,
)
from .verification.audit.canary_audit import (
    Audit as Audit,
    audit as audit,
)

VERSION: str
__version__: str
__all__: list[str]
