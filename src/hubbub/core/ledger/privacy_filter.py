"""Which studies a cap lets in, if later ones may be chosen in view of earlier outputs.

Theory of operation (docs/privacy.md P24). Before the first attempt of a study everything that it
may release is set aside, and what is left for studies that nobody has thought of yet is written
down with it. So what is charged never has to be compared with the cap again: it only has to have
been set aside. What was charged before the filter began counts as fixed beforehand (P15); what a
fixed cap charged after it had let studies in counts as let in then. This file does not know where
rows are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import inf, sqrt

from hubbub.core.errors import BudgetError, StudyError
from hubbub.core.ledger.entry import PATIENT, RECORD, Admission, Cap, Entry, LedgerMechanism
from hubbub.core.ledger.tally import (
    Certified,
    Tally,
    attempts_of,
    certificate_of,
    cost_of,
    costs_of,
    rounded_up,
    spent,
    unit_of,
)
from hubbub.core.planning.plan import Plan
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.arguments import LEAST_EPSILON, MOST_EPSILON
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.privacy.dominating_pairs import Release, Step, release
from hubbub.core.privacy.remaining_budget import (
    RemainingBudget,
    StudyLaw,
    kept_for_certificates,
    least_epsilon,
    remaining,
)

Counts = tuple[tuple[LedgerMechanism, int], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivacyFilter:
    """What a cap has let in, in this order."""

    cap: Cap  # that counts now
    before: Counts  # what was charged before the filter began
    made: Mapping[bytes, Counts]  # the same, by study
    admissions: tuple[Admission, ...] = ()  # since then
    left: Admission | None = None  # the last of them, if it was made under this cap
    is_resumed: bool = False  # after a fixed cap

    @classmethod
    def beginning(cls, cap: Cap, tally: Tally) -> PrivacyFilter:
        """A filter that begins with what a ledger holds."""
        counts = {study: tally.counts(study) for study in tally.studies()}
        return cls(cap=cap, before=tally.counts(), made=counts)

    def under(self, cap: Cap) -> PrivacyFilter:
        """The same studies under another cap."""
        return replace(self, cap=cap, left=None)

    def resumed(self, cap: Cap, studies: Iterable[bytes], tally: Tally) -> PrivacyFilter:
        """The same under another cap, once a fixed one has charged these studies, in this order."""
        # P24: outputs had been seen by then, so each is a later study, for which (2) is asked. As a
        # part of the first one, it would be composed as if nobody had chosen it because of them.
        whole = self
        for study in studies:
            counts = tuple(
                # All that are like a kind count beside each of these: too many, never too few.
                (kind, min(count, tally.attempts(study, kind) - whole._set_aside(study, kind)))
                for kind, count in tally.counts(study)
            )
            if counts := tuple((kind, count) for kind, count in counts if count > 0):
                whole = whole.with_admission(Admission(study=study, counts=counts, left=None))
        return replace(whole.under(cap), is_resumed=True)

    def with_admission(self, one: Admission) -> PrivacyFilter:
        """With one more study."""
        # P24: versions to 0.2 wrote too much `left` after a fixed cap, so there it is found anew.
        left = None if self.is_resumed else one
        return replace(self, admissions=(*self.admissions, one), left=left)

    def admission(
        self, entry: Entry, attempts: int | None, study: Mapping[LedgerMechanism, int], tally: Tally
    ) -> Admission | None:
        """What has to be written before an entry may be; None if it was set aside already.

        Known are perhaps the most `attempts` of its study and mechanism that there will ever be,
        and those of all of the `study`'s mechanisms; the entry's certificate is of all their
        sessions then. BudgetError: the cap has no room for them.
        """
        attempts_made = tally.attempts(entry.study, entry.kind)
        # P24: a study is compared with the cap as a whole, once; then its attempts are only
        # counted.
        if attempts_made < self._set_aside(entry.study, entry.kind):
            return None
        # P24: for all that it may ever make, as more of it would be chosen in view of outputs.
        most = (
            rounded_up(attempts_made + 1) if attempts is None else max(attempts, attempts_made + 1)
        )
        most = max(most, study.get(entry.kind, 0))
        counts = self.wanted(entry.study, {**study, entry.kind: most})
        self._check_unit(counts)
        left = self._left_after(counts)
        if left is None and not self._fits_alone(counts, tally.certified | {Certified.by(entry)}):
            raise self._refusal(entry.study, counts, tally)
        return Admission(study=entry.study, counts=counts, left=left)

    def has_room(self, plan: Plan, tally: Tally) -> bool:
        """Whether a study would be let in, and its first session charged."""
        if not (counts := self.wanted(plan.study.id, attempts_of(plan))):
            return True
        sessions = tally.after(plan).certified
        if self._left_after(counts) is not None and self._are_kept(sessions):
            return True
        return self._fits_alone(counts, sessions)

    def check(self, entry: Entry, tally: Tally) -> None:
        """Refuse an entry with whose certificate the cap holds no more for what was let in."""
        sessions = tally.certified | {Certified.by(entry)}
        if self._standing is not None and self._are_kept(sessions):
            return
        # P24: a first study for which (1) has no room may stand alone, by P15 (a); nothing follows
        # it.
        if len(self._blocks) > 1 or self._spent(self._blocks[0], sessions) > self.cap.epsilon:
            raise BudgetError(
                f"expected at most epsilon {self.cap.epsilon:g} at delta "
                f"{self.cap.delta:g} on this data set, the admitted studies and their "
                "sessions exceed it; raise the cap with `hubbub budget set`, or stop"
            )

    def epsilon(self, tally: Tally, more: Counts = ()) -> float:
        """The least cap, to about 0.2 %, that would have let all studies in, and `more`.

        inf past what may be asked for.
        """
        blocks = [*self._blocks, *([more] if more else [])]
        fixed: Counter[LedgerMechanism] = Counter()
        for block in blocks:
            fixed.update(dict(block))
        least = self._spent(tuple(sorted(fixed.items())), tally.certified)
        if (len(blocks) < 2 and self.cap.law is None) or least == inf:
            return least
        try:
            laws, _ = self._laws(blocks)
            return least_epsilon(tuple(laws), self.cap.delta, least=least)
        except StudyError:  # no account, or more steps than can be counted
            return inf

    @property
    def unused(self) -> int:
        """Steps of the cap's reference law that no study has taken."""
        return self._laws(self._blocks)[1] if self.cap.law else 0

    def kept_back(self, tally: Tally) -> float:
        """By how much epsilon is larger for the steps of the reference law that are not used."""
        if not self.unused or self.cap.law is None:
            return 0.0
        used = self.cap.law.steps - self.unused
        law = replace(self.cap.law, steps=used) if used else None
        return self.epsilon(tally) - replace(self, cap=replace(self.cap, law=law)).epsilon(tally)

    @property
    def keeps_its_law(self) -> bool:
        """Whether the cap has room for what was let in and for all of its reference law."""
        return self.cap.law is None or self._remaining(self._blocks) is not None

    def wanted(self, study: bytes, rows: Mapping[LedgerMechanism, int]) -> Counts:
        """What a study of so many rows would still have to be let in for."""
        more = {kind: most - self._set_aside(study, kind) for kind, most in rows.items()}
        return tuple((kind, count) for kind, count in sorted(more.items()) if count > 0)

    @property
    def _blocks(self) -> list[Counts]:
        """What was let in together."""
        before = [self.before] if self.before else []
        return before + [one.counts for one in self.admissions]

    def _set_aside(self, study: bytes, kind: LedgerMechanism) -> int:
        """How many attempts of a study and mechanism were charged or let in."""
        let_in = [one.counts for one in self.admissions if one.study == study]
        blocks = [self.made.get(study, ()), *let_in]
        # A kind that another machine computes anew is covered: studies are let in at `dearer`
        # noise.
        return sum(n for block in blocks for one, n in block if one.covers(kind))

    @cached_property
    def _standing(self) -> RemainingBudget | None:
        """What the cap leaves after what it has let in; None if nothing, or before the first."""
        if self.left is not None:
            return self.left.left
        return self._remaining(self._blocks)

    def _left_after(self, counts: Counts) -> RemainingBudget | None:
        """What the cap leaves after one more study; None if it has no room for others beside it."""
        # P24: the first study was chosen without outputs, so (1) is asked of it, and (2) of others.
        if not self._blocks:
            return self._remaining([counts])
        try:
            if (standing := self._standing) is None:
                return None
            rest, taken = self._split(counts, standing.steps)
            return standing.after(self._law(rest), taken)
        except StudyError:  # no account, or more steps than can be counted
            return None

    def _remaining(self, blocks: Sequence[Counts]) -> RemainingBudget | None:
        """What is left after these, one after the other."""
        try:
            laws, steps = self._laws(blocks)
            left = remaining(laws, self.cap.epsilon, self.cap.delta) if laws else None
            return None if left is None else replace(left, steps=steps)
        except StudyError:
            return None

    def _check_unit(self, counts: Counts) -> None:
        """The promise is to whom it was at first: records, or patients (P21)."""
        if self._blocks and self._unit == RECORD and unit_of(kind for kind, _ in counts) == PATIENT:
            raise BudgetError(
                "expected a study that protects records, as all do under this cap, got one that "
                "protects patients, which the cap cannot cover; count it in another ledger"
            )

    @property
    def _unit(self) -> str:
        return unit_of(kind for block in self._blocks for kind, _ in block)

    def _laws(self, blocks: Sequence[Counts]) -> tuple[list[StudyLaw], int]:
        """The laws of what was let in, and how many steps of the reference law are left."""
        # P24: of each study only what the reference law does not dominate follows the rule.
        law, rests = self.cap.law, []
        left = law.steps if law else 0
        for block in blocks:
            rest, taken = self._split(block, left)
            rests.append(rest)
            left -= taken
        # P24: all of that law stands beside the first study, as it was stated before any output.
        if law is not None:
            rests = [[*(rests[0] if rests else []), law.release(self.cap.relation)], *rests[1:]]
        return [self._law(rest) for rest in rests], left

    def _split(self, counts: Counts, left: int) -> tuple[list[Release], int]:
        """What of a study the reference law does not dominate, and how many steps the rest is."""
        # P21: all entries are charged to the unit that the first ones protect.
        unit = self._unit if self._blocks else unit_of(kind for kind, _ in counts)
        relation, law = self.cap.relation, self.cap.law
        costs = (cost_of(kind.dearer(), count, relation, unit) for kind, count in counts)
        releases = [*chain.from_iterable(costs)]
        return (releases, 0) if law is None else law.split(releases, relation, left)

    def _law(self, releases: Sequence[Release]) -> StudyLaw:
        return StudyLaw.of(releases, self.cap.delta)

    def _fits_alone(self, counts: Counts, sessions: frozenset[Certified]) -> bool:
        """Whether the cap holds for what is fixed before any output, though it leaves nothing."""
        return not self._blocks and self._spent(counts, sessions) <= self.cap.epsilon

    def _spent(self, counts: Counts, sessions: frozenset[Certified]) -> float:
        """Epsilon of fixed composition."""
        dearer = {kind.dearer(): count for kind, count in counts}
        return spent(dearer, sessions, self.cap.delta, self.cap.relation)

    def _are_kept(self, sessions: frozenset[Certified]) -> bool:
        """Whether what certificates add is at most what is kept for it."""
        kept = kept_for_certificates(self.cap.epsilon, self.cap.delta)
        return certificate_of(sessions).is_within(kept, self.cap.epsilon)

    def _refusal(self, study: bytes, counts: Counts, tally: Tally) -> BudgetError:
        """Why a study is not let in."""
        needed = self.epsilon(tally, counts)
        return BudgetError(
            f"expected at most epsilon {self.cap.epsilon:g} at delta {self.cap.delta:g} on this "
            f"data set, study {study.hex()[:16]} with those before it would need a cap of "
            f"{needed:.4g}; raise the cap with `hubbub budget set`, ask for less, or stop"
        )


