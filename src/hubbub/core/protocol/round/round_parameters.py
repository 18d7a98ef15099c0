"""What a party must know of the plan to play a round, and how the payloads of a round look.

Lengths come from here, never from a sender. A MODEL payload is the bitmap of the active silos
followed by the model, with the number of the attempt in its session between them where noise is
correlated; a MASKED is residues and the digest of the MODEL that it answers; a TOTAL is
residues; a SHARE is a sealed vector of residues, and the MASKED that goes with it has the digest
alone. An ARRIVED, a REQUEST and a PROMISE are a bitmap and the digest of the MODEL that was
answered; a HELD is a bitmap and the digest of the shares that it speaks of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.agreement.joint_seed import SeedCheck
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES, SHARE_SEAL_BYTES
from hubbub.core.protocol.primitives.wire import (
    Channel,
    Frame,
    bits_of,
    digest_by_party,
    doubled_by,
    set_of,
)

Parameters = NDArray[np.float32]

_ROW_BYTES = 4
_BLOCK = 1 << 14  # numbers that are worked on at once, so that they stay in the cache


def digest_of_shares(model: bytes, shares: Mapping[int, bytes]) -> bytes:
    """SHA-256 over what a node was handed for an attempt.

    Args:
        model: digest of the MODEL that the shares answer.
        shares: from silo to its SHARE's digest.
    """
    return digest_by_party(b"hubbub held v1" + model, shares)


@dataclass(frozen=True, kw_only=True)
class RoundParameters:
    """The fixed numbers of a study's rounds.

    Args:
        dimension: coordinates of every sum.
        parameters: coordinates of the model that goes down.
        silos: N; silo k has roster index k, from 1.
        quorum: the least number of silos in a round.
        steps: the last round.
        word_bits: 16, 32 or 64.
        grid_step: width of a grid step, in units of the gradient sum.
        sigma_grid: standard deviation of a silo's noise share where all silos take part, in grid
            steps; 0 for none.
        sample_rate: probability with which a record is in a batch.
        nodes: 0 with pairwise masks, else how many compute nodes there are.
        full_shares: whether silos send a share to every node instead of a masked vector.
        projection: kind of the random projection to `dimension` numbers; empty for none.
        clip: C, the norm to which a record is clipped; for projections.
        most_records: the most records that a projected sum may hold.
        batch: records in a joint batch; 0 where each silo samples for itself.
        records: of all silos, for joint batches.
        fresh_lists: whether every joint batch is drawn from a new shuffled token list.
        short_models: whether models go down as bfloat16, half as long.
        correlation: the first column of the matrix by which noise is correlated over the attempts
            of a session, in units of 1 / UNIT (P25); empty where noise is independent.
        announced_shares: how many shares add up to the stated noise where all silos take part, if
            they follow from the set that a MODEL names (P3); 0 where every share is `sigma_grid`.
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
    full_shares: bool = False
    projection: str = ""
    clip: float = 1.0
    most_records: int = 1
    batch: int = 0
    records: int = 0
    fresh_lists: bool = True
    short_models: bool = False
    correlation: tuple[int, ...] = ()
    announced_shares: int = 0

    def __post_init__(self) -> None:
        """A list that was read from a file becomes a tuple; what no session can have is refused."""
        object.__setattr__(self, "correlation", tuple(self.correlation))
        # P3: with nodes a sum may hold fewer silos than were named, and correlated noise goes on
        # into sums of other sets.
        if self.announced_shares and (self.nodes or self.correlation):
            raise StudyError(
                "expected shares that follow from the announced set with pairwise masks and "
                "independent noise alone, got others; make the plan again"
            )
        if self.announced_shares and self.announced_shares <= self.silos - self.quorum:
            raise StudyError(
                f"expected more than {self.silos - self.quorum} shares, as so many silos may be "
                f"missing, got {self.announced_shares}; make the plan again"
            )

    def to_dict(self) -> dict[str, Any]:
        """The numbers by name, as an OPEN and a transcript have them.

        `announced_shares` is left out where there are none, as before there could be.
        """
        plain = asdict(self)
        if not self.announced_shares:
            del plain["announced_shares"]
        return plain

    def share_sigma_grid(self, active: int) -> float:
        """Standard deviation of a silo's noise share in an attempt of so many silos, in grid steps.

        P3: of n silos each has the stated variance / (n - c), c the shares that the stated
        adversary knows. `read_model` has refused fewer silos than the quorum.
        """
        if not self.announced_shares:
            return self.sigma_grid
        left = self.announced_shares - (self.silos - active)
        return self.sigma_grid * sqrt(self.announced_shares / left)

    @property
    def noise_epoch(self) -> int:
        """In how many attempts one noise vector has a part."""
        return max(1, len(self.correlation))

    @property
    def needs_every_attempt(self) -> bool:
        """Whether a silo must answer all attempts of a session, as its noise goes on (P25).

        A MODEL then says which attempt of the session it is.
        """
        return bool(self.correlation)

    @property
    def needs_joint_seed(self) -> bool:
        """Whether every attempt needs a seed to which all active silos have contributed."""
        return bool(self.projection or self.batch)

    @property
    def attempts(self) -> int:
        """The most attempts at one round: each that fails leaves a silo behind."""
        return self.silos - self.quorum + 1

    def seed_check(self, channel: Channel) -> SeedCheck:
        """What checks the links of a session's joint seeds."""
        return SeedCheck(channel, steps=self.steps, attempts=self.attempts)

    @property
    def masked_bytes(self) -> int:
        """Size of a vector of residues."""
        return self.dimension * self.word_bits // 8

    def bitmap(self, silos: Iterable[int]) -> bytes:
        """A set of silos as bits, silo 1 first."""
        return bits_of(silos, self.silos)

    @property
    def _row_bytes(self) -> int:
        """Bytes of the number of an attempt in its session."""
        return _ROW_BYTES if self.needs_every_attempt else 0

    def model_parts(
        self, active: Iterable[int], parameters: Parameters, row: int = 0
    ) -> tuple[bytes, memoryview]:
        """The payload of a MODEL in two parts: who takes part, and the model, not copied as it is.

        `row` is the number of the attempt in its session, from 1.
        """
        head = self.bitmap(active) + row.to_bytes(_ROW_BYTES, "big")[: self._row_bytes]
        if self.short_models:
            return head, _upper_halves(parameters).data.cast("B")
        whole = np.ascontiguousarray(parameters, dtype="<f4")
        return head, whole.data.toreadonly().cast("B")

    def row_of(self, frame: Frame) -> int:
        """The number of a MODEL's attempt in its session; 0 where it has none."""
        bits = (self.silos + 7) // 8
        return int.from_bytes(frame.payload[bits : bits + self._row_bytes], "big")

    def sent(self, parameters: Parameters) -> Parameters:
        """The model as those read it to whom it is sent."""
        return _widened(_upper_halves(parameters)) if self.short_models else parameters

    def read_model(
        self, frame: Frame, sender: str, session: Set[int]
    ) -> tuple[frozenset[int], Parameters]:
        """The active silos and the model in a MODEL, of a session of these silos."""
        bits = (self.silos + 7) // 8
        kind = np.dtype("<u2" if self.short_models else "<f4")
        start = bits + self._row_bytes
        self._expect(frame, start + kind.itemsize * self.parameters, sender)
        words = np.frombuffer(frame.payload, dtype=kind, offset=start)
        parameters = _widened(words) if self.short_models else words
        if not np.isfinite(parameters).all():
            raise ProtocolError("expected a model of finite numbers, got others", culprit=sender)
        return self.read_silos(frame.payload[:bits], sender, session), parameters

    def read_silos(
        self, bits: bytes | memoryview, sender: str, session: Set[int]
    ) -> frozenset[int]:
        """The set in a bitmap, which must reach the quorum, of these silos (P3, P29)."""
        return self._enough(set_of(bits, self.silos, sender), sender, session)

    def named_payload(self, silos: Iterable[int], digest: bytes) -> bytes:
        """Of an ARRIVED, a HELD, a REQUEST or a PROMISE: silos, and what is said of them."""
        return self.bitmap(silos) + digest

    def read_named(self, frame: Frame, sender: str) -> tuple[frozenset[int], bytes]:
        """The silos and the digest in an ARRIVED, a HELD, a REQUEST or a PROMISE."""
        bits = (self.silos + 7) // 8
        self._expect(frame, bits + DIGEST_BYTES, sender)
        silos = set_of(frame.payload[:bits], self.silos, sender)
        return silos, bytes(frame.payload[bits:])

    def read_request(
        self, frame: Frame, sender: str, session: Set[int]
    ) -> tuple[frozenset[int], bytes]:
        """The silos of an ARRIVED, a REQUEST or a PROMISE, and the digest of their MODEL."""
        silos, digest = self.read_named(frame, sender)
        return self._enough(silos, sender, session), digest

    def _enough(self, chosen: frozenset[int], sender: str, session: Set[int]) -> frozenset[int]:
        """The set, if it reaches the quorum, and all of it is in the session."""
        # P29: whoever is not has no masks in it and no noise, so a set that was padded with such
        # silos would stand for a sum of fewer.
        if outside := chosen - session:
            raise ProtocolError(
                "expected silos of this session, got also the silos "
                f"{', '.join(map(str, sorted(outside)))}, which did not take part in its set-up",
                culprit=sender,
            )
        if len(chosen) < self.quorum:
            raise ProtocolError(
                f"expected at least {self.quorum} active silos, got {len(chosen)}: the noise of "
                "fewer would not keep the study's epsilon",
                culprit=sender,
            )
        return chosen

    def read_total(self, frame: Frame, sender: str) -> ring.Residues:
        """The residues in a TOTAL."""
        self._expect(frame, self.masked_bytes, sender)
        return ring.from_bytes(frame.payload, self.dimension, self.word_bits)

    def read_answer(self, frame: Frame, model: bytes, sender: str) -> ring.Residues:
        """What a silo's MASKED adds to the sum: nothing where the nodes hold its shares.

        Args:
            frame: the MASKED.
            model: digest of the MODEL that it must answer; a sum of answers to several is none.
            sender: its name.
        """
        size = 0 if self.full_shares else self.masked_bytes
        self._expect(frame, size + DIGEST_BYTES, sender)
        if frame.payload[size:] != model:
            raise ProtocolError(
                "expected an answer to this MODEL, got one to another: it lies, or somebody else "
                "signs as the aggregator",
                culprit=sender,
            )
        if self.full_shares:
            return ring.zeros(self.dimension, self.word_bits)
        return ring.from_bytes(frame.payload, self.dimension, self.word_bits)

    def read_share(self, frame: Frame, sender: str) -> bytes | memoryview:
        """The sealed vector in a SHARE."""
        self._expect(frame, self.masked_bytes + SHARE_SEAL_BYTES, sender)
        return frame.payload

    def _expect(self, frame: Frame, size: int, sender: str) -> None:
        if len(frame.payload) != size:
            raise ProtocolError(
                f"expected a {frame.tag.name} of {size} bytes, got {len(frame.payload)}",
                culprit=sender,
            )


