"""What the oracle says of the settings that the accountant is tested at, as committed data.

Some of the inversions take longer than the accountant that they judge, and their answers never
change. So they are in `oracle_values.json`, which

    PYTHONPATH=tests python -m privacy.oracle_values

writes anew, in a minute. A question that is added or changed here has no value until then. What is
soon answered is computed again in every `make test`, the rest in `make test-all`. As the oracle,
this file knows no hubbub.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from math import e, exp
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from privacy import oracle
from privacy.oracle import Estimate

FILE = Path(__file__).with_name("oracle_values.json")
Question = Mapping[str, Any]
_SETTING = ("relation", "sampling", "noise_multiplier", "sample_rate", "steps")


def _asked(kind: str, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[Question]:
    return [{"kind": kind, **dict(zip(names, row, strict=True))} for row in rows]


# Where accountants are known to fail: tiny delta, a million steps, full and minute rates, little
# and much noise, every relation and sampling.
EPSILONS = _asked(
    "epsilon",
    (*_SETTING, "delta"),
    [
        ("add-remove", "poisson", 1.0, 0.008, 1250, 1e-5),
        ("add-remove", "poisson", 1.0, 0.008, 1250, 1e-12),
        ("add-remove", "poisson", 4.0, 0.01, 10_000, 1e-5),
        ("add-remove", "poisson", 5.5, 0.05, 1250, 1e-5),
        ("add-remove", "poisson", 1.0, 0.001, 1_000_000, 1e-5),
        ("add-remove", "poisson", 100.0, 0.001, 1_000_000, 1e-6),
        ("add-remove", "poisson", 20.0, 0.5, 10_000, 1e-10),
        ("add-remove", "poisson", 0.5, 0.001, 1000, 1e-5),
        ("add-remove", "poisson", 10.0, 0.99, 50, 1e-6),
        ("add-remove", "poisson", 1.0, 0.008, 1250, 0.05),
        ("substitute", "poisson", 1.0, 0.008, 1250, 1e-5),
        ("substitute", "poisson", 4.0, 0.008, 1250, 1e-11),
        ("substitute", "poisson", 30.0, 0.3, 2000, 1e-8),
        ("substitute", "without-replacement", 1.0, 0.008, 1250, 1e-5),
        ("substitute", "without-replacement", 4.0, 0.008, 1250, 1e-12),
        ("substitute", "without-replacement", 24.0, 0.049, 1250, 1e-5),
        ("substitute", "without-replacement", 300.0, 0.5, 1_000_000, 1e-6),
        ("add-remove", "without-replacement", 2.0, 0.008, 1250, 1e-5),
        ("add-remove", "without-replacement", 50.0, 0.1, 100_000, 1e-9),
        ("add-remove", "full-batch", 1.0, 1.0, 1, 1e-5),
        ("add-remove", "full-batch", 1000.0, 1.0, 1_000_000, 1e-12),
        ("substitute", "full-batch", 5.0, 1.0, 10, 1e-5),
    ],
)
DELTAS = _asked(
    "delta",
    (*_SETTING, "epsilon"),
    [
        ("add-remove", "poisson", 1.0, 0.008, 1250, 1.6),
        ("add-remove", "poisson", 1.0, 0.008, 1250, 3.4),
        ("substitute", "poisson", 4.0, 0.05, 1250, 2.0),
        ("substitute", "without-replacement", 2.0, 0.008, 1250, 1.9),
        ("add-remove", "without-replacement", 4.0, 0.01, 10_000, 2.0),
        ("substitute", "full-batch", 10.0, 1.0, 10, 1.0),
    ],
)
# Noise, rate, sampling and number of the steps that are composed with each other.
PARTS = [
    (1.0, 0.005, "poisson", 700),
    (3.0, 0.02, "poisson", 300),
    (60.0, 1.0, "full-batch", 20),
    (4.0, 0.01, "without-replacement", 100),
]
UNLIKE = _asked("unlike steps", ("relation",), [("add-remove",), ("substitute",)])
MALICIOUS = _asked("malicious", ("malicious",), [(0,), (500,), (25_000,), (45_000,)])
PROJECTED = _asked(
    "projected", ("dimension", "noise_multiplier"), [(10, 2.135), (100, 1.3633), (1000, 1.133)]
)
POWERS = _asked(
    "power",
    ("relation", "false_positive_rate"),
    [(relation, rate) for relation in ("add-remove", "substitute") for rate in (1e-4, 1e-2, 0.3)],
)
SIGNS = _asked(
    "signs",
    ("relation", "dimension", "rounded"),
    [(relation, 60, way) for relation in ("add-remove", "substitute") for way in ("down", "up")],
)
QUESTIONS = [*EPSILONS, *DELTAS, *UNLIKE, *MALICIOUS, *PROJECTED, *POWERS, *SIGNS]


def named(question: Question) -> str:
    """The question in a few words, as a test's id."""
    return "-".join(str(value) for value in question.values())


