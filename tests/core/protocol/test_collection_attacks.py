"""What a malicious aggregator, silo or node tries in a collection, and what comes of it (P30)."""

from __future__ import annotations

import copy
import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Tag
from hubbub.core.session.offer import SessionOffer
from hubbub.core.verification.replay.replayed_session import ReplayedSession
from hubbub.core.verification.transcript.frame_records import files, read_header
from hubbub.core.verification.transcript.writer import Transcript
from hubbub.site.collected.collection_frames import (
    SEALED_SEED_BYTES,
    Deposit,
    Deposited,
    Opening,
    mask_key,
    opened_seed,
)
from hubbub.site.collected.collector import CollectionReplay, CollectorBox
from hubbub.site.network.kept_frames import KeptFrames
from protocol.collection_world import Collection, Task, collection, residues, seeded
from protocol.parties import flipped, refused


def payload(frame: bytes) -> bytes:
    return frame[HEADER_BYTES:-SIGNATURE_BYTES]


def deposited(c: Collection, silos: Any = None) -> dict[int, Deposited]:
    return {silo: c.deposit(silo) for silo in silos or c.silos}


def heads(deposits: dict[int, Deposited]) -> list[bytes]:
    return [deposits[silo].deposit for silo in sorted(deposits)]


def summed(c: Collection, deposits: dict[int, Deposited], totals: list[bytes]) -> list[int]:
    whole = ring.zeros(c.numbers.dimension, c.numbers.word_bits)
    for one in deposits.values():
        whole += residues(one.vector)
    for one in totals:
        whole -= residues(one)
    return ring.to_integers(whole).tolist()


# What holds where all are honest ------------------------------------------------------------------


@pytest.mark.parametrize("there", [(1, 2, 3, 4, 5), (1, 3, 4, 5)])
def test_the_sum_of_the_set_opens_and_of_nobody_else(there: tuple[int, ...]) -> None:
    c = collection()
    collector, deposits = c.collector(), deposited(c)
    for one in c.node_keys:
        collector.take_key(one)
    for silo in there:
        assert collector.take_deposit(deposits[silo])
    for node in c.nodes:
        shown = collector.to_look(node)
        said = c.node(node).look(c.states[node], c.node_keys, heads(collector.deposits))
        assert collector.take_look(node, shown, said) == frozenset()
        assert collector.to_look(node) == []
    fixed = collector.fix(c.w.keys[0])
    collector.take_set(fixed)
    chosen = heads({silo: deposits[silo] for silo in there})
    for node in c.nodes:
        collector.take_promise(c.promise(node, fixed, chosen))
    for node in c.nodes:
        collector.take_total(c.total(node, chosen, list(collector.promises.values())))
    assert collector.integers().tolist() == [sum(10**silo for silo in there)] * 5
    assert len(list(collector.frames())) == 2 + 3 * len(c.nodes) + 2 * len(there)


def test_p30_a_masked_vector_is_uniform_without_the_total_and_says_nothing_of_the_records() -> None:
    """Chi-square of bytes, false alarm 1e-9; the plain residues are far from it."""
    c = collection(quorum=4)
    drawn = [residues(c.deposit(1).vector).tobytes() for _ in range(200)]
    counts = np.bincount(np.frombuffer(b"".join(drawn), np.uint8), minlength=256)
    expected = counts.sum() / 256
    edge = chi2.isf(1e-9, 255)
    assert ((counts - expected) ** 2 / expected).sum() < edge
    plain = np.bincount(np.frombuffer(np.full(5, 10, "<u4").tobytes(), np.uint8), minlength=256)
    assert ((plain - 20 / 256) ** 2 / (20 / 256)).sum() > edge


def test_p30_noise_is_the_share_of_the_fewest_silos() -> None:
    """Two-sided, false alarm below 1e-8: the deposit's noise has the plan's deviation."""
    c = collection(sigma=50.0)
    deposits = [c.deposit(1) for _ in range(100)]
    values = []
    for one in deposits:
        plain = residues(one.vector).copy()
        for node in c.nodes:
            sealed = payload(one.deposit)[64:]
            at = c.nodes.index(node) * SEALED_SEED_BYTES
            secret = c.states[node].secret
            assert secret is not None
            seed = opened_seed(c.opening, 1, node, sealed[at : at + SEALED_SEED_BYTES], secret)
            assert seed is not None
            from hubbub.core.protocol.agreement.masks import MaskStream

            MaskStream().add(plain, mask_key(c.opening, 1, node, seed), negative=True)
        values.append(ring.to_integers(plain) - 10)
    found = np.concatenate(values)
    most = 6 / (2 * found.size) ** 0.5
    assert abs(found.std() / 50.0 - 1) < most
    assert not abs(found.std() / 75.0 - 1) < most


