"""The table `[model]`: which model is trained. This file builds none and imports no factory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from hubbub.section import Section, is_number
from hubbub.study.import_path import IN_MEMORY, is_own

_KEYS = ("kind", "hidden", "inputs", "outputs", "bias", "frozen", "loss", "rank", "target_modules")
_FROZEN = ("module", "features", "weights", "sha256", "mean", "std")
HUBER = "huber"
LINEAR_PROBE, LORA = "linear-probe", "lora"
_KINDS = ("logistic", "mlp", "cnn", LINEAR_PROBE)
_MOST_FEATURES = 10**9
_SHA256 = re.compile(r"[0-9a-f]{64}")


def model_from(table: Mapping[str, Any]) -> Model:
    """The model that a table states."""
    section = Section("model", table, _KEYS)
    kind = section.text("kind", None)
    if kind not in (*_KINDS, LORA, IN_MEMORY) and not is_own(kind):
        raise section.refusal(
            "kind",
            '"logistic", "mlp", "cnn", "linear-probe", "lora" or "python:module:factory"',
            "choose one of them",
        )
    if kind not in _KINDS:
        section.absent("bias", _without_layers(kind))
    if kind == LINEAR_PROBE:
        for key in ("bias", "hidden", "loss"):
            section.absent(key, f'for kind = "{LINEAR_PROBE}"')
    return Model(
        kind=kind,
        hidden=_hidden(section, kind),
        inputs=_inputs(section, kind),
        outputs=section.whole("outputs", Model.outputs, least=1, most=10**6),
        bias=section.truth("bias", Model.bias),
        rank=_rank(section, kind),
        target_modules=_target_modules(section, kind),
        frozen=_frozen(section, kind),
        loss=_loss(section),
    )


def _without_layers(kind: str) -> str:
    """Of which models hubbub makes no hidden layers."""
    return f'for kind = "{LORA}"' if kind == LORA else "for a model of your own"


def _rank(section: Section, kind: str) -> int:
    """Of adapters, which nothing else has."""
    if kind == LORA:
        return section.whole("rank", None, least=1, most=10**4)
    section.absent("rank", f'but for kind = "{LORA}"')
    return Model.rank


def _target_modules(section: Section, kind: str) -> tuple[str, ...]:
    """Which layers get adapters."""
    modules = section.texts("target_modules", Model.target_modules)
    if kind != LORA:
        section.absent("target_modules", f'but for kind = "{LORA}"')
    elif not modules or len(set(modules)) < len(modules) or not all(modules):
        wanted = "different names of layers of the frozen module"
        raise section.refusal("target_modules", wanted, 'write them like ["q_proj", "v_proj"]')
    return modules


def _loss(section: Section) -> str:
    """A loss in place of that of the target's kind."""
    loss = section.text("loss", Model.loss)
    if loss not in ("", HUBER) and not is_own(loss):
        wanted = f'"{HUBER}" or "python:module:function"'
        raise section.refusal("loss", wanted, "choose one of them, or leave it out")
    return loss


def _hidden(section: Section, kind: str) -> tuple[int, ...]:
    """Widths of the hidden layers; a "cnn" may leave them to the paper's."""
    hidden = section.wholes("hidden", longest=100)
    if kind == "mlp" and not hidden:
        raise section.refusal("hidden", "the widths of the hidden layers", "add hidden = [64, 64]")
    if kind == "logistic" and hidden:
        raise section.refusal("hidden", 'absent for kind = "logistic"', 'remove it or take "mlp"')
    if kind not in _KINDS:
        section.absent("hidden", _without_layers(kind))
    return hidden


def _inputs(section: Section, kind: str) -> tuple[int, ...]:
    """Shape of a record, if it is stated."""
    inputs = section.wholes("inputs", longest=8)
    if prod(inputs) > _MOST_FEATURES:
        raise section.refusal("inputs", f"at most {_MOST_FEATURES} features in all", "lower it")
    if kind == "cnn" and inputs and len(inputs) != 3:
        raise section.refusal("inputs", '[channels, height, width] for kind = "cnn"', "fix it")
    return inputs


