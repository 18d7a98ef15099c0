"""The rows of metrics against the account: no row may tell less epsilon than was spent by then.

The metrics themselves were measured by the aggregator on public records, which are not here; what
they say of privacy follows from the plan. This file knows rows and a plan, and no transcript.
"""

from __future__ import annotations

from pathlib import Path

from hubbub.assurance.evidence import Finding, Plain, judged, plain_json, read_whole
from hubbub.assurance.verification.damage import RESTORE
from hubbub.errors import HubbubError
from hubbub.planning import Plan

METRICS = "metrics.jsonl"
_ROUNDING = 1e-9  # relative: the account is made again, perhaps on another machine
_CLAIM = "metrics.jsonl tells no less epsilon than was spent by each step, and in the end all of it"


def check_rows(path: Path, plan: Plan, content: Plain | None) -> Finding:
    """Whether every row's epsilon covers its step, and the last one's all attempts.

    Args:
        path: of `metrics.jsonl`.
        plan: that was carried out.
        content: of the evidence, which counts the attempts; None if there is none.
    """
    try:
        rows = [plain_json(line) for line in read_whole(path).splitlines()]
        least = [plan.epsilon_after(max(1, int(row["step"]))) for row in rows]
        told = [float(row["epsilon"]) for row in rows]
        if content is not None:
            least[-1] = plan.epsilon_after(int(content["epsilon"]["attempts"]))
    except (HubbubError, LookupError, TypeError, ValueError, RecursionError) as error:
        return judged(_CLAIM, f"it cannot be read ({type(error).__name__}); {RESTORE}")
    short = [
        f"row {number} tells {said:.6g}, {due:.6g} was spent"
        for number, (said, due) in enumerate(zip(told, least, strict=True), 1)
        if not said >= due * (1 - _ROUNDING)
    ]
    return judged(_CLAIM, f"{short[0]}; {RESTORE}" if short else "")