def truth(question: Question) -> Estimate:
    """The committed value and its error."""
    return _committed()[json.dumps(dict(question), sort_keys=True)]


def compute(question: Question) -> Estimate:
    """The oracle's answer, by itself."""
    return _ANSWERS[question["kind"]](**{k: v for k, v in question.items() if k != "kind"})


def _epsilon(*, steps: int, delta: float, **setting: Any) -> Estimate:
    return oracle.worst_epsilon(oracle.directions(**setting), steps, delta)


def _delta(*, steps: int, epsilon: float, **setting: Any) -> Estimate:
    return oracle.worst_delta(oracle.directions(**setting), steps, epsilon)


def _unlike(*, relation: str) -> Estimate:
    columns = [
        oracle.directions(noise_multiplier=z, sample_rate=q, relation=relation, sampling=sampling)
        for z, q, sampling, _ in PARTS
    ]
    counts = [count for *_, count in PARTS]
    return max(
        (
            oracle.epsilon(list(zip(laws, counts, strict=True)), 1e-6)
            for laws in zip(*columns, strict=True)
        ),
        key=lambda one: one.value,
    )


def _malicious(*, malicious: int) -> Estimate:
    law = oracle.malicious(n=50_000, batch=500, malicious=malicious, noise_multiplier=2.0)
    return oracle.epsilon([(law, 1250)], 1e-5)


def _projected(*, dimension: int, noise_multiplier: float) -> Estimate:
    laws = oracle.projected(
        dimension=dimension, noise_multiplier=noise_multiplier, sample_rate=0.008
    )
    return oracle.worst_epsilon(laws, 1250, 1e-5)


def _power(*, relation: str, false_positive_rate: float) -> Estimate:
    """Power of the best test of membership after 1,250 steps at that rate of false alarms.

    The pair (member, not member) bounds it by delta(e) + exp(e) * alpha, the reversed pair by
    1 - (1 - alpha - delta(e)) * exp(-e); with e >= 0 both together give the whole trade-off.
    """
    alpha = false_positive_rate
    laws = oracle.directions(
        noise_multiplier=1.0, sample_rate=0.008, relation=relation, sampling="poisson"
    )

    def forward(at: float) -> float:
        return oracle.delta([(laws[0], 1250)], at).value + exp(at) * alpha

    def backward(at: float) -> float:
        return 1 - (1 - alpha - oracle.delta([(laws[-1], 1250)], at).value) * exp(-at)

    best = min(
        float(minimize_scalar(bound, bounds=(1e-3, 3.5), method="bounded").fun)
        for bound in (forward, backward)
    )
    return Estimate(best, 0.0)


def _signs(*, relation: str, dimension: int, rounded: str) -> Estimate:
    """Epsilon of P8 (7) where lengths are rounded to eighty thin cells' ends."""
    noise, rate, steps = 2.0, 0.02, 200
    events = 2 if relation == "substitute" else 1

    def tail(radius: np.ndarray) -> np.ndarray:
        x = radius**2
        chernoff = (x * e ** (1 - x)) ** (dimension / 2)
        return np.minimum(chernoff, 1 / (1 + dimension * (x - 1) ** 2 / 2))

    far = brentq(lambda radius: float(tail(np.array(radius))) - 1e-14, 1.0, 9.0)
    radii = np.linspace(1, far, 80)
    weights = -np.diff(np.minimum(1, events * tail(radii)))
    keep = weights > 1e-15
    places = (radii[:-1] if rounded == "down" else radii[1:])[keep]
    kinds = (oracle.plus_minus,) if relation == "substitute" else (oracle.rem, oracle.add)
    laws = [
        oracle.mixture(
            weights[keep] / weights[keep].sum(),
            [kind(rate, float(radius) / noise) for radius in places],
        )
        for kind in kinds
    ]
    return oracle.worst_epsilon(laws, steps, 1e-5)


_ANSWERS: dict[str, Callable[..., Estimate]] = {
    "epsilon": _epsilon,
    "delta": _delta,
    "unlike steps": _unlike,
    "malicious": _malicious,
    "projected": _projected,
    "power": _power,
    "signs": _signs,
}


@cache
def _committed() -> dict[str, Estimate]:
    found = {}
    for row in json.loads(FILE.read_text(encoding="utf-8")):
        value, error = row.pop("value"), row.pop("error")
        found[json.dumps(row, sort_keys=True)] = Estimate(value, error)
    return found


def main() -> None:
    """Compute every value and write the file."""
    rows = []
    for question in QUESTIONS:
        answer = compute(question)
        rows.append({**question, "value": answer.value, "error": answer.error})
    lines = ",\n".join(json.dumps(row) for row in rows)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
