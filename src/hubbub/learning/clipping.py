"""The clipping factor of one record, and the proof that rounding never carries a record past C.

Theory of operation (docs/privacy.md P14). Let g be one record's gradient as it is stored: a vector
of m <= 2^32 floats of the model's dtype, or the exact outer product of two such vectors; of sums of
products P21 says the same. Its contribution to the sum is c*g, and the claim is |c*g| <= clip in
exact arithmetic:

1. Squares are accumulated in float64. Those of float32 numbers are exact there and neither overflow
   nor vanish; float64 numbers are divided by the largest of the record first. Sums of at most m
   non-negative terms, in any order, err by a factor of at least 1 - (m + 8) 2^-53; a norm is a root
   of one, an outer product's norm the product of two, the whole gradient's a norm of norms. So the
   computed norm is at least |g| (1 - 2^-21).
2. c64 = min(1, clip / norm) (1 - MARGIN), rounded a few times in float64: a factor 1 + 2^-50.
3. c is c64 rounded *towards zero* into the model's dtype: c <= c64, denormal factors included.
4. Multiplying c into g (or into one side of an outer product) rounds each entry once: a factor of
   at most 1 + 2^-24, since every product of normal size is rounded to nearest. One that is not of
   normal size may be rounded up by half, and in an outer product the other side may be 3e38: there
   it counts as zero. In a stored gradient all such errors together stay below 2^-134, of which a
   clip of at least 1e-30 knows nothing.

(1 - MARGIN)(1 + 2^-24)(1 + 2^-50) / (1 - 2^-21) < 1 with MARGIN = 2^-20. The margin also scales
records that are not clipped at all; it biases the sum by one part in a million.

What is *not* covered: adding up n contributions rounds too. The returned vector is the exact sum
plus an error of L2 norm at most n (n + 2) 2^-24 clip in float32 (2^-53 in float64), in the worst
case (of sums of t products each, sqrt(t) n (t n + 4) 2^-24: P21); in practice about sqrt(n) 2^-24
clip. A certificate must add it to the sensitivity.

A record whose norm is not finite gets the factor 0. This file knows no model.
"""

from __future__ import annotations

import torch

MARGIN = 2.0**-20


def clip_factors(norms: torch.Tensor, clip: float, dtype: torch.dtype) -> torch.Tensor:
    """The factor of each record, in `dtype`, from its gradient's norm, float64, shape (n,)."""
    exact = (clip / norms).clamp(max=1.0) * (1.0 - MARGIN)
    exact = torch.where(norms.isfinite(), exact, torch.zeros_like(exact))
    return _towards_zero(exact, dtype)


def _towards_zero(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round non-negative float64 `values` down into `dtype`."""
    rounded = values.to(dtype)
    below = torch.nextafter(rounded, torch.zeros_like(rounded))
    return torch.where(rounded.double() > values, below, rounded)
