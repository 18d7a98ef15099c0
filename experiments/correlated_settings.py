"""Settings of a training with correlated or independent noise: what was tried, what was chosen.

This file knows how a study is written; the trials are those of correlated_tuning.py, the runs those
of correlated_noise.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import hubbub
from experiments.utility_study import CIFAR, HEART

SILOS, STEPS, RATE, DELTA = 32, 1250, 0.008, 1e-5
EPSILONS = (2.0, 4.0, 8.0)
INDEPENDENT, CORRELATED, NONE = "independent", "correlated", "none"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a model is trained.

    Args:
        optimizer: "sgd" or "adam".
        lr: learning rate.
        schedule: of the learning rate.
        momentum: of SGD.
        clip: largest norm of a record's gradient.
        bands: of the matrix of the noise; 1 for independent noise.
    """

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
        colluders=colluders,
        weights=weights,
        sha256=sha256,
        counts="",
        batches=f"sample_rate = {RATE}\n{bands if setting.bands > 1 else ''}",
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


_ADAM = [
    Setting(optimizer="adam", lr=lr, schedule=schedule)
    for lr, schedule in ((9e-4, "constant"), (9e-4, "linear"), (1.5e-3, "linear"))
]
TRIALS: dict[float, tuple[Setting, ...]] = {
    2.0: (Setting(bands=16), *_ADAM),
    4.0: (Setting(bands=16), Setting(bands=32), Setting(), *_ADAM),
    8.0: (Setting(lr=0.03, bands=32), *_ADAM),
}
_BEST_ADAM = Setting(optimizer="adam", lr=1.5e-3, schedule="linear")
CHOSEN = {
    (2.0, CORRELATED): Setting(bands=16),
    (2.0, INDEPENDENT): _BEST_ADAM,
    (4.0, CORRELATED): Setting(bands=32),
    (4.0, INDEPENDENT): _BEST_ADAM,
    (8.0, CORRELATED): Setting(lr=0.03, bands=32),
    (8.0, INDEPENDENT): _BEST_ADAM,
    (inf, NONE): Setting(optimizer="adam", lr=9e-4),
}