# SETs ---------------------------------------------------------------------------------------------


def test_p30_two_sets_to_two_nodes_open_nothing() -> None:
    c = collection()
    deposits = deposited(c)
    fewer = {silo: deposits[silo] for silo in (1, 2, 3, 4)}
    sets = {6: (c.set_of(deposits), deposits), 7: (c.set_of(fewer), fewer)}
    promises = [c.promise(node, fixed, heads(those)) for node, (fixed, those) in sets.items()]
    promises.append(c.promise(8, sets[6][0], heads(deposits)))
    for node, (_, those) in sets.items():
        with refused("relay", "it has promised another"):
            c.total(node, heads(those), promises)
    for node, (fixed, those) in ((6, sets[7]), (7, sets[6])):
        with refused("aggregator", "of a collection there is one"):
            c.promise(node, fixed, heads(those))


def test_p30_a_set_below_the_quorum_is_never_promised() -> None:
    c = collection()
    three = deposited(c, (1, 2, 3))
    with refused("aggregator", "at least 4 active silos, got 3"):
        c.promise(6, c.set_of(three), heads(three))
    assert not c.states[6].promise


SETS: dict[str, Callable[[Collection, dict[int, Deposited]], tuple[bytes, list[bytes]]]] = {
    "a deposit twice": lambda c, d: (c.set_of(d), [*heads(d), d[1].deposit]),
    "a deposit in another's place": lambda c, d: (c.set_of(d | {2: d[1]}), heads(d)),
    "a deposit too few": lambda c, d: (c.set_of(d), heads(d)[1:]),
    "another deposit of a silo": lambda c, d: (
        c.set_of(d),
        [c.deposit(1).deposit, *heads(d)[1:]],
    ),
    "a deposit outside": lambda c, d: (
        c.set_of({silo: d[silo] for silo in (1, 2, 3, 4)}),
        heads(d),
    ),
    "digests too many": lambda c, d: (
        c.w.forge(0, Tag.SET, payload(c.set_of(d)) + bytes(32), session=c.id),
        heads(d),
    ),
    "an unknown silo": lambda c, d: (
        c.w.forge(
            0,
            Tag.SET,
            payload(c.set_of(d))[:32] + b"\xff" + payload(c.set_of(d))[33:],
            session=c.id,
        ),
        heads(d),
    ),
    "of a silo": lambda c, d: (c.w.forge(1, Tag.SET, payload(c.set_of(d)), session=c.id), heads(d)),
    "of another opening": lambda c, d: (c.set_of(d, bytes(32)), heads(d)),
    "nothing": lambda c, d: (c.w.forge(0, Tag.SET, b"", session=c.id), heads(d)),
    "of another collection": lambda c, d: (
        c.w.forge(0, Tag.SET, payload(c.set_of(d)), session=bytes(16)),
        heads(d),
    ),
}


@pytest.mark.parametrize("case", SETS)
def test_p30_no_other_set_is_promised(case: str) -> None:
    c = collection()
    deposits = deposited(c)
    fixed, shown = SETS[case](c, deposits)
    with pytest.raises(ProtocolError):
        c.promise(6, fixed, shown)
    assert not c.states[6].promise
    assert c.promise(6, c.set_of(deposits), heads(deposits)), "a refusal changes nothing"


def test_p30_a_deposit_after_the_total_is_in_no_sum() -> None:
    c = collection()
    deposits = deposited(c)
    four = {silo: deposits[silo] for silo in (1, 2, 3, 4)}
    fixed = c.set_of(four)
    promises = [c.promise(node, fixed, heads(four)) for node in c.nodes]
    totals = [c.total(node, heads(four), promises) for node in c.nodes]
    with refused("aggregator", "of a collection there is one"):
        c.promise(6, c.set_of(deposits), heads(deposits))
    for node in c.nodes:
        assert c.states[node].secret is None, "the key is gone"
        with pytest.raises(ProtocolError, match="its key was erased"):
            c.node(node).look(c.states[node], c.node_keys, heads(deposits))
    assert summed(c, four, totals) == [11110] * 5
    assert summed(c, deposits, totals) != [111110] * 5


