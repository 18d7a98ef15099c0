"""What a reader should know of a study that trains a model, before approving it.

A linear model has *room* for so many weights, before noise takes more than they give: each has
noise of its own, and what a record says is shared among all. The room follows from public numbers:
what is promised to so many units, and how many silos' noise an adversary does not know.
`experiments/wide.py` has measured what wide tables lose.
"""

from __future__ import annotations

from math import prod, sqrt

from hubbub.core.study.import_path import IN_MEMORY, is_own
from hubbub.core.study.study import Study
from hubbub.learning.study.model import Model

_PER_WEIGHT = 50  # units at epsilon 1, as which a table is wide below
_FEWEST = 50  # weights; of fewer no column is worth leaving out for the noise alone


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


def too_wide(study: Study) -> str:
    """What it means that a linear model has more weights than its epsilon has room for.

    Args:
        study: trains a model, or none.

    Returns:
        A sentence with what to do; empty where there is room, or it is not known.
    """
    weights, room = _weights(study), _room(study)
    if weights < _FEWEST or weights <= room or not study.data.records:
        return ""
    unit, privacy = study.data.unit, study.privacy
    return (
        f"{weights} weights are many for {study.data.records} {unit}s at epsilon "
        f"{privacy.epsilon:g}, which has room for about {max(room, 1)}: each has noise of its own, "
        "and wide tables lost .02 to .1 of AUC so. Leave out columns that cannot matter and pool "
        f"rare codes, by what is known without looking at these {unit}s; or agree on a larger "
        "epsilon"
    )


def _weights(study: Study) -> int:
    """Of a linear model, without those that all records have; 0 of every other."""
    model: Model | None = study.model
    if model is None or model.kind != "logistic" or model.extractor:
        return 0
    columns = study.data.features
    features = sum(column.width for column in columns) if columns else prod(model.inputs)
    return features * model.outputs


def _room(study: Study) -> int:
    """How many weights there is room for."""
    parties = study.parties
    unknown = max(parties.silos - parties.colluders - 1, 1) / parties.silos
    return int(study.data.records * study.privacy.epsilon * sqrt(unknown) / _PER_WEIGHT)
