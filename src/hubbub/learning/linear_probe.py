"""Least squares on normalised features, learned from one noisy sum: `kind = "linear-probe"`.

Theory of operation. A record's features are brought to length 1 by a rule that is public (its own
mean taken off, then divided by its length), and a constant joins them: z, of length 1. What least
squares needs of all records are the sums of z z' and of z times the target. In training the model's
parameters *are* these sums: its loss is linear in them, so that a record's gradient is minus its
part in both, a product of two short vectors and of length 1 exactly, whatever the parameters. One
step of plain gradient descent with all records is then the whole training, and the noise is that of
a single release. In use, the model solves the equations.

How far the noise goes is read off what was released: the sums of z z' are symmetric but for their
noise. Eigenvalues are not believed below a share of what noise alone would reach (the largest
eigenvalue of such a matrix). All of it is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import torch
from torch import nn

FLOOR = 0.2  # in largest eigenvalues of a matrix of noise alone
_CONSTANT = 0.5  # what the constant is of z
_SECOND = 0.6  # the length of a record's part in z z'; that in z times target is the rest
_FIRST = sqrt(1 - _SECOND**2)
_LEAST = 1e-6  # of the mean eigenvalue, where there is no noise
_SHARP = 50.0


class LinearProbe(nn.Module):
    """In training what is summed of each record, (n, 1 + rows); in use logits, (n,) or (n, rows).

    Args:
        features: of a record.
        outputs: 1 for two classes, else as many as there are classes.
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.second = nn.Linear(features + 1, features + 1, bias=False)
        self.first = nn.Linear(features + 1, outputs, bias=False)
        for weight in self.parameters():
            nn.init.zeros_(weight)
        self._known: tuple[torch.Tensor, ...] = ()  # both weights, and what follows from them

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        """Of rows of features, or of what is flattened to such."""
        rows = normalised(records.flatten(1))
        if self.training:
            square = (self.second(rows) * rows).sum(1, keepdim=True)
            return torch.cat([_SECOND * square, _FIRST * self.first(rows)], 1)
        return _logits(rows @ self._solved().T)

    def settled(self) -> SolvedProbe:
        """The same model in use: its equations are solved once, for programs that solve none."""
        return SolvedProbe(self._solved())

    @torch.no_grad()
    def _solved(self) -> torch.Tensor:
        """The weights of least squares, (outputs, features + 1); kept until the sums change."""
        weights = self.second.weight, self.first.weight
        same = bool(self._known) and self._known[0].dtype == weights[0].dtype
        if not same or not all(map(torch.equal, weights, self._known)):
            self._known = (
                *(weight.detach().clone() for weight in weights),
                least_squares(*weights),
            )
        return self._known[-1]


class SolvedProbe(nn.Module):
    """A linear probe whose sums are final: logits, (n,) or (n, rows).

    Args:
        weights: of least squares, (outputs, features + 1).
    """

    weights: torch.Tensor

    def __init__(self, weights: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weights", weights)

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        """Of rows of features, or of what is flattened to such."""
        return _logits(normalised(records.flatten(1)) @ self.weights.T)


def least_squares(second: torch.Tensor, first: torch.Tensor, floor: float = FLOOR) -> torch.Tensor:
    """The weights (outputs, width) from both sums as they were released."""
    kind, width = first.dtype, len(second)
    second, first = second.double() / _SECOND, first.double() / _FIRST
    noise = ((second - second.T).square().sum() / (2 * width * (width - 1))).sqrt()
    even = (second + second.T) / 2
    least = floor * noise * sqrt(2 * width) + _LEAST * even.diagonal().mean().abs() + 1e-30
    values, vectors = torch.linalg.eigh(even)
    weights: torch.Tensor = first @ vectors / values.clamp(min=float(least)) @ vectors.T
    return weights.to(kind)


def normalised(rows: torch.Tensor) -> torch.Tensor:
    """(n, features + 1): each record by itself, with its mean taken off, and of length 1."""
    centred = rows - rows.mean(1, keepdim=True)
    lengths = centred.norm(dim=1, keepdim=True).clamp(min=1e-12)
    constant = torch.full_like(rows[:, :1], _CONSTANT)
    return torch.cat([sqrt(1 - _CONSTANT**2) * centred / lengths, constant], 1)


def moments_loss(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    outputs_in_use: int,
    usual: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Minus a record's part in the sums times the parameters; in use the `usual` loss of logits."""
    if outputs.ndim == 1 or outputs.shape[1] == outputs_in_use:
        return usual(outputs, targets)
    if outputs_in_use == 1:
        return -outputs[:, 0] - (2 * targets.to(outputs.dtype) - 1) * outputs[:, 1]
    return -outputs[:, 0] - outputs[:, 1:].gather(1, targets[:, None])[:, 0]


def _logits(values: torch.Tensor) -> torch.Tensor:
    """From what least squares gives: -1 to 1 for two classes, else about each class's chance."""
    if values.shape[1] == 1:
        return 2 * values[:, 0].clamp(-0.99, 0.99).atanh()
    return (nn.functional.softplus(_SHARP * values) / _SHARP).log()
