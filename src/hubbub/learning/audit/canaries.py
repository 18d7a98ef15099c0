"""Canaries: records whose gradient is a coordinate of their own, as long as clipping lets it be.

The model is a plain logistic one with a feature for every canary, and the adversary sends it with
all weights zero: there the gradient of (x, y) is (1/2 - y) x. Canary j has x far beyond the
clipping norm in feature j and zero elsewhere, so what is left of it is the norm to which records
are clipped, in coordinate j, plus or minus. That is the worst that a record can do (docs/privacy.md
P1), and canaries do not meet: each coordinate is a trial of its own. Where sums are projected, a
canary is a row of the public matrix, and there are so few that rows hardly meet.

Joint batches have as many canaries as records, and no larger a share of them than the study's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.core.planning.mechanism import SUM_MARGIN
from hubbub.core.planning.plan import Plan
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.protocol.round.batches import GroupBatches, Groups
from hubbub.core.protocol.round.draw import Draw, Lift
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.session.ask import AbsentError
from hubbub.core.session.in_process import Federation, federate, raised_by
from hubbub.core.session.joint_batches import joint_batches
from hubbub.core.session.offer import layout_of, round_parameters_of
from hubbub.core.session.party import SiloParty
from hubbub.core.session.rounds import NoisySums, NoRecorder
from hubbub.core.tabular.records import Records
from hubbub.core.verification.evidence.audit_result import SMALL_SHARE, SURELY, Seen
from hubbub.learning.audit.power import joint_part, kinds_of, scores_of, share_of_others
from hubbub.learning.audit.rules import Trials

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_FAR = 1e6  # how many clipping norms a canary's gradient is long
_LEAST_PROJECTED = 256  # features, so that no two matrices are alike by chance


@dataclass(frozen=True, kw_only=True)
class Canaries:
    """The coins of one run's canaries: canary j is there if its coin is True.

    Where records are exchanged, it adds if True and subtracts if False. Who was in which batch is
    noted in `drawn`, (steps, canaries).
    """

    plan: Plan
    coins: NDArray[np.bool_]
    drawn: NDArray[np.bool_] = field(repr=False)

    @classmethod
    def tossed(cls, plan: Plan, count: int) -> Canaries:
        """So many fair coins."""
        words = SecureSource().words(count)
        return cls(
            plan=plan,
            coins=(words & np.uint64(1)).astype(bool),
            drawn=np.zeros((plan.mechanism.steps, count), dtype=bool),
        )

    @property
    def exchanged(self) -> bool:
        """Whether a coin exchanges records, and does not leave one out."""
        return self.plan.study.privacy.relation == "substitute"

    @property
    def features(self) -> int:
        """Of a record; more than a projection leaves of them."""
        projection = self.plan.mechanism.projection
        least = max(projection.dimension + 1, _LEAST_PROJECTED) if projection else 1
        return max(self.coins.size, least)

    def model(self) -> Any:
        """Whose gradients canaries have."""
        return learning.build_model(
            "logistic", inputs=(self.features,), outputs=1, bias=False, seed=b""
        )

    def round_parameters(self) -> RoundParameters:
        """The study's, for so many records of this shape."""
        round_parameters = round_parameters_of(self.plan.main, numbers=self.features)
        count = self.coins.size
        batch = joint_part(self.plan.mechanism, count)
        return replace(round_parameters, records=count, batch=batch, most_records=count)

    def tasks(self) -> list[LocalTask]:
        """The canaries dealt to silos; those that have no share in the noise have no records."""
        nobody = [slice(0, 0)] * (self.plan.study.parties.silos - self.plan.main.shares)
        return [
            _Noted(self._task(places), self.drawn[:, places]) for places in (*self._dealt, *nobody)
        ]

    def groups(self, silos: Sequence[Groups]) -> Rows:
        """In which group of its silo each is; one that is not there, as if it were (P25)."""
        group_of = np.zeros(self.coins.size, dtype=np.intp)
        for mine, groups in zip(self._dealt, silos, strict=False):
            there = self.coins[mine] | self.exchanged
            places = (SecureSource().words(there.size) % np.uint64(self._capacity)).astype(np.intp)
            places[there] = np.arange(np.count_nonzero(there))
            group_of[mine] = groups.of(places)
        return group_of

    @property
    def _dealt(self) -> list[slice]:
        """The places of those dealt to each of the first silos of the roster, in turn."""
        return [slice(first, None, self.plan.main.shares) for first in range(self.plan.main.shares)]

    @property
    def _capacity(self) -> int:
        """The most that a silo is dealt."""
        return ceil(self.coins.size / self.plan.main.shares)

    def _task(self, places: slice) -> learning.TrainingTask:
        plan, capacity = self.plan, self._capacity
        return learning.TrainingTask(
            self.model(),
            self._records(np.arange(self.coins.size)[places]),
            clip=plan.main.record_clip,
            margin=SUM_MARGIN,
            method="chain",
            capacity=capacity,
            rows=plan.mechanism.noise.batch_rows(capacity, plan.mechanism.sample_rate),
            layers=learning.layers_of(plan.mechanism.projection),
        )

    def _records(self, places: NDArray[np.intp]) -> Records:
        """The canaries at these places that are there."""
        mine = places if self.exchanged else places[self.coins[places]]
        inputs = np.zeros((mine.size, self.features), dtype=np.float32)
        inputs[np.arange(mine.size), mine] = _FAR * max(self.plan.mechanism.clip, 1.0)
        return Records(inputs=inputs, targets=(~self.coins[mine]).astype(np.float32))


