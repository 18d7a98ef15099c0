"""`[model]`: which model is trained, which keys each kind takes, and how large it is.

A plan counts parameters before any model is built, and without torch: this file builds none and
imports no factory.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Annotated, Any

from hubbub.core.disk import json_value, open_ordinary
from hubbub.core.errors import DataError, IntegrityError
from hubbub.core.settings import (
    Section,
    later,
    number,
    numbers,
    read,
    read_key,
    section_of,
    settings,
    table,
    text,
    texts,
    truth,
    whole,
    wholes,
)
from hubbub.core.study import silo_records
from hubbub.core.study.source import IN_MEMORY, is_own
from hubbub.core.study.study import Study
from hubbub.learning.study.training import learning_of

LINEAR_PROBE, LORA, WIDE_RESNET = "linear-probe", "lora", "wide-resnet"


@dataclass(frozen=True, kw_only=True)
class ModelKind:
    """One kind of model that hubbub makes; its module is in `learning/models.py`."""

    keys: Collection[str]  # beside `kind`, `inputs` and `outputs`; any other is refused
    # How many are trained, on so many features and for so many intervals of a time to an event (0:
    # none); None where they do not follow from these.
    parameters: Callable[[Model, int, int], int] | None = None


def _connected(model: Model, features: int, intervals: int) -> int:
    """Of fully connected layers, and of the intercepts of proportional odds."""
    widths = (features, *model.hidden, model.outputs)
    layers = sum(low * high + (high if model.bias else 0) for low, high in pairwise(widths))
    return layers + (intervals if model.outputs == 1 else 0)


MODEL_KINDS = {
    "logistic": ModelKind(keys=("bias", "intercept", "loss", "frozen"), parameters=_connected),
    "mlp": ModelKind(keys=("hidden", "bias", "loss", "frozen"), parameters=_connected),
    "cnn": ModelKind(keys=("hidden", "bias", "loss")),
    WIDE_RESNET: ModelKind(keys=("depth", "width", "loss")),
    LINEAR_PROBE: ModelKind(
        keys=("frozen",),
        parameters=lambda model, features, _: (features + 1) * (features + 1 + model.outputs),
    ),
    LORA: ModelKind(keys=("rank", "target_modules", "loss", "frozen")),
}
_OWN = ModelKind(keys=("loss", "frozen"))  # a model that a study brings
HUBER = "huber"
_OF_SOME_KINDS = dict.fromkeys(key for kind in MODEL_KINDS.values() for key in kind.keys)
_MOST_FEATURES = 10**9
_MOST_HEADER = 2**24  # bytes that say names and shapes of tensors
_PACKAGE = "package:"
_IN_PACKAGE = re.compile(r"package:[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def model_from(stated: Mapping[str, Any]) -> Model:
    """The model that a table states."""
    kind = str(stated.get("kind"))
    model = read(
        Model,
        "model",
        stated,
        kind=_kind,
        rank=lambda section: read_key(Model, section, "rank", required=True) if kind == LORA else 0,
        frozen=lambda section: _frozen(section, kind),
        intercept=lambda section: _intercept(section, kind),
    )
    _check_model(section_of(Model, "model", stated), model)
    return model


def _kind(section: Section) -> str:
    """Which model, and what goes with no such one."""
    kind = section.text("kind", None)
    if kind not in (*MODEL_KINDS, IN_MEMORY) and not is_own(kind):
        kinds = ", ".join(f'"{name}"' for name in MODEL_KINDS)
        wanted = f'{kinds} or "python:module:factory"'
        raise section.refusal("kind", wanted, "choose one of them")
    why = f'for kind = "{kind}"' if kind in MODEL_KINDS else "for a model of your own"
    for key in _OF_SOME_KINDS:
        if key not in MODEL_KINDS.get(kind, _OWN).keys:
            section.absent(key, why)
    return kind


def _check_model(section: Section, model: Model) -> None:
    """Refuse what no model of the kind has."""
    if prod(model.inputs) > _MOST_FEATURES:
        raise section.refusal("inputs", f"at most {_MOST_FEATURES} features in all", "lower it")
    if model.kind in ("cnn", WIDE_RESNET) and model.inputs and len(model.inputs) != 3:
        wanted = f'[channels, height, width] for kind = "{model.kind}"'
        raise section.refusal("inputs", wanted, "fix it")
    if model.kind == "mlp" and not model.hidden:  # a "cnn" may leave them to the paper's
        raise section.refusal("hidden", "the widths of the hidden layers", "add hidden = [64, 64]")
    if model.depth % 6 != 4:  # three stages have equally many blocks of two layers
        raise section.refusal("depth", "10, 16, 22, 28, …", "choose one of them")
    modules = model.target_modules
    if model.kind == LORA and (len({*modules}) < max(len(modules), 1) or not all(modules)):
        wanted = "different names of layers of the frozen module"
        raise section.refusal("target_modules", wanted, 'write them like ["q_proj", "v_proj"]')
    if model.loss not in ("", HUBER) and not is_own(model.loss):
        wanted = f'"{HUBER}" or "python:module:function"'
        raise section.refusal("loss", wanted, "choose one of them, or leave it out")


def _intercept(section: Section, kind: str) -> float:
    if read_key(Model, section, "outputs") != 1 or not read_key(Model, section, "bias"):
        section.absent("intercept", f'for kind = "{kind}" but with one output and a bias')
    return float(read_key(Model, section, "intercept"))


def _frozen(section: Section, kind: str) -> Frozen | None:
    """The table `frozen`, if there is one; what the model sees then must be stated."""
    if "frozen" not in section and kind != LORA:
        return None
    if kind != LORA and len(read_key(Model, section, "inputs")) != 1:
        raise section.refusal("inputs", "[features] beside model.frozen", "write how many come out")
    path, stated = section.path("frozen"), section.table("frozen")
    frozen = read(
        Frozen,
        path,
        stated,
        module=lambda inner: read_key(Frozen, inner, "module", required=kind == LORA),
        features=lambda inner: _features(inner, kind),
    )
    inner = section_of(Frozen, path, stated)
    if not frozen.weights.endswith((".npz", ".safetensors", ".pth")):
        raise inner.refusal("weights", "a path that ends in .npz, .safetensors or .pth", "fix it")
    if frozen.weights.startswith(_PACKAGE) and not _IN_PACKAGE.fullmatch(frozen.weights):
        raise inner.refusal("weights", '"package:NAME/path/in/it"', "fix it")
    if not _SHA256.fullmatch(frozen.sha256):
        raise inner.refusal("sha256", "64 small hexadecimal digits", "write what sha256sum prints")
    if (frozen.module or kind == LORA) and not is_own(frozen.module):
        raise inner.refusal("module", '"python:module:factory"', "fix it")
    if len(frozen.mean) != len(frozen.std) or min(frozen.std, default=1.0) <= 0:
        raise inner.refusal("std", "one number above 0 for each of mean", "fix one of the two")
    return frozen


def weights_path(weights: str, folder: Path) -> Path:
    """Where a file of weights is: relative to a folder, or in an installed package.

    The package is looked up, and none of its code is run; which file it is, its SHA-256 says.
    """
    if not weights.startswith(_PACKAGE):
        return folder / weights
    package, _, path = weights.removeprefix(_PACKAGE).partition("/")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise IntegrityError(
            f"expected the package {package} with public weights, found that it is not installed "
            "here; install it"
        )
    return Path(spec.submodule_search_locations[0]) / path


def _features(inner: Section, kind: str) -> int:
    """How many features the module gives, which only adapters must be told."""
    if kind == LORA:
        return int(read_key(Frozen, inner, "features", required=True))
    inner.absent("features", "as model.inputs says them")
    return Frozen.features


@settings
class Frozen:
    """Public layers that make features of every record once, before the model sees it."""

    module: Annotated[
        str,
        text(
            "A function without arguments that makes the module whose weights these "
            'are; without it they are convolutions. A `"lora"` needs it.',
            '`"python:module:factory"`',
        ),
    ] = ""
    features: Annotated[
        int,
        whole(
            1,
            _MOST_FEATURES,
            'For `"lora"`: how many numbers the module gives for a record.',
            default="none",
        ),
    ] = 0
    weights: Annotated[
        str,
        text(
            "The file of the layers, which every silo needs, relative to where it runs, or "
            "`package:NAME/…` in an installed package, whose code is not run.",
            "path, `.npz`, `.safetensors` or `.pth`",
        ),
    ]
    sha256: Annotated[
        str, text("That file's SHA-256.", "64 digits 0–9, a–f", pattern="^[0-9a-f]{64}$")
    ]
    mean: Annotated[
        tuple[float, ...], numbers("What is subtracted from each channel first.", "list of numbers")
    ] = ()
    std: Annotated[
        tuple[float, ...],
        numbers("What each channel is then divided by.", "list of numbers above 0"),
    ] = ()


@settings
class Model:
    """Which model is trained."""

    kind: Annotated[
        str,
        text(
            "[Least squares from one sum](data.md#linear-probe) is "
            '`"linear-probe"`, [adapters over a frozen module](data.md#adapters) '
            '`"lora"`; a [factory](howto/own_model.md) is called with `inputs` and '
            '`outputs`; `"in-memory"` is the module that `hubbub.fit` is given.',
            ", ".join(f'`"{kind}"`' for kind in (*MODEL_KINDS, "python:module:factory", IN_MEMORY)),
        ),
    ]
    hidden: Annotated[
        tuple[int, ...],
        wholes(
            100,
            'Widths of hidden layers; a `"cnn"` without it has three of 384.',
            "list of at most 100 whole numbers above 0",
        ),
    ] = ()
    inputs: Annotated[
        tuple[int, ...],
        wholes(
            8,
            "Shape of a record, where no public test set shows it; of images [channels, "
            'height, width]; beside `frozen`, but for `"lora"`, [features].',
            "list of at most 8 whole numbers above 0",
        ),
    ] = ()
    outputs: Annotated[
        int,
        whole(
            1,
            1_000_000,
            "The number of logits: 1 for two classes, else one for each class; for times "
            "1 (proportional odds), or one for each time of the grid.",
        ),
    ] = 1
    bias: Annotated[bool, truth("Whether fully connected layers have biases.")] = True
    frozen: Annotated[
        Frozen | None,
        table('Public layers before the model, if it is not a `"cnn"`, or inside a `"lora"`.'),
    ] = None
    rank: Annotated[
        int,
        whole(
            1,
            10_000,
            'For `"lora"`: the rank of its adapters, at most the smaller side of a target layer.',
            default="none",
        ),
    ] = 0
    target_modules: Annotated[
        tuple[str, ...],
        texts(
            'For `"lora"`: the frozen module\'s Linear layers that get adapters, by '
            "the ends of their names."
        ),
    ] = ()
    depth: Annotated[
        int, later(whole(10, 1000, 'Of a `"wide-resnet"`: layers, 10, 16, 22, 28, ….'))
    ] = 16
    width: Annotated[
        int,
        later(whole(1, 100, 'Of a `"wide-resnet"`: how many times the channels of a plain one.')),
    ] = 4
    loss: Annotated[
        str,
        text(
            "A [loss](data.md#a-loss-or-a-metric-of-your-own) instead of the "
            'target\'s usual one; `"huber"` for amounts.',
            '`"huber"`, `"python:module:function"`',
        ),
    ] = ""
    intercept: Annotated[
        float,
        later(
            number(
                -20,
                20,
                'Where the bias of a `"logistic"` with one output starts, from public knowledge: '
                "the log-odds of a rare outcome's rate, -4.5 for one in ninety.",
            )
        ),
    ] = 0.0

    @property
    def extractor(self) -> Frozen | None:
        """What makes features of every record once, before the model sees it; None: nothing."""
        return None if self.kind == LORA else self.frozen

    @property
    def is_built_in(self) -> bool:
        """Whether hubbub makes the model, so that everybody can make it again from the study."""
        return self.kind in MODEL_KINDS and self.kind != LORA


# How large a record and the model are, as far as the study and public data say. A study is planned
# before anybody has approved it, so nothing that it names is imported or called here: where only a
# function of its own knows the shape of a record, nobody does until it is run.


def model_dimension(study: Study) -> int | None:
    """Trainable parameters of a built-in model; None if the records' shape is not public yet."""
    model, _ = learning_of(study)
    if model.kind == LORA:
        return _low_rank(model)
    shape, count = record_shape(study), _counter(study)
    return None if shape is None or count is None else count(prod(shape))


