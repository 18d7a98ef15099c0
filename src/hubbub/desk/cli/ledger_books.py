"""What a ledger has spent and what its cap allows, in numbers and in the words of commands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hubbub.core.ledger.entry import Cap
from hubbub.core.ledger.privacy_filter import PrivacyFilter
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.row_cost import attempts_of
from hubbub.core.ledger.tally import Tally
from hubbub.core.planning.plan_values import Plan
from hubbub.core.study.privacy import Privacy
from hubbub.desk.cli.output import finite, number


@dataclass(frozen=True, kw_only=True)
class LedgerBooks:
    """What a ledger has spent, and what it allows."""

    tally: Tally
    cap: Cap | None
    filter: PrivacyFilter | None

    @classmethod
    def of(cls, ledger: Ledger) -> LedgerBooks:
        """What stands in a ledger."""
        return cls(tally=ledger.tally, cap=ledger.cap, filter=ledger.filter)

    @cached_property  # it takes a second for a dozen studies
    def least_cap(self) -> float | None:
        """The least adaptive cap that would have let all studies in; None without such a cap."""
        return None if self.filter is None else finite(self.filter.epsilon(self.tally))

    @property
    def left(self) -> float | None:
        """By how much epsilon may still grow, counted as the cap counts it."""
        if self.cap is None:
            return None
        if self.filter is not None:
            return 0.0 if self.least_cap is None else max(0.0, self.cap.epsilon - self.least_cap)
        spent = self.tally.epsilon(delta=self.cap.delta, relation=self.cap.relation)
        return max(0.0, self.cap.epsilon - spent)

    def after(self, plan: Plan) -> float:
        """What the cap, or the plan's goal without one, counts once a plan's study is over.

        One that is over already would be run once more.
        """
        if self.filter is not None:
            whole = attempts_of(plan)
            rows = self.filter.wanted(plan.study.id, whole) or tuple(sorted(whole.items()))
            return self.filter.epsilon(self.tally, rows)
        goal = self.cap or plan.study.privacy
        return self.tally.after(plan, anew=True).epsilon(delta=goal.delta, relation=goal.relation)

    @property
    def law_unused(self) -> dict[str, Any]:
        """Steps of the cap's reference law that nobody used, and the epsilon that they keep."""
        if self.filter is None or self.filter.cap.law is None:
            return {}
        kept = finite(self.filter.kept_back(self.tally))
        return {"law_unused": self.filter.unused, "law_kept_back": kept}

    @property
    def words(self) -> list[str]:
        """The cap, the promise that it is, and what is left of it."""
        if self.cap is None:
            return ["no cap is set: any number of studies may be run"]
        cap, left = self.cap, self.left
        rest = f"{left:.4g} left" if left else "nothing left"
        words = f"cap: epsilon {cap.epsilon:g} at delta {cap.delta:g} ({cap.relation}), {rest}"
        if self.filter is None:
            words += " by the rule for fixed studies (P15)"
            return [f"{words}; promised if all studies were fixed before the first"]
        words += " by the rule for adaptive studies (P24)"
        promise = f"{words}; promised however later studies are chosen"
        if self.least_cap == 0:
            return [promise]
        kept = [] if self.filter.cap.law is None else [self._law_words(self.filter)]
        needed = f"epsilon {number(self.least_cap)} at delta {cap.delta:g} ({cap.relation})"
        return [f"counted by the cap: {needed}, however each study was chosen", *kept, promise]

    def _law_words(self, filter_: PrivacyFilter) -> str:
        """What of the reference law is not used, and what that keeps back."""
        law, back = filter_.cap.law, filter_.kept_back(self.tally)
        assert law is not None, "there are words of a law that is stated"  # noqa: S101
        return (
            f"reference law: noise {law.noise_multiplier:g}, rate {law.sample_rate:g}; "
            f"{filter_.unused} of its {law.steps} steps are not used, which keeps back epsilon "
            f"{back:.4g}"
        )


@dataclass(frozen=True, kw_only=True)
class PlannedSpending:
    """What a data set has spent, and will have once a plan's study is over.

    Args:
        spent: epsilon of all studies before it, at the study's own delta and relation; None past
            all bounds.
        after: the same with the study.
        words: what its cap says of that.
    """

    spent: float | None
    after: float | None
    words: str


def spending(path: Path, plan: Plan) -> PlannedSpending:
    """What a ledger holds, beside what a plan will charge."""
    with Ledger(path) as ledger:
        books = LedgerBooks.of(ledger)
    goal = plan.study.privacy
    whole = (books.tally, books.tally.after(plan, anew=True))
    spent, later = (one.epsilon(delta=goal.delta, relation=goal.relation) for one in whole)
    cap = books.cap
    if cap is None:
        words = "no cap"
    elif (counted := books.after(plan)) > cap.epsilon:
        words = f"epsilon {counted:.4g} of {cap.epsilon:g}: will be refused"
    else:
        words = f"epsilon {counted:.4g} of {cap.epsilon:g} ({cap.studies} studies)"
    return PlannedSpending(spent=finite(spent), after=finite(later), words=words)


def standing(path: Path, privacy: Privacy) -> list[str]:
    """What a ledger allows: its cap and what is left of it, or the one that a study gives it.

    Args:
        path: of the ledger, which may not be there yet.
        privacy: of the study.
    """
    if not path.is_file():
        return [f"no ledger in {path} yet: nothing is spent", _proposed(privacy)]
    with Ledger(path) as ledger:
        books = LedgerBooks.of(ledger)
    words = [f"{path}: {books.words[-1]}"]
    if books.cap is None:
        return [*words, _proposed(privacy)]
    if 0 < privacy.cap < books.cap.epsilon:
        words.append(
            f"the study proposes a cap of epsilon {privacy.cap:g} for all studies together; the "
            "ledger's own counts: lower it with hubbub budget set if you agree"
        )
    return words


def _proposed(privacy: Privacy) -> str:
    """What becomes of a ledger without a cap."""
    if not privacy.cap:
        return "no cap will be set, by the study neither: hubbub budget set --new sets one"
    return (
        f"the study's first charge sets its cap: epsilon {privacy.cap:g} at delta "
        f"{privacy.delta:g} ({privacy.relation}) for all studies of these records together, "
        "however later ones are chosen (P24); hubbub budget set sets another before or after"
    )


def after(path: Path, plan: Plan) -> str:
    """What the records will have spent in all studies, once that of a plan is over."""
    with Ledger(path) as ledger:
        books = LedgerBooks.of(ledger)
    goal = books.cap or plan.study.privacy
    epsilon = books.after(plan)
    by = "spent in all" if books.filter is None else "counted by the cap"
    words = f"{by} with it: epsilon {epsilon:.4g} at delta {goal.delta:g}"
    if books.cap is None or epsilon <= books.cap.epsilon:
        return f"{words} ({goal.relation})"
    refused = "its last steps" if books.filter is None else "it"
    return f"{words} ({goal.relation}), above the cap: the ledger will refuse {refused}"
