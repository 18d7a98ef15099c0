"""Losses of targets that are no classes: one value per record, from that record's row alone.

Outputs and targets come as a model and `Records` give them; public bounds and times are constants
of the functions. A target beyond them counts as the bound, so no target makes a loss of another
shape. What a record may add is bounded where its gradient is clipped (docs/privacy.md P14), not
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
from torch.nn import functional

_REACH = 0.2  # of Huber's square, in units of half the range between the bounds: a tenth of it


def scaled(targets: torch.Tensor, low: float, high: float, *, is_log: bool) -> torch.Tensor:
    """Amounts clipped to their bounds, which become -1 and 1, on a linear or logarithmic scale."""
    clipped = targets.clamp(low, high)
    if is_log:
        clipped, low, high = clipped.log(), log(low), log(high)
    return (2.0 * clipped - (low + high)) / (high - low)


def squared(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    low: float,
    high: float,
    is_log: bool = False,
) -> torch.Tensor:
    """Squared error of outputs (n,) in units of half the range."""
    return (outputs - scaled(targets, low, high, is_log=is_log).to(outputs.dtype)) ** 2


def huber(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    low: float,
    high: float,
    is_log: bool = False,
) -> torch.Tensor:
    """Squared near the target, linear beyond a tenth of the range."""
    known = scaled(targets, low, high, is_log=is_log).to(outputs.dtype)
    return functional.huber_loss(outputs, known, reduction="none", delta=_REACH)


def poisson(outputs: torch.Tensor, targets: torch.Tensor, *, high: float) -> torch.Tensor:
    """Half the Poisson deviance of rates exp(outputs): 0 for the count itself, never below."""
    counts = targets.clamp(0.0, high).to(outputs.dtype)
    return torch.xlogy(counts, counts) - counts - counts * outputs + outputs.exp()


def log_odds(outputs: torch.Tensor, times: int) -> torch.Tensor:
    """Of the hazards (n, times); outputs of 0 mean that half have the event by the last time."""
    half = 1.0 - 0.5 ** (1.0 / times)
    return outputs + log(half / (1.0 - half))


def intervals(targets: torch.Tensor, grid: Sequence[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of times and events (n, 2), in which intervals a record was at risk, and where it ended so.

    An interval ends at its time of the grid and holds it. A record has the event in the interval
    of its time; one that is censored was at risk in those that ended by then. What comes after the
    grid is not seen.

    Returns:
        Two bool (n, times): at risk without the event, and with it.
    """
    time, event = targets[..., :1], targets[..., 1:] > 0.5
    ends = torch.tensor(grid, dtype=targets.dtype, device=targets.device)
    starts = torch.cat([torch.full_like(ends[:1], -torch.inf), ends[:-1]])
    with_it = event & (time > starts) & (time <= ends)
    without = torch.where(event, time > ends, time >= ends)
    return without, with_it


def hazards(
    outputs: torch.Tensor, targets: torch.Tensor, *, grid: tuple[float, ...]
) -> torch.Tensor:
    """Minus the log-likelihood of discrete-time hazards, summed over a record's own intervals.

    -[log h_k + sum_{j<k} log(1 - h_j)] with the event in interval k; without it only the sum.
    """
    odds = log_odds(outputs, len(grid))
    without, with_it = intervals(targets, grid)
    return (functional.softplus(odds) * without + functional.softplus(-odds) * with_it).sum(-1)


def hazard_errors(
    outputs: torch.Tensor, targets: torch.Tensor, *, grid: tuple[float, ...]
) -> torch.Tensor:
    """Squared error of the hazards, in [0, 1]: a record's mean over its own intervals."""
    probabilities = torch.sigmoid(log_odds(outputs, len(grid)))
    without, with_it = intervals(targets, grid)
    errors = probabilities**2 * without + (1.0 - probabilities) ** 2 * with_it
    return errors.sum(-1) / (without | with_it).sum(-1).clamp(min=1)


# Of these it is known that a record's value depends on its own row alone, and on no parameter.
ROW_LOSSES = (squared, huber, poisson, hazards)