# What a promise leaves to noisy sums over all records, whichever of them are asked for later.
#
# Theory of operation (docs/privacy.md P22). Sums over all records are Gaussian steps, and the
# square of a Gaussian step's shift is all that it uses up, however it was chosen: (epsilon, delta)
# is changed into one shift at the beginning, and queries take from its square. So k equal queries
# have noise that grows with the root of k, where epsilons that add up have noise that grows with k.

_CLOSE = 1e-6  # of the square of a shift
_SAFE = 1 - 1e-9  # for the round-off of an epsilon that is asked for
_LEAST_SHIFT, _MOST_SHIFT = 1e-6, 1e3


@dataclass(frozen=True, kw_only=True)
class SumsBudget:
    """An (epsilon, delta) for queries that are chosen one after the other, of all together.

    Rows of sampled or projected steps are composed as if they had been fixed beforehand (P15).
    """

    epsilon: float
    delta: float
    relation: str

    def allows(self, tally: Tally, plan: Plan) -> bool:
        """Whether the promise holds for what was charged, and all that a plan will charge.

        A first query may have all of epsilon; nothing follows it then.
        """
        after = tally.after(plan)
        costs = costs_of(after.counts(), self.relation)
        # P22: within (1), or the first of all by P15 (a), after which nothing fits.
        if self._holds(costs, self._kept) and self._are_kept(after.certificate):
            return True
        return not len(tally) and self._holds(costs, after.certificate)

    def left(self, tally: Tally, queries: int = 1) -> float:
        """The most epsilon that each of so many further queries may have; 0 if none is left."""
        if not len(tally) and queries == 1:
            return self.epsilon
        most = self._largest_shift(tally)
        if most is None:
            return 0.0
        alone = Composition([_gaussian(most / sqrt(queries))]).epsilon(self.delta).lower * _SAFE
        return alone if alone >= LEAST_EPSILON else 0.0

    def share_left(self, tally: Tally) -> float:
        """What one more query may have of what all may, as a share of squared shifts.

        These add up where epsilons do not: the other share is spent. 0 once none is left.
        """
        whole = self._largest_shift(Tally())
        most = self._largest_shift(tally) if whole and self.left(tally) else None
        return min((most / whole) ** 2, 1.0) if most and whole else 0.0

    def _largest_shift(self, tally: Tally) -> float | None:
        """Of a Gaussian step beside what was charged; None if there is room for hardly any."""
        # P22: trainings count as fixed beforehand, beside the Gaussian step that is left.
        before = costs_of(tally.counts(), self.relation)

        def fits(shift: float) -> bool:
            return self._holds([*before, _gaussian(shift)], self._kept)

        if not self._are_kept(tally.certificate) or not fits(_LEAST_SHIFT):
            return None
        low, high = _LEAST_SHIFT**2, _MOST_SHIFT**2
        while high - low > _CLOSE * high:
            middle = sqrt(low * high) if high > 4 * low else (low + high) / 2
            low, high = (middle, high) if fits(sqrt(middle)) else (low, middle)
        return sqrt(low)

    def _holds(self, costs: Sequence[Release], certificate: Certificate) -> bool:
        """Whether these releases, and what a certificate adds, are within the promise."""
        left = certificate.ideal_delta(self.delta, self.epsilon)
        if left <= 0:
            return False
        try:
            spent = Composition(costs).epsilon(left, most=MOST_EPSILON).upper
        except StudyError:  # it is beyond
            return False
        return spent + certificate.epsilon <= self.epsilon

    @property
    def _kept(self) -> Certificate:
        """What certificates of all queries may come to."""
        return kept_for_certificates(self.epsilon, self.delta)

    def _are_kept(self, certificate: Certificate) -> bool:
        return certificate.is_within(self._kept, self.epsilon)


def _gaussian(shift: float) -> Release:
    """A step that moves the mean by so many standard deviations."""
    return release(Step(noise_multiplier=1 / shift, sampling="full-batch"), "add-remove")