def _frozen(section: Section, kind: str) -> Frozen | None:
    """The table `frozen`, if there is one; what the model sees then must be stated."""
    if "frozen" not in section and kind != LORA:
        return None
    if kind == "cnn":
        section.absent("frozen", 'for kind = "cnn"; "mlp" takes the features of frozen layers')
    if kind != LORA and len(section.wholes("inputs", longest=8)) != 1:
        raise section.refusal("inputs", "[features] beside model.frozen", "write how many come out")
    inner = Section("model.frozen", section.table("frozen"), _FROZEN)
    weights, sha256 = inner.text("weights", None), inner.text("sha256", None)
    if not weights.endswith((".npz", ".safetensors")):
        raise inner.refusal("weights", "a path that ends in .npz or .safetensors", "fix it")
    if not _SHA256.fullmatch(sha256):
        raise inner.refusal("sha256", "64 small hexadecimal digits", "write what sha256sum prints")
    mean, std = _numbers(inner, "mean"), _numbers(inner, "std")
    if len(mean) != len(std) or min(std, default=1.0) <= 0:
        raise inner.refusal("std", "one number above 0 for each of mean", "fix one of the two")
    module, features = _module(inner, kind)
    return Frozen(
        module=module, features=features, weights=weights, sha256=sha256, mean=mean, std=std
    )


def _module(inner: Section, kind: str) -> tuple[str, int]:
    """The function that makes the module, and how many features that gives under adapters."""
    module = inner.text("module", None if kind == LORA else Frozen.module)
    if (module or kind == LORA) and not is_own(module):
        raise inner.refusal("module", '"python:module:factory"', "fix it")
    if kind == LORA:
        return module, inner.whole("features", None, least=1, most=_MOST_FEATURES)
    inner.absent("features", "as model.inputs says them")
    return module, Frozen.features


def _numbers(section: Section, key: str) -> tuple[float, ...]:
    """A list of numbers, empty if absent."""
    values = section.content.get(key, [])
    if not isinstance(values, list) or len(values) > 1000 or not all(map(is_number, values)):
        raise section.refusal(key, "a list of numbers", "write it like [0.5, 0.5]")
    return tuple(float(value) + 0.0 for value in values)


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """Public layers that make features of every record once, before the model sees it.

    Args:
        weights: file of the layers, relative to where the silo runs.
        sha256: of that file, in hexadecimal digits.
        module: "python:module:factory", called without arguments, whose weights they are; empty:
            they are convolutions.
        features: how many numbers the module gives for a record, where adapters are trained.
        mean: what is subtracted from each channel first; empty: nothing is.
        std: what each channel is then divided by.
    """

    weights: str
    sha256: str
    module: str = ""
    features: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Model:
    """Which model is trained.

    Args:
        kind: "logistic", "mlp", "cnn", "linear-probe", "lora", "python:module:factory", or
            "in-memory" for a module that was handed to `hubbub.fit`; "statistics" where a study
            trains none.
        hidden: widths of the hidden layers, in units.
        inputs: shape of one record; empty: that of the public test set.
        outputs: number of logits: 1 for two classes, else one for each class.
        bias: whether fully connected layers have biases.
        frozen: public layers before the model, or in it with adapters; None: none.
        loss: "huber", or "python:module:function" for one of your own; empty: that of the target's
            kind.
        rank: of the adapters of kind "lora".
        target_modules: layers of the frozen module that get them, by their names or the ends of
            these.
    """

    kind: str
    hidden: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: int = 1
    bias: bool = True
    frozen: Frozen | None = None
    loss: str = ""
    rank: int = 0
    target_modules: tuple[str, ...] = ()

    @property
    def extractor(self) -> Frozen | None:
        """What makes features of every record once, before the model sees it; None: nothing."""
        return None if self.kind == LORA else self.frozen

    @property
    def is_built_in(self) -> bool:
        """Whether hubbub makes the model, so that everybody can make it again from the study."""
        return self.kind in _KINDS