class _Noted:
    """A silo's canaries; batch after batch it notes who was in, (steps, places of the silo)."""

    def __init__(self, task: learning.TrainingTask, drawn: NDArray[np.bool_]) -> None:
        self._task, self._drawn, self._step = task, drawn, 0
        self.count, self.capacity = task.count, task.capacity

    def clipped_sum(self, parameters: Parameters, rows: Rows) -> Array:
        """As `TrainingTask`."""
        self._note(rows)
        return self._task.clipped_sum(parameters, rows)

    def projected_sum(self, parameters: Parameters, rows: Rows, draw_key: bytes) -> Array:
        """As `TrainingTask`."""
        self._note(rows)
        return self._task.projected_sum(parameters, rows, draw_key)

    def _note(self, rows: Rows) -> None:
        self._drawn[self._step, rows[rows >= 0]] = True
        self._step += 1


# What must not be: vectors that are not masked, a matrix or a token list that was there before.
#
# A mask that is left out, or used again, leaves a silo's own vector, or the difference of two, on
# the wire: numbers that are small beside the word. Under fresh masks each number is small with the
# same known chance, whatever was masked (docs/privacy.md P4). A matrix by which sums are projected
# must be new in every step (P8 (4)), and lists of joint batches that are charged as fresh (P9 (b)).

Drawn = NDArray[np.bool_]


class MaskedFrames(NoRecorder):
    """Counts small numbers in the masked vectors of a session as they come."""

    def __init__(self, round_parameters: RoundParameters) -> None:
        self._round_parameters = round_parameters
        self._last: dict[int, ring.Residues] = {}
        self.seen = Seen()

    def keep(self, frame: bytes, short: bytes = b"") -> None:
        """Look at a frame; with full shares there is none to be looked at."""
        header = unverified(frame)
        if header.tag is not Tag.MASKED or self._round_parameters.full_shares:
            return
        size, bits = self._round_parameters.masked_bytes, self._round_parameters.word_bits
        vector = ring.from_bytes(header.payload[:size], self._round_parameters.dimension, bits)
        last = self._last.get(header.sender)
        for one in (vector,) if last is None else (vector, vector - last):
            self._count(one)
        self._last[header.sender] = vector

    def _count(self, numbers: ring.Residues) -> None:
        most = 2.0 ** (self._round_parameters.word_bits - 1) * SMALL_SHARE
        signed = ring.to_integers(numbers)
        small = int(np.count_nonzero((signed >= -most) & (signed < most)))
        self.seen += Seen(numbers=numbers.size, small=small)


class Matrices:
    """Lifts projected sums, and counts how often a matrix is the last one."""

    def __init__(self, lift: Lift) -> None:
        self._lift, self._last = lift, np.zeros(0)
        self.seen = Seen()

    def __call__(self, projected: Array, draw: Draw) -> Array:
        """The lifted sum."""
        mark = self._lift(np.ones_like(projected), draw)
        again = int(np.array_equal(mark, self._last))
        self._last, self.seen = mark, self.seen + Seen(matrices=1, repeated=again)
        return self._lift(projected, draw)


def of_lists(drawn: Drawn, places: Drawn) -> Seen:
    """Whether all joint batches of a session look like those of one list.

    So many records would be in two batches running as places are. Fresh lists look so by chance,
    which is known; where that is not rare, nothing is said. Both are (steps, records): who was in
    which batch, and which places of its list each batch has.
    """
    from scipy.stats import hypergeom  # which takes long to import

    both, again = (np.count_nonzero(one[1:] & one[:-1], axis=1) for one in (drawn, places))
    batch, records = int(np.count_nonzero(places[0])), places.shape[1]
    chance = hypergeom.logpmf(again, records, batch, batch).sum()
    return Seen(lists=1, kept=int(chance < log(SURELY) and np.array_equal(both, again)))


