"""Which studies are refused among machines, of those that can be planned in one process."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from hubbub.core.session.offer import RefusedError, check_apart
from hubbub.core.study.study import Study


@pytest.mark.parametrize(
    ("parties", "training", "says"),
    [
        ({"trust": "tee"}, {}, "attestation.silo"),
        ({}, {"sampling": "without-replacement"}, "expected data.counts"),
        ({}, {}, ""),
    ],
)
def test_p3_what_rests_on_unseen_enclaves_or_counts_is_not_run_apart(
    parties: dict[str, Any], training: dict[str, Any], says: str
) -> None:
    study = Study.from_table(
        {
            "study": {"name": "apart"},
            "parties": {"silos": 3, "colluders": 1, **parties},
            "data": {"source": "python:none:none", "records": 90},
            "model": {"kind": "logistic", "inputs": [2]},
            "training": {"steps": 4, "sample_rate": 0.2, **training},
            "privacy": {"epsilon": 1.0, "delta": 1e-5, "relation": "substitute"},
        }
    )
    with pytest.raises(RefusedError, match=says) if says else nullcontext():
        check_apart(study)
