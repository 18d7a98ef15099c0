"""What a party must know of the plan to play a round, and how the payloads of a round look.

Lengths come from here, never from a sender. A MODEL payload is the bitmap of the active silos
followed by the model; MASKED and TOTAL are residues; a REQUEST is a bitmap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub import ring
from hubbub.errors import ProtocolError
from hubbub.wire import Frame

Parameters = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The fixed numbers of a study's rounds.

    Args:
        dimension: coordinates of every sum.
        parameters: coordinates of the model that goes down.
        silos: N; silo k has roster index k, from 1.
        quorum: the least number of silos in a round.
        steps: the last round.
        word_bits: 16, 32 or 64.
        grid_step: width of a grid step, in units of the gradient sum.
        sigma_grid: standard deviation of a silo's noise share, in grid steps; 0 only in baselines.
        sample_rate: probability with which a record is in a batch.
        nodes: 0 with pairwise masks, else how many compute nodes there are.
    """

    dimension: int
    parameters: int
    silos: int
    quorum: int
    steps: int
    word_bits: int
    grid_step: float
    sigma_grid: float
    sample_rate: float
    nodes: int

    @property
    def masked_bytes(self) -> int:
        """Size of a vector of residues."""
        return self.dimension * self.word_bits // 8

    def bitmap(self, silos: Iterable[int]) -> bytes:
        """A set of silos as bits, silo 1 first."""
        flags = np.zeros(self.silos, dtype=bool)
        flags[[index - 1 for index in silos]] = True
        return np.packbits(flags).tobytes()

    def model_payload(self, active: Iterable[int], parameters: Parameters) -> bytes:
        """The payload of a MODEL."""
        return self.bitmap(active) + parameters.astype("<f4", copy=False).tobytes()

    def read_model(self, frame: Frame, sender: str) -> tuple[frozenset[int], Parameters]:
        """The active silos and the model in a MODEL."""
        bits = (self.silos + 7) // 8
        self._expect(frame, bits + 4 * self.parameters, sender)
        parameters = np.frombuffer(frame.payload, dtype="<f4", offset=bits)
        if not np.isfinite(parameters).all():
            raise ProtocolError("expected a model of finite numbers, got others", culprit=sender)
        return self.read_silos(frame.payload[:bits], sender), parameters

    def read_silos(self, bits: bytes | memoryview, sender: str) -> frozenset[int]:
        """The set in a bitmap, which must reach the quorum."""
        flags = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))
        if len(bits) != (self.silos + 7) // 8 or flags[self.silos :].any():
            raise ProtocolError(
                f"expected a set of at most {self.silos} silos, got another", culprit=sender
            )
        chosen = frozenset((np.flatnonzero(flags) + 1).tolist())
        if len(chosen) < self.quorum:
            raise ProtocolError(
                f"expected at least {self.quorum} active silos, got {len(chosen)}: the noise of "
                "fewer would not keep the study's epsilon",
                culprit=sender,
            )
        return chosen

    def read_residues(self, frame: Frame, sender: str) -> ring.Residues:
        """The residues in a MASKED or a TOTAL."""
        self._expect(frame, self.masked_bytes, sender)
        return ring.from_bytes(frame.payload, self.dimension, self.word_bits)

    def _expect(self, frame: Frame, size: int, sender: str) -> None:
        if len(frame.payload) != size:
            raise ProtocolError(
                f"expected a {frame.tag.name} of {size} bytes, got {len(frame.payload)}",
                culprit=sender,
            )


class Turn:
    """The last (round, attempt) that a party answered; time only goes forward."""

    def __init__(self, last: tuple[int, int] = (0, 0)) -> None:
        self.last = last

    def take(self, round: int, attempt: int, steps: int, sender: str) -> None:
        """Use (round, attempt) up: masks, noise and totals exist once for each."""
        if not 1 <= round <= steps:
            raise ProtocolError(f"expected a round from 1 to {steps}, got {round}", culprit=sender)
        if (round, attempt) <= self.last:
            raise ProtocolError(
                f"expected a round after {self.last[0]}.{self.last[1]}, got {round}.{attempt}: "
                "a mask is never used twice",
                culprit="relay" if (round, attempt) < self.last else sender,
            )
        self.last = (round, attempt)
