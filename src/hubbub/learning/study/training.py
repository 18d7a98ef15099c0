"""The table `[training]`: how the model is trained, with which batches and which optimizer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10, prod, sqrt
from typing import TYPE_CHECKING, Annotated, Any

from hubbub.core.errors import StudyError
from hubbub.core.planning.mechanism import OPTIONS
from hubbub.core.registered import registered
from hubbub.core.settings import (
    Key,
    Section,
    later,
    number,
    one_of,
    read,
    read_inner,
    read_key,
    section_of,
    settings,
    table,
    text,
    texts,
    whole,
)
from hubbub.core.study.source import IN_MEMORY, is_own
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.target import COUNT, NUMERIC, TIME_TO_EVENT, Outcome

if TYPE_CHECKING:
    from hubbub.learning.study.model import Model


_MOST_METRICS = 20
MOST_BANDS = 128
INDEPENDENT = "independent"  # noise of each step's own
CROP_FLIP = "crop-flip"  # of views
PRECISIONS = ("float32", "tf32", "bf16")
EXPONENTIAL, TAIL = "exponential", "tail"  # of averages
# Written out in the canonical form, because both parties must use the same.
OPTIMIZERS: dict[str, dict[str, float]] = {
    "adam": {"beta1": 0.9, "beta2": 0.999},
    "sgd": {"momentum": 0.0},
}
SCHEDULES = ("constant", "linear", "cosine")
_DEFAULT_OPTIMIZER = {"name": "adam", "lr": 0.1}
OPTIMIZER = {
    "name": one_of(*OPTIMIZERS, says="Adam, or gradient descent."),
    "lr": number(0, 1e6, "Learning rate.", above=True),
    "schedule": one_of(
        *SCHEDULES,
        says="How the learning rate falls to zero over all steps, if it does.",
        default='`"constant"`',
    ),
    "momentum": number(
        0, 0.999999, "SGD: the share of the last direction that is kept.", default="`0.0`"
    ),
    "beta1": number(0, 0.999999, "Decay of Adam's mean of gradients.", default="`0.9`"),
    "beta2": number(0, 0.999999, "Decay of Adam's mean of their squares.", default="`0.999`"),
}


def training_from(stated: Mapping[str, Any], *, records: object) -> Training:
    """The training that a table states; `records` is what the study gives as data.records."""
    return read(
        Training,
        "training",
        stated,
        sample_rate=lambda section: _sample_rate(section, records),
        optimizer=_optimizer,
        projection_kind=_projection_kind,
        tokens=_tokens,
        evaluate=lambda section: read_inner(Evaluate, section, "evaluate"),
        augment=_augment,
        average=_average,
        metrics=_metrics,
        bands=_bands,
    )


def _augment(section: Section) -> Augment | None:
    asked = read_inner(Augment, section, "augment")
    if asked is not None and asked.kind != CROP_FLIP and not is_own(asked.kind):
        inner = section_of(Augment, section.path("augment"), section.table("augment"))
        wanted = f'"{CROP_FLIP}" or "python:module:function"'
        raise inner.refusal("kind", wanted, "choose one of them")
    return asked


def _average(section: Section) -> Average | None:
    asked = read_inner(Average, section, "average")
    if asked is not None:
        inner = section_of(Average, section.path("average"), section.table("average"))
        other = "share" if asked.kind == EXPONENTIAL else "decay"
        inner.absent(other, f'for kind = "{asked.kind}"')
    return asked


def _metrics(section: Section) -> tuple[str, ...]:
    named = section.texts("metrics", Training.metrics)
    names = [name.rpartition(":")[2] for name in named]
    if len(named) > _MOST_METRICS or not all(map(is_own, named)) or len({*names}) < len(names):
        wanted = f'at most {_MOST_METRICS} texts "python:module:function" with names of their own'
        raise section.refusal("metrics", wanted, "list each function once")
    return named


def _sample_rate(section: Section, records: object) -> float:
    """The rate, stated or as batch / data.records."""
    if read_key(Training, section, "sampling") == "full-batch":
        section.absent("batch", 'with training.sampling = "full-batch", which takes all records')
        if section.number("sample_rate", 1.0, least=0, most=1, open_low=True) != 1:
            raise section.refusal("sample_rate", '1 with sampling = "full-batch"', "leave it out")
        return 1.0
    if ("sample_rate" in section) == ("batch" in section):
        stated = "both" if "batch" in section else "neither"
        raise StudyError(
            f"expected either training.sample_rate or training.batch, got {stated}; keep one of "
            "them"
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
    if not section.content.get("projection"):
        section.absent("projection_kind", "with training.projection = 0, which projects nothing")
    return str(read_key(Training, section, "projection_kind"))


def _tokens(section: Section) -> str:
    """For how many steps a shuffled token list is used; nothing to say where there are none."""
    if section.content.get("sampling") != "without-replacement":
        section.absent("tokens", 'without training.sampling = "without-replacement"')
    return str(read_key(Training, section, "tokens"))


def _noise(section: Section, key: str, default: str) -> str:
    """How the noise of one step goes with that of others: by its name among the options."""
    return section.text(key, default, options=(INDEPENDENT, *registered(OPTIONS)))


def _bands(section: Section) -> int:
    """How many bands the matrix of correlated noise has; 0 for "auto"."""
    if section.content.get("noise", INDEPENDENT) == INDEPENDENT:
        section.absent("bands", 'without training.noise = "correlated"')
    if section.content.get("bands", "auto") == "auto":
        return 0
    return section.whole("bands", None, least=2, most=MOST_BANDS)


def _optimizer(section: Section) -> tuple[tuple[str, str | float], ...]:
    """The optimizer's name and all of its settings."""
    stated = section.content.get("optimizer", _DEFAULT_OPTIMIZER)
    if not isinstance(stated, dict) or not isinstance(stated.get("name"), str):
        raise section.refusal(
            "optimizer", "a table with a name", 'write { name = "adam", lr = 0.1 }'
        )
    inner = Section("training.optimizer", stated, tuple(OPTIMIZER))
    name = inner.text("name", None, options=tuple(OPTIMIZERS))
    defaults = OPTIMIZERS[name]
    for key in ("momentum", "beta1", "beta2"):
        if key not in defaults:
            inner.absent(key, f'for name = "{name}"')
    keys = {"name": name, "lr": None, "schedule": "constant", **defaults}
    return tuple(
        sorted((key, OPTIMIZER[key].read(inner, key, default)) for key, default in keys.items())
    )


