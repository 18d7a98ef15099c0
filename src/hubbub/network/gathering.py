"""Whom the aggregator asks to take part in a session, and when it waits for more of them.

A session needs N - D silos and all nodes. Once so many give a sign of life, the others have some
time of grace to come; who comes later is in the next session (docs/privacy.md P29). A silo that has
failed in a set-up whose ROLL had named it, or was blamed in it, sits out the next few tries, twice
as many each time, if it can be spared: else one silo could keep a session from ever being set up.
This file knows who was there, and not what a session is for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hubbub.network.requests import Requests
from hubbub.session import LEFT_OUT, Absent, AbsentError, Call, SetUp

_FEW = 3  # tries
_MOST_DOUBLINGS = 10


@dataclass(kw_only=True)
class Gathering:
    """Who came, and who failed.

    Args:
        requests: asks the parties.
    """

    requests: Requests
    _enough_since: float | None = None  # when so many were there as a session needs
    _failures: Counter[int] = field(default_factory=Counter)
    _sits_out: Counter[int] = field(default_factory=Counter)  # tries that are left, by silo

    def failed(self, error: AbsentError, colluders: int) -> set[str]:
        """A set-up came to nothing: who had been there before sits out the next ones.

        Args:
            error: who was missing, or complained of whom.
            colluders: more than so many parties cannot all be lying.

        Returns:
            Those who may have spoilt it.
        """
        names = {self.requests.roster.name(index): index for index in self.requests.roster.silos}
        suspects = _suspects(error, max(1, colluders)) & names.keys()
        for index in sorted(names[name] for name in suspects) if error.rolled else ():
            self._sits_out[index] = _FEW << min(self._failures[index], _MOST_DOUBLINGS)
            self._failures[index] += 1
        return suspects

    def away(self, made: SetUp) -> dict[int, Absent]:
        """Who is not asked to take part in the next try, and why, by roster index.

        Raises:
            AbsentError: too few are there, or others may still come.
        """
        away = self._silent(made)
        roster = self.requests.roster
        spare = len(roster.silos) - made.round_parameters.quorum - len(away)
        out = [one for one, _ in self._sits_out.most_common() if one not in away]
        for index in out[: max(spare, 0)]:
            away[index] = Absent(why=LEFT_OUT, said="it failed in a set-up, and sits this one out")
        self._sits_out -= Counter(dict.fromkeys(self._sits_out, 1))  # keeps what is above zero
        self._enough_since = None
        return away

    def _silent(self, made: SetUp) -> dict[int, Absent]:
        """Who gives no sign of life, though the others have waited for it."""
        roster, timeouts = self.requests.roster, self.requests.timeouts
        everybody = dict.fromkeys(range(1, len(roster.parties)), ())
        answers = self.requests.ask(Call.PING, everybody, made.session)
        silent = {index: one for index, one in answers if isinstance(one, Absent)}
        now = timeouts.clock.now()
        try:
            made.check_enough(silent)
        except AbsentError:
            self._enough_since = None
            raise
        if self._enough_since is None:
            self._enough_since = now
        if silent and now < self._enough_since + timeouts.grace:
            raise AbsentError({roster.name(index): one for index, one in silent.items()})
        return silent


def _suspects(error: AbsentError, liars: int) -> set[str]:
    """Who may have spoilt a set-up, where at most so many parties lie.

    Whoever gave no answer, and who complains beside whom it complains of: one of the two is to
    blame, or what carries to the one. But of whom more complain than can lie, it is itself.
    """
    blamed = Counter(
        name for absence in error.absent.values() for name in absence.culprit.split(" and ")
    )
    sure = {name for name, count in blamed.items() if count > liars and name != "relay"}
    told = {n for n, one in error.absent.items() if sure & {*one.culprit.split(" and ")}}
    return ({*error.absent} - told) | (blamed.keys() - {"", "relay"})
