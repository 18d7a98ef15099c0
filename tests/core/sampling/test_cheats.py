"""Every cheat at the making of a list ends in a refusal that names who can be named.

Where `relay` is blamed, it is the network: whoever carried the bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.protocol.token_lists import onion_layers
from hubbub.core.protocol.token_lists.mixer import Mixer
from hubbub.core.protocol.token_lists.onion_layers import Done, Executor, Job, Wrap
from hubbub.core.protocol.token_lists.token_list import commitment, statement_bytes
from hubbub.core.protocol.token_lists.verdict import Verdict, verdict
from protocol.parties import fixed_keys, flipped, refused
from sampling.silos import (
    COUNTS,
    KEYS,
    ROSTER,
    Play,
    input_of,
    list_context,
    mixer,
    only,
    payload_of,
    pieces,
    signed,
)

CHEAT, NAME = 2, "silo-2"
NAMES, FORMS = Tag.MIX_NAMES, Tag.MIX_FORMS
SIZE = sum(COUNTS)


def relisted(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    """The cheat's own list of names, changed and signed again, in order unless it says so."""
    return lambda frame: signed(
        CHEAT, NAMES, CHEAT, b"".join(change(pieces(payload_of(frame), onion_layers.NAME_BYTES)))
    )


# What a mixer can do to the list -------------------------------------------------------------

LISTS = {
    "dropped": (lambda names: names[1:], "MIX_NAMES of 288 bytes, got 256"),
    "added": (lambda names: sorted([*names, os.urandom(32)]), "MIX_NAMES of 288 bytes, got 320"),
    "replaced": (
        lambda names: sorted([os.urandom(32) for _ in names]),
        "dropped or replaced",
    ),
    "doubled": (lambda names: [*names[:-1], names[-2]], "none twice"),
    "not shuffled": (lambda names: names[::-1], "did not shuffle"),
    "almost shuffled": (lambda names: [names[1], names[0], *names[2:]], "did not shuffle"),
}


@pytest.mark.quick_cases("not shuffled", "dropped", "almost shuffled")
@pytest.mark.parametrize(("change", "says"), LISTS.values(), ids=LISTS)
def test_a_mixer_whose_list_is_wrong_is_named_by_everybody(
    change: Callable[[list[bytes]], list[bytes]], says: str
) -> None:
    for victim in ROSTER.silos:
        with refused(NAME, says):
            Play(only("names", CHEAT, CHEAT, relisted(change), to=[victim])).make()


def test_the_owner_of_one_replaced_token_sees_it() -> None:
    play = Play()
    missed = []

    def without_one_of(owner: int) -> Callable[[bytes], bytes]:
        def change(frame: bytes) -> bytes:
            own = play.mixers[owner]._own[CHEAT].tobytes()[: onion_layers.NAME_BYTES]
            kept = [
                name for name in pieces(payload_of(frame), onion_layers.NAME_BYTES) if name != own
            ]
            missed.append(len(kept))
            return signed(CHEAT, NAMES, CHEAT, b"".join(sorted([*kept, os.urandom(32)])))

        return change

    play.network = only("names", CHEAT, CHEAT, without_one_of(3))
    with refused(NAME, "dropped or replaced"):
        play.make()
    assert missed[0] == SIZE - 1


@pytest.mark.parametrize("step", [0, CHEAT])
def test_forms_that_are_not_those_of_the_names_name_who_published_them(step: int) -> None:
    change = lambda frame: signed(CHEAT, FORMS, step, os.urandom(len(payload_of(frame))))  # noqa: E731
    with refused(NAME, "forms that it named"):
        Play(only("forms", step, CHEAT, change)).make()


@pytest.mark.parametrize("step", [0, CHEAT])
def test_forms_of_another_length_name_who_published_them(step: int) -> None:
    change = lambda frame: signed(CHEAT, FORMS, step, payload_of(frame)[:-1])  # noqa: E731
    with refused(NAME, "expected a MIX_FORMS of"):
        Play(only("forms", step, CHEAT, change)).make()


