"""The table `[training]`: how the model is trained, with which batches and which optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from hubbub.core.errors import StudyError
from hubbub.core.section import Section
from hubbub.core.settings import (
    Key,
    by_hand,
    number,
    one_of,
    read,
    read_inner,
    read_key,
    settings,
    table,
    texts,
    whole,
)
from hubbub.core.study.import_path import is_own

if TYPE_CHECKING:
    from hubbub.core.study.study import Study
    from hubbub.learning.study.model import Model

_MOST_METRICS = 20
MOST_BANDS = 128
# Written out in the canonical form, because both parties must use the same.
_OPTIMIZERS: dict[str, dict[str, float]] = {
    "adam": {"beta1": 0.9, "beta2": 0.999},
    "sgd": {"momentum": 0.0},
}
_DEFAULT_OPTIMIZER = {"name": "adam", "lr": 0.1}
OPTIMIZER = {
    "name": one_of("adam", "sgd", says="Adam, or gradient descent."),
    "lr": number(0, 1e6, "Learning rate.", above=True),
    "schedule": one_of(
        *("constant", "linear", "cosine"),
        says="How the rate falls to zero over all steps, if at all.",
        default='`"constant"`',
    ),
    "momentum": number(
        0, 0.999999, "SGD: how much of the last direction is kept.", default="`0.0`"
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
        evaluate=_evaluate,
        metrics=_metrics,
        bands=_bands,
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
    return str(read_key(Training, section, "projection_kind"))


def _tokens(section: Section) -> str:
    """For how many steps a shuffled token list is used; nothing to say where there are none."""
    if section.content.get("sampling") != "without-replacement":
        section.absent("tokens", 'without training.sampling = "without-replacement"')
    return str(read_key(Training, section, "tokens"))


def _bands(section: Section) -> int:
    """How many bands the matrix of correlated noise has; 0 for "auto"."""
    if section.content.get("noise") != "correlated":
        section.absent("bands", 'without training.noise = "correlated"')
    if section.content.get("bands", "auto") == "auto":
        return 0
    return section.whole("bands", None, least=2, most=MOST_BANDS)


def _evaluate(section: Section) -> Evaluate | None:
    """The table `evaluate`, if there is one."""
    return read_inner(Evaluate, section, "evaluate")


def _optimizer(section: Section) -> tuple[tuple[str, str | float], ...]:
    """The optimizer's name and all of its settings."""
    stated = section.content.get("optimizer", _DEFAULT_OPTIMIZER)
    if not isinstance(stated, dict) or not isinstance(stated.get("name"), str):
        raise section.refusal(
            "optimizer", "a table with a name", 'write { name = "adam", lr = 0.1 }'
        )
    inner = Section("training.optimizer", stated, tuple(OPTIMIZER))
    name = inner.text("name", None, options=tuple(_OPTIMIZERS))
    defaults = _OPTIMIZERS[name]
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
        number(0.001, 50, "What all of them together may cost ([P16](privacy.md#p16))."),
    ]
    holdout: Annotated[
        float,
        number(
            0.01,
            0.9,
            "Share of each silo's records that is held back from the training for it.",
        ),
    ] = 0.2


@settings
class Training:
    """How the model is trained."""

    steps: Annotated[int, whole(1, 1_000_000, "Updates of the model.")]
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
        by_hand(
            number(
                0,
                1,
                'The probability that a given record is in a given batch. With `"full-batch"` it '
                "is 1 and may be left out.",
                above=True,
                default="either",
            )
        ),
        {
            "batch": by_hand(
                whole(
                    1,
                    10**12,
                    "Another way to write the rate: `batch` / `data.records`.",
                    values="1 to `data.records`",
                    default="either",
                )
            )
        },
    ]
    clip_norm: Annotated[
        float,
        number(1e-29, 1e9, "Largest norm of one record's gradient ([P14](privacy.md#p14))."),
    ] = 1.0
    optimizer: Annotated[
        tuple[tuple[str, str | float], ...],
        table(
            "What the noisy sum does to the model.",
            default='`{ name = "adam", lr = 0.1 }`',
        ),
    ]
    projection: Annotated[
        int,
        whole(
            0,
            10**7,
            "Silos send so many numbers instead of a gradient ([P8](privacy.md#p8)); 0: no "
            "projection.",
            values="0, or 2 to 10,000,000",
        ),
    ] = 0
    projection_kind: Annotated[
        str,
        by_hand(
            one_of(
                "gaussian",
                "sign",
                "layers",
                says="The paper's matrices, fast ones of signs, or a pair of matrices for each "
                "layer with records clipped afterwards.",
            )
        ),
    ] = "gaussian"
    tokens: Annotated[
        str,
        by_hand(
            one_of(
                "per-step",
                "per-epoch",
                "static",
                says="How long a shuffled token list serves; all but the first are charged without "
                "gain from sampling ([P9](privacy.md#p9)).",
            )
        ),
    ] = "per-step"
    evaluate: Annotated[
        Evaluate | None,
        table(
            "Accuracy and loss on records that are held back, or what the [target's "
            "kind](data.md#amounts-counts-and-times) has instead."
        ),
    ] = None
    broadcast_dtype: Annotated[
        str,
        one_of(
            "float32",
            "bfloat16",
            says="The format in which models go down to the silos, which take their gradients at "
            "what they got.",
        ),
    ] = "float32"
    noise: Annotated[
        str,
        one_of(
            "independent",
            "correlated",
            says='`"correlated"`: later steps take a step\'s noise partly back, so that the '
            'trained model has less of it ([P25](privacy.md#p25)). For `"poisson"` and `"sgd"`; '
            '`"adam"` loses by it.',
        ),
    ] = "independent"
    bands: Annotated[
        int,
        Key(
            says='Steps that a noise vector has a part in, at most 1 / `sample_rate`; `"auto"` '
            "takes what leaves least noise in the model, 1 included.",
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
    metrics: Annotated[
        tuple[str, ...],
        by_hand(
            texts(
                "[Metrics of your own](data.md#a-loss-or-a-metric-of-your-own) on the public test "
                "records.",
                f'list of at most {_MOST_METRICS} texts `"python:module:function"`',
            )
        ),
    ] = ()


def learning_of(study: Study) -> tuple[Model, Training]:
    """The model of a study and how it is trained.

    Raises:
        StudyError: it trains none.
    """
    if study.training is None:
        raise StudyError(
            "expected a study with [model] and [training], got one of statistics alone; add "
            "them, or use what is there for statistics"
        )
    return study.model, study.training
