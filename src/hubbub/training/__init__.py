"""Running a study: all I/O, clocks and disks are in here.

`local.py` trains in one process and needs torch; `sums.py` is the secure sum alone and does not.
"""

from hubbub.training.auxiliary_sums import standardised
from hubbub.training.comparison import MODES, compare
from hubbub.training.federated import train_federated
from hubbub.training.loop import Progress, State
from hubbub.training.prepared_study import PreparedStudy
from hubbub.training.report_of_run import write_report
from hubbub.training.result import Result, conclude
from hubbub.training.run_folder import RunFolder
from hubbub.training.run_sessions import RunSessions, SessionPlan
from hubbub.training.run_study import check_plan, resume