# Silence, doubles, corruption, replay -----------------------------------------------------------

PHASES = [
    ("key", 0, "MIX_KEY"),
    ("commit", 0, "MIX_COMMIT"),
    ("names", 0, "MIX_NAMES"),
    ("forms", 0, "MIX_FORMS"),
    ("seen", 0, "MIX_SEEN"),
    ("names", CHEAT, "MIX_NAMES"),
    ("forms", CHEAT, "MIX_FORMS"),
    ("seen", CHEAT, "MIX_SEEN"),
]
EVERY = pytest.mark.parametrize(("phase", "step", "tag"), PHASES)


@EVERY
def test_who_does_not_answer_is_named(phase: str, step: int, tag: str) -> None:
    with refused(NAME, f"expected a {tag}, got none"):
        Play(only(phase, step, CHEAT, lambda frame: None)).make()


@EVERY
def test_a_corrupted_message_names_the_relay(phase: str, step: int, tag: str) -> None:
    with refused("relay", "false signature"):
        Play(only(phase, step, CHEAT, lambda frame: flipped(frame, len(frame) - 70))).make()


@EVERY
def test_a_message_of_another_list_names_the_relay(phase: str, step: int, tag: str) -> None:
    def replayed(frame: bytes) -> bytes:
        return signed(CHEAT, Tag[tag], step, payload_of(frame), number=7)

    with refused("relay", rf"of step {step} of list 0, got a {tag} of 7\.{step} from"):
        Play(only(phase, step, CHEAT, replayed)).make()


@pytest.mark.parametrize(("phase", "tag"), [("names", "MIX_NAMES"), ("seen", "MIX_SEEN")])
def test_a_message_of_another_step_names_the_relay(phase: str, tag: str) -> None:
    def misplaced(frame: bytes) -> bytes:
        return signed(CHEAT, Tag[tag], CHEAT - 1, payload_of(frame))

    with refused("relay", rf"of step 2 of list 0, got a {tag} of 0\.1 from"):
        Play(only(phase, CHEAT, CHEAT, misplaced)).make()


def test_a_mixer_that_publishes_an_old_list_again_is_named() -> None:
    old = Play(number=1)
    old.make()
    again = signed(CHEAT, NAMES, CHEAT, payload_of(old.names[CHEAT][0]))
    with refused(NAME, "dropped or replaced"):
        Play(only("names", CHEAT, CHEAT, lambda frame: again)).make()


def test_two_messages_in_one_place_name_who_signed_both() -> None:
    silos = Play().mixers
    keys = [one.key() for one in silos.values()]
    other = signed(CHEAT, Tag.MIX_KEY, 0, onion_layers.public_of(os.urandom(32)))
    with refused(NAME, "got a second"):
        silos[1].commit([*keys, other])


def test_the_same_message_twice_names_the_relay() -> None:
    silos = Play().mixers
    keys = [one.key() for one in silos.values()]
    with refused("relay", "got a second"):
        silos[1].commit([*keys, keys[1]])


# Different things shown to different silos ---------------------------------------------------


def test_two_keys_shown_to_two_silos_name_the_mixer_before_any_token_is_shown() -> None:
    other = signed(CHEAT, Tag.MIX_KEY, 0, onion_layers.public_of(os.urandom(32)))
    shown = []

    def network(phase: str, step: int, sender: int, receiver: int, frame: bytes) -> bytes:
        shown.append(phase)
        return other if (phase, sender, receiver) == ("key", CHEAT, 3) else frame

    with refused(NAME, "two different things"):
        Play(network).make()
    assert "names" not in shown


def test_two_lists_shown_to_two_silos_name_the_mixer() -> None:
    play = Play()

    def change(frame: bytes) -> bytes:
        """A token of the mixer's own is another; the victim cannot see that on its own."""
        own = play.mixers[CHEAT]._own[CHEAT].tobytes()[: onion_layers.NAME_BYTES]
        kept = [name for name in pieces(payload_of(frame), onion_layers.NAME_BYTES) if name != own]
        return signed(CHEAT, NAMES, CHEAT, b"".join(sorted([*kept, os.urandom(32)])))

    play.network = only("names", CHEAT, CHEAT, change, to=[3])
    with refused(NAME, "two different things"):
        play.make()


