"""The aggregator's part in shuffled token lists: it asks for the phases of `Mixer` in their order.

It carries what silos say to each other, and holds no key. What everybody can see it checks itself
(`token_lists/verdict.py`), before it passes it on, and so names a cheat by what that one has
signed, on nobody's word. What one silo alone can see comes as a complaint: the list is opened,
everybody tells from the signed frames who lied, and the run stops by name (docs/sampling.md). Who
is silent costs the session, as in set-up; a list is never taken up again. When a list is due each
silo decides for itself, by the same rule.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.message_sizes import SIGNATURE_BYTES
from hubbub.core.protocol.primitives.wire import Channel, Tag, sender_of, tag_of, unverified
from hubbub.core.protocol.round.batches import Rows
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.token_lists.joint_batch import TokenBatches, places_of
from hubbub.core.protocol.token_lists.mixer import Mixer
from hubbub.core.protocol.token_lists.onion_layers import Executor
from hubbub.core.protocol.token_lists.process_pool import SharedPool, process_pool
from hubbub.core.protocol.token_lists.token_list import ListContext, Owned, Payload, list_places
from hubbub.core.protocol.token_lists.verdict import (
    Posts,
    Publications,
    PublishedFrames,
    Sizes,
    verdict,
)
from hubbub.core.session.ask import AbsentError, Call, Peers

# A silo's shuffled token lists in one session: which one is due, how it is made, whom it serves.
#
# Theory of operation. A list is due when the session has none yet, or when the last one has served
# its attempts. The silo counts them and numbers its lists itself, so nobody can have one made
# twice, or another in the place of one that still serves. Each is the work of a `Mixer`, whose
# phases come as calls. From the MODEL of its first attempt on, its places decide which records are
# in. Rounds must follow each other without a gap: only so is a record used once in an epoch
# (docs/privacy.md P9). A list that failed is the session's last.
#
# What only this silo can see is answered with a complaint, and settled by opening the list. Any
# other fault is refused in the name of whoever it shows; an honest aggregator has seen it before.
# This file knows no ledger, and of the records their number.

# Who works on so many HPKE operations.
Pool = Callable[[int], AbstractContextManager[Executor]]


@dataclass(frozen=True, kw_only=True)
class OpenedList:
    """All from which anybody can tell who lied about a list.

    Args:
        evidence: what was published.
        complaint: the MIX_COMPLAINT frame.
        keys: the MIX_OPENED frames of all silos.
    """

    evidence: PublishedFrames
    complaint: bytes
    keys: Sequence[bytes] = field(repr=False)

    def frames(self) -> list[bytes]:
        """All of it, for others."""
        names = [frame for step in self.evidence.names for frame in step]
        forms = [frame for step in self.evidence.forms.values() for frame in step]
        return [*self.evidence.keys, *names, *forms, self.complaint, *self.keys]

    @classmethod
    def read(
        cls, list_context: ListContext, counts: Sequence[int], frames: Sequence[bytes]
    ) -> OpenedList:
        """What `frames` gave, by what the frames say of themselves.

        Raises:
            ProtocolError: some are missing.
        """
        frames_of: dict[Tag, dict[int, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        for data in frames:
            frame = unverified(data)
            frames_of[frame.tag][frame.attempt].append(data)
        complaints = [one for each in frames_of[Tag.MIX_COMPLAINT].values() for one in each]
        needed = (Tag.MIX_KEY, Tag.MIX_NAMES, Tag.MIX_FORMS, Tag.MIX_OPENED)
        if len(complaints) != 1 or any(len(frames_of[tag][0]) != len(counts) for tag in needed):
            raise ProtocolError("expected all that was published of a list, got some of it")
        evidence = PublishedFrames(
            list_context=list_context,
            counts=counts,
            keys=frames_of[Tag.MIX_KEY][0],
            names=[names for _, names in sorted(frames_of[Tag.MIX_NAMES].items())],
            forms=dict(frames_of[Tag.MIX_FORMS]),
        )
        return cls(evidence=evidence, complaint=complaints[0], keys=frames_of[Tag.MIX_OPENED][0])

    def verdict(self) -> ProtocolError:
        """Who lied: everything is done again with everybody's key.

        Raises:
            ProtocolError: naming who keeps its key, or published nothing that can be read.
        """
        counts = self.evidence.counts
        with process_pool(len(counts) * sum(counts)) as executor:
            judged = verdict(self.evidence, self.complaint, self.keys, executor)
        return ProtocolError(
            f"expected a list that everybody made as agreed, got one where {judged.reason}",
            culprit=judged.culprit,
        )


@dataclass(kw_only=True)
class SiloTokenLists:
    """The shuffled token lists of one session at one silo.

    Args:
        keys, index: the silo's own, and its place in the roster.
        list_context: of the last list that was begun; its number is 0 before the first.
        counts: records of each silo; public.
        attempts_per_list: attempts that a list serves.
        epoch: attempts that one row in the ledger pays for (P9).
        batches: what the silo draws from its lists.
        pool: who does the work on the layers, for so many HPKE operations.
    """

    keys: Keys = field(repr=False)
    index: int
    list_context: ListContext = field(repr=False)
    counts: Sequence[int]
    attempts_per_list: int
    epoch: int
    batches: TokenBatches = field(repr=False)
    pool: Pool = process_pool
    _mixer: Mixer | None = field(default=None, repr=False)
    _seen: list[bytes] = field(default_factory=list, repr=False)
    _newest: Owned | None = field(default=None, repr=False)
    _is_fresh: bool = False
    _judged: bool = False
    _left: int = 0
    _used: int = 0
    _next: int = 0

    def answer(self, call: Call, parts: Sequence[bytes]) -> list[bytes]:
        """What this silo says in a phase of the making of a list.

        Raises:
            ProtocolError: no list is due, or it is not the time of this phase; or naming who broke
                the protocol.
        """
        try:
            return self._phases[call](parts)
        except ProtocolError as error:
            if error.culprit:
                raise
            raise ProtocolError(str(error), culprit="relay") from None  # nobody signed the request

    @property
    def _phases(self) -> Mapping[Call, Callable[[Sequence[bytes]], list[bytes]]]:
        return {
            Call.LIST: self._begin,
            Call.WRAP: self._wrap,
            Call.SHOW: self._show,
            Call.LOOK: self._look,
            Call.MIX: self._mix,
            Call.TAKE: self._take,
            Call.GIVE_UP: self._give_up,
            Call.JUDGE: self._judge,
        }

    # Attempts ----------------------------------------------------------------------------------

    def prepare(self, model: bytes, *, is_open: bool) -> None:
        """See that there is a list for a MODEL before it is accepted; a new one serves from it on.

        Args:
            is_open: whether an attempt is open.

        Raises:
            ProtocolError: there is none; an attempt is open, whose seed may have been known to who
                made a new one; or naming the aggregator, which left a round out.
        """
        frame = self.list_context.parse(model)
        if frame.tag is not Tag.MODEL or frame.sender != 0 or 0 < frame.round < self._next:
            return  # which the silo refuses for what it is
        if not self._left:
            raise ProtocolError(
                f"expected a shuffled token list before the MODEL of round {frame.round}, got "
                "none; make the list first",
                culprit="relay",
            )
        # P9 (e): at most one use of a record in an epoch rests on parts being taken in their order.
        if self._next and frame.round != self._next:
            raise ProtocolError(
                f"expected a MODEL of round {self._next}, the next part of the list, got one of "
                f"round {frame.round}: a record would be used too often",
                culprit=self.list_context.roster.name(0),
            )
        # P9: before the MODEL is accepted, whose seed might be known to those who made the list.
        if self._is_fresh:
            if is_open:
                raise ProtocolError(
                    "expected a new shuffled token list before a model is accepted, got it after; "
                    "make the list first"
                )
            self.batches.take_list(self.newest.positions, frame.round)

    @property
    def is_paid(self) -> bool:
        """Whether the row of an earlier attempt pays for the next one too (P9)."""
        return self._used % self.epoch != 0

    def use(self, round: int) -> None:
        """Count an attempt that was charged."""
        # P9 (e): of the list one part, of the row that pays for its epoch one attempt.
        self._left, self._used = self._left - 1, self._used + 1
        self._next, self._is_fresh = round + 1, False

    @property
    def newest(self) -> Owned:
        """The newest list that was finished, and this silo's places in it."""
        assert self._newest is not None, "a list was made"  # noqa: S101
        return self._newest

    # The making of a list ----------------------------------------------------------------------

    def _begin(self, parts: Sequence[bytes]) -> list[bytes]:
        """A list, if one is due: the key with which this silo takes part in it."""
        if parts:
            raise ProtocolError(f"expected nothing with LIST, got {len(parts)} parts")
        if self._left or self._mixer is not None:
            found = f"{self._left} attempts left" if self._left else "not finished"
            raise ProtocolError(
                "expected a new shuffled token list once the last has served, got a demand for it "
                f"while list {self.list_context.number} is in force ({found}); set up a new session"
            )
        self.list_context = replace(self.list_context, number=self.list_context.number + 1)
        self._seen, self._judged = [], False
        self._mixer = Mixer(
            keys=self.keys,
            index=self.index,
            list_context=self.list_context,
            counts=self.counts,
        )
        return [self._mixer.key()]

    def _wrap(self, parts: Sequence[bytes]) -> list[bytes]:
        mixer = self._making()
        with self.pool(self.counts[self.index - 1] * len(self.counts)) as executor:
            commit = mixer.commit(parts, executor)
        self._note(parts)
        return [commit]

    def _show(self, parts: Sequence[bytes]) -> list[bytes]:
        shown = self._making().submit(parts)
        return [shown.names, shown.forms]

    def _look(self, parts: Sequence[bytes]) -> list[bytes]:
        """The end of the step before, if it is still open here, and the names of this one."""
        mixer, (seen, names) = self._making(), _divided(parts)
        if seen:
            mixer.agree(seen)
        try:
            looks = [mixer.look(names)]
        except ProtocolError as error:
            step = unverified(names[0]).attempt if len(names) == 1 else 0
            if not step or error.culprit != self.list_context.roster.name(step):
                raise
            # A token of mine that is missing is seen by nobody else. So I complain, and repeat what
            # I was shown, lest somebody showed the others another list.
            statement = self.list_context.parse(names[0]).signed + names[0][-SIGNATURE_BYTES:]
            repeats = self.list_context.sealed(self.keys, self.index, Tag.MIX_SEEN, step, statement)
            looks = [repeats, mixer.complain()]
        self._note(names)
        return looks

    def _mix(self, parts: Sequence[bytes]) -> list[bytes]:
        """This silo's turn; whose fault a form is that does not open, all tell together."""
        mixer, (seen, forms) = self._making(), _divided(parts)
        mixer.agree(seen)
        try:
            with self.pool(sum(self.counts)) as executor:
                mixed = mixer.mix(forms, executor)
        except ProtocolError:
            if not mixer.disputed:
                raise
            return [mixer.complain()]
        # The forms of the last list are the tokens themselves: nobody has a use for them.
        return (
            [mixed.names]
            if self.index == self.list_context.roster.silos[-1]
            else [mixed.names, mixed.forms]
        )

    def _take(self, parts: Sequence[bytes]) -> list[bytes]:
        """All saw the last step alike: the list is finished, and serves from the next MODEL on."""
        mixer = self._making()
        mixer.agree(parts)
        self._newest, self._is_fresh = mixer.finish(), True
        self._mixer, self._left = None, self.attempts_per_list
        return []

    # A list that is opened ---------------------------------------------------------------------

    def _give_up(self, parts: Sequence[bytes]) -> list[bytes]:
        """Somebody complains: the key of this list, which is never used then."""
        if len(parts) != 1:
            raise ProtocolError(f"expected one MIX_COMPLAINT, got {len(parts)} frames")
        return [self._making().give_up(parts[0])]

    def _judge(self, parts: Sequence[bytes]) -> list[bytes]:
        """Who lied, from the frames that were signed; this silo's own finding is its refusal.

        Raises:
            ProtocolError: always: naming the blamed party; or the relay, if the frames are not
                those that this silo was shown.
        """
        self._making()
        opened = OpenedList.read(self.list_context, self.counts, parts)
        # From other frames than those that I was shown, an honest silo could be found guilty.
        if not {hashlib.sha256(part).digest() for part in parts}.issuperset(self._seen):
            raise ProtocolError("expected all that I was shown of this list, got other frames")
        # A finding takes as much work as the list did.
        if self._judged:
            raise ProtocolError("expected one JUDGE of a list, got a second; its answer stands")
        self._judged = True
        raise opened.verdict()

    def _making(self) -> Mixer:
        """The list that is being made."""
        if self._mixer is None:
            raise ProtocolError("expected a list that is being made, got a phase of none")
        return self._mixer

    def _note(self, frames: Sequence[bytes]) -> None:
        """Keep the hashes of what was shown here, which a verdict must rest on."""
        self._seen += [hashlib.sha256(frame).digest() for frame in frames]