# Deposits and seeds -------------------------------------------------------------------------------


def test_p30_two_deposits_of_one_silo_divided_between_nodes_open_nothing() -> None:
    c = collection()
    first, second = deposited(c), deposited(c)
    mixed = first | {1: second[1]}
    assert first[1].deposit != second[1].deposit
    fixed = {6: c.set_of(first), 7: c.set_of(mixed), 8: c.set_of(first)}
    promises = [
        c.promise(6, fixed[6], heads(first)),
        c.promise(7, fixed[7], heads(mixed)),
        c.promise(8, fixed[8], heads(first)),
    ]
    for node, those in ((6, first), (7, mixed), (8, first)):
        with refused("relay", "it has promised another"):
            c.total(node, heads(those), promises)


def with_seeds(c: Collection, silo: int, of: bytes, own: bytes, nodes: Any = None) -> bytes:
    """A deposit of a silo that has another's sealed seeds in it."""
    mine, theirs = payload(own), payload(of)
    chosen = c.nodes if nodes is None else nodes
    parts = []
    for place, node in enumerate(c.nodes):
        start = 64 + SEALED_SEED_BYTES * place
        source = theirs if node in chosen else mine
        parts.append(source[start : start + SEALED_SEED_BYTES])
    return c.w.forge(silo, Tag.DEPOSIT, mine[:64] + b"".join(parts), session=c.id)


def test_p30_another_silos_sealed_seed_opens_for_nobody_else() -> None:
    """Else two equal masks would tell the difference of two silos."""
    c = collection()
    deposits = deposited(c)
    stolen = with_seeds(c, 5, deposits[1].deposit, deposits[5].deposit)
    deposits[5] = replace(deposits[5], deposit=stolen)
    with refused("silo-5", "does not open; nothing is promised"):
        c.promise(6, c.set_of(deposits), heads(deposits))
    assert not c.states[6].promise


def test_p30_a_seed_of_another_collection_or_node_does_not_open() -> None:
    c, other = collection(), collection(id=bytes(16))
    deposits, foreign = deposited(c), deposited(other)
    for stolen in (
        with_seeds(c, 1, foreign[1].deposit, deposits[1].deposit),  # sealed to other keys
        c.w.forge(  # its own seeds, each in another node's place
            1,
            Tag.DEPOSIT,
            payload(deposits[1].deposit)[:64]
            + payload(deposits[1].deposit)[64 + SEALED_SEED_BYTES :]
            + payload(deposits[1].deposit)[64 : 64 + SEALED_SEED_BYTES],
            session=c.id,
        ),
    ):
        changed = deposits | {1: replace(deposits[1], deposit=stolen)}
        with refused("silo-1", "does not open"):
            c.promise(7, c.set_of(changed), heads(changed))
    with refused("relay", "a replay"):
        c.promise(7, c.set_of(deposits), heads(deposits | {1: foreign[1]}))


def test_a_silo_whose_seed_does_not_open_is_named_before_anybody_promises() -> None:
    c = collection()
    deposits = deposited(c)
    spoilt = with_seeds(c, 5, deposits[1].deposit, deposits[5].deposit, nodes=[7])
    deposits[5] = replace(deposits[5], deposit=spoilt)
    collector = c.collector()
    for one in c.node_keys:
        collector.take_key(one)
    for one in deposits.values():
        collector.take_deposit(one)
    found = {}
    for node in c.nodes:
        said = c.node(node).look(c.states[node], c.node_keys, heads(deposits))
        found[node] = collector.take_look(node, collector.to_look(node), said)
    assert found == {6: frozenset(), 7: frozenset({5}), 8: frozenset()}
    assert collector.ready == [1, 2, 3, 4]
    collector.take_set(collector.fix(c.w.keys[0]))
    assert collector.named == [1, 2, 3, 4]


