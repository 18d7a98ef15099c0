"""The aggregator's part in shuffled token lists: it asks for the phases of `Mixer` in their order.

It carries what silos say to each other, and holds no key. What everybody can see it checks itself
(`token_lists/publications.py`), before it passes it on, and so names a cheat by what that one has
signed, on nobody's word. What one silo alone can see comes as a complaint: the list is opened,
everybody tells from the signed frames who lied, and the run stops by name (docs/sampling.md). Who
is silent costs the session, as in set-up; a list is never taken up again. When a list is due each
silo decides for itself, by the same rule (`silo_token_lists.py`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.wire import Tag, sender_of, tag_of, unverified
from hubbub.core.protocol.token_lists.list_context import ListContext, Payload
from hubbub.core.protocol.token_lists.publications import Posts, Publications, Sizes
from hubbub.core.protocol.token_lists.token_list import list_places
from hubbub.core.protocol.token_lists.verdict import PublishedFrames
from hubbub.core.session.ask import AbsentError, Call, Peers
from hubbub.core.session.silo_token_lists import OpenedList

# By then everybody else has shown its key, or has the list in force and never shows it.
_TOO_LATE = (Call.GIVE_UP, Call.TAKE)


@dataclass(kw_only=True)
class TokenLists:
    """Has the silos of a session make their shuffled token lists, each when it is due.

    Args:
        peers: everybody else.
        study, session: what every frame is bound to.
        counts: records of each silo, in the order of the roster; public.
        attempts_per_list: attempts that a list serves.
        number: of the last list that was begun.
    """

    peers: Peers
    study: bytes
    session: bytes
    counts: Sequence[int]
    attempts_per_list: int
    number: int = 0
    _left: int = 0

    def prepare(self) -> None:
        """Before an attempt: see that there is a list for it.

        Raises:
            AbsentError: a silo did not do its part; the session is over.
            ProtocolError: naming a silo that cheated.
        """
        if not self._left:
            began, self.number = time.monotonic(), self.number + 1
            _Making(self, self.number).make()
            self._left, seconds = self.attempts_per_list, time.monotonic() - began
            self.peers.note("list", number=self.number, records=sum(self.counts), seconds=seconds)
        self._left -= 1


class _Making:
    """One list while it is made."""

    def __init__(self, lists: TokenLists, number: int) -> None:
        self._peers, self._session = lists.peers, lists.session
        self._roster = lists.peers.roster
        self._silos = self._roster.silos
        self._counts = dict(zip(self._silos, lists.counts, strict=True))
        self._whole = sum(lists.counts)
        self._list_context = ListContext(
            roster=self._roster, study=lists.study, session=lists.session, number=number
        )
        self._rules = Publications(self._list_context, self._counts)
        self._keys: list[bytes] = []
        self._names: list[list[bytes]] = []
        self._forms: dict[int, list[bytes]] = {}

    def make(self) -> None:
        """All phases, from the keys to the list that everybody has."""
        keys = self._all(Call.LIST, [], {Tag.MIX_KEY: self._rules.key_bytes})
        self._keys = _column(keys)
        key_posts = self._taken(keys, Tag.MIX_KEY)
        self._rules.check_keys(key_posts)
        commits = self._all(
            Call.WRAP,
            self._keys,
            {Tag.MIX_COMMIT: self._rules.commit_bytes},
            operations=max(self._counts.values()) * len(self._silos),
        )
        posts = self._taken(commits, Tag.MIX_COMMIT)
        hidden = self._rules.commitments(posts, key_posts)
        places = self._places(key_posts)
        published = self._all(Call.SHOW, _column(commits), self._published(0))
        posted = self._taken(published, Tag.MIX_NAMES)
        names = self._rules.names(posted, posts)
        self._rules.check_input(names, hidden, places[0])
        seen = self._looked(published, posted, names, 0, places, ())
        for turn in self._silos:
            asked = {turn: [*seen, *self._forms[turn - 1]]}
            published = self._ask(Call.MIX, asked, self._published(turn), turn, self._whole)
            posted = self._taken(published, Tag.MIX_NAMES, turn)
            names = self._rules.names(posted, {})
            seen = self._looked(published, posted, names, turn, places, seen)
        self._ask(Call.TAKE, dict.fromkeys(self._silos, seen), {})

    # What is asked -----------------------------------------------------------------------------

    def _looked(
        self,
        published: Mapping[int, list[bytes]],
        posted: Posts,
        names: Mapping[int, Payload],
        step: int,
        places: Sequence[bytes],
        before: Sequence[bytes],
    ) -> list[bytes]:
        """What was published in a step is shown to all; what all say that they saw."""
        self._names.append(_column(published))
        if step < self._silos[-1]:
            forms = self._taken(published, Tag.MIX_FORMS, step)
            self._rules.check_forms(forms, names, step, places)
            self._forms = {0: self._forms.get(0, []), step: _column(published, 1)}
        newest = self._names[-1]
        both = [*before, *newest]  # the mixer has closed the step before, with the forms
        asked = {index: newest if index == step else both for index in self._silos}
        sizes = {Tag.MIX_SEEN: self._rules.seen_bytes(step)}
        looks = self._ask(Call.LOOK, asked, sizes, step)
        for index, post in self._taken(looks, Tag.MIX_SEEN, step).items():
            self._list_context.compare(posted, post.payload, index)
        for received in looks.values():
            if len(received) > 1:
                self._settle(received[1])
        return _column(looks)

    def _all(
        self, call: Call, parts: Sequence[bytes], sizes: Mapping[Tag, Sizes], operations: int = 0
    ) -> dict[int, list[bytes]]:
        return self._ask(call, dict.fromkeys(self._silos, parts), sizes, operations=operations)

    def _ask(
        self,
        call: Call,
        requests: Mapping[int, Sequence[bytes]],
        sizes: Mapping[Tag, Sizes],
        step: int = 0,
        operations: int = 0,
    ) -> dict[int, list[bytes]]:
        """Everybody's frames, of the tags that they should have; a complaint is settled."""
        asked = sum(len(part) for parts in requests.values() for part in parts)
        answered = sum(size for each in sizes.values() for size in each.values())
        seconds = _seconds(operations, asked + answered)
        answers = self._peers.ask_all(call, requests, self._session, seconds)
        for index, received in answers.items():
            tags = [tag_of(one) for one in received]
            if tags == [Tag.MIX_COMPLAINT] and call not in _TOO_LATE:
                self._settle(received[0])
            complains = call is Call.LOOK and step and tags == [Tag.MIX_SEEN, Tag.MIX_COMPLAINT]
            if tags != list(sizes) and not complains:
                raise self._garbled(index, f"expected its part of {call.name}, got other frames")
            for data, (tag, size) in zip(received, sizes.items(), strict=False):
                self._checked(index, data, tag, step, size[index])
        return dict(sorted(answers.items()))

    # Frames as they come -----------------------------------------------------------------------

    def _checked(self, index: int, data: bytes, tag: Tag, step: int, size: int) -> None:
        """A frame that belongs here; a signed one that does not stops the run."""
        try:
            self._list_context.one_each([data], tag, step, {index: size})
        except ProtocolError as error:
            if error.culprit == self._roster.name(index):
                raise
            raise self._garbled(index, str(error), error.culprit) from None

    def _garbled(self, index: int, reason: str, culprit: str = "relay") -> AbsentError:
        """What a relay can have done counts as silence."""
        absent = self._peers.garbled(index, reason, culprit)
        return AbsentError({self._roster.name(index): absent})

    # A list that is opened ---------------------------------------------------------------------

    def _settle(self, complaint: bytes) -> None:
        """Everybody gives its key of this list up, and everybody tells who lied.

        Raises:
            ProtocolError: naming the blamed party.
            AbsentError: a silo keeps its key, or what looked like a complaint was none.
        """
        sender = sender_of(complaint)
        try:
            self._list_context.complaint(complaint)
        except ProtocolError as error:
            raise self._garbled(sender, str(error), error.culprit) from None
        if not self._names:
            raise ProtocolError(
                "expected a complaint about a list that was shown, got one before",
                culprit=self._roster.name(sender),
            )
        self._peers.warn("complaint", whom=self._roster.name(sender))
        keys = self._all(Call.GIVE_UP, [complaint], {Tag.MIX_OPENED: self._rules.key_bytes})
        evidence = PublishedFrames(
            list_context=self._list_context,
            counts=list(self._counts.values()),
            keys=self._keys,
            names=self._names,
            forms=self._forms,
        )
        opened = OpenedList(evidence=evidence, complaint=complaint, keys=_column(keys))
        judged = opened.verdict()
        self._have_judged(opened.frames())
        raise judged

    def _have_judged(self, frames: Sequence[bytes]) -> None:
        """Everybody tells who lied, for its own people; what was signed has said it already."""
        work, carried = len(self._silos) * self._whole, len(self._silos) * sum(map(len, frames))
        asked = dict.fromkeys(self._silos, frames)
        seconds = _seconds(work, carried)
        for _ in self._peers.ask(Call.JUDGE, asked, self._session, more_seconds=seconds):
            pass

    # Sizes and places --------------------------------------------------------------------------

    def _published(self, step: int) -> dict[Tag, Sizes]:
        """Bytes of what is published in a step; nobody has a use for the forms of the last."""
        names = {Tag.MIX_NAMES: self._rules.names_bytes(step)}
        if step == self._silos[-1]:
            return names
        return {**names, Tag.MIX_FORMS: self._rules.forms_bytes(step)}

    def _places(self, keys: Posts) -> list[bytes]:
        publics = [bytes(post.payload) for post in keys.values()]
        return list_places(self._list_context, list(self._counts.values()), publics)

    def _taken(self, found: Mapping[int, list[bytes]], tag: Tag, step: int = 0) -> Posts:
        """The frames of a tag, which were checked as they came."""
        frames = [one for received in found.values() for one in received if tag_of(one) == tag]
        sizes = {i: len(unverified(one).payload) for i, one in zip(found, frames, strict=True)}
        return self._list_context.one_each(frames, tag, step, sizes)


def _column(found: Mapping[int, Sequence[bytes]], place: int = 0) -> list[bytes]:
    """Everybody's frame at a place of its answer, in the order of the roster."""
    return [received[place] for received in found.values()]


def _seconds(operations: int, carried: int) -> float:
    """What long work takes on a slow core and a line of 8 Mbit/s.

    Args:
        operations: of HPKE; they take an eighth of what they are given here.
        carried: bytes of all requests and answers.
    """
    return operations * 5e-4 + carried * 1e-6
