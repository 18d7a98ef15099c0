from .checkpoint import (
    CheckpointWriter as CheckpointWriter,
)
from .comparison import (
    MODES as MODES,
    Comparison as Comparison,
    compare as compare,
)
from .conclusion import (
    conclude as conclude,
    write_result as write_result,
)
from .federated import (
    ask_before as ask_before,
    private_queries as private_queries,
    train_federated as train_federated,
)
from .in_memory import (
    fit as fit,
)
from .loop import (
    Progress as Progress,
    State as State,
)
from .prepared_study import (
    PreparedStudy as PreparedStudy,
)
from .rehearsal import (
    rehearse as rehearse,
)
from .uncounted import (
    counted_in as counted_in,
)
from .uncounted import (
    folder_for as folder_for,
)
from .report_of_run import (
    as_written as as_written,
)
from .report_of_run import (
    paper_of as paper_of,
)
from .report_of_run import (
    write_report as write_report,
)
from .result import (
    Result as Result,
)
from .run_checks import (
    check_plan as check_plan,
)
from .run_folder import (
    RunFolder as RunFolder,
    answers_in as answers_in,
)
from .run_sessions import (
    RunSessions as RunSessions,
    SessionPlan as SessionPlan,
)
from .run_study import (
    resume as resume,
    run as run,
)
from .spending import (
    set_caps as set_caps,
)
from .statistics_context import (
    statistics as statistics,
)
from .synthesis_in_memory import (
    synthesize as synthesize,
    synthetic as synthetic,
)
from .trained_model import (
    TrainedModel as TrainedModel,
    load as load,
    predictions as predictions,
)