def test_p30_nothing_is_fixed_before_every_node_has_looked() -> None:
    c = collection()
    collector = c.collector()
    for one in c.node_keys:
        collector.take_key(one)
    for one in deposited(c).values():
        collector.take_deposit(one)
    for node in (6, 7):
        shown = collector.to_look(node)
        said = c.node(node).look(c.states[node], c.node_keys, heads(collector.deposits))
        collector.take_look(node, shown, said)
    assert collector.ready == []
    with pytest.raises(ProtocolError, match="at least 4 silos, got 0"):
        collector.fix(c.w.keys[0])
    with refused("relay", "of the deposits that it was shown"):
        collector.take_look(8, collector.to_look(8), said)


def test_p30_no_set_is_fixed_of_one_silo_less_than_the_quorum() -> None:
    c = collection()
    collector = c.collector_with_keys()
    for count, silo in enumerate((1, 2, 3, 4), 1):
        collector.take_deposit(c.deposit(silo))
        for node in c.nodes:
            shown = collector.to_look(node)
            new = heads({one: collector.deposits[one] for one in shown})
            said = c.node(node).look(c.states[node], c.node_keys, new)
            collector.take_look(node, shown, said)
        if count < 4:
            with pytest.raises(ProtocolError, match=f"at least 4 silos, got {count}"):
                collector.fix(c.w.keys[0])
    assert collector.fix(c.w.keys[0])


# Equivocation -------------------------------------------------------------------------------------


def test_p30_two_node_keys_of_one_node_have_two_qs_and_nothing_adds_up() -> None:
    """A node that signs two keys divides the silos; the honest nodes sum those of one Q alone."""
    c = collection()
    honest = c.opening
    second = c.node(8).begin(c.collect)
    other = Opening.read(c.place, c.collect, [*c.node_keys[:2], second.node_key])
    assert other.q != honest.q
    deposits = {silo: c.deposit(silo) for silo in (1, 2, 3)}
    deposits |= {silo: c.deposit(silo, opening=other) for silo in (4, 5)}
    with refused("relay", "shown other frames"):
        c.node(6).look(c.states[6], c.node_keys, heads(deposits))
    with refused("relay", "shown other frames"):
        c.promise(6, c.set_of(deposits), heads(deposits))
    with refused("relay", "shown other frames"):
        c.collector_with_keys().take_deposit(deposits[4])


def test_p30_a_node_that_was_set_back_to_before_its_key_finds_out() -> None:
    c = collection()
    deposits = deposited(c)
    c.states[6] = c.node(6).begin(c.collect)  # it has forgotten the first
    with refused("node-1", "set back to an earlier state"):
        c.promise(6, c.set_of(deposits), heads(deposits))


def test_p30_a_second_collect_of_one_collection_names_the_aggregator() -> None:
    c = collection()
    assert c.node_keys
    other = c.w.forge(0, Tag.COLLECT, b'{"purpose": "another"}', session=c.id)
    with refused("aggregator", "another of the same collection"):
        c.node(6).check_same(c.states[6], other)
    c.node(6).check_same(c.states[6], c.collect)
    with refused("relay", "shown this COLLECT"):
        Opening.read(c.place, other, c.node_keys)


OPENINGS: dict[str, Callable[[Collection], list[bytes]]] = {
    "a key is missing": lambda c: c.node_keys[1:],
    "a key twice": lambda c: [*c.node_keys, c.node_keys[0]],
    "two keys of a node": lambda c: [*c.node_keys, c.node(6).begin(c.collect).node_key],
    "a silo's key": lambda c: [
        *c.node_keys[1:],
        c.w.forge(1, Tag.NODE_KEY, payload(c.node_keys[0]), session=c.id),
    ],
    "a key that is none": lambda c: [
        *c.node_keys[1:],
        c.w.forge(6, Tag.NODE_KEY, payload(c.node_keys[0])[:40], session=c.id),
    ],
    "a key that cannot be sealed to": lambda c: [
        *c.node_keys[1:],
        c.w.forge(6, Tag.NODE_KEY, payload(c.node_keys[0])[:32] + b"\xff" * 1216, session=c.id),
    ],
    "of another collection": lambda c: [*c.node_keys[1:], collection(id=bytes(16)).node_keys[0]],
}


@pytest.mark.parametrize("case", OPENINGS)
def test_p30_no_other_keys_make_an_opening(case: str) -> None:
    c = collection()
    with pytest.raises(ProtocolError):
        Opening.read(c.place, c.collect, OPENINGS[case](c))


