"""What a list hides: the order is uniform, and colluding silos cannot tell two owners apart.

Lists of three silos, each made once: 400 for the slow tests, of which 80 show a shuffle that is
left out. Signatures are left out, since nothing here rests on them. False alarms: 1e-6 for each
test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import binom, chi2

from hubbub.core.protocol.primitives.identity import Identity, Keys, Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.token_lists import onion_layers
from hubbub.core.protocol.token_lists.mixer import Mixer
from hubbub.core.protocol.token_lists.token_list import list_places
from sampling.silos import KEYS, list_context, payload_of, pieces

LISTS, FEW = 400, 80
FALSE_ALARM = 1e-6
# A record each; silos 1 and 2 are honest, silo 3 colludes.
COUNTS = (1, 1, 1)
ROSTER = Roster.of(KEYS[:4])
NAME = onion_layers.NAME_BYTES


@dataclass(frozen=True, kw_only=True)
class Made:
    """One list on its way, as who has all keys sees it.

    Args:
        order: where the tokens of silos 1, 2 and 3 stand in the end.
        forms: of each list, the first in the order of the silos.
        names: that go with them.
        own: names of silo 3's forms, which it knows without any key.
        privates: the mixers' keys.
        places: what names are bound to.
    """

    order: tuple[int, ...]
    forms: list[bytes]
    names: list[list[bytes]]
    own: list[bytes]
    privates: list[bytes]
    places: list[bytes]


def split(names: bytes) -> list[bytes]:
    return pieces(names, NAME)


@pytest.fixture(scope="module")
def unsigned() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keys, "sign", lambda self, content: bytes(64))
        patch.setattr(Identity, "verifies", lambda self, signature, content: True)
        yield


@pytest.fixture(scope="module")
def few(unsigned: None) -> list[Made]:
    return [made(number) for number in range(FEW)]


@pytest.fixture(scope="module")
def lists(few: list[Made]) -> list[Made]:
    return [*few, *(made(number) for number in range(FEW, LISTS))]


def made(number: int) -> Made:
    mixers = [
        Mixer(
            keys=KEYS[i],
            index=i,
            list_context=replace(list_context(number), roster=ROSTER),
            counts=COUNTS,
        )
        for i in ROSTER.silos
    ]
    keys = [one.key() for one in mixers]
    privates = [one._private for one in mixers]
    commits = [one.commit(keys) for one in mixers]
    published = [one.submit(commits) for one in mixers]
    names, forms = [], []

    def look() -> None:
        said = [one.names for one in published]
        seen = [one.look(said) for one in mixers]
        for one in mixers:
            one.agree(seen)
        names.append(split(b"".join(map(payload_of, said))))
        forms.append(b"".join(payload_of(one.forms) for one in published))

    look()
    for one in mixers:
        published = [one.mix([each.forms for each in published])]
        look()
    own, places = [one.tobytes() for one in mixers[2]._own], mixers[2]._places
    order = tuple(place for one in mixers for place in one.finish().positions.tolist())
    return Made(order=order, forms=forms, names=names, own=own, privates=privates, places=places)


# The shuffle -----------------------------------------------------------------------------------


def far_from_uniform(orders: list[tuple[int, ...]]) -> bool:
    """Chi-square over all orders of three tokens."""
    counts, expected = Counter(orders), len(orders) / 6
    table = [counts[one] for one in permutations(range(3))]
    assert sum(table) == len(orders)
    return sum((c - expected) ** 2 for c in table) / expected > chi2.isf(FALSE_ALARM, 5)


@pytest.mark.slow
def test_the_order_of_the_list_is_a_uniform_permutation(lists: list[Made]) -> None:
    assert not far_from_uniform([one.order for one in lists])


@pytest.mark.slow
def test_also_of_more_lists(lists: list[Made]) -> None:
    more = [*lists, *(made(LISTS + number) for number in range(2600))]
    assert not far_from_uniform([one.order for one in more])


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_order_that_each_mixer_makes_is_a_uniform_permutation(
    lists: list[Made], step: int
) -> None:
    assert not far_from_uniform([tuple(followed(one, step, [0, 1, 2])) for one in lists])


def test_the_chi_square_test_notices_biased_shuffles() -> None:
    source = np.random.default_rng(1)

    def naive() -> tuple[int, ...]:
        """Every place is exchanged with any, which is the classical mistake."""
        order = [0, 1, 2]
        for place in range(3):
            other = int(source.integers(3))
            order[place], order[other] = order[other], order[place]
        return tuple(order)

    def lazy() -> tuple[int, ...]:
        """One shuffle in four is left out."""
        return tuple(source.permutation(3).tolist()) if source.random() > 1 / 4 else (0, 1, 2)

    for biased, most in ((lazy, LISTS), (naive, 3000)):
        assert far_from_uniform([biased() for _ in range(most)])


# Telling two owners apart --------------------------------------------------------------------


def followed(one: Made, step: int, places: list[int]) -> list[int]:
    """Where forms of the list before a step stand after it, for who has the mixer's key."""
    size = onion_layers.form_bytes(4 - step)
    forms = b"".join(one.forms[step - 1][size * p : size * (p + 1)] for p in places)
    private, place = one.privates[step - 1], one.places[step]
    done = onion_layers.peeled(private, place, forms, size, onion_layers.in_this_thread)
    return [one.names[step].index(name) for name in split(done.names)]


