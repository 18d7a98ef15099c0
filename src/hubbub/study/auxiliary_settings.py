"""What a study may ask of the silos besides gradients: evaluation and standardised features.

Both are sums over records with noise of their own, and part of the study's epsilon
(docs/privacy.md P16). This file knows what was asked for, not how it is summed.
"""

from __future__ import annotations

from dataclasses import dataclass

from hubbub.study.section import Section


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """How well the model does on records that the silos hold back, told with noise.

    Args:
        every: steps between two evaluations.
        epsilon: what all evaluations together may cost; it is part of the study's.
        holdout: share of each silo's records that is held back from training for it.
    """

    every: int
    epsilon: float
    holdout: float = 0.2


@dataclass(frozen=True, kw_only=True)
class Standardise:
    """Features to mean 0 and standard deviation 1, from sums over all records with noise.

    Args:
        epsilon: what the sums may cost; it is part of the study's.
        bound: a public bound of every feature's absolute value; beyond it features are cut off.
    """

    epsilon: float
    bound: float = 1.0


def evaluate_from(section: Section) -> Evaluate | None:
    """The table `evaluate` of a section, if there is one."""
    inner = _inner(section, "evaluate", ("every", "epsilon", "holdout"))
    if inner is None:
        return None
    return Evaluate(
        every=inner.whole("every", None, least=1, most=1_000_000),
        epsilon=inner.number("epsilon", None, least=1e-3, most=50),
        holdout=inner.number("holdout", Evaluate.holdout, least=0.01, most=0.9),
    )


def standardise_from(section: Section) -> Standardise | None:
    """The table `standardise` of a section, if there is one."""
    inner = _inner(section, "standardise", ("epsilon", "bound"))
    if inner is None:
        return None
    return Standardise(
        epsilon=inner.number("epsilon", None, least=1e-3, most=50),
        bound=inner.number("bound", Standardise.bound, least=0, most=1e9, open_low=True),
    )


def _inner(section: Section, key: str, known: tuple[str, ...]) -> Section | None:
    if key not in section.content:
        return None
    return Section(section.path(key), section.table(key), known)
