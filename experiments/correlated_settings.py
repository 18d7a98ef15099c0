"""Settings of a training with correlated or independent noise: what was tried, what was chosen.

This file knows how a study is written; the trials are those of correlated_training.py, the runs
those of correlated_noise.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import hubbub
from experiments.utility_study import CIFAR, HEART

SILOS, STEPS, RATE, DELTA = 32, 1250, 0.008, 1e-5
EPSILONS = (2.0, 4.0, 8.0)
INDEPENDENT, CORRELATED, NONE = "independent", "correlated", "none"
PAPER, NARROW = "384, 384, 384", "64"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a model is trained.

    Args:
        hidden: widths of the head's hidden layers; the paper's if left out, none if empty.
        optimizer: "sgd" or "adam".
        lr: learning rate.
        schedule: of the learning rate.
        momentum: of SGD.
        clip: largest norm of a record's gradient.
        bands: of the matrix of the noise; 1 for independent noise.
    """

    hidden: str = PAPER
    optimizer: str = "sgd"
    lr: float = 0.02
    schedule: str = "constant"
    momentum: float = 0.9
    clip: float = 2.5
    bands: int = 1

    @property
    def kept(self) -> float:
        """The momentum by which the matrix is chosen."""
        return self.momentum if self.optimizer == "sgd" else 0.0

    @property
    def noise(self) -> str:
        """How noise is drawn."""
        return INDEPENDENT if self.bands == 1 else CORRELATED

    @property
    def written(self) -> str:
        """The optimizer, as a study has it."""
        momentum = f", momentum = {self.momentum}" if self.optimizer == "sgd" else ""
        start = f'name = "{self.optimizer}", lr = {self.lr}{momentum}'
        return start + (f', schedule = "{self.schedule}"' if self.schedule != "constant" else "")


def study_of(
    setting: Setting, *, epsilon: float, colluders: int, run: int, weights: str, sha256: str
) -> hubbub.Study:
    """The study of a run; its name, and so its first model, differs from run to run."""
    bands = f'noise = "correlated"\nbands = {setting.bands}'
    written = CIFAR.substitute(
        name=f"{setting.noise} {epsilon:g} {colluders} run {run}",
        silos=SILOS,
        nodes=0,
        colluders=colluders,
        weights=weights,
        sha256=sha256,
        counts="",
        batches=f"sample_rate = {RATE}\n{bands if setting.bands > 1 else ''}",
        hidden=setting.hidden,
        clip=setting.clip,
        optimizer=setting.written,
        epsilon=epsilon,
        delta=DELTA,
        relation="add-remove",
    )
    return hubbub.Study.parse(written)


def small_study(setting: Setting, *, epsilon: float, colluders: int, run: int) -> hubbub.Study:
    """The same for four hospitals, four steps and few bands."""
    written = HEART.substitute(
        name=f"{setting.noise} {epsilon:g} {colluders} run {run}",
        silos=4,
        colluders=colluders,
        counts="",
        batches="sample_rate = 0.2\n"
        + ('noise = "correlated"\nbands = 2' if setting.bands > 1 else "")
        + f"\noptimizer = {{ {setting.written} }}",
        epsilon=epsilon,
        delta=DELTA,
        relation="add-remove",
    )
    return hubbub.Study.parse(written)


def _sgd(
    lr: float,
    bands: int = 1,
    schedule: str = "constant",
    clip: float = 2.5,
    hidden: str = PAPER,
) -> Setting:
    return Setting(hidden=hidden, lr=lr, bands=bands, schedule=schedule, clip=clip)


def _adam(lr: float, schedule: str = "constant", clip: float = 2.5, hidden: str = PAPER) -> Setting:
    return Setting(hidden=hidden, optimizer="adam", lr=lr, schedule=schedule, clip=clip)


TRIALS: dict[float, tuple[Setting, ...]] = {
    4.0: (
        *(_sgd(0.02, bands) for bands in (16, 32)),
        _sgd(0.03, 16),
        _sgd(0.03, 16, "linear"),
        _sgd(0.05, 16, "linear", 1.25),
        _sgd(0.04, 16, clip=1.25),
        _sgd(0.02, 16, clip=5.0),
        *(_sgd(lr) for lr in (0.013, 0.02, 0.03)),
        _sgd(0.02, schedule="linear"),
        _sgd(0.04, schedule="linear", clip=1.25),
        _sgd(0.02, clip=5.0),
        *(_adam(lr) for lr in (6e-4, 9e-4)),
        *(_adam(lr, "linear") for lr in (9e-4, 1.5e-3, 2.5e-3)),
        _adam(1e-3, "linear", 1.25),
    ),
    8.0: (_sgd(0.03, 32), _sgd(0.03, 64), _adam(1.5e-3, "linear")),
    2.0: (),
}
# The narrow head; where a setting was far off at the other epsilons, 2 is spared it.
TRIALS[2.0] += (
    *(_adam(lr, hidden=NARROW) for lr in (5e-4, 1e-3)),
    *(_adam(lr, "linear", hidden=NARROW) for lr in (1e-3, 2e-3)),
    *(_sgd(lr, hidden=NARROW) for lr in (0.01, 0.02)),
    _sgd(0.04, schedule="linear", hidden=NARROW),
    _adam(2e-3, "linear", hidden=""),
    _adam(2e-3, "linear", hidden="128"),
    *(_sgd(lr, 16, hidden=NARROW) for lr in (0.03, 0.05)),
    *(_sgd(lr, 16, "linear", hidden=NARROW) for lr in (0.06, 0.1)),
)
for _epsilon, _bands in ((4.0, (16, 32)), (8.0, (32, 64))):
    TRIALS[_epsilon] += (
        *(_adam(lr, "linear", hidden=NARROW) for lr in (1e-3, 2e-3, 4e-3)),
        *(_adam(lr, hidden=NARROW) for lr in (5e-4, 1e-3, 2e-3)),
        *(_sgd(lr, hidden=NARROW) for lr in (0.01, 0.02, 0.04)),
        *(_sgd(lr, schedule="linear", hidden=NARROW) for lr in (0.04, 0.08)),
        *(_sgd(lr, bands, hidden=NARROW) for bands in _bands for lr in (0.03, 0.05)),
        *(_adam(lr, "linear", hidden=hidden) for hidden in ("", "128") for lr in (2e-3, 4e-3)),
        *(_sgd(0.05, _bands[1], hidden=hidden) for hidden in ("", "128")),
        _sgd(0.08, _bands[1], hidden=NARROW),
        _sgd(0.1, _bands[1], "linear", hidden=NARROW),
    )
_BEST_ADAM = _adam(2e-3, "linear", hidden="128")
CHOSEN = {
    (2.0, CORRELATED): _sgd(0.06, 16, "linear", hidden=NARROW),
    (2.0, INDEPENDENT): _adam(2e-3, "linear", hidden=""),
    (4.0, CORRELATED): _sgd(0.03, 32, hidden=NARROW),
    (4.0, INDEPENDENT): _BEST_ADAM,
    (8.0, CORRELATED): _sgd(0.1, 64, "linear", hidden=NARROW),
    (8.0, INDEPENDENT): _BEST_ADAM,
    (inf, NONE): _adam(2e-3, "linear", hidden="128"),
}
