"""What noisy sums say of each component: its number, and the variance that noise gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.synthesis.coding import CodedColumn
from hubbub.estimation.synthesis.design import Design, DesignBlock, Key

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Component:
    """A main effect or an interaction, in contrasts.

    Args:
        value: an entry for each contrast, or each pair of them; 0 where nothing was measured.
        variance: of the noise in each; inf where nothing was measured.
    """

    value: Array
    variance: Array

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which entries were measured."""
        return np.isfinite(self.variance)


@dataclass(frozen=True, kw_only=True)
class Components:
    """All that noisy sums say, as independent numbers.

    Args:
        columns: whose levels they are about.
        by: each component by its columns; () the number of records.
    """

    columns: tuple[CodedColumn, ...]
    by: Mapping[Key, Component]

    @property
    def records(self) -> float:
        """About how many units there are; 1 at the least."""
        return max(float(self.by[()].value), 1.0)

    def effect(self, key: Key) -> Component:
        """A component's."""
        return self.by[key]

    def expected(self, pair: tuple[int, int]) -> Array:
        """The interaction of a pair if it were independent."""
        a, b = (self.by[(k,)].value for k in pair)
        return np.outer(a, b) / self.records

    def is_whole(self, pair: tuple[int, int]) -> bool:
        """Whether a pair was measured level by level."""
        return bool(self.by[pair].known.all())

    def shares(self, key: Key) -> Array:
        """The shares of the cells of a column or of a pair, as measured: some may be negative."""
        contrasts = [self.columns[k].contrasts for k in key]
        sizes = [one.size for one in (self.columns[k] for k in key)]
        total = np.full(sizes, self.records / np.prod(sizes))
        if len(key) == 1:
            total = total + contrasts[0] @ self.by[key].value
        else:
            total = total + (contrasts[0] @ self.by[key[:1]].value)[:, None] / sizes[1]
            total = total + (contrasts[1] @ self.by[key[1:]].value)[None, :] / sizes[0]
            total = total + contrasts[0] @ self.by[key].value @ contrasts[1].T
        return total / self.records


def components_of(
    design: Design,
    noisy: Sequence[Array],
    sigma: float,
    blocks: Sequence[Sequence[DesignBlock]] | None = None,
) -> Components:
    """The weighted means of what all sums say of each component.

    Args:
        design: of the sums.
        noisy: (size,) each, in their order; at least one.
        sigma: standard deviation of all noise in each of their numbers.
        blocks: of each sum; None: those that follow from the first sum.
    """
    if blocks is None:
        later = design.blocks(design.update(noisy[:1], sigma, design.start)) if noisy[1:] else ()
        blocks = [design.first, *([later] * (len(noisy) - 1))]
    weights, totals = {}, {}
    for key in ((), *((k,) for k in range(len(design.columns))), *design.pairs):
        shape = tuple(design.columns[k].size - 1 for k in key)
        weights[key], totals[key] = np.zeros(shape), np.zeros(shape)
    for total, parts in zip(noisy, blocks, strict=True):
        end = 0
        for block in parts:
            values = total[end : end + block.numbers]
            end += block.numbers
            part = _part(design, block.key, block.numbers)
            shape = weights[block.key][part].shape
            weights[block.key][part] += (block.weight / sigma) ** 2
            totals[block.key][part] += values.reshape(shape) * block.weight / sigma**2
    by = {
        key: Component(
            value=np.divide(totals[key], weight, out=np.zeros(weight.shape), where=weight > 0),
            variance=np.divide(1.0, weight, out=np.full(weight.shape, np.inf), where=weight > 0),
        )
        for key, weight in weights.items()
    }
    return Components(columns=design.columns, by=by)


def _part(design: Design, key: Key, numbers: int) -> tuple[slice, ...]:
    """Which entries of a component a block has: all, or what groups tell."""
    coarse = tuple(slice(design.columns[k].coarse) for k in key)
    whole = np.prod([design.columns[k].size - 1 for k in key], dtype=int)
    return tuple(slice(None) for _ in key) if numbers == whole else coarse
