"""Write brackets.json: 500 settings with epsilon from both sides, for `accountant_brackets.py`.

    python -m benchmarks.conformance.brackets

Each is what `hubbub.epsilon` certifies (docs/privacy.md P1, P2, P8, P10-P13): no accountant whose
answer is below `lower` is right, and one above `upper` is loose.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import hubbub

FILE = Path(__file__).parent / "brackets.json"
_STEPS, _DELTAS = (1, 100, 1000, 10_000), (1e-5, 1e-8)
_SAMPLED = ((1.0, 2.0, 4.0), (0.01, 0.2), _STEPS, _DELTAS)
# By mechanism and relation: noise multipliers, sample rates, steps, deltas.
GRID = {
    ("poisson", "add-remove"): (
        (0.5, 0.7, 1.0, 1.5, 2.5, 4.0, 8.0, 16.0),
        (0.001, 0.004, 0.01, 0.05, 0.2),
        _STEPS,
        _DELTAS,
    ),
    ("gaussian", "add-remove"): (
        tuple(0.5 * 2**k for k in range(10)),
        (1.0,),
        (1, 10, *_STEPS[1:]),
        _DELTAS,
    ),
    ("poisson", "substitute"): _SAMPLED,
    ("without-replacement", "add-remove"): ((1.0, 4.0), *_SAMPLED[1:]),
}


def settings() -> Iterator[dict[str, Any]]:
    """All settings, without their brackets."""
    names = ("noise_multiplier", "sample_rate", "steps", "delta")
    for (mechanism, relation), grid in GRID.items():
        for numbers in product(*grid):
            setting = dict(zip(names, numbers, strict=True))
            yield {"mechanism": mechanism, "relation": relation, **setting}


def certified(setting: dict[str, Any]) -> dict[str, Any]:
    """A setting with its bracket."""
    how = dict(setting)
    mechanism = how.pop("mechanism")
    sampling = "full-batch" if mechanism == "gaussian" else mechanism
    bound = hubbub.epsilon(**how, sampling=sampling)
    return {**setting, "lower": bound.lower, "upper": bound.upper}


if __name__ == "__main__":
    lines = [json.dumps(certified(setting)) for setting in settings()]
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
