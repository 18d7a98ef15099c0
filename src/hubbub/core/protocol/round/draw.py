"""What is drawn afresh for an attempt from public randomness, and what a transform makes of it.

A transform of sums, such as a random projection, must not have been known when the model was fixed:
it is drawn from the joint seed and a digest of that model (P8). This file knows no transform.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.primitives.randomness import KEY_BYTES
from hubbub.core.protocol.round.batches import Rows
from hubbub.core.protocol.round.local_task import Array, LocalTask
from hubbub.core.protocol.round.masking import Attempt
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters

SEED_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Which of the matrices: each (seed, step, attempt, model) has its own.

    Requires: nobody who chooses the model knew `seed` before the model was fixed. Where somebody
    did, putting a digest of the model into `model` leaves them trial and error, and every try
    multiplies the odds of an overlong projection (docs/privacy.md P8).

    Args:
        seed: 32 public bytes of joint randomness.
        step: number of the step, from 1.
        attempt: number of the attempt at that step.
        model: what the matrix must not have been known to: a digest of the step's model.

    Raises:
        StudyError: the seed has another length, or a number is out of range.
    """

    seed: bytes
    step: int
    attempt: int = 0
    model: bytes = b""

    def __post_init__(self) -> None:
        if len(self.seed) != SEED_BYTES:
            raise StudyError(
                f"expected a seed of {SEED_BYTES} bytes, got {len(self.seed)}; pass the joint seed"
            )
        for name, number, least in (("step", self.step, 1), ("attempt", self.attempt, 0)):
            if type(number) is not int or not least <= number < 1 << 32:
                raise StudyError(
                    f"expected {name} to be a whole number from {least} to {(1 << 32) - 1}, got "
                    f"{number!r}; choose one in that range"
                )

    def key_of(self, kind: str, parameters: int, dimension: int) -> bytes:
        """The key of the matrices of any kind of projection from so many numbers to so many."""
        numbers = (parameters, dimension, self.step, self.attempt)
        whole = hashlib.sha256(b"hubbub projection v1 " + kind.encode() + b" ")
        whole.update(b"".join(number.to_bytes(4, "little") for number in numbers))
        whole.update(self.seed + self.model)
        return whole.digest()[:KEY_BYTES]


Lift = Callable[[Array, Draw], Array]  # from a transformed sum and its draw to the whole sum


class Transform(Protocol):
    """What the sums of rounds go through, so that fewer numbers are sent; each attempt has its own.

    Where it `clips_after`, a task transforms each gradient and clips what comes of it; else the sum
    of clipped gradients is transformed.
    """

    @property
    def clips_after(self) -> bool:
        """Whether records are clipped after it, so that whoever knows the model undoes it."""

    def check_rows(self, rows: int) -> None:
        """Refuse, before any record is read, batches of more rows than it has room for.

        StudyError: they have more.
        """

    def clipped_sum(self, task: LocalTask, parameters: Parameters, rows: Rows, draw: Draw) -> Array:
        """A silo's sum, (dimension,): each record within C, transformed (P14, P8).

        Args:
            rows: the records in the batch, in their rows.
        """

    def key(self, draw: Draw) -> bytes:
        """The public key of what is drawn for an attempt."""

    def lift(self, transformed: Array, draw: Draw) -> Array:
        """From a sum to the whole one, right on average, unless records are clipped after it."""


def clipped_sum(
    transform: Transform | None,
    task: LocalTask,
    parameters: Parameters,
    rows: Rows,
    draw: Draw | None,
) -> Array:
    """A silo's clipped sum, (dimension,): each record within C, transformed if the rounds are.

    Args:
        rows: the records in the batch, in their rows.
        draw: of the attempt, where there is a transform.
    """
    if transform is None:
        return task.clipped_sum(parameters, rows)
    assert draw is not None, "attempts of such rounds have one"  # noqa: S101
    return transform.clipped_sum(task, parameters, rows, draw)


def draw_of(seed: bytes, round: int, attempt: int, parameters: Parameters) -> Draw:
    """Which matrix an attempt has: it follows from the joint seed and the model (P8)."""
    # P8: who knew the seed too early could only try one model after the other. Everybody hashes the
    # same bytes, whatever the machine, and so makes the same matrix.
    model = hashlib.sha256(parameters.astype("<f4", copy=False).tobytes()).digest()
    return Draw(seed=seed, step=round, attempt=attempt, model=model)


def draw_for(
    round_parameters: RoundParameters, attempt: Attempt, seed: bytes | None
) -> Draw | None:
    """The same of an attempt that was accepted; None where nothing is projected.

    Raises:
        ProtocolError: it needs a joint seed, and has none.
    """
    if not round_parameters.projection:
        return None
    if seed is None:
        raise ProtocolError("expected a joint seed for the projection, got none; learn it")
    return draw_of(seed, attempt.round, attempt.attempt, attempt.parameters)