# Runs of a study with canaries in the place of records, as the stated adversary sees them.
#
# Everything of a step but the model is the study's own. The adversary looks at the sums (power.py),
# and at what else messages tell. It knows the shares of its own silos, and may do without others',
# so those send no noise; the seeds of the projections, and which places of its list a joint batch
# has; and it chooses the model. Nobody has other records: the adversary of the definition knows
# them. It knows what the account does without: whose places are whose where a list serves for
# several batches, and who is in which group where noise is correlated (docs/privacy.md P9, P25).

# Called after every step with how many are done, of all runs together.
Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class AuditRun:
    """What the stated adversary has of one training: scores of each kind, and counts."""

    trials: tuple[Trials, ...]
    seen: Seen = field(default_factory=Seen)


def played(made: Plan, count: int, before: int, progress: Progress) -> AuditRun:
    """One training with canaries, as the stated adversary sees it.

    Steps that other runs made `before` count in the progress, too.
    """
    canaries = Canaries.tossed(made, count)
    numbers, steps = canaries.round_parameters(), made.mechanism.steps
    frames, lift = MaskedFrames(numbers), learning.lift_of(numbers, canaries.model())
    matrices = None if lift is None else Matrices(lift)
    tasks = canaries.tasks()
    joint = joint_batches(made.mechanism, [task.count for task in tasks])
    everybody = federate(
        layout_of(made),
        numbers,
        tasks,
        study=made.study.id,
        # The adversary's own, those of other sums, and where shares are fixed those that drop
        # out (P3, P4).
        noiseless=range(made.main.shares + 1, made.study.parties.silos + 1),
        joint=joint,
    )
    asked = NoisySums(
        set_up=lambda: everybody.rounds,
        record=lambda _: frames,
        epoch=made.mechanism.epoch,
        lost=_lost,
        lift=matrices,
    )
    sums, model = np.zeros((steps, count)), np.zeros(canaries.features, dtype=np.float32)
    places = np.zeros((steps, count), dtype=bool)
    for step in range(1, steps + 1):
        total, _ = asked.round(step, model, 1)
        if total is None:  # all parties are in this process, so that one of them failed
            raise raised_by(AbsentError(asked.rounds.attendance.named_absent))
        sums[step - 1] = np.asarray(total)[:count] / made.mechanism.clip
        seed = asked.rounds.aggregator.attempt.seed
        # Everybody knows which places a fresh list's joint batch has (P9).
        if joint and numbers.fresh_lists and seed:
            places[step - 1, joint.places(numbers, seed, 1)] = True
        progress(before + step)
    seen = frames.seen + (matrices.seen if matrices else Seen())
    if places.any():
        seen += of_lists(canaries.drawn, places)
    return AuditRun(trials=tuple(_trials(canaries, sums, everybody)), seen=seen)


def _lost(_number: int, _in_a_row: int, lost: AbsentError) -> None:
    raise raised_by(lost)


def _trials(canaries: Canaries, sums: Array, everybody: Federation) -> Iterator[Trials]:
    """The scores of every kind, of (steps, canaries) sums in units of C."""
    made, coins, exchanged = canaries.plan, canaries.coins, canaries.exchanged
    # What else is in a canary's part of a sum.
    noise = sqrt(made.stated.noise_multiplier**2 + share_of_others(made, coins.size))
    if made.mechanism.attempts_per_list > 1:
        own = np.where(canaries.drawn, sums, 0.0)
        yield Trials(scores=scores_of(own, noise, 1.0, exchanged=True), coins=coins)
        return
    numbers = canaries.round_parameters()
    rate = numbers.batch / coins.size if numbers.batch else numbers.sample_rate
    # Groups that take turns, of each silo in the order of the roster.
    parties = everybody.peers.parties.values()
    silos = [party.silo for party in parties if isinstance(party, SiloParty)]
    batches = [silo.batches for silo in silos if isinstance(silo, Silo)]
    turns = [part.groups for part in batches if isinstance(part, GroupBatches)]
    known = [(1, canaries.groups(turns))] if turns else []
    for same, groups in (*known, *((same, None) for same in kinds_of(len(sums)))):
        scores = scores_of(
            sums,
            noise,
            rate,
            exchanged=exchanged,
            same=same,
            column=made.mechanism.noise.column,
            groups=groups,
        )
        yield Trials(scores=scores, coins=coins)