@settings
class Evaluate:
    """How well the model does on records that the silos hold back, told with noise (P16)."""

    every: Annotated[
        int, whole(1, 1_000_000, "Steps between two evaluations, at most `training.steps`.")
    ]
    epsilon: Annotated[
        float,
        number(0.001, 50, "The most that all of them together may spend ([P16](privacy.md#p16))."),
    ]
    holdout: Annotated[
        float,
        number(0.01, 0.9, "Share of each silo's records that is held back from training for it."),
    ] = 0.2


@settings
class Augment:
    """Views of each record, of whose mean gradient a record's part is made (P21)."""

    views: Annotated[int, whole(2, 64, "Views of a record in each batch that it is in.")]
    kind: Annotated[
        str,
        text(
            "Crops and mirror images of images, or a function that makes a view of one record.",
            f'`"{CROP_FLIP}"`, `"python:module:function"`',
        ),
    ] = CROP_FLIP


@settings
class Average:
    """Which mean of the models of all steps is the trained one: made of what was released."""

    kind: Annotated[
        str,
        one_of(
            EXPONENTIAL,
            TAIL,
            says="A mean in which each later model weighs more, or the plain mean of the last.",
        ),
    ]
    decay: Annotated[
        float,
        number(
            0, 0.999999, "Exponential: how much of the mean step t keeps, at most (t - 1)/(t + 8)."
        ),
    ] = 0.99
    share: Annotated[float, number(0, 1, "Tail: of so large a share of the steps.", above=True)] = (
        0.25
    )


