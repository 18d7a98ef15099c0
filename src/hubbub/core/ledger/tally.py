"""What a ledger's entries add up to: counts, epsilon, and whether one more may follow.

Theory of operation. A bound for more entries is one for fewer (docs/privacy.md P15), so a cap is
not checked anew at each entry: once it is known to allow all attempts of a study, or as many of
them as it does allow, they only have to be counted, until something else changes. This file does
not know where entries are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

from hubbub.core.errors import BudgetError, SpentError, StudyError
from hubbub.core.ledger.dp_event import event_of
from hubbub.core.ledger.entry import PATIENT, Cap, Entry, LedgerMechanism
from hubbub.core.ledger.row_cost import cost_of, rows_of, unit_of, unknown_to_patients
from hubbub.core.planning.plan_values import Plan
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.arguments import MOST_EPSILON
from hubbub.core.privacy.certificate import Certificate

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
        if study is None:
            return spent(self._kinds, self._sessions, delta, relation)
        sessions = {session for session in self._sessions if session.study == study}
        return spent(self._studies.get(study, Counter()), sessions, delta, relation)

    def copy(self) -> Tally:
        """The same, to which more can be added."""
        whole = Tally()
        whole._kinds, whole._sessions = Counter(self._kinds), set(self._sessions)
        whole._studies = {one: Counter(counts) for one, counts in self._studies.items()}
        return whole

    def after(self, plan: Plan, *, anew: bool = False) -> Tally:
        """What it would be once a study is over, in one more session of each kind.

        Args:
            plan: of the study.
            anew: whether a study that is over already is run once more.
        """
        whole, study = self.copy(), plan.study.id
        wanted = list(rows_of(plan))
        over = all(rows <= self.attempts(study, kind) for kind, rows, _ in wanted)
        for number, (kind, rows, certificate) in enumerate(wanted):
            left = rows if anew and over else max(0, rows - self.attempts(study, kind))
            if left:
                whole.add_rows(kind, left, Certified(study, bytes((number,)), certificate))
        return whole

    def curve(self, relation: str) -> list[tuple[float, float, float]]:
        """Delta, and epsilon from below and above, at `CURVE_DELTAS`: all that was ever spent.

        The upper ends hold for what was sent, certificates included; the lower ones are those of
        the ideal mechanisms. Both are inf past 50.
        """
        kinds = tuple(sorted(self._kinds.items()))
        return [
            (delta, _bound(kinds, delta, relation)[0], self.epsilon(delta=delta, relation=relation))
            for delta in CURVE_DELTAS
        ]

    def dp_event(self) -> dict[str, Any]:
        """All entries as dp-accounting says them; UserError names what it cannot say."""
        return event_of(self._kinds)

    def check_units(self, kinds: Iterable[LedgerMechanism], ledger: Path | str) -> None:
        """P21: it stays known what a patient has lost; BudgetError if entries would end that."""
        whole = [*self._kinds, *kinds]
        if self.is_mixed or unit_of(whole) != PATIENT or not unknown_to_patients(whole):
            return
        raise BudgetError(
            f"expected every study that {ledger} counts to have patients as units or to "
            "state data.most_per_patient, got some of patients beside others of records that do "
            "not: nobody could say any more what a patient has lost, so nothing is charged; ask as "
            "before, and decide on the unit before a data set's first study"
        )

    def check_attempts(self, entry: Entry, most: int | None, ledger: Path) -> None:
        """P15: a study's attempts are a budget over all its sessions; SpentError if spent."""
        attempts_made = self.attempts(entry.study, entry.kind)
        if most is not None and attempts_made >= most:
            raise SpentError(
                f"expected at most {most} attempts of study {entry.study.hex()[:16]} on this data "
                f"set, {ledger} holds {attempts_made} already; resume the run that made "
                "them instead of "
                "beginning anew, or approve a study under another name"
            )

    def check_cap(self, entry: Entry, cap: Cap, attempts: int | None) -> None:
        """P15: the epsilon after this entry, over all studies; BudgetError if it passes the cap.

        There will be at most so many `attempts` of its study and mechanism, if that is known.
        """
        if not self._is_covered(entry, cap):
            self._covered = self._cover(entry, cap, attempts)

    def _is_covered(self, entry: Entry, cap: Cap) -> bool:
        """Whether the cap is known to allow this entry."""
        covered = self._covered
        return (
            covered is not None
            and covered.cap == cap
            and Certified.by(entry) in covered.sessions
            and self._after(entry) <= covered.counts
        )

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
            fits = partial(_keeps, cap, others, sessions, entry.kind)
            if fits(least):
                whole = Counter({**others, entry.kind: _largest(fits, least, most)})
                return Covered(cap=cap, counts=whole, sessions=sessions)
        if unit_of(counts) == PATIENT and unknown_to_patients(counts):
            raise BudgetError(
                "expected studies of records to state data.most_per_patient on a data set where "
                "another's unit is the patient, found one that does not: what it tells of a "
                "patient is not known; state it, or count the studies on different data sets"
            )
        after = spent(counts, sessions, cap.delta, cap.relation)
        raise BudgetError(
            f"expected at most epsilon {cap.epsilon:g} at delta {cap.delta:g} on this data set, "
            f"the next step would make it {after:.4g}; raise the cap with `hubbub budget set`, "
            "or stop"
        )

    def _after(self, entry: Entry) -> Counter[LedgerMechanism]:
        return self._kinds + Counter([entry.kind])


def _largest(fits: Callable[[int], bool], least: int, most: int) -> int:
    """The largest number up to `most` that fits; `least` is known to."""
    if fits(most):
        return most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least


def _keeps(
    cap: Cap,
    others: Mapping[LedgerMechanism, int],
    sessions: Set[Certified],
    kind: LedgerMechanism,
    count: int,
) -> bool:
    """Whether so many entries of a kind, beside the others, keep a cap."""
    counts = {**others, kind: count}
    return spent(counts, sessions, cap.delta, cap.relation) <= cap.epsilon


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
        unit = unit_of(kind for kind, _ in counts)
        whole = [one for kind, count in counts for one in cost_of(kind, count, relation, unit)]
        bound = Composition(whole).epsilon(delta, most=MOST_EPSILON)
    except StudyError:
        return float("inf"), float("inf")
    return bound.lower, bound.upper


def rounded_up(count: int) -> int:
    """The next number on a geometric grid."""
    level = 1
    while level < count:
        level = max(level + 1, int(level * _GROWTH))
    return level
