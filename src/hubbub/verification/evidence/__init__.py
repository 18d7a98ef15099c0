"""Evidence of a run: one signed file, and what can be shown with nothing but that file.

`collecting` puts it together, `evidence_file` signs and reads it, `claims` checks it, `finding` is
one thing that was checked.
"""

from hubbub.verification.evidence.audit_result import (
    AUDIT,
    MOST_CANARIES,
    SIDES,
    SMALL_SHARE,
    SURELY,
    Seen,
    audit_to_dict,
    bounds_of,
    check_auditable,
    check_size,
    choosing_runs,
    read_audit,
    remedy,
    write_audit,
)
from hubbub.verification.evidence.claims import (
    MODEL,
    check,
    check_content,
    remade,
    within_seconds,
)
from hubbub.verification.evidence.collecting import (
    FILE,
    checked_part,
    collect,
    digests_of,
    part_of,
    summary_of,
)
from hubbub.verification.evidence.evidence_file import (
    MALFORMED,
    Plain,
    check_ordinary,
    load,
    read_plain,
    read_whole,
)
from hubbub.verification.evidence.finding import (
    Finding,
    difference,
    judged,
    not_checked,
    not_verifiable,
    rederived,
    signed,
    wrong,
)
from hubbub.verification.evidence.shown_epsilon import Choice, epsilon_shown