@settings
class Training:
    """How the model is trained."""

    steps: Annotated[int, whole(1, 1_000_000, "Number of updates of the model.")]
    sampling: Annotated[
        str,
        one_of(
            "poisson",
            "without-replacement",
            "full-batch",
            says="A coin for each record, [joint batches](sampling.md) of fixed size (without "
            "`evaluate`), or all records.",
        ),
    ] = "poisson"
    sample_rate: Annotated[
        float,
        number(
            0,
            1,
            'The probability that a given record is in a given batch. With `"full-batch"` it '
            "is 1 and may be left out.",
            above=True,
            default="either",
        ),
        {
            "batch": whole(
                1,
                10**12,
                "The rate in another form: `batch` / `data.records`.",
                values="1 to `data.records`",
                default="either",
            )
        },
    ]
    clip_norm: Annotated[
        float, number(1e-29, 1e9, "Largest norm of one record's gradient ([P14](privacy.md#p14)).")
    ] = 1.0
    optimizer: Annotated[
        tuple[tuple[str, str | float], ...],
        table("How the noisy sum changes the model.", default='`{ name = "adam", lr = 0.1 }`'),
    ]
    projection: Annotated[
        int,
        whole(
            0,
            10**7,
            "Silos send this many numbers instead of a gradient ([P8](privacy.md#p8)); "
            "0: no projection.",
            values="0, or 2 to 10,000,000",
        ),
    ] = 0
    projection_kind: Annotated[
        str,
        one_of(
            "gaussian",
            "sign",
            "layers",
            says="The paper's matrices, fast ones of signs, or a pair of matrices for each "
            "layer with records clipped afterwards.",
        ),
    ] = "gaussian"
    tokens: Annotated[
        str,
        one_of(
            "per-step",
            "per-epoch",
            "static",
            says="How many steps a shuffled token list serves; all but the first are "
            "charged without amplification by sampling ([P9](privacy.md#p9)).",
        ),
    ] = "per-step"
    evaluate: Annotated[
        Evaluate | None,
        table(
            "Accuracy and loss on held-back records, or the scores that the [target's "
            "kind](data.md#amounts-counts-and-times) has instead."
        ),
    ] = None
    broadcast_dtype: Annotated[
        str,
        one_of(
            "float32",
            "bfloat16",
            says="The number format in which models are sent to the silos, which compute "
            "gradients at the model as they received it.",
        ),
    ] = "float32"
    noise: Annotated[
        str,
        Key(
            says='`"correlated"`: later steps partly subtract a step\'s noise, so that the '
            'trained model has less of it ([P25](privacy.md#p25)). For `"poisson"` and `"sgd"`; '
            '`"adam"` loses by it.',
            values='`"independent"`, `"correlated"`, or what a package registers',
            schema={"anyOf": [{"enum": [INDEPENDENT, "correlated"]}, {"type": "string"}]},
            reader=_noise,
        ),
    ] = INDEPENDENT
    bands: Annotated[
        int,
        Key(
            says="The number of steps that share a noise vector, at most 1 / `sample_rate`; "
            '`"auto"` minimises the noise in the model, 1 included.',
            values=f'`"auto"`, or 2 to {MOST_BANDS}',
            schema={
                "anyOf": [
                    {"const": "auto"},
                    {"type": "integer", "minimum": 2, "maximum": MOST_BANDS},
                ]
            },
            default='`"auto"`',
        ),
    ] = 0
    augment: Annotated[
        Augment | None,
        later(table("Views of each record, such as crops of an image ([P21](privacy.md#p21)).")),
    ] = None
    average: Annotated[
        Average | None,
        later(table("The result is a mean of the models of all steps; none: the last model.")),
    ] = None
    precision: Annotated[
        str,
        later(
            one_of(
                *PRECISIONS,
                says="How short the numbers of forward and backward may be on a GPU; a record is "
                "clipped all the same ([P14](privacy.md#p14)).",
            )
        ),
    ] = "float32"
    metrics: Annotated[
        tuple[str, ...],
        texts(
            "[Metrics of your own](data.md#a-loss-or-a-metric-of-your-own) on the public test "
            "records.",
            f'list of at most {_MOST_METRICS} texts `"python:module:function"`',
        ),
    ] = ()


def learning_of(study: Study) -> tuple[Model, Training]:
    """The model of a study and how it is trained.

    Raises:
        StudyError: it trains none.
    """
    if study.training is None:
        raise StudyError(
            "expected a study with [model] and [training], got one with statistics only; "
            "add them, or use the statistics"
        )
    return study.model, study.training


def model_header(study: Study, shape: Sequence[int]) -> dict[str, str]:
    """What the file of a study's trained model says of it; `shape` is of one record's features."""
    model, training = learning_of(study)
    header = {"study": study.id.hex(), "kind": model.kind, "inputs": json.dumps(shape)}
    if training.average is not None:
        header["average"] = training.average.kind  # of the models of steps, not the last of them
    return header


def is_header_of(header: Mapping[str, str], study: Study) -> bool:
    """Whether a file's own words are those of a model of this study, and of no other."""
    stated = dict(header)
    if study.data.source == IN_MEMORY and not study.data.features:
        stated.pop("columns", "")  # of data frames, of which the study knows the number alone
    return stated == model_header(study, ()) | {"inputs": header.get("inputs", "")}