@pytest.mark.parametrize(
    ("case", "culprit"),
    [
        ("a silo's key", "silo-1"),
        ("a key that is none", "node-1"),
        ("a key that cannot be sealed to", "node-1"),
        ("of another COLLECT", "relay"),
    ],
)
def test_p30_a_bad_key_names_who_sent_it_and_is_not_kept(case: str, culprit: str) -> None:
    """The aggregator asks that node again, and the collection opens with its good key."""
    c = collection()
    other = c.w.forge(0, Tag.COLLECT, b'{"purpose": "training"}', session=c.id)
    bad = c.node(6).begin(other).node_key if case == "of another COLLECT" else OPENINGS[case](c)[-1]
    collector = c.collector()
    with pytest.raises(ProtocolError) as caught:
        collector.take_key(bad)
    assert caught.value.culprit == culprit
    assert not collector.node_keys
    for key in c.node_keys:
        collector.take_key(key)
    assert collector.opening is not None
    assert collector.opening.q == c.opening.q


# Totals -------------------------------------------------------------------------------------------


SHOWN: dict[str, Callable[[dict[str, bytes]], list[bytes]]] = {
    "none": lambda at: [],
    "its own": lambda at: [at["6"]],
    "its own thrice": lambda at: [at["6"]] * 3,
    "one too few": lambda at: [at["6"], at["7"]],
    "one twice": lambda at: [at["6"], at["7"], at["7"]],
    "of another set": lambda at: [at["6"], at["7"], at["other"]],
    "of another collection": lambda at: [at["6"], at["7"], at["collection"]],
    "of a silo": lambda at: [at["6"], at["7"], at["silo"]],
    "to one party": lambda at: [at["6"], at["7"], at["alone"]],
    "altered": lambda at: [at["6"], at["7"], at["8"][:80] + b"\1" + at["8"][81:]],
}


@pytest.mark.parametrize("case", SHOWN)
def test_p30_nothing_stands_for_the_promise_of_every_node(case: str) -> None:
    c = collection()
    deposits = deposited(c)
    fixed = c.set_of(deposits)
    at = {str(node): c.promise(node, fixed, heads(deposits)) for node in c.nodes}
    said = payload(at["8"])
    at |= {
        "other": c.w.forge(8, Tag.SET_PROMISE, bytes(32), session=c.id),
        "collection": c.w.forge(8, Tag.SET_PROMISE, said, session=bytes(16)),
        "silo": c.w.forge(1, Tag.SET_PROMISE, said, session=c.id),
        "alone": c.w.forge(8, Tag.SET_PROMISE, said, session=c.id, receiver=6),
    }
    before = c.states[6]
    with pytest.raises(ProtocolError):
        c.total(6, heads(deposits), SHOWN[case](at))
    assert c.states[6] is before
    assert c.total(6, heads(deposits), [at["8"], at["6"], at["7"]]), "in any order"


def test_p30_no_total_without_a_promise_nor_of_other_deposits() -> None:
    c = collection()
    deposits, others = deposited(c), deposited(c)
    with refused("relay", "a SET before the promises"):
        c.total(6, heads(deposits), [])
    fixed = c.set_of(deposits)
    promises = [c.promise(node, fixed, heads(deposits)) for node in c.nodes]
    with refused("relay", "the deposits of the SET"):
        c.total(6, heads(others), promises)


def test_a_request_that_comes_again_gets_the_same_bytes() -> None:
    c = collection()
    deposits = deposited(c)
    fixed = c.set_of(deposits)
    promises = [c.promise(node, fixed, heads(deposits)) for node in c.nodes]
    assert c.promise(6, fixed, heads(deposits)) == promises[0]
    total = c.total(6, heads(deposits), promises)
    assert c.total(6, heads(deposits), promises) == total
    assert c.total(6, [], []) == total


# Machines that were set back ----------------------------------------------------------------------


