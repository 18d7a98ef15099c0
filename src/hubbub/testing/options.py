"""The contract of an option: a way to correlate noise, whose column the core charges for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from hubbub.core.planning.mechanism import OPTIONS
from hubbub.core.planning.noise_correlation import UNIT, inverse_of
from hubbub.core.planning.study_plan import plan
from hubbub.core.registered import standing_in
from hubbub.core.study.study import Study
from hubbub.testing.laws import completing, hold, trying

_BANDS, _STEPS = (2, 5), 12
_TRAININGS = ((0.0, "constant", _STEPS), (0.9, "linear", _STEPS), (0.5, "cosine", 1000))


def check_option(column: Callable[[int, float, str, int], Sequence[int]]) -> None:
    """Hold a way to correlate noise, registered or not, to what a plan relies on.

    Laws:
        1. It gives as many whole numbers as there are bands, the first above 0, of norm `UNIT` at
           most (P25), for every momentum, schedule and number of steps.
        2. It gives the same whenever it is asked, wherever: each party plans by itself.
        3. What it leaves of a step's noise stays bounded over a training.
        4. A study is planned with it, and promises what it asks for.

    Args:
        column: from bands, momentum, schedule ("constant", "linear" or "cosine") and steps to the
            first column of C, in whole units.

    Raises:
        AssertionError: it breaks a law; the sentence says which, and how to mend it.
    """
    with trying(column):
        for bands, (momentum, schedule, steps) in itertools.product(_BANDS, _TRAININGS):
            asked = f"{bands} bands, momentum {momentum}, a {schedule} rate and {steps} steps"
            with completing(f"a column is chosen for {asked}", "give one for every training"):
                chosen, again = (column(bands, momentum, schedule, steps) for _ in range(2))
            _check_column(chosen, bands, asked)
            hold(
                "a column is the same whenever it is asked for",
                tuple(chosen) == tuple(again),
                "another the second time",
                "draw nothing, and read no clock, file or environment",
            )
        with standing_in(OPTIONS, "checked", column):
            _is_planned("checked")


def _check_column(chosen: Sequence[int], bands: int, asked: str) -> None:
    """Laws 1 and 3, of one column."""
    hold(
        f"a column has {bands} whole numbers, the first above 0",
        len(chosen) == bands
        and all(isinstance(unit, (int, np.integer)) for unit in chosen)
        and chosen[0] > 0,
        f"{list(chosen)!r:.80} for {asked}",
        "round them with whole_units",
    )
    hold(
        "its norm is UNIT at most, or a record would count for more than is charged (P25)",
        sum(int(unit) ** 2 for unit in chosen) <= UNIT**2,
        f"{sum(int(unit) ** 2 for unit in chosen) ** 0.5 / UNIT:.6f} UNIT for {asked}",
        "round them with whole_units",
    )
    inverse = np.abs(inverse_of(np.array(chosen) / UNIT, 64 * bands))
    hold(
        "what a step's noise leaves in later steps stays bounded",
        inverse[-bands:].max() <= inverse[0] * 1.000001,
        f"{inverse[-bands:].max() / inverse[0]:.3g} of it after {64 * bands} steps, for {asked}",
        "choose a column whose polynomial has no zero inside the unit circle",
    )


def _is_planned(name: str) -> None:
    """Law 4: a study is planned with it, at the epsilon that it asks for."""
    with completing("a study is planned with it", "mend the column"):
        study = Study(
            name="checked",
            parties={"silos": 3, "colluders": 1},
            data={"source": "hubbub.datasets:heart", "records": 740},
            model={"kind": "logistic", "inputs": [26]},
            training={"steps": _STEPS, "sample_rate": 0.1, "noise": name, "bands": 3},
            privacy={"epsilon": 8.0, "delta": 1e-5},
        )
        epsilon = plan(study).epsilon()
    hold(
        "a study with it promises what it asks for",
        epsilon <= study.privacy.epsilon,
        f"epsilon {epsilon}",
        "mend the column",
    )
