"""Running a study: the loop, the run's folder, the baselines, and where its sums come from.

All I/O, clocks and disks of a run are in here. `loop.py` knows no parties, `federated.py` no
machines, `run_sessions.py` no model; `run_study.py` puts them together in one process.
"""

from hubbub.training.checkpoint import CheckpointWriter
from hubbub.training.comparison import MODES, Comparison, compare
from hubbub.training.conclusion import conclude, write_result
from hubbub.training.federated import ask_before, private_queries, train_federated
from hubbub.training.in_memory import fit
from hubbub.training.loop import Progress, State
from hubbub.training.prepared_study import PreparedStudy
from hubbub.training.rehearsal import rehearse
from hubbub.training.report_of_run import write_report
from hubbub.training.result import Result
from hubbub.training.run_checks import check_plan
from hubbub.training.run_folder import RunFolder
from hubbub.training.run_sessions import RunSessions, SessionPlan
from hubbub.training.run_study import resume, run
from hubbub.training.spending import set_caps
from hubbub.training.statistics_context import statistics
from hubbub.training.synthesis_in_memory import synthesize, synthetic
from hubbub.training.trained_model import TrainedModel, load, predictions
