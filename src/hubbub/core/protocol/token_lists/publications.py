"""What of a list in the making everybody can check: lengths, keys, order, commitments, likeness.

The silos and whoever carries their messages hold the same frames against the same rules, and name
the same blamed party. What one silo alone can see is the business of `mixer.py`. This file knows no
secrets and no order of events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES
from hubbub.core.protocol.token_lists import onion_layers, token_list
from hubbub.core.protocol.token_lists.list_context import (
    ListContext,
    Payload,
    Post,
    parted,
    statement_bytes,
)

Posts = Mapping[int, Post]
Sizes = dict[int, int]  # bytes of a payload, by who sends it


class Publications:
    """The rules for what is published about one list.

    Args:
        list_context: which list.
        counts: records of each silo, by roster index, in its order; public.
    """

    def __init__(self, list_context: ListContext, counts: Mapping[int, int]) -> None:
        self._list_context, self._counts = list_context, counts

    @property
    def _roster(self) -> Roster:
        return self._list_context.roster

    # Lengths, known beforehand -----------------------------------------------------------------

    @property
    def key_bytes(self) -> Sizes:
        """Of every MIX_KEY."""
        return dict.fromkeys(self._counts, onion_layers.KEY_BYTES)

    @property
    def commit_bytes(self) -> Sizes:
        """Of every MIX_COMMIT, which repeats the keys."""
        return dict.fromkeys(self._counts, DIGEST_BYTES + self._repeated)

    def names_bytes(self, step: int) -> Sizes:
        """Of the MIX_NAMES of a step: of all silos at step 0, which repeat the commits."""
        if step:
            return {step: onion_layers.NAME_BYTES * sum(self._counts.values())}
        return {
            index: onion_layers.NAME_BYTES * count + self._repeated
            for index, count in self._counts.items()
        }

    def forms_bytes(self, step: int) -> Sizes:
        """Of the MIX_FORMS of a step."""
        each = onion_layers.form_bytes(len(self._counts) - step)
        if step:
            return {step: each * sum(self._counts.values())}
        return {index: each * count for index, count in self._counts.items()}

    def seen_bytes(self, step: int) -> Sizes:
        """Of every MIX_SEEN of a step, which repeats its MIX_NAMES."""
        return dict.fromkeys(self._counts, statement_bytes() if step else self._repeated)

    @property
    def _repeated(self) -> int:
        """The statements of one frame of each silo."""
        return statement_bytes() * len(self._counts)

    # Contents ----------------------------------------------------------------------------------

    def check_keys(self, keys: Posts) -> None:
        """Every key is one that can be sealed to."""
        for index, post in keys.items():
            if not onion_layers.is_public(bytes(post.payload)):
                raise self._cheat(index, "a key that can be sealed to, got another")

    def commitments(self, commits: Posts, keys: Posts) -> dict[int, bytes]:
        """What each silo has committed to, once all have seen the same keys.

        Raises:
            ProtocolError: naming who showed different keys to others.
        """
        hidden = {}
        for index, post in commits.items():
            own, repeats = parted(post.payload, len(keys))
            self._list_context.compare(keys, repeats, index)
            hidden[index] = bytes(own)
        return hidden

    def names(self, posts: Posts, commits: Posts) -> dict[int, Payload]:
        """The names that were published in a step, by who did.

        Which commits were seen is compared first: who commits twice can make others look alike.

        Args:
            posts: the MIX_NAMES.
            commits: the MIX_COMMITs at step 0, none later.

        Raises:
            ProtocolError: naming who signed two different commits, or published in another order
                than that of the names, or one name twice.
        """
        names = dict[int, Payload]()
        for index, post in posts.items():
            names[index], repeats = parted(post.payload, len(commits))
            self._list_context.compare(commits, repeats, index)
        for index, each in names.items():
            if not onion_layers.is_ascending(onion_layers.names_in(each)):
                raise self._cheat(
                    index,
                    "forms in the order of their names, none twice, got others: it did not "
                    "shuffle, or doubled a token",
                )
        return names

    def check_input(
        self, names: Mapping[int, Payload], hidden: Mapping[int, bytes], place: bytes, me: int = 0
    ) -> None:
        """List 0 is what was committed to, and no form is there of two silos.

        Args:
            names: by silo.
            hidden: what each has committed to.
            place: what the names of list 0 are bound to.
            me: the silo that looks, which knows that it copied nothing; 0 for somebody else.

        Raises:
            ProtocolError: naming who shows others than it committed to, or both of whom one copied.
        """
        for index, each in names.items():
            if token_list.commitment(place, index, each) != hidden[index]:
                raise self._cheat(index, "the tokens that it committed to, got others")
        owners = np.repeat(list(self._counts), list(self._counts.values()))
        if alike := token_list.doubled(onion_layers.names_in(b"".join(names.values())), owners):
            raise ProtocolError(
                "expected every form once, got one from two silos, which nobody could copy in time",
                culprit=token_list.joined(self._roster, alike.difference({me})),
            )

    def check_forms(
        self, forms: Posts, names: Mapping[int, Payload], step: int, places: Sequence[bytes]
    ) -> None:
        """The forms of a step are those that were named."""
        size = onion_layers.form_bytes(len(self._counts) - step)
        for index, post in forms.items():
            if onion_layers.named(places[step], post.payload, size) != bytes(names[index]):
                raise self._cheat(index, "the forms that it named, got others")

    def _cheat(self, index: int, what: str) -> ProtocolError:
        return ProtocolError(f"expected {what}", culprit=self._roster.name(index))
