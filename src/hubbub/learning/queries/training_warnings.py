"""What a reader should know of a study that trains a model, before approving it."""

from __future__ import annotations

from hubbub.core.study.import_path import IN_MEMORY, is_own
from hubbub.core.study.study import Study


def about_own_code(study: Study) -> list[str]:
    """What rests on the author of a model, and cannot be known before it runs (P14, P19)."""
    model = study.model
    if model is None:
        return []
    frozen = model.frozen.module if model.frozen else ""
    named = [one for one in (model.kind, frozen, model.loss) if is_own(one) or one == IN_MEMORY]
    if not named:
        return []
    names = " and ".join(named)
    return [
        f"{names}: nothing of a record may be kept for the next; weights, attributes and "
        "generators are seen to, but memory elsewhere (globals, files) would not be found, and "
        "what it shows is outside epsilon: it is yours to rule out",
        f"{names}: whether a record decides how much is computed for it (a loop to its length, a "
        "branch) is not known before the code has run; the time would tell, outside epsilon; a run "
        "warns of what it sees on made-up records, and hubbub join --check does before it",
    ]