STEPS, SAMPLE_RATE = 150, 0.2
_SIGNAL = 4000.0  # at which the factors below hold as they are
_CLIP, _RATE = 0.8, 0.2  # per |x|, and times |x|, of classes
_CLIPS = {NUMERIC: 1 / 3, TIME_TO_EVENT: 1.6}
_RATES = {NUMERIC: 0.2, TIME_TO_EVENT: 1.3}
_COUNT_CLIP = 0.7  # times the root of the largest count
_LINK_CLIP = 2.7  # times the root of the largest amount, in means; of amounts with a log link
_MOST_RATE = 0.3
_NETWORK_CLIP, _NETWORK_RATE = 1.5, 0.45  # of models of several layers, beside a linear one's


@dataclass(frozen=True, kw_only=True)
class UsualTraining:
    """How a model is trained where nobody says otherwise, by public numbers; as in `Training`."""

    clip_norm: float
    lr: float  # of Adam, which falls linearly to 0
    steps: int = STEPS
    sample_rate: float = SAMPLE_RATE

    @property
    def optimizer(self) -> dict[str, str | float]:
        """The table `training.optimizer`."""
        return {"name": "adam", "lr": self.lr, "schedule": "linear"}


def usual_training(
    outcome: Outcome | None,
    *,
    records: int,
    epsilon: float,
    silos: int,
    colluders: int,
    square: float,
    steps: int = STEPS,
    is_linear: bool = True,
) -> UsualTraining:
    """The rule.

    The noise in a mean gradient follows from the *signal* s = n epsilon sqrt((N - T - 1) / N):
    units, what is promised to each, and the share of the silos whose noise the promised adversary
    does not know. The less signal, the smaller are clip and learning rate: a smaller clip bends the
    gradient and has less noise, a smaller rate averages over more steps. Both follow the length |x|
    of a record's features, of which `square` is the square (`squared_length`).
    `experiments/defaults.py` has found the numbers, and measures them on cohorts that they were not
    found on (docs/experiments.md).

    >>> usual_training(None, records=4000, epsilon=1.0, silos=5, colluders=1, square=16.0)
    UsualTraining(clip_norm=3.1, lr=0.046, steps=150, sample_rate=0.2)
    """
    unknown = max(silos - colluders - 1, 1) / silos
    signal = records * epsilon * sqrt(unknown) / _SIGNAL
    is_log_link = outcome is not None and outcome.is_log_link
    kind = COUNT if is_log_link else "" if outcome is None else outcome.kind  # by its loss
    clip = _CLIP * sqrt(square) * signal ** (1 / 6) * _CLIPS.get(kind, 1.0)
    if outcome is not None and outcome.kind == COUNT:
        clip *= _COUNT_CLIP * sqrt(outcome.high)
    if outcome is not None and outcome.is_log_link:
        # What is clipped of the largest amounts is missing in all predictions.
        most = outcome.high / outcome.unit
        longest = min(most, _LINK_CLIP * sqrt(most) * signal ** (1 / 3))
        clip = sqrt(square) * longest
    rate = _RATE / sqrt(square) * signal ** (1 / 3) * _RATES.get(kind, 1.0)
    rate *= (STEPS / steps) ** (1 / 3)
    if not is_linear:
        clip, rate = clip * _NETWORK_CLIP, rate * _NETWORK_RATE
    # A setting says no more than two digits.
    clip_norm, lr = (
        round(value, 1 - floor(log10(value))) for value in (clip, min(rate, _MOST_RATE))
    )
    return UsualTraining(clip_norm=clip_norm, lr=lr, steps=steps)


def usual_for(study: Study) -> UsualTraining:
    """The rule for a study that trains a model, with as many steps as it has."""
    model, training = learning_of(study)
    data, columns = study.data, study.data.columns
    square = squared_length(columns) if columns else 1.0 + prod(model.inputs) / 3
    if data.standardise is not None and columns:
        square = 1.0 + sum(column.width for column in columns if column.feature)
    elif data.standardise is not None:
        square *= 3
    kept = 1.0 if training.evaluate is None else 1.0 - training.evaluate.holdout
    return usual_training(
        data.outcome,
        records=max(1, round(data.records * kept)),
        epsilon=study.privacy.epsilon,
        silos=study.parties.silos,
        colluders=study.parties.colluders,
        square=square,
        steps=training.steps,
        is_linear=model.kind == "logistic",
    )


def squared_length(columns: Iterable[Column]) -> float:
    """|x|^2 of a record of these columns, beside its bias: 1 of a category, 1/3 of a number.

    Of a column with a reference a tenth: few records are of another category.
    """
    squares = (
        0.1 if column.reference else 1.0 if column.categories else 1 / 3
        for column in columns
        if column.feature
    )
    return 1.0 + sum(squares)