@pytest.mark.parametrize("state", ["before the promise", "after it", "after the total"])
def test_p30_a_node_restored_at_any_state_tells_no_second_total(state: str) -> None:
    """Nodes 6 and 7 collude or are set back; node 8 is honest and keeps its disk."""
    c = collection()
    deposits = deposited(c)
    four = {silo: deposits[silo] for silo in (1, 2, 3, 4)}
    fixed, fewer = c.set_of(deposits), c.set_of(four)
    images = {"before the promise": dict(c.states)}
    promises = [c.promise(node, fixed, heads(deposits)) for node in c.nodes]
    images["after it"] = dict(c.states)
    total = c.total(6, heads(deposits), promises)
    images["after the total"] = dict(c.states)
    for node in (6, 7):
        c.states[node] = images[state][node]
    others = []
    for node in c.nodes:
        if c.states[node].promise:
            with refused("aggregator", "of a collection there is one"):
                c.promise(node, fewer, heads(four))
            others.append(promises[c.nodes.index(node)])
        else:
            others.append(c.promise(node, fewer, heads(four)))
    assert others[2] == promises[2], "node 8 has promised once"
    for shown in (others, [*others[:2], promises[2]]):
        if shown == promises:
            continue
        with refused("relay", "it has promised another"):
            c.total(6, heads(four), shown)
    if state != "before the promise":
        assert c.total(6, heads(deposits), promises) == total, "the same bits"


def test_p30_where_every_honest_node_is_set_back_one_silo_is_left_alone() -> None:
    """The limit of P30, so that the attack is seen to be one."""
    c = collection()
    deposits = deposited(c)
    four = {silo: deposits[silo] for silo in (1, 2, 3, 4)}
    images = dict(c.states)
    fixed = c.set_of(deposits)
    promises = [c.promise(node, fixed, heads(deposits)) for node in c.nodes]
    totals = [c.total(node, heads(deposits), promises) for node in c.nodes]
    c.states = images
    fixed = c.set_of(four)
    promises = [c.promise(node, fixed, heads(four)) for node in c.nodes]
    fewer = [c.total(node, heads(four), promises) for node in c.nodes]
    alone = np.subtract(summed(c, deposits, totals), summed(c, four, fewer))
    assert alone.tolist() == [10**5] * 5


@pytest.mark.parametrize(
    ("other", "same"),
    [("nothing", True), ("the records", False), ("the opening", False)],
)
def test_p30_copies_of_a_silo_draw_the_same_for_the_same_sum_alone(other: str, same: bool) -> None:
    """With equal noise and masks the difference of two deposits would be that of two sums."""
    c = collection(sigma=20.0)
    opening, vector = c.opening, c.vector(1)
    if other == "the opening":
        second = c.node(8).begin(c.collect).node_key
        opening = Opening.read(c.place, c.collect, [*c.node_keys[:2], second])
    if other == "the records":
        vector = vector + 1.0
    one = c.deposit(1, seeded("an image"))
    two = c.deposit(1, seeded("an image"), opening=opening, vector=vector)
    assert (residues(one.vector).tolist() == residues(two.vector).tolist()) == same
    if not same:
        apart = residues(one.vector) - residues(two.vector)
        assert np.abs(ring.to_integers(apart)).max() > 2**20, "masks and noise are independent"


def test_p30_a_node_that_died_behind_its_total_has_no_key_when_it_tells_it_again() -> None:
    c = collection()
    deposits = deposited(c)
    fixed = c.set_of(deposits)
    promises = [c.promise(node, fixed, heads(deposits)) for node in c.nodes]
    before = c.states[6]
    total = c.total(6, heads(deposits), promises)
    c.states[6] = replace(before, total=total)  # its key was not erased yet
    assert c.states[6].secret is not None
    assert c.total(6, heads(deposits), promises) == total
    assert c.states[6].secret is None


def test_p30_what_a_party_brings_of_another_is_not_taken_as_its_own(tmp_path: Path) -> None:
    """Nor kept under its name, where the first counts."""
    c = collection()
    box = CollectorBox.begun(KeptFrames(tmp_path), c.place, c.numbers, c.collect)
    with refused("relay", "a frame of who was asked"):
        box.take("key", 7, [c.node_keys[0]])
    for node, key in zip(c.nodes, c.node_keys, strict=True):
        box.take("key", node, [key])
    others = c.deposit(2)
    with refused("relay", "a frame of who was asked"):
        box.take("deposit", 1, [others.deposit, others.vector])
    assert not box.collector.deposits
    box.take("deposit", 2, [others.deposit, others.vector])
    assert [*box.collector.deposits] == [2]