def _upper_halves(parameters: Parameters) -> NDArray[np.uint16]:
    """bfloat16: the upper half of every float32, rounded to the nearest, ties to even."""
    whole = parameters.astype("<f4", copy=False).view("<u4")
    halves = np.empty(whole.size, dtype="<u2")
    for start in range(0, whole.size, _BLOCK):
        bits = whole[start : start + _BLOCK]
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        halves[start : start + _BLOCK] = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return halves


def _widened(halves: NDArray[np.uint16]) -> Parameters:
    """bfloat16 as float32, exactly."""
    words = np.zeros((halves.size, 2), dtype="<u2")
    words[:, 1] = halves
    return words.view("<f4").reshape(-1)


def decoded(round_parameters: RoundParameters, total: ring.Integers) -> NDArray[np.float64]:
    """From the integers that a round reveals to the noisy sum; public, and the same everywhere.

    Args:
        total: the sum in grid steps, (dimension,).

    Returns:
        (dimension,) float64, in units of the gradient.
    """
    return np.multiply(total, round_parameters.grid_step, dtype=np.float64)


# The order of attempts, as each party keeps it: time goes forward only, who left stays away.


class Turn:
    """The last (round, attempt) that a party used up; time only goes forward."""

    def __init__(self) -> None:
        self.last = (0, 0)
        self._taken = b""
        self._used = 0

    def take(self, frame: Frame, steps: int, sender: str) -> None:
        """Use the time of a frame up: masks, noise and totals exist once for each."""
        # A frame of an older time was right once, so anybody can have carried it here again.
        late = (1, 0) <= (frame.round, frame.attempt) < self.last
        culprit = "relay" if late else doubled_by(frame, self._taken, sender)
        self.advance(frame.round, frame.attempt, steps, culprit=culprit)
        self._taken = frame.digest

    def advance(self, round: int, attempt: int, steps: int, *, culprit: str = "") -> None:
        """Go on to a later time; to blame is who asked for one that is not later."""
        if not 1 <= round <= steps:
            raise ProtocolError(f"expected a round from 1 to {steps}, got {round}", culprit=culprit)
        # P3: fresh noise and masks belong to one time, which therefore never comes again.
        if (round, attempt) <= self.last:
            raise ProtocolError(
                f"expected a round after {self.last[0]}.{self.last[1]}, got {round}.{attempt}: "
                "a mask is never used twice",
                culprit=culprit,
            )
        # P15: no more attempts in a session than the study pays for.
        if self._used >= steps:
            raise ProtocolError(
                f"expected at most {steps} attempts in a session, got another: each one costs as "
                "much as a step of the study",
                culprit=culprit,
            )
        self._used += 1
        self.last = (round, attempt)


