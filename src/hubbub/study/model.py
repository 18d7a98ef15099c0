"""The table `[model]`: which model is trained. This file builds none and imports no factory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from hubbub.study.place import OWN, is_own
from hubbub.study.section import Section

_KINDS = ("logistic", "mlp", "cnn")
_MOST_FEATURES = 10**9


def model_from(table: Mapping[str, Any]) -> Model:
    """The model that a table states."""
    section = Section("model", table, ("kind", "hidden", "inputs", "outputs", "bias"))
    kind = section.text("kind", None)
    if kind not in _KINDS and not is_own(kind):
        raise section.refusal(
            "kind", '"logistic", "mlp", "cnn" or "python:module:factory"', "choose one of them"
        )
    if kind.startswith(OWN):
        section.absent("bias", "for a model of your own")
    return Model(
        kind=kind,
        hidden=_hidden(section, kind),
        inputs=_inputs(section, kind),
        outputs=section.whole("outputs", 1, least=1, most=10**6),
        bias=section.truth("bias", True),
    )


def _hidden(section: Section, kind: str) -> tuple[int, ...]:
    """Widths of the hidden layers; a "cnn" may leave them to the paper's."""
    hidden = section.wholes("hidden", longest=100)
    if kind == "mlp" and not hidden:
        raise section.refusal("hidden", "the widths of the hidden layers", "add hidden = [64, 64]")
    if kind == "logistic" and hidden:
        raise section.refusal("hidden", 'absent for kind = "logistic"', 'remove it or take "mlp"')
    if kind.startswith(OWN):
        section.absent("hidden", "for a model of your own")
    return hidden


def _inputs(section: Section, kind: str) -> tuple[int, ...]:
    """Shape of a record, if it is stated."""
    inputs = section.wholes("inputs", longest=8)
    if prod(inputs) > _MOST_FEATURES:
        raise section.refusal("inputs", f"at most {_MOST_FEATURES} features in all", "lower it")
    if kind == "cnn" and inputs and len(inputs) != 3:
        raise section.refusal("inputs", '[channels, height, width] for kind = "cnn"', "mend it")
    return inputs


@dataclass(frozen=True, kw_only=True)
class Model:
    """Which model is trained."""

    kind: str
    hidden: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: int = 1
    bias: bool = True