def test_p30_a_set_that_the_disk_does_not_take_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nodes would be shown one that a restart forgets, and another is fixed after it."""
    c = collection()
    collector = c.collector_with_keys()
    box = CollectorBox(kept=KeptFrames(tmp_path), collector=collector)
    for silo in c.silos:
        collector.take_deposit(c.deposit(silo))
    shown = [collector.deposits[silo].deposit for silo in c.silos]
    for node in c.nodes:
        look = c.node(node).look(c.states[node], c.node_keys, shown)
        collector.take_look(node, c.silos, look)
    with monkeypatch.context() as patch:
        patch.setattr(KeptFrames, "keep", full)
        with pytest.raises(IntegrityError, match="full"):
            box.fix(c.w.keys[0])
    assert (collector.fixed, collector.named) == (b"", [])
    box.fix(c.w.keys[0])
    assert box.kept.parts("set") == [collector.fixed]
    for node in c.nodes:
        assert not collector.all_promised, "no total is asked for yet"
        collector.take_promise(c.promise(node, collector.fixed, shown))
    assert collector.all_promised


def full(*_: object) -> None:
    raise IntegrityError("expected a disk that is not full")


def test_p30_copies_of_a_silo_draw_noise_and_seeds_anew_for_another_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not the masks alone, which are others for every opening."""
    c, drawn = collection(sigma=20.0), list[Any]()
    second = c.node(8).begin(c.collect).node_key
    other = Opening.read(c.place, c.collect, [*c.node_keys[:2], second])
    monkeypatch.setattr(Deposit, "sealed", lambda _, *given: drawn.append(given))
    for opening in (c.opening, other):
        c.deposit(1, seeded("an image"), opening=opening)
    (one, mine), (two, others) = drawn
    assert (one != two).any()
    assert not {*mine.values()} & {*others.values()}


def test_p30_masks_are_others_for_every_opening_silo_and_node() -> None:
    """Also where a seed and a key of a node were there before."""
    c, seed = collection(), bytes(32)
    other = replace(c.opening, q=bytes(32))
    uses = product((c.opening, other), (1, 2), (7, 8))
    assert len({mask_key(opening, silo, node, seed) for opening, silo, node in uses}) == 8


def test_p30_a_restored_silos_two_deposits_are_no_lie_and_the_first_counts() -> None:
    c = collection()
    collector = c.collector_with_keys()
    first, second = c.deposit(1), c.deposit(1)
    assert collector.take_deposit(first)
    assert not collector.take_deposit(first), "doubled"
    assert not collector.take_deposit(second)
    assert collector.deposits[1] is first


# What is false at the aggregator ------------------------------------------------------------------


def test_the_aggregator_takes_no_vector_but_the_one_that_is_signed() -> None:
    c = collection()
    collector, one, two = c.collector_with_keys(), c.deposit(1), c.deposit(1)
    with refused("relay", "has signed with its deposit"):
        collector.take_deposit(replace(one, vector=two.vector))
    with refused("relay", "a VECTOR of silo-1"):
        collector.take_deposit(replace(one, vector=c.deposit(2).vector))
    short = c.w.forge(1, Tag.VECTOR, b"1234", session=c.id)
    head = payload(one.deposit)
    lying = head[:32] + hashlib.sha256(b"1234").digest() + head[64:]
    with refused("silo-1", "a VECTOR of 20 bytes, got 4"):
        collector.take_deposit(
            Deposited(deposit=c.w.forge(1, Tag.DEPOSIT, lying, session=c.id), vector=short)
        )
    with refused("silo-1", "expected a DEPOSIT of"):
        collector.take_deposit(
            replace(one, deposit=c.w.forge(1, Tag.DEPOSIT, head[:-1], session=c.id))
        )
    with refused("node-1", "of a silo"):
        collector.take_deposit(replace(one, deposit=c.w.forge(6, Tag.DEPOSIT, head, session=c.id)))