def record_shape(study: Study, dimension: int | None = None) -> tuple[int, ...] | None:
    """Shape of one record's features: stated, of the data set's columns, or of its test set.

    None if it is not public yet, or only the study's own code knows it. No data set is opened where
    the shape follows from the model's `dimension`.
    """
    if (stated := told_shape(study, dimension)) is not None:
        return stated
    if not study.data.options and (columns := silo_records.encoding(study)[0]):
        return (sum(column.width for column in columns),)
    if not silo_records.has_test_set(study) or is_own(study.data.source):
        return None
    try:
        return tuple(silo_records.records(study, silo_records.TEST).inputs.shape[1:])
    except DataError:
        return None


def told_shape(study: Study, dimension: int | None) -> tuple[int, ...] | None:
    """The shape as the study or its columns state it, or for which a model has so many parameters.

    Nothing is opened: who checks a study of somebody else must not read what it names.
    """
    count, stated = _counter(study), _stated_shape(study)
    if stated or dimension is None or count is None:
        return stated or None
    # Every feature adds at least one parameter.
    most = min(dimension, _MOST_FEATURES)
    features = bisect_left(range(_MOST_FEATURES), dimension, lo=1, hi=most, key=count)
    return (features,) if count(features) == dimension else None


def is_dimension(study: Study, dimension: int) -> bool:
    """Whether the study's model may have so many parameters, as far as it can be counted here."""
    count, stated = _counter(study), _stated_shape(study)
    if count is None:
        return True
    return count(prod(stated)) == dimension if stated else told_shape(study, dimension) is not None


