"""What a ledger's entries add up to: counts, epsilon, and whether one more may follow.

Theory of operation. A bound for more entries is one for fewer (docs/privacy.md P15), so a cap is
not checked anew at each entry: once it is known to allow all attempts of a study, or as many of
them as it does allow, they only have to be counted, until something else changes. This file does
not know where entries are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from pathlib import Path
from typing import NamedTuple

from hubbub.core.errors import BudgetError, SpentError, StudyError
from hubbub.core.ledger.entry import PATIENT, RECORD, Cap, Entry, LedgerMechanism
from hubbub.core.planning.accounts import Account, account_of, releases, releases_of_units
from hubbub.core.planning.mechanism import WITHOUT_REPLACEMENT
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.projections import Charged, projection_of
from hubbub.core.planning.query import Query
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.arguments import MOST_EPSILON
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.privacy.dominating_pairs import Release, release
from hubbub.core.protocol.agreement.key_agreement import Session
from hubbub.core.protocol.round.silo import Charge

# From a plan to the row that an attempt is charged with, and from rows to what they cost.
#
# A cap's relation need not be the study's own: the plan's pairing of mechanism and law is used
# wherever it has a row for the relation; where it has none, one that is dearer (docs/privacy.md
# P15).


def entry_of(
    planned: PlannedQuery[Query], session: Session, charge: Charge, kind: LedgerMechanism
) -> Entry:
    """The row that an attempt is charged with; `kind` is that of the query."""
    return Entry(
        study=session.study,
        session=session.id,
        round=charge.round,
        attempt=charge.attempt,
        kind=kind,
        certificate=planned.certificate,
        attested=session.attested,
    )


def kind_of(planned: PlannedQuery[Query]) -> LedgerMechanism:
    """What a ledger must know of a query's mechanism."""
    mechanism, account = planned.mechanism, account_of(planned.mechanism)
    how, joint = account.projected, account.sampling == WITHOUT_REPLACEMENT
    # P20: of records of one patient in several attempts of a row, nobody knows what they cost.
    stated = mechanism.unit == PATIENT or mechanism.epoch == 1
    return LedgerMechanism(
        noise_multiplier=planned.noise_multiplier,
        sample_rate=account.sample_rate,
        sampling=account.sampling,
        # a kept list is drawn by parts
        records=mechanism.records if mechanism.has_joint_batches else 0,
        known_records=planned.known_records if joint else 0,
        projection=how.kind if how else "",
        dimension=how.dimension if how else 0,
        factor=how.factor if how else 1.0,
        slack=how.slack if how else 0.0,
        unit=mechanism.unit,
        most_per_patient=mechanism.most_per_patient if stated else 0,
        diameter=mechanism.diameter,
        purpose=mechanism.purpose,
    )


def rows_of(plan: Plan) -> list[tuple[LedgerMechanism, int, Certificate]]:
    """The rows that a whole study writes: of which kind, how many, with which certificate."""
    parts = (plan.main, *plan.beside)
    return [(kind_of(part), part.mechanism.rows, part.certificate) for part in parts]


def attempts_of(plan: Plan) -> dict[LedgerMechanism, int]:
    """How many rows of each kind a whole study writes."""
    counts: Counter[LedgerMechanism] = Counter()
    for kind, rows, _ in rows_of(plan):
        counts[kind] += rows
    return dict(counts)


def unit_of(kinds: Iterable[LedgerMechanism]) -> str:
    """What the epsilon of these entries is about: patients, if they are the unit of any (P21)."""
    return PATIENT if any(kind.unit == PATIENT for kind in kinds) else RECORD


def unknown_to_patients(kinds: Iterable[LedgerMechanism]) -> bool:
    """Whether some entries are of records, and do not say how many of them a patient has."""
    return any(kind.unit == RECORD and not kind.most_per_patient for kind in kinds)