def guess(one: Made, *, blind: set[int], read: Callable[[Made, int, list[int]], list[int]]) -> bool:
    """Whether a coalition with all keys but those of the blind steps finds silo 1's token.

    It follows the two honest tokens through every step to which it has the key. In the others it
    sets its own token aside, and reads from the order or the bytes which of the two is which.
    """
    honest = [0, 1]
    for step in (1, 2, 3):
        if step not in blind:
            honest = followed(one, step, honest)
            continue
        left = [place for place in range(3) if one.names[step][place] != one.own[step]]
        honest = read(one, step, left if honest[0] < honest[1] else left[::-1])
    return honest[0] == one.order[0]


def in_order(one: Made, step: int, places: list[int]) -> list[int]:
    """What a mixer that did not shuffle would leave."""
    return places


def by_likeness(one: Made, step: int, places: list[int]) -> list[int]:
    """From the bytes: the one that shares more bits with what stood first before comes first."""
    size, before = onion_layers.form_bytes(3 - step), one.forms[step - 1][:16]
    parts = [one.forms[step][size * p : size * p + 16] for p in places]
    near = [sum((a ^ b).bit_count() for a, b in zip(before, part, strict=True)) for part in parts]
    return places if near[0] <= near[1] else places[::-1]


def no_better_than_chance(right: int, of: int) -> bool:
    return bool(binom.ppf(FALSE_ALARM / 2, of, 0.5) <= right <= binom.isf(FALSE_ALARM / 2, of, 0.5))


@pytest.mark.slow
@pytest.mark.parametrize("read", [in_order, by_likeness])
@pytest.mark.parametrize("blind", [{1, 2}, {1}, {2}], ids=["both mix", "only 1", "only 2"])
def test_all_silos_but_two_cannot_tell_the_two_apart(
    lists: list[Made], blind: set[int], read: Callable[[Made, int, list[int]], list[int]]
) -> None:
    """Also with the key of one of the two: one honest mixer suffices."""
    right = sum(guess(one, blind=blind, read=read) for one in lists)
    assert no_better_than_chance(right, len(lists))


@pytest.mark.parametrize("blind", [{1, 2}, {1}, {2}], ids=["both mix", "only 1", "only 2"])
def test_no_mixer_leaves_two_tokens_in_their_order(few: list[Made], blind: set[int]) -> None:
    right = sum(guess(one, blind=blind, read=in_order) for one in few)
    assert no_better_than_chance(right, len(few))
    assert not no_better_than_chance(len(few), len(few))


def test_they_can_once_the_mixer_whose_key_they_lack_skips_its_shuffle() -> None:
    assert all(
        guess(without_shuffle({skips}, number), blind={skips}, read=in_order)
        for skips in (1, 2)
        for number in range(50)
    )


@pytest.mark.slow
def test_they_can_once_both_skip_their_shuffle_and_not_if_only_one_does() -> None:
    right = Counter[int]()
    for number in range(100):
        for skips in ({1, 2}, {1}, {2}):
            one = without_shuffle(skips, number)
            right[len(skips)] += guess(one, blind={1, 2}, read=in_order)
    assert right[2] == 100
    assert no_better_than_chance(right[1], 200)


def without_shuffle(skips: set[int], number: int) -> Made:
    """A list that nobody looks at, in which some mixers leave the forms as they came."""
    privates = [onion_layers.fresh_private() for _ in ROSTER.silos]
    place = replace(list_context(number), roster=ROSTER)
    places = list_places(place, COUNTS, [onion_layers.public_of(one) for one in privates])
    publics, here = [onion_layers.public_of(one) for one in privates], onion_layers.in_this_thread
    wrapped, known = onion_layers.wrapped(SecureSource().bytes(16 * 3), publics, places, here)
    forms, names = [wrapped.tobytes()], [split(known[0].tobytes())]
    order = [0, 1, 2]
    for step, private in enumerate(privates, 1):
        size = onion_layers.form_bytes(4 - step)
        done = onion_layers.peeled(private, places[step], forms[-1], size, here)
        named = split(done.names)
        shown = range(3) if step in skips else sorted(range(3), key=named.__getitem__)
        inner = pieces(done.forms, size - onion_layers.LAYER_BYTES)
        forms.append(b"".join(inner[place] for place in shown))
        names.append([named[place] for place in shown])
        order = [list(shown).index(place) for place in order]
    return Made(
        order=tuple(order),
        forms=forms,
        names=names,
        own=[split(each.tobytes())[2] for each in known],
        privates=privates,
        places=places,
    )
