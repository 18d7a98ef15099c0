"""A session at one party, what was offered, who answers, whether it is over."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property

from hubbub.core.kept_pages import kept_pages
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.query import Parameters
from hubbub.core.session.party import Membership, Party
from hubbub.core.session.session_offer import SessionOffer
from hubbub.core.session.silo_party import SiloParty
from hubbub.core.study.study import Study
from hubbub.site.network.size_limits import SizeLimits


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
        result: that it is asked at, where it is asked last; None until it was shown.
    """

    study: Study
    offer: SessionOffer
    plan: Plan = field(repr=False)
    membership: Membership
    party: Party = field(repr=False)
    closed: bool = False
    answered: bool = False
    result: Parameters | None = field(default=None, repr=False)
    _pages: ExitStack = field(default_factory=ExitStack, repr=False)

    def __post_init__(self) -> None:
        numbers = self.membership.round_parameters.parameters
        self._pages.enter_context(kept_pages(numbers))

    def end(self) -> None:
        """No round follows: noise is erased, and the memory of large vectors goes back."""
        if isinstance(self.party, SiloParty):
            self.party.forget()
        self._pages.close()

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