def cost_of(kind: LedgerMechanism, count: int, relation: str, unit: str = RECORD) -> list[Release]:
    """What so many entries of a kind release to the stated adversary of their study.

    StudyError: they are of records, and have no account of a patient with several.
    """
    # P20: beside patients, a row of records tells of all that one patient has.
    if unit == PATIENT and kind.unit == RECORD and kind.most_per_patient != 1:
        return _cost_to_patient(kind, count, relation)
    joint = kind.sampling == WITHOUT_REPLACEMENT
    if joint and not (kind.records or kind.projection):
        return [release(kind.step(count), relation)]
    if joint and relation == "add-remove":
        # P10: who owns records, or sees a projection, may know all batches; a record more or less
        # puts one in another's place, which is twice as long.
        noise = kind.noise_multiplier / 2
        alone = replace(kind, sampling="full-batch", sample_rate=1.0, factor=1.0, slack=0.0)
        whole = replace(alone, noise_multiplier=noise, records=0, known_records=0)
        return cost_of(whole, count, relation)
    if kind.records and not joint and relation == "add-remove":
        # P9: of a kept list, parts are taken in turn: another record comes into the place of one
        # that is gone, and is gone from its own: a change of twice the length, and a single one.
        alone = replace(kind, records=0, factor=1.0, slack=0.0)
        twice = replace(alone, noise_multiplier=kind.noise_multiplier / 2)
        return cost_of(twice, count, relation) + cost_of(alone, count, relation)
    # P9, P25: a row stands for an epoch already, so its account has none.
    account = Account(
        sampling=kind.sampling,
        sample_rate=kind.sample_rate,
        relation=relation,
        records=kind.records,
        projected=_projected(kind, relation),
        diameter=kind.diameter,
    )
    return releases(account, kind.noise_multiplier, count, kind.known_records)


def costs_of(counts: Iterable[tuple[LedgerMechanism, int]], relation: str) -> list[Release]:
    """What entries release, as the accountant sees it, to whom the epsilon of all is about."""
    counted = tuple(counts)
    unit = unit_of(kind for kind, _ in counted)
    return [one for kind, count in counted for one in cost_of(kind, count, relation, unit)]


def _cost_to_patient(kind: LedgerMechanism, count: int, relation: str) -> list[Release]:
    """The same for a patient, each of whose records is clipped and sampled by itself (P20)."""
    if not kind.most_per_patient or kind.records:
        raise StudyError(
            "expected studies of records to state data.most_per_patient and to sample by Poisson, "
            "beside one of patients, got others; count them in ledgers of their own"
        )
    # P20: no diameter, which is of two single records' parts.
    account = Account(
        sampling=kind.sampling,
        sample_rate=kind.sample_rate,
        relation=relation,
        records=0,
        projected=_projected(kind, relation),
    )
    return releases_of_units(account, kind.noise_multiplier, count, kind.most_per_patient)


def _projected(kind: LedgerMechanism, relation: str) -> Charged | None:
    """How the projection is charged, if there is one."""
    projection = projection_of(kind.projection, kind.dimension)
    if projection is None:
        return None
    return projection.charged_again(kind.sampling, relation, kind.factor, kind.slack)


CURVE_DELTAS = tuple(10.0**-digits for digits in range(1, 13))
_BOTH = 2.01  # kinds that are like the same one, and round-off
_GROWTH = 1.25  # how far ahead a cap is checked if nobody says how many attempts there will be


class Certified(NamedTuple):
    """A session, and the certificate that it counts with."""

    study: bytes
    session: bytes
    certificate: Certificate

    @classmethod
    def by(cls, entry: Entry) -> Certified:
        """The session of an entry."""
        return cls(entry.study, entry.session, entry.certificate)


@dataclass(frozen=True, kw_only=True)
class Covered:
    """So many entries of each kind, in these sessions, keep a cap."""

    cap: Cap
    counts: Counter[LedgerMechanism]
    sessions: frozenset[Certified]


