"""Losses of targets that are no classes: one value per record, from that record's row alone.

Outputs and targets come as a model and `Records` give them; public bounds and times are constants
of the functions. A target beyond them counts as the bound, so no target makes a loss of another
shape. What a record may add is bounded where its gradient is clipped (docs/privacy.md P14), not
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log

import torch
from torch.nn import functional

_FAINT = -15.0  # log-odds below which hazard and odds are one in float32
_LEAST_PART = 1e-9  # of the longest exposure; a shorter one has the same logarithm
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
    start: float = 0.0,
) -> torch.Tensor:
    """Squared error of outputs (n,), counted from a public start, in units of half the range."""
    return (outputs + start - scaled(targets, low, high, is_log=is_log).to(outputs.dtype)) ** 2


def huber(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    low: float,
    high: float,
    is_log: bool = False,
    start: float = 0.0,
) -> torch.Tensor:
    """Squared near the target, linear beyond a tenth of the range."""
    known = scaled(targets, low, high, is_log=is_log).to(outputs.dtype)
    return functional.huber_loss(outputs + start, known, reduction="none", delta=_REACH)


def poisson(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    high: float,
    unit: float = 1.0,
    exposure_high: float = 0.0,
    start: float = 0.0,
) -> torch.Tensor:
    """Half the Poisson deviance of means exp(outputs + start): 0 for the target itself.

    Its slope, mean less target, is 0 on average where means are right, whatever the law of targets:
    so amounts may be learned by it as counts are (Gourieroux, Monfort and Trognon 1984).

    Args:
        outputs: (n,).
        targets: (n,), from 0; with exposures (n, 2), and means are then of the longest exposure.
        high: public bound of a target.
        unit: what targets and means are counted in.
        exposure_high: public bound of an exposure; 0: there is none.
        start: public logarithm of the mean where outputs are 0.
    """
    logs, known = outputs + start, targets
    if exposure_high:
        part = (targets[..., 1].clamp(0.0, exposure_high) / exposure_high).clamp(min=_LEAST_PART)
        logs, known = logs + part.log().to(outputs.dtype), targets[..., 0]
    counts = (known.clamp(0.0, high) / unit).to(outputs.dtype)
    return torch.xlogy(counts, counts) - counts - counts * logs + logs.exp()


def log_odds(outputs: torch.Tensor, times: int) -> torch.Tensor:
    """Of the hazards (n, times); outputs of 0 mean that half have the event by the last time."""
    half = 1.0 - 0.5 ** (1.0 / times)
    return outputs + log(half / (1.0 - half))


def followed(
    targets: torch.Tensor, grid: Sequence[float], step: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of times and events (n, 2), how much of each interval a record was seen, and how it ended.

    An interval ends at its time of the grid and holds it. What comes after the grid is not seen.
    With a step, times are the nearest multiples of it, and an interval ends at the last multiple
    that it holds: where events lie on visits, nothing happens between the last one and the end.

    Returns:
        The part of each interval that the record was without the event and under observation, in
        [0, 1]; 1 where it had the event inside an interval, else 0; 1 where it had the event at an
        interval's end. All (n, times), in the type of the targets.
    """
    time, event = targets[..., :1], targets[..., 1:] > 0.5
    if step:
        time, grid = (time / step).round(), [floor(end / step + 1e-6) for end in grid]
    ends = torch.tensor(grid, dtype=targets.dtype, device=targets.device)
    starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    seen = ((time - starts) / (ends - starts)).clamp(0.0, 1.0)
    at_end = event & (time == ends)
    inside = event & (time < ends) & ((time > starts) | (starts <= 0.0))
    return torch.where(at_end, 0.0, seen), inside.to(seen.dtype), at_end.to(seen.dtype)


def hazards(
    outputs: torch.Tensor, targets: torch.Tensor, *, grid: tuple[float, ...], step: float = 0.0
) -> torch.Tensor:
    """Minus the log-likelihood of hazards on a grid, summed over a record's own intervals.

    With H_j = -log(1 - h_j), the hazard cumulated in interval j, spread evenly over it, a record
    that was followed through the part u of it without the event adds u H_j, and one that had the
    event there u H_j - log H_j: whoever is lost counts for as long as he was seen. At an interval's
    very end, where the events of all of it are noted if it is one visit long, the event adds
    -log h_j, as in discrete time; where times are finer, so few lie there that it is the end of a
    trapezoidal rule. The slope in the log-odds o_j lies in [-1, 1], as dH/do = h and h <= H.
    """
    odds = log_odds(outputs, len(grid))
    seen, inside, at_end = followed(targets, grid, step)
    # log H is o where H is nothing but e^o, and has the slope 1 there.
    clear = odds.clamp(min=_FAINT)
    log_hazard = functional.softplus(clear).log() + (odds - clear)
    each = functional.softplus(odds) * seen - log_hazard * inside
    return (each + functional.softplus(-odds) * at_end).sum(-1)


def hazard_errors(
    outputs: torch.Tensor, targets: torch.Tensor, *, grid: tuple[float, ...], step: float = 0.0
) -> torch.Tensor:
    """Squared error of the hazards, in [0, 1]: a record's mean over its own intervals.

    An interval in which it was lost counts as much as was seen of it.
    """
    probabilities = torch.sigmoid(log_odds(outputs, len(grid)))
    seen, inside, at_end = followed(targets, grid, step)
    events = inside + at_end
    without = seen * (1.0 - events)
    errors = probabilities**2 * without + (1.0 - probabilities) ** 2 * events
    return errors.sum(-1) / (without + events).sum(-1).clamp(min=1)


# Of these it is known that a record's value depends on its own row alone, and on no parameter.
ROW_LOSSES = (squared, huber, poisson, hazards)
