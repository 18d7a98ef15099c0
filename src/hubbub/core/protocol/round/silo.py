"""A silo's part in a round: the only place where records become something that leaves.

Theory of operation. `accept` checks the aggregator's MODEL and says what answering it would cost
(a `Charge`). Whoever runs the silo writes the charge to the ledger, durably, and only then calls
`contribute`, which can be called once per accepted model. So a crash may over-count and never
under-count. Everything that is done with data is in `contribute`, in the order in which
docs/privacy.md proves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.agreement.joint_seed import JointSeed
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.batches import Batches, batches_of
from hubbub.core.protocol.round.draw import Transform, clipped_sum, draw_for
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.masking import Attempt, Masking
from hubbub.core.protocol.round.noise_share import noise_share_of
from hubbub.core.protocol.round.round_parameters import RoundParameters


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What an accepted model will cost, to be written down before the answer leaves."""

    round: int
    attempt: int
    row: int = 0  # of the session, from 1, where noise is correlated (P25)


class Silo:
    """One silo in one session.

    Args:
        masking: checks models and hides answers.
        source: the silo's randomness; every attempt draws from a branch of it.
        seeds: the silo's part of the joint seeds, where the round parameters need them.
        check: raises if what an attempt is asked at cannot be, as far as this silo knows.
        batches: where all silos draw together; None where this one draws alone.
        transform: of sums; None where all of their numbers are sent.

    Raises:
        StudyError: batches have more rows than the transform has room for, or it is there and the
            round parameters state none, or the other way round.
    """

    def __init__(
        self,
        *,
        round_parameters: RoundParameters,
        task: LocalTask,
        masking: Masking,
        source: SecureSource,
        seeds: JointSeed | None = None,
        check: Callable[[Attempt], None] = lambda _: None,
        batches: Batches | None = None,
        transform: Transform | None = None,
    ) -> None:
        self._round_parameters, self._task = round_parameters, task
        self._transform = transform
        self._masking, self._source, self._seeds = masking, source, seeds
        self._check = check
        self._accepted: Attempt | None = None
        self._seed: bytes | None = None
        self._noise = noise_share_of(round_parameters)
        # P25: groups are drawn here, once in a session and for places, whatever records there are.
        self.batches = batches or batches_of(round_parameters, task.capacity, source)
        # P8: what the plan has charged as projected is projected.
        if (transform is None) == bool(round_parameters.projection):
            raise StudyError(
                "expected the projection that the round parameters state, or none with none, got "
                "another; make it from them"
            )
        if transform is not None:
            transform.check_rows(self.batches.most)  # P8, P19

    def accept(self, model: bytes) -> Charge:
        """Check the aggregator's model for a new attempt at a round.

        Raises:
            ProtocolError: it is not from the aggregator, not for this session, not new, or names
                too few silos; or what it is asked at does not follow from what was before.
        """
        try:
            accepted = self._masking.accept(model)
            self._check(accepted)
        except ProtocolError as error:
            if error.culprit != "relay":  # a signed lie ends the attempt, a stray message does not
                self.decline()
            raise
        # P8: a seed of an attempt before was public when this model was chosen.
        self._accepted, self._seed = accepted, None
        return Charge(round=accepted.round, attempt=accepted.attempt, row=accepted.row)

    @property
    def is_open(self) -> bool:
        """Whether an accepted model waits for its answer; its seed may be known by now."""
        return self._accepted is not None

    def reveal(self) -> bytes:
        """This silo's part of the joint seed; nobody can choose the accepted model by it any more.

        Raises:
            ProtocolError: no model was accepted.
        """
        # P8, P9: not before a MODEL is accepted, or the model could be chosen by what the seed
        # draws.
        attempt = self._opened()
        return self._joint_seed.reveal(attempt.round, attempt.attempt)

    def learn_seed(self, links: Sequence[bytes]) -> None:
        """The joint seed of the accepted attempt, from the links of all active silos.

        Raises:
            ProtocolError: naming who has revealed nothing, or what it had not committed to.
        """
        attempt = self._opened()
        # P8 (3): own link included, without which others could have chosen the seed together.
        seed = self._joint_seed.seed(attempt.round, attempt.attempt, attempt.active, links)
        self._seed = seed

    def contribute(self) -> bytes:
        """The masked answer to the accepted model; the charge has been written before.

        Raises:
            ProtocolError: no model was accepted since the last answer.
        """
        attempt = self._opened()
        # First: whatever fails below, nothing is drawn for this MODEL a second time.
        self._accepted = None
        source = self._source.branch(b"attempt" + attempt.model)  # P3: no attempt draws another's
        task, numbers = self._task, self._round_parameters
        draw = draw_for(numbers, attempt, self._seed)  # P8
        rows = self.batches.rows(source, task.count, attempt, self._seed)  # P1, P9, P25; P19
        total = clipped_sum(self._transform, task, attempt.parameters, rows, draw)  # P14, P8
        residues = self._noise.added(total, attempt, source)  # P3, P5, P25: before rounding
        del total  # as large as two frames, which are made now
        masked = self._masking.masked(attempt, residues)  # P4: only the whole sum is visible
        # P3: whoever has an image of this machine from before does not know what is drawn from here
        # on.
        self._source.renew()
        return masked

    def _opened(self) -> Attempt:
        """The accepted attempt."""
        if self._accepted is None:
            raise ProtocolError("expected an accepted model before contributing, got none")
        return self._accepted

    @property
    def _joint_seed(self) -> JointSeed:
        """This silo's part of the joint seeds."""
        if self._seeds is None:
            raise ProtocolError("expected a study with joint seeds, got one without; nothing sent")
        return self._seeds

    def decline(self) -> None:
        """Give up the accepted model, whose charge was refused: it cannot be answered any more."""
        self._accepted = self._seed = None

    def forget(self) -> None:
        """The session is over: erase what is kept of its noise (P25)."""
        self._noise.erase()

    def shares(self) -> dict[int, bytes]:
        """With full shares, what goes to the compute nodes with the last answer; else nothing."""
        return self._masking.shares()