class Tally:
    """What entries add up to; empty at first."""

    def __init__(self) -> None:
        self._kinds: Counter[LedgerMechanism] = Counter()
        self._studies: dict[bytes, Counter[LedgerMechanism]] = {}
        self._sessions: set[Certified] = set()
        self._covered: Covered | None = None

    def __len__(self) -> int:
        return self._kinds.total()

    def add(self, entry: Entry) -> None:
        """Count an entry."""
        self.add_rows(entry.kind, 1, Certified.by(entry))

    def add_rows(self, kind: LedgerMechanism, rows: int, session: Certified) -> None:
        """Count so many entries of one kind, of a session."""
        self._kinds[kind] += rows
        self._studies.setdefault(session.study, Counter())[kind] += rows
        # Its certificate is not in what the cap was found to allow.
        if self._covered is not None and session not in self._covered.sessions:
            self._covered = None
        self._sessions.add(session)

    def studies(self) -> list[bytes]:
        """All studies, in the order in which they came."""
        return list(self._studies)

    def counts(self, study: bytes | None = None) -> tuple[tuple[LedgerMechanism, int], ...]:
        """How many entries of each kind there are, of one study or of all."""
        counted = self._kinds if study is None else self._studies.get(study, Counter())
        return tuple(sorted(counted.items()))

    @property
    def certified(self) -> frozenset[Certified]:
        """All sessions, with what they certify."""
        return frozenset(self._sessions)

    @property
    def certificate(self) -> Certificate:
        """What all sessions certify together."""
        return certificate_of(self._sessions)

    def attempts(self, study: bytes, kind: LedgerMechanism | None = None) -> int:
        """How many entries a study has; of one mechanism, to its last digits, if it is given.

        All that were made of what was let in for any kind like it count, whatever their digits.
        """
        counts = self._studies.get(study, Counter())
        return sum(
            count for one, count in counts.items() if kind is None or one.like(kind, times=_BOTH)
        )

    def session_ids(self, study: bytes) -> set[bytes]:
        """The sessions in which a study was run."""
        return {session.session for session in self._sessions if session.study == study}

    @property
    def unit(self) -> str:
        """What the epsilon of everything is about: "patient", if any study's unit is one."""
        return unit_of(self._kinds)

    @property
    def is_mixed(self) -> bool:
        """Whether studies of records do not say how many a patient has, beside one of patients."""
        return self.unit == PATIENT and unknown_to_patients(self._kinds)

    def epsilon(self, *, delta: float, relation: str, study: bytes | None = None) -> float:
        """Certified upper epsilon of everything, or of one study alone; inf past all bounds."""
        sessions = {at for at in self._sessions if study in (None, at.study)}
        return spent(dict(self.counts(study)), sessions, delta, relation)

    def copy(self) -> Tally:
        """The same, to which more can be added."""
        whole = Tally()
        whole._kinds, whole._sessions = Counter(self._kinds), set(self._sessions)
        whole._studies = {one: Counter(counts) for one, counts in self._studies.items()}
        return whole

    def after(self, plan: Plan, *, anew: bool = False) -> Tally:
        """What it would be once a study is over; `anew`: once more, if it is over already."""
        later, study = self.copy(), plan.study.id
        wanted = rows_of(plan)
        over = all(rows <= self.attempts(study, kind) for kind, rows, _ in wanted)
        for number, (kind, rows, certificate) in enumerate(wanted):
            left = rows if anew and over else rows - self.attempts(study, kind)
            if left > 0:
                # No true session has a name of one byte, so this certificate counts beside theirs.
                later.add_rows(kind, left, Certified(study, bytes((number,)), certificate))
        return later

    def curve(self, relation: str) -> list[tuple[float, float, float]]:
        """Delta, and epsilon from below and above, at `CURVE_DELTAS`: all that was ever spent.

        The upper ends hold for what was sent, certificates included; the lower ones are those of
        the ideal mechanisms. Both are inf past 50.
        """
        kinds = self.counts()
        return [
            (delta, _bound(kinds, delta, relation)[0], self.epsilon(delta=delta, relation=relation))
            for delta in CURVE_DELTAS
        ]

    def check_units(self, kinds: Iterable[LedgerMechanism], ledger: Path | str) -> None:
        """P21: it stays known what a patient has lost; BudgetError if entries would end that."""
        whole = [*self._kinds, *kinds]
        if self.is_mixed or unit_of(whole) != PATIENT or not unknown_to_patients(whole):
            return
        raise BudgetError(
            f"expected every study that {ledger} counts to have patients as units or to "
            "state data.most_per_patient, got some of patients beside others of records that do "
            "not: then nobody could say what patients have lost; nothing was charged: use the "
            "unit of the earlier studies, or count these in a ledger of their own"
        )

    def check_attempts(self, entry: Entry, most: int | None, ledger: Path) -> None:
        """P15: a study's attempts are a budget over all its sessions; SpentError if spent."""
        attempts_made = self.attempts(entry.study, entry.kind)
        if most is not None and attempts_made >= most:
            raise SpentError(
                f"expected at most {most} attempts of study {entry.study.hex()[:16]} on this data "
                f"set, {ledger} already has {attempts_made}; resume the run that made them instead "
                "of starting again, or approve a study under another name"
            )

    def check_cap(self, entry: Entry, cap: Cap, attempts: int | None) -> None:
        """P15: the epsilon after this entry, over all studies; BudgetError if it passes the cap.

        There will be at most so many `attempts` of its study and mechanism, if that is known.
        """
        covered = self._covered
        is_covered = (
            covered is not None
            and covered.cap == cap
            and Certified.by(entry) in covered.sessions
            # P15: a bound for more entries is one for fewer.
            and self._after(entry) <= covered.counts
        )
        if not is_covered:
            self._covered = self._cover(entry, cap, attempts)

    def _cover(self, entry: Entry, cap: Cap, attempts: int | None) -> Covered:
        """As many further entries of this kind as the cap allows, up to the attempts."""
        sessions = frozenset(self._sessions | {Certified.by(entry)})
        counts = self._after(entry)
        least = counts[entry.kind]
        attempts_made = self.attempts(entry.study, entry.kind)
        most = rounded_up(least) if attempts is None else least - 1 + attempts - attempts_made
        before = self._covered.counts if self._covered is not None else counts

        # With what other kinds were allowed before or, if that is too much, with what they took.
        for others in (before | counts, counts):

            def fits(count: int, others: Counter[LedgerMechanism] = others) -> bool:
                all_counts = {**others, entry.kind: count}
                return spent(all_counts, sessions, cap.delta, cap.relation) <= cap.epsilon

            if fits(least):
                whole = Counter({**others, entry.kind: _largest(fits, least, most)})
                return Covered(cap=cap, counts=whole, sessions=sessions)
        if unit_of(counts) == PATIENT and unknown_to_patients(counts):
            raise BudgetError(
                "expected studies of records to state data.most_per_patient on a data set where "
                "another's unit is the patient, found one that does not: what it reveals about "
                "a patient is unknown; state it, or count the studies on different data sets"
            )
        after = spent(counts, sessions, cap.delta, cap.relation)
        raise BudgetError(
            f"expected at most epsilon {cap.epsilon:g} at delta {cap.delta:g} on this "
            f"data set, the next step would make it {after:.4g}; raise the cap with "
            "`hubbub budget set`, or stop"
        )

    def _after(self, entry: Entry) -> Counter[LedgerMechanism]:
        return self._kinds + Counter([entry.kind])