def test_a_silo_that_repeats_what_nobody_signed_is_named() -> None:
    def lied(frame: bytes) -> bytes:
        told = bytearray(payload_of(frame))
        told[statement_bytes() - 70] ^= 1
        return signed(CHEAT, Tag.MIX_SEEN, 1, bytes(told))

    with refused(NAME, "what it did not sign"):
        Play(only("seen", 1, CHEAT, lied)).make()


@pytest.mark.parametrize(("number", "step"), [(1, 3), (0, 0)], ids=["list", "step"])
def test_a_silo_that_frames_a_mixer_with_what_it_signed_elsewhere_is_named(
    number: int, step: int
) -> None:
    """The statement is true and mixer 3's own, but of another list or another step."""
    earlier = Play(number=number)
    earlier.make()
    frame = earlier.names[step][-1 if step else 2]
    sizes = {3: len(payload_of(frame))}
    told = list_context(number).one_each([frame], NAMES, step, sizes)[3].statement
    with refused(NAME, "what it did not sign"):
        Play(only("seen", 3, CHEAT, lambda frame: signed(CHEAT, Tag.MIX_SEEN, 3, told))).make()


# Inputs that depend on another's -----------------------------------------------------------


def test_p9_a_silo_goes_on_with_its_own_key_and_its_own_tokens_alone() -> None:
    """Not with those that a copy of its folder has signed, whose layers it could not take off."""
    silos = {index: mixer(index) for index in ROSTER.silos}
    keys = {index: one.key() for index, one in silos.items()}
    own = "expected my own message back"
    silo, other = mixer(CHEAT), mixer(CHEAT)
    silo.key()
    with refused("relay", own):
        silo.commit([*(keys | {CHEAT: other.key()}).values()])
    commits = {index: one.commit([*keys.values()]) for index, one in silos.items()}
    told = bytes(32) + payload_of(commits[CHEAT])[32:]
    changed = commits | {CHEAT: signed(CHEAT, Tag.MIX_COMMIT, 0, told)}
    with refused("relay", own):
        silos[CHEAT].submit([*changed.values()])


def test_whoever_copies_a_wrapped_token_is_named_since_it_had_committed() -> None:
    seen = {}

    def network(phase: str, step: int, sender: int, receiver: int, frame: bytes) -> bytes:
        if (phase, step) == ("names", 0):
            seen[sender], told = input_of(frame)
            if sender == CHEAT:
                own = pieces(seen[CHEAT], onion_layers.NAME_BYTES)
                copied = sorted([own[0], pieces(seen[1], onion_layers.NAME_BYTES)[0]])
                return signed(CHEAT, NAMES, 0, b"".join(copied) + told)
        return frame

    with refused(NAME, "that it committed to, got others"):
        Play(network).make()


def test_whoever_commits_again_to_what_it_has_seen_is_named_and_the_copied_silo_is_not() -> None:
    """The cheat has silo 1 show its forms too early, and commits to one of them for the others."""
    play = Play()

    def copied() -> bytes:
        own, theirs = (pieces(play.mixers[i]._own[0].tobytes(), 32) for i in (CHEAT, 1))
        return b"".join(sorted([*own[1:], theirs[0]]))

    def network(phase: str, step: int, sender: int, receiver: int, frame: bytes) -> bytes:
        if (phase, sender) == ("commit", CHEAT) and receiver > CHEAT:
            again = commitment(play.mixers[CHEAT]._places[0], CHEAT, copied())
            return signed(CHEAT, Tag.MIX_COMMIT, 0, again + payload_of(frame)[32:])
        if phase == "names" and sender == CHEAT:
            return signed(CHEAT, NAMES, 0, copied() + input_of(play.published[3].names)[1])
        return frame

    play.network = network
    play.make_until_submitted()
    shown = {index: one.names for index, one in play.published.items()}
    for looking in (1, 3, 4):
        with refused(NAME, "two different things"):
            play.mixers[looking].look(play._to(looking, "names", shown))


