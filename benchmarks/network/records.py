"""Records that have nothing in common with the hospitals' but their columns, and of other numbers.

For the capture: if a byte on the wire depended on records, it would differ between the two.
"""

from __future__ import annotations

import numpy as np

from hubbub.study.datasets import heart
from hubbub.study.tabular import Records

_KEPT = {"cleveland": 40, "hungary": 200, "switzerland": 10, "va-long-beach": 90}


def others(party: str) -> Records:
    """Constant features, everybody ill, fewer patients; the public test set is the hospitals'."""
    found = heart(party)
    if party not in _KEPT:
        return found
    kept = min(_KEPT[party], len(found))
    inputs = np.full((kept, *found.inputs.shape[1:]), 0.5, dtype=np.float32)
    return Records(inputs=inputs, targets=np.ones(kept, dtype=np.float32))
