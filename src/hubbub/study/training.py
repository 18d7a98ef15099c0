"""The table `[training]`: how the model is trained, with which batches and which optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubbub.errors import StudyError
from hubbub.section import Section
from hubbub.study.import_path import is_own

_KEYS = (
    *("steps", "sampling", "sample_rate", "batch", "clip_norm", "optimizer", "projection"),
    "projection_kind",
    *("tokens", "evaluate", "broadcast_dtype", "metrics", "noise", "bands"),
)
_SAMPLINGS = ("poisson", "without-replacement", "full-batch")
_TOKENS = ("per-step", "per-epoch", "static")
_PROJECTION_KINDS = ("gaussian", "sign", "layers")
_MOST_METRICS = 20
_BROADCAST_DTYPES = ("float32", "bfloat16")
_NOISES = ("independent", "correlated")
MOST_BANDS = 128
# Written out in the canonical form, because both parties must use the same.
_OPTIMIZERS: dict[str, dict[str, float]] = {
    "adam": {"beta1": 0.9, "beta2": 0.999},
    "sgd": {"momentum": 0.0},
}
_SCHEDULES = ("constant", "linear", "cosine")
_DEFAULT_OPTIMIZER = {"name": "adam", "lr": 0.1}


def training_from(table: Mapping[str, Any], *, records: object) -> Training:
    """The training that a table states; `records` is what the study gives as data.records."""
    section = Section("training", table, _KEYS)
    return Training(
        steps=section.whole("steps", None, least=1, most=1_000_000),
        sampling=section.text("sampling", Training.sampling, options=_SAMPLINGS),
        sample_rate=_sample_rate(section, records),
        clip_norm=section.number("clip_norm", Training.clip_norm, least=1e-29, most=1e9),
        optimizer=_optimizer(section),
        projection=section.whole("projection", Training.projection, least=0, most=10**7),
        projection_kind=_projection_kind(section),
        tokens=_tokens(section),
        evaluate=_evaluate(section),
        broadcast_dtype=section.text(
            "broadcast_dtype", Training.broadcast_dtype, options=_BROADCAST_DTYPES
        ),
        metrics=_metrics(section),
        noise=section.text("noise", Training.noise, options=_NOISES),
        bands=_bands(section),
    )


def _metrics(section: Section) -> tuple[str, ...]:
    """Functions that score predictions, each under the name that it has."""
    named = section.texts("metrics", Training.metrics)
    names = [one.rpartition(":")[2] for one in named]
    if len(named) > _MOST_METRICS or not all(map(is_own, named)) or len({*names}) < len(names):
        wanted = f'at most {_MOST_METRICS} texts "python:module:function" with names of their own'
        raise section.refusal("metrics", wanted, "list each function once")
    return named


def _sample_rate(section: Section, records: object) -> float:
    """The rate, stated or as batch / data.records."""
    if section.content.get("sampling") == "full-batch":
        section.absent("batch", 'with training.sampling = "full-batch", which takes all records')
        if section.number("sample_rate", 1.0, least=0, most=1, open_low=True) != 1:
            raise section.refusal("sample_rate", '1 with sampling = "full-batch"', "leave it out")
        return 1.0
    if ("sample_rate" in section) == ("batch" in section):
        found = "both" if "batch" in section else "neither"
        raise StudyError(
            f"expected either training.sample_rate or training.batch, got {found}; keep one of them"
        )
    if "sample_rate" in section:
        return section.number("sample_rate", None, least=0, most=1, open_low=True)
    if isinstance(records, bool) or not isinstance(records, int) or records <= 0:
        raise StudyError(
            "expected data.records beside training.batch, got nothing usable; state the public "
            "number of records of all silos together, or use training.sample_rate"
        )
    return section.whole("batch", None, least=1, most=records) / records


def _projection_kind(section: Section) -> str:
    """Which matrices project; refused where nothing is projected."""
    if not section.content.get("projection"):
        section.absent("projection_kind", "with training.projection = 0, which projects nothing")
    return section.text("projection_kind", Training.projection_kind, options=_PROJECTION_KINDS)


def _tokens(section: Section) -> str:
    """For how many steps a shuffled token list is used; nothing to say where there are none."""
    if section.content.get("sampling") != "without-replacement":
        section.absent("tokens", 'without training.sampling = "without-replacement"')
    return section.text("tokens", Training.tokens, options=_TOKENS)


def _bands(section: Section) -> int:
    """How many bands the matrix of correlated noise has; 0 for "auto"."""
    if section.content.get("noise") != "correlated":
        section.absent("bands", 'without training.noise = "correlated"')
    if section.content.get("bands", "auto") == "auto":
        return 0
    return section.whole("bands", None, least=2, most=MOST_BANDS)


def _evaluate(section: Section) -> Evaluate | None:
    """The table `evaluate`, if there is one."""
    inner = section.inner("evaluate", ("every", "epsilon", "holdout"))
    if inner is None:
        return None
    return Evaluate(
        every=inner.whole("every", None, least=1, most=1_000_000),
        epsilon=inner.number("epsilon", None, least=1e-3, most=50),
        holdout=inner.number("holdout", Evaluate.holdout, least=0.01, most=0.9),
    )


def _optimizer(section: Section) -> tuple[tuple[str, str | float], ...]:
    """The optimizer's name and all of its settings."""
    table = section.content.get("optimizer", _DEFAULT_OPTIMIZER)
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise section.refusal(
            "optimizer", "a table with a name", 'write { name = "adam", lr = 0.1 }'
        )
    known = ("name", "lr", "momentum", "beta1", "beta2", "schedule")
    inner = Section("training.optimizer", table, known)
    name = inner.text("name", None, options=("sgd", "adam"))
    defaults = _OPTIMIZERS[name]
    for key in ("momentum", "beta1", "beta2"):
        if key not in defaults:
            inner.absent(key, f'for name = "{name}"')
    found: dict[str, str | float] = {
        "name": name,
        "lr": inner.number("lr", None, least=0, most=1e6, open_low=True),
        "schedule": inner.text("schedule", "constant", options=_SCHEDULES),
    }
    for key, default in defaults.items():
        found[key] = inner.number(key, default, least=0, most=0.999999)
    return tuple(sorted(found.items()))


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """How well the model does on records that the silos hold back, told with noise (P16).

    Args:
        every: steps between two evaluations.
        epsilon: what all evaluations together may cost; it is part of the study's.
        holdout: share of each silo's records that is held back from training for it.
    """

    every: int
    epsilon: float
    holdout: float = 0.2


