"""Who lied, once a list has been opened: everything is done again with everybody's key.

Opening costs nothing but the list: its tokens were random, no batch was drawn from it, and the keys
were made for it alone. What is found is public and anybody can repeat it. This file decides from
signed frames only; nobody's word counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES
from hubbub.core.protocol.primitives.wire import Frame, Tag
from hubbub.core.protocol.token_lists import onion_layers, token_list
from hubbub.core.protocol.token_lists.token_list import (
    ListContext,
    Payload,
    Post,
    parted,
    statement_bytes,
)

# What of a list in the making everybody can check: lengths, keys, order, commitments, likeness.
#
# The silos and whoever carries their messages hold the same frames against the same rules, and name
# the same blamed party. What one silo alone can see is the business of `mixer.py`.

Posts = Mapping[int, Post]
Sizes = dict[int, int]  # bytes of a payload, by who sends it


class Publications:
    """The rules for what is published about one list.

    Args:
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


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Who is to blame, by name, and for what."""

    culprit: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class PublishedFrames:
    """The frames that were published about one list, as all silos saw them.

    List 0 is one that `Mixer.look` took: what was committed to, and the same for everybody.

    Args:
        counts: records of each silo, in the order of the roster.
        keys: the MIX_KEY frames.
        names: the MIX_NAMES frames of each step so far: of all silos, then of one mixer each.
        forms: the MIX_FORMS frames that go with them, by step; 0 and the last are needed.
    """

    list_context: ListContext
    counts: Sequence[int]
    keys: Sequence[bytes]
    names: Sequence[Sequence[bytes]]
    forms: Mapping[int, Sequence[bytes]]

    @property
    def rules(self) -> Publications:
        """What everybody can check of it."""
        silos = self.list_context.roster.silos
        counts = dict(zip(silos, self.counts, strict=True))
        return Publications(self.list_context, counts)

    def payloads(
        self, frames: Sequence[bytes], tag: Tag, sizes: Mapping[int, int], step: int = 0
    ) -> dict[int, bytes]:
        """What frames of one kind hold, by sender."""
        posts = self.list_context.one_each(frames, tag, step, sizes)
        return {index: bytes(post.payload) for index, post in posts.items()}

    def blamed(self, reason: str, *silos: int) -> Verdict:
        """A verdict about some silos."""
        return Verdict(
            culprit=token_list.joined(self.list_context.roster, set(silos)), reason=reason
        )


@dataclass(frozen=True, kw_only=True)
class _List:
    """One list as it should be: forms in the order of their names, and whose each one is."""

    names: onion_layers.Names
    forms: bytes
    owners: NDArray[np.intp]


_MISNAMED = "its forms are not those that it named"


def verdict(
    evidence: PublishedFrames,
    complaint: bytes,
    opened: Sequence[bytes],
    executor: onion_layers.Executor = onion_layers.in_this_thread,
) -> Verdict:
    """Repeat the making of a list with everybody's key, up to the first thing that is wrong.

    Guarantees:
        1. A silo that kept to the protocol is never named.
        2. Somebody is named: whoever made a form that does not open or is there twice, a mixer
           whose list is not what its key makes of the one before, or who complained in vain.

    Args:
        opened: the MIX_OPENED frames of all silos.

    Raises:
        ProtocolError: naming who keeps its key or published nothing that can be read, or showed the
            complainer another list than there is here.
    """
    list_context = evidence.list_context
    silos, sizes = list_context.roster.silos, evidence.rules.key_bytes
    complained = list_context.complaint(complaint)
    _check_complaint(evidence, complained)
    publics = evidence.payloads(evidence.keys, Tag.MIX_KEY, sizes)
    privates = evidence.payloads(opened, Tag.MIX_OPENED, sizes)
    # Keys before layers: under a false key the forms of others would seem not to open.
    for index in silos:
        if onion_layers.public_of(privates[index]) != publics[index]:
            return evidence.blamed("the key that it shows is not its", index)
    places = token_list.list_places(list_context, evidence.counts, list(publics.values()))
    # Then as the list was made: the first layer that is not as it should be names its maker.
    layer_input = _input(evidence, places[0])
    for layer in silos[: len(evidence.names)]:
        if isinstance(layer_input, Verdict):
            break
        layer_input = _peeled(
            evidence, layer_input, layer, privates[layer], places[layer], executor
        )
    if isinstance(layer_input, Verdict):
        return layer_input
    return evidence.blamed("it complained about a list that is as it should be", complained.sender)


def _check_complaint(evidence: PublishedFrames, complaint: Frame) -> None:
    """See that the complaint is about a list that is here, and is the one that its sender saw."""
    step, list_context = complaint.attempt, evidence.list_context
    if step >= len(evidence.names):
        raise ProtocolError(
            f"expected list {step}, which the complaint is about, got lists before it alone",
            culprit="relay",
        )
    sizes = evidence.rules.names_bytes(step)
    posts = list_context.one_each(evidence.names[step], Tag.MIX_NAMES, step, sizes)
    list_context.compare(posts, complaint.payload, complaint.sender)


def _input(evidence: PublishedFrames, place: bytes) -> _List | Verdict:
    """List 0, or whose forms are not those that it named, or are there twice."""
    silos, rules = evidence.list_context.roster.silos, evidence.rules
    size = onion_layers.form_bytes(len(silos))
    shown = evidence.payloads(evidence.names[0], Tag.MIX_NAMES, rules.names_bytes(0))
    names = {index: parted(payload, len(silos))[0] for index, payload in shown.items()}
    forms = evidence.payloads(evidence.forms[0], Tag.MIX_FORMS, rules.forms_bytes(0))
    for index in silos:
        if onion_layers.named(place, forms[index], size) != names[index]:
            return evidence.blamed(_MISNAMED, index)
    owners = np.repeat(list(silos), list(evidence.counts))
    all_names = onion_layers.names_in(b"".join(names.values()))
    if alike := token_list.doubled(all_names, owners):
        return evidence.blamed("its form is there twice", *alike)
    return _List(names=all_names, forms=b"".join(forms.values()), owners=owners)


def _peeled(
    evidence: PublishedFrames,
    before: _List,
    layer: int,
    private: bytes,
    place: bytes,
    executor: onion_layers.Executor,
) -> _List | Verdict:
    """The list that a mixer's key makes of the one before, held against what it published."""
    size = onion_layers.form_bytes(len(evidence.counts) - layer + 1)
    peeled = onion_layers.peeled(private, place, before.forms, size, executor)
    if peeled.bad:
        # All lists before are what their keys make of one another, so its owner has put this layer
        # on.
        owner = int(before.owners[peeled.bad[0]])
        return evidence.blamed(f"its token does not open at layer {layer}", owner)
    names = onion_layers.names_in(peeled.names)
    if alike := token_list.doubled(names, before.owners):
        return evidence.blamed(f"its tokens are alike inside layer {layer}", *alike)
    order = np.argsort(names)
    forms = onion_layers.forms_in(peeled.forms, size - onion_layers.LAYER_BYTES)
    expected = _List(names=names[order], forms=forms[order].tobytes(), owners=before.owners[order])
    return _differs(evidence, expected, layer) or expected


def _differs(evidence: PublishedFrames, expected: _List, layer: int) -> Verdict | None:
    """The mixer's guilt, if it published anything but this list."""
    if layer >= len(evidence.names):
        return None
    sizes = evidence.rules.names_bytes(layer)
    names = evidence.payloads(evidence.names[layer], Tag.MIX_NAMES, sizes, layer)
    if names[layer] != expected.names.tobytes():
        return evidence.blamed("its list is not what its key makes of the one before", layer)
    if layer not in evidence.forms:
        return None
    sizes = evidence.rules.forms_bytes(layer)
    forms = evidence.payloads(evidence.forms[layer], Tag.MIX_FORMS, sizes, layer)
    return evidence.blamed(_MISNAMED, layer) if forms[layer] != expected.forms else None