def test_no_sum_is_taken_while_a_mask_is_on_it() -> None:
    c = collection()
    collector, deposits = c.collector_with_keys(), deposited(c)
    for one in deposits.values():
        collector.take_deposit(one)
    for node in c.nodes:
        said = c.node(node).look(c.states[node], c.node_keys, heads(deposits))
        collector.take_look(node, collector.to_look(node), said)
    collector.take_set(collector.fix(c.w.keys[0]))
    for node in c.nodes:
        collector.take_promise(c.promise(node, collector.fixed, heads(deposits)))
    for node in c.nodes:
        with pytest.raises(ProtocolError, match="nothing opens"):
            collector.integers()
        collector.take_total(c.total(node, heads(deposits), list(collector.promises.values())))
    assert collector.integers().tolist() == [111110] * 5
    with refused("node-1", "about another"):
        collector.take_total(c.w.forge(6, Tag.SET_TOTAL, bytes(20 + 32), session=c.id))


def test_frames_in_any_order_and_doubled_make_the_same_sum() -> None:
    """Every order of promises and of totals; every frame is taken twice."""
    c = collection(3, 2, quorum=2)
    deposits = deposited(c)
    fixed = c.set_of(deposits)
    promises = [c.promise(node, fixed, heads(deposits)) for node in c.nodes]
    totals = [c.total(node, heads(deposits), promises) for node in c.nodes]
    looks = [  # made before the totals erased the keys
        (node, silos) for node in c.nodes for silos in ([1, 2, 3],)
    ]
    assert looks
    for order, keys, last in product(
        permutations(c.silos), permutations(c.node_keys), permutations(totals)
    ):
        collector = c.collector()
        for one in (*keys, *keys):
            collector.take_key(one)
        for silo in (*order, *order):
            collector.take_deposit(deposits[silo])
        for _ in range(2):
            collector.take_set(fixed)
        for one in (*promises, *reversed(promises), *last, *last):
            (collector.take_total if one in totals else collector.take_promise)(one)
        assert collector.integers().tolist() == [1110] * 5


def test_p30_a_collection_is_played_again_from_each_frame_once_and_in_order(
    tmp_path: Path,
) -> None:
    c = collection()
    c.collect = c.w.forge(
        0, Tag.COLLECT, SessionOffer.of("statistics", c.numbers).payload(), session=c.id
    )
    deposits = deposited(c)
    fixed, shown = c.set_of(deposits), heads(deposits)
    promises = [c.promise(node, fixed, shown) for node in c.nodes]
    totals = [c.total(node, shown, promises) for node in c.nodes]
    sent = [part for one in deposits.values() for part in (one.deposit, one.vector)]

    def play(*frames: bytes) -> ReplayedSession:
        with tempfile.TemporaryDirectory(dir=tmp_path) as made:
            terms = {"full": True, "purpose": "statistics", "round_parameters": c.numbers}
            where = {"study": c.place.study, "session": c.id, "roster": c.w.roster}
            with Transcript(Path(made), **where, **terms) as kept:
                for one in frames:
                    kept.keep(one)
            (path,) = files(Path(made))
            return CollectionReplay(read_header(path), c.numbers, None).play(path)

    begun, other = [c.collect, *c.node_keys], c.w.forge(8, Tag.SET_PROMISE, bytes(32), session=c.id)
    assert play(*begun, *sent, fixed, *promises, *totals).attempts == 1
    for wrong, says in (
        ([*begun, *sent, fixed, *promises, *totals, totals[-1]], "one SET_TOTAL of every node"),
        ([*begun, *sent, fixed, *promises, *totals[:-1]], "one SET_TOTAL of every node"),
        ([*begun, *sent, fixed, *promises[:-1], *totals, promises[-1]], "no SET_PROMISE there"),
        ([*begun, *sent, fixed, *promises[:-1], other, *totals], "to promise this SET"),
        ([c.collect, *sent, *c.node_keys, fixed, *promises, *totals], "no NODE_KEY there"),
        ([*begun, *sent, fixed, *promises, *totals[:-1], flipped(totals[-1], -1)], "false sign"),
    ):
        with pytest.raises(IntegrityError, match=says):
            play(*wrong)


def test_nothing_secret_is_shown() -> None:
    c = collection()
    shown = repr((c.states, c.deposit(1), c.opening, c.silo(1), c.node(6), c.collector()))
    secret = copy.copy(c.states[6].secret)
    assert secret is not None
    for part in secret.secret_parts().values():
        assert part.hex() not in shown
        assert repr(part)[2:-1] not in shown
    assert Task(vector=c.vector(1)).count == 3
