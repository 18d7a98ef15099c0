"""Whom the aggregator asks to take part in a session, and when it waits for more of them.

A session needs N - D silos and all nodes. Once so many give a sign of life, the others have some
time of grace to come; who comes later is in the next session (docs/privacy.md P29). A silo that has
failed in a set-up whose ROLL had named it sits out the next few tries, twice as many each time, if
it can be spared, and so does one of two of whom one complains of the other: else one silo could
keep a session from ever being set up.
This file knows who was there, and not what a session is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from hubbub.core.session.ask import LEFT_OUT, Absent, AbsentError, Call
from hubbub.core.session.setup import SetUp
from hubbub.site.network.requests import Requests

Suspect = tuple[int, ...]  # a silo, or two of whom one has complained of the other
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
    _failures: Counter[Suspect] = field(default_factory=Counter)
    _sits_out: Counter[Suspect] = field(default_factory=Counter)  # tries that are left

    def failed(self, error: AbsentError, colluders: int) -> int:
        """A set-up came to nothing: who had been there before sits out the next ones.

        Args:
            error: who was missing, or complained of whom.
            colluders: more than so many parties cannot all be lying.

        Returns:
            How many have to sit out for it.
        """
        names = {self.requests.roster.name(index): index for index in self.requests.roster.silos}
        alone, pairs = _suspects(error, names, max(1, colluders))
        for suspect in sorted([*alone, *pairs]) if error.rolled else ():
            self._sits_out[suspect] = _FEW << min(self._failures[suspect], _MOST_DOUBLINGS)
            self._failures[suspect] += 1
        return len(_left_out([*alone, *pairs], set()))

    def away(self, made: SetUp) -> dict[int, Absent]:
        """Who is not asked to take part in the next try, and why, by roster index.

        Raises:
            AbsentError: too few are there, or others may still come.
        """
        away = self._silent(made)
        roster = self.requests.roster
        spare = len(roster.silos) - made.round_parameters.quorum - len(away)
        out = _left_out([one for one, _ in self._sits_out.most_common()], away.keys())
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


def _suspects(
    error: AbsentError, silos: Mapping[str, int], liars: int
) -> tuple[set[Suspect], set[Suspect]]:
    """Who may have spoilt a set-up, alone or one of two, where at most so many parties lie.

    Whoever gave no answer; of one that complains and one that it complains of either. But of whom
    more complain than can lie, it is itself.
    """
    told = {name: {*absence.culprit.split(" and ")} for name, absence in error.absent.items()}
    blamed = Counter(name for names in told.values() for name in names & silos.keys())
    sure = {name for name, count in blamed.items() if count > liars}
    alone, pairs = {(silos[name],) for name in sure}, set[Suspect]()
    for name in told.keys() & silos.keys() - sure:
        others = told[name] & silos.keys() - {name}
        if not others:
            alone.add((silos[name],))
        elif not others & sure:
            pairs |= {(silos[name], silos[other]) for other in others}
    return {*alone}, {*pairs}


def _left_out(suspects: Sequence[Suspect], away: Set[int]) -> list[int]:
    """Few silos with whom one of every pair is out, and who is suspected alone, in this order.

    Of each pair one lies. So whoever is in more of them goes first; and once one of each is out, a
    liar that is still in must find somebody new to complain of, which puts it into more.
    """
    out = [suspect[0] for suspect in suspects if len(suspect) == 1 and suspect[0] not in away]
    while left := [suspect for suspect in suspects if not {*suspect} & {*out, *away}]:
        out.append(Counter(index for suspect in left for index in suspect).most_common(1)[0][0])
    return out