def _largest(fits: Callable[[int], bool], least: int, most: int) -> int:
    """The largest number up to `most` that fits; `least` is known to."""
    # P15: fewer rows never cost more, so all up to some number fit and none above.
    if fits(most):
        return most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least


def certificate_of(sessions: Set[Certified]) -> Certificate:
    """What all sessions certify together."""
    return reduce(
        Certificate.after, (session.certificate for session in sorted(sessions)), Certificate()
    )


def spent(
    counts: Mapping[LedgerMechanism, int], sessions: Set[Certified], delta: float, relation: str
) -> float:
    """Upper epsilon of kinds of steps, certificates included."""
    if not counts:
        return 0.0
    # P6: the slack counts at the epsilon that is claimed; `claim` looks for one that bears it.
    kinds = tuple(sorted(counts.items()))
    return certificate_of(sessions).claim(
        lambda left: _bound(kinds, left, relation)[1], delta, near=1.0
    )


@lru_cache(maxsize=4096)
def _bound(
    counts: tuple[tuple[LedgerMechanism, int], ...], delta: float, relation: str
) -> tuple[float, float]:
    """Lower and upper epsilon of kinds of steps; inf past what is certified, 0 of none."""
    if not counts:
        return 0.0, 0.0
    try:
        bound = Composition(costs_of(counts, relation)).epsilon(delta, most=MOST_EPSILON)
    # Where nothing bounds what was spent, it is more than any cap allows.
    except StudyError:
        return float("inf"), float("inf")
    return bound.lower, bound.upper


def rounded_up(count: int) -> int:
    """The next number on a geometric grid."""
    level = 1
    while level < count:
        level = max(level + 1, int(level * _GROWTH))
    return level
