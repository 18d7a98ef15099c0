"""The study of the experiment `utility` at a level of noise, and its certified epsilon.

This file knows how a study is written and accounted for; which ones are run is not its affair.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from string import Template

import hubbub

CIFAR = Template("""
[study]
name = "utility, $name"

[parties]
silos = $silos
compute_nodes = $nodes          # 0: pairwise masks
colluders = $colluders

[data]
source = "python:experiments.datasets:cifar10"
options = { silos = $silos }
records = 50000

[model]
kind = "mlp"
hidden = [$hidden]
inputs = [1600]                 # features that come out of the frozen layers
outputs = 10
bias = false

[model.frozen]
weights = "$weights"
sha256 = "$sha256"
mean = [0.4914, 0.4822, 0.4465]
std = [0.2023, 0.1994, 0.2010]

[training]
steps = 1250
$batches
clip_norm = $clip
optimizer = { $optimizer }

[privacy]
epsilon = $epsilon
delta = $delta
relation = "$relation"
""")

HEART = Template("""
[study]
name = "utility, small, $name"

[parties]
silos = $silos
colluders = $colluders

[data]
source = "hubbub.datasets:heart"
records = 735
$counts

[model]
kind = "mlp"
hidden = [8]
inputs = [26]

[training]
steps = 4
$batches

[privacy]
epsilon = $epsilon
delta = $delta
relation = "$relation"
""")

POISSON, FRESH, STATIC = "poisson", "fresh-lists", "static-list"
SAMPLINGS = (POISSON, FRESH, STATIC)
HUBBUB, TRUSTED, LOCAL, ONE_SUM = "hubbub", "trusted", "local-dp", "local-dp-one-sum"
METHODS = (HUBBUB, TRUSTED, LOCAL, ONE_SUM)

SILOS, FEW = 32, 4
DELTA, LOOSE = 1e-5, 1e-3
# What finite precision adds to delta grows with e^epsilon (docs/privacy.md P6), and from about here
# on it is more than DELTA. The same noise is then promised as a smaller epsilon at LOOSE.
LARGEST = 9.0


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the figure.

    Args:
        method: one of METHODS.
        sampling: one of SAMPLINGS.
        level: total noise t of hubbub with no colluders, over C.
        silos: N of the claim.
        colluders: T.
    """

    method: str
    sampling: str = POISSON
    level: float
    silos: int = SILOS
    colluders: int = 0

    @property
    def promised(self) -> float:
        """z, the noise over C that the stated adversary cannot subtract."""
        if self.method == TRUSTED:
            return self.level
        return self.level * sqrt((self.silos - 1) / self.silos)

    @property
    def asked(self) -> float:
        """The noise by which the study that is run states its epsilon: N shares of z at once."""
        return self.promised * (sqrt(self.silos) if self.method == ONE_SUM else 1.0)

    @property
    def played(self) -> int:
        """Silos of the study that is run; for who sees all sums few are the same, and quicker."""
        return FEW if self.method in (TRUSTED, ONE_SUM) else self.silos

    @property
    def relation(self) -> str:
        """A batch of a fixed size hides an exchange; that a record is there at all is public."""
        return "add-remove" if self.sampling == POISSON else "substitute"


@dataclass(frozen=True, kw_only=True)
class PreparedStudy:
    """What is trained: the study's text, and its numbers that the accountant needs.

    Args:
        template: of the study.
        weights: the file of the frozen layers.
        sha256: of that file.
        records: of all silos.
        batch: records in a joint batch, and the mean of a Poisson batch.
        steps: of the training.
        counts: records of each silo, where they must be stated.
    """

    template: Template
    weights: str = ""
    sha256: str = ""
    records: int
    batch: int
    steps: int
    counts: tuple[int, ...] = ()

    def epsilon(self, point: Point, noise: float, known: int, delta: float = DELTA) -> float:
        """Epsilon of so much noise against somebody who owns so many records (P1, P9, P10)."""
        steps = self.steps
        if point.sampling == FRESH:
            return hubbub.malicious_epsilon(
                records=self.records,
                batch=self.batch,
                malicious=known,
                noise_multiplier=noise,
                steps=steps,
                delta=delta,
            ).upper
        every, sampling = self.batch / self.records, "poisson"
        if point.sampling == STATIC:
            every, sampling, steps = (
                1.0,
                "full-batch",
                ceil(steps / ceil(self.records / self.batch)),
            )
        return hubbub.epsilon(
            noise_multiplier=noise,
            sample_rate=every,
            sampling=sampling,
            steps=steps,
            delta=delta,
            relation=point.relation,
        ).upper

    def owned(self, point: Point) -> int:
        """Records of the one silo that looks on."""
        return max(self.counts, default=ceil(self.records / point.played))

    def accounted(self, point: Point) -> float:
        """Epsilon against a silo that looks on, or against outsiders if somebody is trusted."""
        known = 0 if point.method == TRUSTED else self.owned(point)
        return self.epsilon(point, point.promised, known)

    def study(self, point: Point, run: int) -> hubbub.Study:
        """The study of a point; its name, and so its first model, differs from run to run."""
        joint, known = point.sampling != POISSON, self.owned(point)
        delta, epsilon = DELTA, self.epsilon(point, point.asked, known)
        if epsilon > LARGEST:
            delta, epsilon = LOOSE, self.epsilon(point, point.asked, known, LOOSE)
        written = self.template.substitute(
            name=f"{point.method} {point.sampling} {point.level:g} {point.colluders} run {run}",
            silos=point.played,
            nodes=0,
            colluders=point.colluders,
            weights=self.weights,
            sha256=self.sha256,
            counts=f"counts = {list(self.counts)}" if joint and self.counts else "",
            batches=self._batches(point.sampling),
            hidden="384, 384, 384",
            clip=2.5,
            optimizer='name = "adam", lr = 9e-4',
            epsilon=epsilon,
            delta=delta,
            relation=point.relation,
        )
        return hubbub.Study.parse(written)

    def _batches(self, sampling: str) -> str:
        """How a study writes the sampling."""
        if sampling == POISSON:
            return f"sample_rate = {self.batch / self.records}"
        tokens = "per-step" if sampling == FRESH else "static"
        return f'sampling = "without-replacement"\nbatch = {self.batch}\ntokens = "{tokens}"'