def _stated_shape(study: Study) -> tuple[int, ...]:
    """Of one record as the model sees it; empty if the study says it nowhere."""
    model, _ = learning_of(study)
    if model.inputs or not study.data.columns:
        return model.inputs
    return (sum(column.width for column in study.data.features),)


def _counter(study: Study) -> Callable[[int], int] | None:
    """Gives the model's parameters on so many features; None where others matter."""
    model, _ = learning_of(study)
    count = MODEL_KINDS.get(model.kind, _OWN).parameters
    if count is None:
        return None
    intervals = len(study.data.outcome.grid) if study.data.outcome else 0
    return lambda features: count(model, features, intervals)


def _low_rank(model: Model) -> int | None:
    """Of adapters and their head, if the frozen weights' file is here and says its shapes."""
    assert model.frozen is not None, "a study of this kind has it"  # noqa: S101
    try:
        shapes = _shapes_in(weights_path(model.frozen.weights, Path()))
    except IntegrityError:  # which whoever runs it is told
        return None
    ends = tuple(f".{target}.weight" for target in model.target_modules)
    sides = [shape for name, shape in shapes.items() if f".{name}".endswith(ends)]
    if not sides:
        return None
    return model.rank * sum(map(sum, sides)) + (model.frozen.features + 1) * model.outputs


def _shapes_in(path: Path) -> dict[str, list[int]]:
    """Of the matrices in a safetensors file, by its header; none where it cannot be read."""
    try:
        with open_ordinary(path) as file:
            size = int.from_bytes(file.read(8), "little")
            header = json_value(file.read(min(size, _MOST_HEADER)))
        shapes = {k: [*map(int, entry["shape"])] for k, entry in header.items() if "shape" in entry}
        return {name: shape for name, shape in shapes.items() if len(shape) == 2}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
