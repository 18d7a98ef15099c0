"""A session at one party, what was offered, who answers, whether it is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from hubbub.network.size_limits import SizeLimits
from hubbub.planning import Plan
from hubbub.session import Membership, Party, SessionOffer
from hubbub.study import Study


@dataclass(kw_only=True)
class SessionState:
    """One session at one party, from its opening on.

    Args:
        study: which was approved here.
        offer: what the aggregator said of the session.
        plan: the party's own.
        membership: the party in this session.
        party: answers what is asked in it.
        closed: whether the study was closed; no round follows.
        answered: whether an attempt of it was.
    """

    study: Study
    offer: SessionOffer
    plan: Plan = field(repr=False)
    membership: Membership
    party: Party = field(repr=False)
    closed: bool = False
    answered: bool = False

    @property
    def session(self) -> bytes:
        """Its name."""
        return self.membership.session

    @cached_property
    def limits(self) -> SizeLimits:
        """How much may be asked in it."""
        counts, me = self.study.data.counts, self.membership
        return SizeLimits(
            roster=me.roster, round_parameters=me.round_parameters, counts=tuple(counts)
        )