def test_a_silo_that_repeats_a_commitment_that_nobody_made_is_named() -> None:
    def lied(frame: bytes) -> bytes:
        changed = bytearray(payload_of(frame))
        changed[-70] ^= 1
        return signed(CHEAT, NAMES, 0, bytes(changed))

    with refused(NAME, "what it did not sign"):
        Play(only("names", 0, CHEAT, lied)).make()


def test_a_copied_commitment_fits_nobody_else() -> None:
    commits, shown = {}, {}

    def network(phase: str, step: int, sender: int, receiver: int, frame: bytes) -> bytes:
        if (phase, step) == ("names", 0):
            shown[sender] = input_of(frame)
            if sender == CHEAT:  # it repeats its commitment as the others have it
                return signed(CHEAT, NAMES, 0, shown[CHEAT][0] + shown[1][1])
        if phase == "commit":
            commits[sender] = frame
            if sender == CHEAT and receiver != CHEAT:
                copied = payload_of(commits[1])[:32] + payload_of(frame)[32:]
                return signed(CHEAT, Tag.MIX_COMMIT, 0, copied)
        return frame

    with refused(NAME, "that it committed to, got others"):
        Play(network).make()


def test_two_silos_that_hand_in_one_form_are_both_named() -> None:
    shared: list[bytes] = []

    def first_form_shared(jobs: Iterable[Job]) -> Iterator[Done]:
        for job in jobs:
            assert isinstance(job, Wrap)
            done = job.done()
            form = onion_layers.form_bytes(4)
            shared.append(done.forms[:form])
            forms = shared[0] + done.forms[form:]
            rest = done.names[len(forms) // form * onion_layers.NAME_BYTES :]
            yield Done(forms=forms, names=onion_layers.named(job.places[0], forms, form) + rest)

    labours = dict.fromkeys((2, 3), first_form_shared)
    with refused("silo-2 and silo-3", "one from two silos"):
        Play(labours=labours).make()


def test_a_key_that_nothing_can_be_sealed_to_names_its_owner() -> None:
    with refused(NAME, "a key that can be sealed to"):
        Play(only("key", 0, CHEAT, lambda _: signed(CHEAT, Tag.MIX_KEY, 0, bytes(32)))).make()


# Layers that do not open -----------------------------------------------------------------------


def garbage_at(layer: int, *, twin: bool = False) -> Executor:
    """Wraps like everybody, but what mixer `layer` gets of the first token is no ciphertext.

    With `twin`, what comes out there of the first two tokens is the same.
    """

    def one(job: Wrap) -> Done:
        size = onion_layers.TOKEN_BYTES
        forms = [job.tokens[at : at + size] for at in range(0, len(job.tokens), size)]
        names = []
        for each in range(len(job.publics), 0, -1):
            names.append(onion_layers.named(job.places[each], b"".join(forms), len(forms[0])))
            key = onion_layers.X25519PublicKey.from_public_bytes(job.publics[each - 1])
            if twin and each == layer:
                forms[1] = forms[0]
            info = onion_layers._INFO + job.places[each]
            forms = [onion_layers._SUITE.encrypt(form, key, info=info) for form in forms]
            if not twin and each == layer:
                forms[0] = os.urandom(len(forms[0]))
        names.append(onion_layers.named(job.places[0], b"".join(forms), len(forms[0])))
        return Done(forms=b"".join(forms), names=b"".join(reversed(names)))

    return lambda jobs: (one(job) for job in jobs if isinstance(job, Wrap))


def judged(play: Play, complainer: int, opened: list[bytes] | None = None) -> Verdict:
    complaint, all_opened = play.opened(complainer)
    return verdict(play.evidence(), complaint, all_opened if opened is None else opened)


@pytest.mark.parametrize("layer", ROSTER.silos)
def test_a_silo_that_wraps_garbage_is_named_and_not_the_mixer_who_cannot_open_it(
    layer: int,
) -> None:
    play = Play(labours={CHEAT: garbage_at(layer)})
    with refused("", "do not open"):
        play.make()
    assert play.mixers[layer].disputed
    assert judged(play, layer) == Verdict(
        culprit=NAME, reason=f"its token does not open at layer {layer}"
    )


@pytest.mark.parametrize("layer", ROSTER.silos)
def test_a_silo_whose_tokens_collide_inside_a_layer_is_named(layer: int) -> None:
    play = Play(labours={CHEAT: garbage_at(layer, twin=True)})
    with refused("", "alike"):
        play.make()
    found = judged(play, layer)
    assert (found.culprit, found.reason) == (NAME, f"its tokens are alike inside layer {layer}")


def test_a_mixer_that_only_says_that_it_cannot_open_is_named() -> None:
    class InsteadOfPublishingError(Exception):
        pass

    def complains(frame: bytes) -> bytes:
        raise InsteadOfPublishingError

    play = Play(only("names", CHEAT, CHEAT, complains))
    with pytest.raises(InsteadOfPublishingError):
        play.make()
    found = judged(play, CHEAT)
    assert (found.culprit, found.reason[:31]) == (NAME, "it complained about a list that")


def test_a_complaint_is_decided_against_a_mixer_that_replaced_a_token() -> None:
    other = os.urandom(32)
    change = relisted(lambda names: sorted([other, *names[1:]]))
    play = Play(only("names", CHEAT, CHEAT, change))
    with pytest.raises(ProtocolError):
        play.make()
    found = judged(play, 3)
    assert (found.culprit, found.reason[:20]) == (NAME, "its list is not what")


@pytest.mark.parametrize("step", [0, CHEAT])
def test_a_complaint_about_forms_is_decided_against_who_published_them(step: int) -> None:
    change = lambda frame: signed(CHEAT, FORMS, step, os.urandom(len(payload_of(frame))))  # noqa: E731
    play = Play(only("forms", step, CHEAT, change))
    with pytest.raises(ProtocolError):
        play.make()
    found = judged(play, 1 if step == 0 else 3)
    assert (found.culprit, found.reason[:17]) == (NAME, "its forms are not")


def test_who_keeps_its_key_when_a_list_is_opened_is_named() -> None:
    play = Play(labours={CHEAT: garbage_at(3)})
    with refused("", "do not open"):
        play.make()
    complaint, opened = play.opened(3)
    with refused(NAME, "expected a MIX_OPENED, got none"):
        verdict(play.evidence(), complaint, [one for i, one in enumerate(opened, 1) if i != CHEAT])
    wrong = signed(CHEAT, Tag.MIX_OPENED, 0, os.urandom(32))
    shown = [wrong if i == CHEAT else one for i, one in enumerate(opened, 1)]
    assert verdict(play.evidence(), complaint, shown).reason == "the key that it shows is not its"


def test_a_finished_list_is_never_opened_and_an_opened_one_never_finished() -> None:
    play = Play()
    play.make()
    complaint = signed(CHEAT, Tag.MIX_COMPLAINT, 4, b"")
    for one in play.mixers.values():
        with pytest.raises(ProtocolError, match="never shown"):
            one.give_up(complaint)
        with pytest.raises(ProtocolError, match="never shown"):
            one.complain()
    other = Play()
    other.make_until_submitted()
    other._look()
    other.mixers[1].give_up(complaint)
    with pytest.raises(ProtocolError, match="expected nothing next"):
        other.mixers[1].mix([])


def test_no_key_is_shown_before_the_input_was_seen_to_be_nobodys_copy() -> None:
    """The forms of a silo that has shown them could stand in the cheat's own list."""
    play = Play()
    play.make_until_submitted()
    complaint = signed(CHEAT, Tag.MIX_COMPLAINT, 0, b"")
    for one in play.mixers.values():
        with refused("relay", "whose input I have seen, got one before"):
            one.give_up(complaint)


def test_who_shows_a_list_to_one_silo_alone_and_lets_it_complain_is_named() -> None:
    """The aggregator keeps from the others what the complainer was shown; its complaint says it."""
    other = os.urandom(32)
    change = relisted(lambda names: sorted([other, *names[1:]]))
    play = Play(only("names", CHEAT, CHEAT, change, to=[3]))
    with pytest.raises(ProtocolError):
        play.make()
    complaint, opened = play.opened(3)
    with refused(NAME, "two different things"):
        verdict(play.evidence(), complaint, opened)


def test_a_complaint_about_a_list_that_is_kept_back_names_nobody_of_the_silos() -> None:
    play = Play(labours={CHEAT: garbage_at(3)})
    with refused("", "do not open"):
        play.make()
    complaint, opened = play.opened(3)
    with refused("relay", "which the complaint is about, got lists before it alone"):
        verdict(replace(play.evidence(), names=play.names[:2]), complaint, opened)


@pytest.mark.parametrize("payload", [b"", bytes(185), bytes(4 * 185)])
def test_a_complaint_that_repeats_what_nobody_signed_names_who_complains(payload: bytes) -> None:
    play = Play(labours={CHEAT: garbage_at(3)})
    with refused("", "do not open"):
        play.make()
    _, opened = play.opened(3)
    lie = signed(1, Tag.MIX_COMPLAINT, 2, payload)
    with refused("silo-1", "expected"):
        verdict(play.evidence(), lie, opened)


def test_a_list_is_opened_for_a_complaint_of_a_silo_about_it_and_nothing_else() -> None:
    for frame in (
        signed(0, Tag.MIX_COMPLAINT, 0, b""),
        signed(CHEAT, Tag.MIX_COMPLAINT, 0, b"", number=1),
        signed(CHEAT, Tag.MIX_SEEN, 0, b""),
        signed(CHEAT, Tag.MIX_COMPLAINT, 0, bytes(4 * statement_bytes() + 1)),
        list_context().frame(Tag.MIX_COMPLAINT, CHEAT, b"", receiver=1).sealed(KEYS[CHEAT]),
    ):
        with refused("relay", "expected a complaint of a silo about list 0"):
            mixer(1).give_up(frame)


# The caller's own faults ---------------------------------------------------------------------


def test_phases_are_called_in_order_and_a_refusal_is_the_last() -> None:
    one = mixer(1)
    with pytest.raises(ProtocolError, match="expected key next"):
        one.finish()
    one.key()
    with pytest.raises(ProtocolError, match="expected a MIX_KEY"):
        one.commit([])
    with pytest.raises(ProtocolError, match="expected nothing next"):
        one.commit([])


@pytest.mark.parametrize("counts", [(1, 2), (0, 0, 0, 0), (1, 1, 1, -1), (1 << 30,) * 4])
def test_numbers_of_records_must_fit_the_roster(counts: tuple[int, ...]) -> None:
    with pytest.raises(StudyError, match="number of records"):
        Mixer(keys=KEYS[1], index=1, list_context=list_context(), counts=counts)


@pytest.mark.parametrize(
    "place", [{"study": bytes(31)}, {"session": bytes(15)}, {"number": -1}, {"number": 1 << 32}]
)
def test_a_list_has_a_place_of_the_right_lengths(place: dict[str, object]) -> None:
    with pytest.raises(StudyError, match=r"study id of 32 bytes|number from 0"):
        replace(list_context(), **place)


def test_a_roster_of_others_changes_every_name() -> None:
    """What is hashed and sealed is bound to the whole roster, so lists cannot be carried over."""
    other = Roster.of([*KEYS[:4], fixed_keys("silo-x", "silo")])
    made = [
        Mixer(
            keys=KEYS[1],
            index=1,
            list_context=replace(list_context(), roster=roster),
            counts=COUNTS,
        )
        for roster in (ROSTER, other)
    ]
    assert len({one._list_context.roster.digest for one in made}) == 2
    hidden = {commitment(hashlib.sha256(b"x").digest(), i, np.zeros(32, "u1").data) for i in (1, 2)}
    assert len(hidden) == 2
