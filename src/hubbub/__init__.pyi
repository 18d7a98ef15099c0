from . import (
    learning as learning,
)
from .core.planning.plan import (
    Plan as Plan,
)
from .core.privacy.composition import (
    Bound as Bound,
)
from .core.privacy.dominating_pairs import (
    Step as Step,
)
from .core.privacy.events import (
    JointBatches as JointBatches,
)
from .core.privacy.projected_questions import (
    ProjectedStep as ProjectedStep,
    projected_epsilon as projected_epsilon,
    projection_bound as projection_bound,
)
from .core.privacy.questions import (
    attack_power as attack_power,
    delta as delta,
    epsilon as epsilon,
    noise_multiplier as noise_multiplier,
    trade_off as trade_off,
)
from .core.privacy.questions import (
    composed_epsilon as composed_epsilon,
    malicious_epsilon as malicious_epsilon,
)
from .core.privacy.tradeoff import (
    TradeOff as TradeOff,
)
from .core.planning.study_plan import (
    plan as plan,
)
from .core.session.secure_sums import (
    PrivateSum as PrivateSum,
    private_sum as private_sum,
    secure_sum as secure_sum,
)
from .learning.manifests import (
    manifest_records as manifest_records,
)
from .core.study.study import (
    Study as Study,
)
from .estimation.synthesis.release import (
    SyntheticData as SyntheticData,
)
from .estimation.synthesis.components import (
    combine as combine,
)
from .core.tabular.column import (
    Column as Column,
)
from .core.tabular.records import (
    Records as Records,
)
from .learning.runs.in_memory import (
    fit as fit,
)
from .desk.report.comparison import (
    rehearse as rehearse,
)
from .learning.runs.result import (
    Result as Result,
)
from .learning.runs.run_study import (
    resume as resume,
    run as run,
)
from .learning.runs.statistics_context import (
    statistics as statistics,
)
from .learning.runs.synthesis_in_memory import (
    synthesize as synthesize,
    synthetic as synthetic,
)
from .learning.runs.trained_model import (
    TrainedModel as TrainedModel,
    load as load,
)
from .learning.audit.audit import (
    Audit as Audit,
    audit as audit,
)

VERSION: str
__version__: str
__all__: list[str]