class PresentThroughout:
    """Who has a part in all sums of a session so far (P25).

    Noise that goes on over the attempts of a session keeps its promise for those silos that were in
    every sum of it. So all attempts come in their order, and whoever leaves does not come back
    before the next session.

    Args:
        round_parameters: the numbers of the rounds; where noise does not go on nothing is asked.
    """

    def __init__(self, round_parameters: RoundParameters) -> None:
        self._numbers, self.row = round_parameters, 0  # of the last attempt, from 1
        self._present: frozenset[int] | None = None  # everybody, whom nobody need list

    def follow(self, model: Frame, active: frozenset[int], sender: str) -> None:
        """A MODEL names these silos, and is of the next attempt.

        Raises:
            ProtocolError: an attempt is left out, or a silo is named that had left.
        """
        row = self._numbers.row_of(model)
        if self._numbers.needs_every_attempt and row != self.row + 1:
            raise ProtocolError(
                f"expected attempt {self.row + 1} of the session, got attempt {row}: a party that "
                "has missed one answers again in the next session",
                culprit="relay",
            )
        self.stay(active, sender)
        self.row = row

    def stay(self, silos: frozenset[int], sender: str) -> None:
        """Only these are left.

        Raises:
            ProtocolError: some of them had left; to blame is who has signed their names.
        """
        if not self._numbers.needs_every_attempt:
            return
        if self._present is not None and not silos <= self._present:
            raise ProtocolError(
                f"expected {', '.join(map(str, sorted(silos - self._present)))} to stay away until "
                "the next session, got them back: their noise has a gap",
                culprit=sender,
            )
        self._present = silos
