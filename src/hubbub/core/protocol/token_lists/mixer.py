"""One silo's side in making a shuffled token list: the paper's Algorithm 2 as a pure state machine.

Theory of operation. Every silo makes a fresh key for this list, and says which keys it saw when it
commits to its own wrapped tokens; only when all have committed, and saw the same keys, are the
wrapped tokens shown, and with them which commitments were seen before. So nobody's tokens can be
copied from, or depend on, another's: whoever commits twice, to have seen something in between, is
known by its two signatures before anything is made of a likeness. Then each silo
in the order of the roster peels its layer off all forms and publishes what is inside *in the order
of the names*. That order is the shuffle: names are hashes of bytes that were fresh and secret to
their owner until then, so it is a uniform permutation of the honest silos' tokens, and unlike an
order that the mixer draws, everybody sees whether it was kept. After each step every silo looks at
the names, all of them, so that it need not tell which are its own: right number, in order, none
twice, all of its own there. Then all repeat what they saw, signed, and compare.

What one silo alone can see is wrong is raised with the blamed party. A layer that does not open can
be the fault of whoever put it on; then the list is opened: all give up the keys of this list, which
is thrown away, and `verdict.py` finds who lied.

The phases are called in the order key, commit, submit, then (look, agree) for step 0 and each
mixer's step, `mix` in one's own turn, and finish. One that refuses is the last, but for `complain`
and `give_up`. This file does no I/O and reads no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.protocol.token_lists import onion_layers, token_list, verdict
from hubbub.core.protocol.token_lists.onion_layers import TOKEN_BYTES, Executor, Names
from hubbub.core.protocol.token_lists.token_list import ListContext, Payload, Post, repeated

MOST_RECORDS = 1 << 31


class Mixer:
    """One silo's side in the making of one list.

    Args:
        index: the silo's place in the roster.
        list_context: which list; a second try needs a new one.
        counts: how many records each silo has, in the order of the roster; public.
        source: where the tokens come from.
    """

    def __init__(
        self,
        *,
        keys: Keys,
        index: int,
        list_context: ListContext,
        counts: Sequence[int],
        source: SecureSource | None = None,
    ) -> None:
        whole, roster = sum(counts), list_context.roster
        if len(counts) != len(roster.silos) or min(counts) < 0 or not 0 < whole < MOST_RECORDS:
            raise StudyError(
                f"expected a number of records for each of {len(roster.silos)} silos, together "
                f"from 1 to {MOST_RECORDS - 1}, got {len(counts)} numbers, together {whole}"
            )
        self._keys, self._roster, self._index = keys, roster, index
        self._list_context = list_context
        self._counts = dict(zip(roster.silos, map(int, counts), strict=True))
        self._rules = verdict.Publications(self._list_context, self._counts)
        self._source = source or SecureSource()
        self._private = onion_layers.fresh_private()
        self._publics: dict[int, bytes] = {}
        self._key_posts: dict[int, Post] = {}
        self._places: list[bytes] = []
        self._own: list[Names] = []  # by list: the names of this silo's forms, by record
        self._forms = b""  # this silo's, in list 0, by record
        self._commits: dict[int, Post] = {}
        self._committed: dict[int, bytes] = {}  # what all hide behind their commits
        self._step = 0
        self._seen: dict[int, Post] = {}
        self._seen_step = 0  # in which these were published
        self._took_input = False  # whether list 0 was as it should be
        self._shown: dict[int, Payload] = {}  # the names in this step, by who published them
        self._names: Names = onion_layers.names_in(b"")
        self._next = "key"
        self._finished = False
        self.disputed = False

    def __repr__(self) -> str:
        return f"Mixer(<secret>, index={self._index}, next={self._next!r})"

    def key(self) -> bytes:
        """Phase 1: the MIX_KEY frame, this silo's key for this list only."""
        self._begin("key")
        self._next = "commit"
        return self._frame(Tag.MIX_KEY, onion_layers.public_of(self._private))

    def commit(
        self, keys: Sequence[bytes], executor: Executor = onion_layers.in_this_thread
    ) -> bytes:
        """Phase 2: wrap own tokens; the MIX_COMMIT frame, which also repeats the keys.

        Raises:
            ProtocolError: a key is missing, doubled, or one that nothing can be sealed to.
        """
        self._begin("commit")
        sizes = self._rules.key_bytes
        self._key_posts = self._list_context.one_each(keys, Tag.MIX_KEY, 0, sizes)
        self._rules.check_keys(self._key_posts)
        self._publics = {index: bytes(post.payload) for index, post in self._key_posts.items()}
        # Tokens that are wrapped for another key in my place would have no layer of mine.
        self._check_own(self._publics[self._index] == onion_layers.public_of(self._private))
        counts, publics = list(self._counts.values()), list(self._publics.values())
        self._places = token_list.list_places(self._list_context, counts, publics)
        # P9: fresh for each list, so that nothing links a record's places in two of them.
        tokens = self._source.bytes(TOKEN_BYTES * self._counts[self._index])
        forms, self._own = onion_layers.wrapped(tokens, publics, self._places, executor)
        self._forms = forms.tobytes()
        self._next = "submit"
        return self._frame(Tag.MIX_COMMIT, self._hidden() + repeated(self._key_posts))

    def submit(self, commits: Sequence[bytes]) -> token_list.Publication:
        """Phase 3, after all committed and saw the same keys: show the wrapped tokens.

        Raises:
            ProtocolError: a commitment is missing, or somebody showed different keys to others.
        """
        self._begin("submit")
        sizes = self._rules.commit_bytes
        self._commits = self._list_context.one_each(commits, Tag.MIX_COMMIT, 0, sizes)
        # All have committed before any wrapped token is shown, so none can be a copy of another's.
        self._committed = self._rules.commitments(self._commits, self._key_posts)
        self._check_own(self._committed[self._index] == self._hidden())
        self._next = "look"
        size = onion_layers.form_bytes(len(self._counts))
        return self._publication(self._own[0], self._forms, size, repeats=repeated(self._commits))

    def look(self, names: Sequence[bytes]) -> bytes:
        """Check what was published in this step; the MIX_SEEN frame, which repeats it.

        Args:
            names: the MIX_NAMES frames: of all silos at step 0, then of the mixer.

        Raises:
            ProtocolError: naming who dropped, added, replaced or doubled a token, published in
                another order than that of the names, showed other tokens than it committed to, or
                committed to several.
        """
        self._begin("look")
        sizes = self._rules.names_bytes(self._step)
        self._seen = self._list_context.one_each(names, Tag.MIX_NAMES, self._step, sizes)
        self._seen_step = self._step
        self._shown = self._rules.names(self._seen, {} if self._step else self._commits)
        self._names = onion_layers.names_in(b"".join(self._shown.values()))
        if self._step == 0:
            place = self._places[0]
            self._rules.check_input(self._shown, self._committed, place, self._index)
            self._took_input = True
        elif (onion_layers.ranks_of(self._own[self._step], self._names) < 0).any():
            raise ProtocolError(
                "expected all of my tokens in its list, missed one; it dropped or replaced it",
                culprit=self._roster.name(self._step),
            )
        self._next = "agree"
        return self._frame(Tag.MIX_SEEN, repeated(self._seen), self._step)

    def agree(self, seen: Sequence[bytes]) -> None:
        """Close the step, once all saw the same.

        Raises:
            ProtocolError: naming who showed different things to different silos.
        """
        self._begin("agree")
        sizes = self._rules.seen_bytes(self._step)
        posts = self._list_context.one_each(seen, Tag.MIX_SEEN, self._step, sizes)
        for index, post in posts.items():
            self._list_context.compare(self._seen, post.payload, index)
        if self._step == self._roster.silos[-1]:
            self._next = "finish"
            return
        self._step += 1
        self._next = "mix" if self._step == self._index else "look"

    def mix(
        self, forms: Sequence[bytes], executor: Executor = onion_layers.in_this_thread
    ) -> token_list.Publication:
        """In this silo's turn: peel its layer off all forms and publish them in their new order.

        Args:
            forms: the MIX_FORMS frames of the step before.

        Raises:
            ProtocolError: naming who published forms that are not those of its names; or nobody,
                with `disputed` set, if a form does not open or two are the same inside: complain.
        """
        self._begin("mix")
        outer = self._forms_of(forms)
        size = onion_layers.form_bytes(len(self._counts) - self._step + 1)
        done = onion_layers.peeled(self._private, self._places[self._step], outer, size, executor)
        names = onion_layers.names_in(done.names)
        # Whoever put a layer on may be to blame for one that does not open: nobody is named here.
        if done.bad or np.unique(names).size < names.size:
            self.disputed = True
            raise ProtocolError(
                f"expected forms that open to different ones at step {self._step}, got "
                f"{len(done.bad)} that do not open or some that are alike; open the list to learn "
                "who made them"
            )
        self._next = "look"
        return self._publication(names, done.forms, size - onion_layers.LAYER_BYTES, self._step)

    def finish(self) -> token_list.Owned:
        """The list, and where the tokens of this silo's records are; its secrets are forgotten."""
        self._begin("finish")
        tokens = token_list.TokenList(
            study=self._list_context.study,
            session=self._list_context.session,
            number=self._list_context.number,
            names=self._names.tobytes(),
        )
        owned = token_list.Owned(
            tokens=tokens, positions=onion_layers.ranks_of(self._own[-1], self._names)
        )
        # P9: who learns this key later could follow tokens through this silo's shuffle.
        self._private, self._own, self._finished = b"", [], True
        return owned

    def complain(self) -> bytes:
        """The MIX_COMPLAINT frame: a demand to open this list, which is thrown away then.

        It is answered with everybody's key, and whoever complains without a reason is named. It
        repeats what was published last, lest somebody showed the others another list.
        """
        self._refuse_after_end()
        self._next = "nothing"
        return self._frame(Tag.MIX_COMPLAINT, repeated(self._seen), self._seen_step)

    def give_up(self, complaint: bytes) -> bytes:
        """After a complaint: the MIX_OPENED frame with this silo's key; the list is never used.

        Raises:
            ProtocolError: it is no complaint about this list, or the list is finished, or was not
                begun: before list 0 is agreed upon, its forms could have been copied.
        """
        self._refuse_after_end()
        self._list_context.complaint(complaint)
        if not self._took_input:
            raise ProtocolError(
                "expected a complaint about a list whose input I have seen, got one before",
                culprit="relay",
            )
        self._next = "nothing"
        return self._frame(Tag.MIX_OPENED, self._private)

    def _hidden(self) -> bytes:
        """The commitment to the names of this silo's forms in list 0, in order."""
        names = np.sort(self._own[0]).tobytes()
        return token_list.commitment(self._places[0], self._index, names)

    def _check_own(self, mine: bool) -> None:
        if not mine:
            raise ProtocolError("expected my own message back, got another", culprit="relay")

    def _forms_of(self, frames: Sequence[bytes]) -> bytes:
        """The forms of the list before, as those who named them published them."""
        previous = self._step - 1
        sizes = self._rules.forms_bytes(previous)
        posts = self._list_context.one_each(frames, Tag.MIX_FORMS, previous, sizes)
        self._rules.check_forms(posts, self._shown, previous, self._places)
        return b"".join(post.payload for post in posts.values())

    def _publication(
        self, names: Names, forms: bytes, size: int, step: int = 0, repeats: bytes = b""
    ) -> token_list.Publication:
        """Names and forms in the order of the names, which is the shuffle, and what is repeated."""
        # P9: names hash bytes that were secret to their owners, so their order is a shuffle, and
        # unlike one that the mixer draws everybody sees whether it was kept.
        order = np.argsort(names)
        ordered = onion_layers.forms_in(forms, size)[order].tobytes()
        return token_list.Publication(
            names=self._frame(Tag.MIX_NAMES, names[order].tobytes() + repeats, step),
            forms=self._frame(Tag.MIX_FORMS, ordered, step),
        )

    def _frame(self, tag: Tag, payload: bytes, step: int = 0) -> bytes:
        return self._list_context.sealed(self._keys, self._index, tag, step, payload)

    def _begin(self, phase: str) -> None:
        if self._next != phase:
            raise ProtocolError(
                f"expected {self._next} next in the making of this list, got {phase}; call every "
                "phase once and in order, or make a new list"
            )
        # A phase that refuses is the last.
        self._next = "nothing"

    def _refuse_after_end(self) -> None:
        if self._finished:
            raise ProtocolError(
                "expected a list in the making, got one that is finished: its keys are never shown"
            )