@dataclass(frozen=True, kw_only=True)
class Training:
    """How the model is trained.

    Args:
        steps: updates of the model.
        sampling: "poisson", "without-replacement" or "full-batch".
        sample_rate: probability that a given record is in a given batch.
        clip_norm: largest L2 norm of one record's gradient, in units of the gradient.
        optimizer: its name and all of its settings, by key.
        projection: k, how many numbers silos send instead of a whole gradient; 0: no projection.
        projection_kind: "gaussian" (the paper's matrices), "sign" (fast ones) or "layers" (a pair
            of matrices for each layer; records are clipped after projecting).
        tokens: for how long a list is used from which joint batches are drawn: "per-step",
            "per-epoch" or "static".
        evaluate: accuracy and loss on records that are held back; None: not asked for.
        broadcast_dtype: "float32" or "bfloat16", the format in which models go down to the
            silos, which take their gradients at what they got.
        metrics: functions that score predictions of the public test records, "python:module:name".
        noise: "independent" in every step, or "correlated", so that a step's noise is partly taken
            back in later ones.
        bands: how many steps a noise vector of correlated noise has a part in; 0: the plan chooses.
    """

    steps: int
    sampling: str = "poisson"
    sample_rate: float
    clip_norm: float = 1.0
    optimizer: tuple[tuple[str, str | float], ...]
    projection: int = 0
    projection_kind: str = "gaussian"
    tokens: str = "per-step"
    evaluate: Evaluate | None = None
    broadcast_dtype: str = "float32"
    metrics: tuple[str, ...] = ()
    noise: str = "independent"
    bands: int = 0