def _divided(parts: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """What others repeat of the step before, and what is new."""
    seen = [part for part in parts if unverified(part).tag is Tag.MIX_SEEN]
    return seen, [part for part in parts if unverified(part).tag is not Tag.MIX_SEEN]


# By then everybody else has shown its key, or has the list in force and never shows it.
_TOO_LATE = (Call.GIVE_UP, Call.TAKE)


@dataclass(kw_only=True)
class TokenLists:
    """Has the silos of a session make their shuffled token lists, each when it is due.

    Args:
        channel: what every frame is bound to.
        counts: records of each silo, in the order of the roster; public.
        attempts_per_list: attempts that a list serves.
        number: of the last list that was begun.
    """

    peers: Peers
    channel: Channel
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
        self._peers, self._session = lists.peers, lists.channel.session
        self._roster = lists.peers.roster
        self._silos = self._roster.silos
        self._counts = dict(zip(self._silos, lists.counts, strict=True))
        self._whole = sum(lists.counts)
        self._list_context = ListContext(**vars(lists.channel), number=number)
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
        # Every silo commits to the names of its forms before any form is shown, so that none
        # can be copied (docs/sampling.md).
        commits = self._all(
            Call.WRAP,
            self._keys,
            {Tag.MIX_COMMIT: self._rules.commit_bytes},
            operations=max(self._counts.values()) * len(self._silos),
        )
        posts = self._taken(commits, Tag.MIX_COMMIT)
        hidden = self._rules.commitments(posts, key_posts)
        publics = [bytes(post.payload) for post in key_posts.values()]
        places = list_places(self._list_context, list(self._counts.values()), publics)
        published = self._all(Call.SHOW, _column(commits), self._published(0))
        posted = self._taken(published, Tag.MIX_NAMES)
        names = self._rules.names(posted, posts)
        self._rules.check_input(names, hidden, places[0])
        seen = self._looked(published, posted, names, 0, places, ())
        # P9: each takes its layer off and shuffles; one honest mixer is enough.
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


# What a session with joint batches is given: see `joint_batches.py`.


@dataclass(frozen=True, kw_only=True)
class TokenListBatches:
    """Joint batches that are drawn from shuffled token lists, the paper's Algorithm 2.

    Args:
        counts: records of each silo, in the order of the roster; public.
        attempts_per_list, epoch: as in `SiloTokenLists`.
        notice: where all silos are in this process, which share its cores: told how much of a list
            is made.
    """

    counts: Sequence[int]
    attempts_per_list: int
    epoch: int
    notice: Callable[[str], None] | None = None

    def at_silo(
        self, keys: Keys, index: int, channel: Channel, round_parameters: RoundParameters
    ) -> SiloTokenLists:
        """One silo's, none of which is made yet."""
        return SiloTokenLists(
            keys=keys,
            index=index,
            list_context=ListContext(**vars(channel), number=0),
            counts=self.counts,
            attempts_per_list=self.attempts_per_list,
            epoch=self.epoch,
            batches=TokenBatches(round_parameters),
            pool=self._pool,
        )

    def at_aggregator(self, peers: Peers, channel: Channel) -> TokenLists:
        """What has them made."""
        return TokenLists(
            peers=peers,
            channel=channel,
            counts=self.counts,
            attempts_per_list=self.attempts_per_list,
        )

    def places(self, round_parameters: RoundParameters, seed: bytes, step: int) -> Rows:
        """The places in the list that the public seed draws for a step, from 1."""
        return places_of(round_parameters, seed, step)

    def asked(self, roster: Roster) -> Sequence[int]:
        """Everything that is published about a list, which a JUDGE has."""
        rules, silos = self._rules(roster), len(self.counts)
        said = max(*self._largest(rules.seen_bytes), *rules.commit_bytes.values())
        shown = [
            size
            for sizes in (rules.names_bytes, rules.forms_bytes)
            for size in (*sizes(0).values(), *self._largest(sizes)[1:])
        ]
        return [*shown, *[said] * (9 * silos + 9)]

    def answered(self, roster: Roster) -> Mapping[Call, Sequence[int]]:
        """What the phases of a list have, with a complaint where there may be one."""
        rules = self._rules(roster)
        published = max(self._largest(rules.names_bytes)) + max(self._largest(rules.forms_bytes))
        said = 2 * max(self._largest(rules.seen_bytes))
        commit = max(rules.commit_bytes.values())
        sizes = {Call.LIST: 0, Call.WRAP: commit, Call.SHOW: published, Call.MIX: published}
        sizes |= {Call.LOOK: said, Call.TAKE: 0, Call.GIVE_UP: 0}
        return {call: [said + size] * 3 for call, size in sizes.items()}

    @cached_property
    def _pool(self) -> Pool:
        """Who does the work on the layers."""
        if (tell := self.notice) is None:
            return process_pool
        return SharedPool(self.counts, lambda done, whole: tell(f"{100 * done // whole} % mixed"))

    def _rules(self, roster: Roster) -> Publications:
        """What knows the lengths of all that is published."""
        context = ListContext(roster=roster, study=bytes(32), session=bytes(16), number=1)
        return Publications(context, dict(zip(roster.silos, self.counts, strict=True)))

    def _largest(self, sizes: Callable[[int], Sizes]) -> list[int]:
        """Of each step the largest payload that somebody publishes."""
        return [max(sizes(step).values()) for step in range(len(self.counts) + 1)]
