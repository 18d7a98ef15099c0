"""Golden vectors: the wire does not change unnoticed, and a second implementation agrees."""

from __future__ import annotations

import inspect
import json
import struct
from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hubbub.core.protocol.agreement import masks
from hubbub.core.protocol.agreement.key_agreement import Agreement, Session
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Tag, parse
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.session.offer import SessionOffer, context_of
from hubbub.site.collected.collection_frames import CollectionPlace
from hubbub.site.collected.collection_request import collect_frame, until_of
from hubbub.site.network.envelope import read_answer, read_request
from protocol import reference as ref
from protocol.parties import SESSION, STUDY, fixed_keys, fixed_opening, refused
from protocol.vectors import make
from protocol.vectors.page import blocks

PAIRWISE, NODES, BAD = make.stored("pairwise"), make.stored("nodes"), make.stored("bad_frames")
AWAY = make.stored("away")
GRAPHS, ALL = make.stored("graphs"), 2**32 - 1
EACH = pytest.mark.parametrize("v", [PAIRWISE, NODES, AWAY], ids=["pairwise", "nodes", "away"])


@cache
def built() -> dict[str, Any]:
    return json.loads(json.dumps(make.build(make.sealing_from(make.stored("sealed")))))


@pytest.mark.parametrize("name", make.NAMES)
def test_what_is_sent_and_derived_has_not_changed(name: str) -> None:
    assert built()[name] == make.stored(name)


@pytest.mark.parametrize("name", make.NAMES)
def test_the_files_are_what_make_writes(name: str) -> None:
    assert make.written(built()[name]) + "\n" == (make.HERE / f"{name}.json").read_text()


def test_the_pages_show_the_frames_of_the_vectors() -> None:
    files = {name: make.stored(name) for name in make.NAMES}
    pages = [one.read_text(encoding="utf-8") for one in make.PAGES]
    for text in pages:
        assert make.page(text, files) == text
    whole = "".join(pages)
    assert all(whole.count(f"<!-- {name} -->\n```text") == 1 for name in blocks(files))
    shown = {name for name in Tag.__members__ if f"<!-- frame {name} -->" in whole}
    assert shown == {tag.name for tag in Tag} == files["frames"].keys()


def test_the_second_implementation_shares_nothing_with_the_first() -> None:
    imports = [line for line in inspect.getsource(ref).splitlines() if "import" in line]
    assert imports
    assert not any("hubbub" in line or "protocol" in line for line in imports)


def payload(frame: str) -> bytes:
    return bytes.fromhex(frame)[HEADER_BYTES:-SIGNATURE_BYTES]


def unhex(values: list[str]) -> list[bytes]:
    return [bytes.fromhex(value) for value in values]


def by_silo(frames: list[str]) -> dict[int, bytes]:
    """Payloads by their sender."""
    return {int.from_bytes(one[58:62], "little"): payload(one.hex()) for one in unhex(frames)}


def secret_of(v: Any, one: int, other: int) -> bytes:
    return bytes.fromhex(v["secrets"][f"{min(one, other)}-{max(one, other)}"])


# The second implementation ------------------------------------------------------------------


@EACH
def test_reference_opens_every_contribution(v: Any) -> None:
    names = [party["name"] for party in v["roster"]]
    for sender, frames in v["contributions"].items():
        for receiver, frame in frames.items():
            place = ref.u32(int(sender)) + ref.u32(int(receiver))
            context = b"hubbub contribution v1" + STUDY + SESSION + place
            secret = ref.opened(payload(frame), context, *fixed_opening(names[int(receiver)]))
            assert secret.hex() == v["contributed"][sender][receiver]


@EACH
def test_reference_derives_every_pair_secret(v: Any) -> None:
    for pair, secret in v["secrets"].items():
        low, high = pair.split("-")
        sent = v["contributed"]
        both = (bytes.fromhex(sent[low][high]), bytes.fromhex(sent[high][low]))
        assert ref.pair_secret(STUDY, SESSION, int(low), int(high), *both).hex() == secret


def test_reference_derives_commitments_and_the_joint_seed() -> None:
    for v in (PAIRWISE, AWAY):
        commits, shares = by_silo(v["commits"]), by_silo(v["reveals"])
        for index, share in shares.items():
            assert ref.commitment(SESSION, index, share) == commits[index]
        roll = ref.digest(bytes.fromhex(v["roll"]))
        assert ref.joint_seed(SESSION, roll, commits, shares).hex() == v["seed"]


def test_a_roll_names_who_is_there() -> None:
    for v, silos, there in ((PAIRWISE, 3, (1, 2, 3)), (AWAY, 4, (1, 2, 4))):
        place = (STUDY, SESSION, 0, 0, 0, 0xFFFFFFFF)
        named = ref.bitmap(there, silos)
        assert payload(v["roll"]) == named
        assert ref.frame(31, place, named, lambda _: b"")[:-1] == bytes.fromhex(v["roll"])[:74]


@EACH
def test_reference_derives_the_roster_digest_and_the_transcript(v: Any) -> None:
    roster = ref.roster_digest(
        [
            (one["name"], one["role"], *unhex([one["verifying"], one["sealing"]]))
            for one in v["roster"]
        ]
    )
    assert roster.hex() == v["roster_digest"]
    sent = {
        int(sender): ref.sent_digest({int(to): bytes.fromhex(one) for to, one in frames.items()})
        for sender, frames in v["contributions"].items()
    }
    digests = [sent.get(index, bytes(32)) for index in range(len(v["roster"]))]
    assert b"".join(digests).hex() == v["digests"]
    commits, shares = by_silo(v.get("commits", [])), by_silo(v.get("reveals", []))
    found = ref.transcript(STUDY, SESSION, roster, commits, shares, digests)
    assert found.hex() == v["transcript"]
    assert {payload(frame) for frame in v["confirms"]} == {found}


@EACH
def test_reference_derives_every_key_check(v: Any) -> None:
    transcript = bytes.fromhex(v["transcript"])
    for sender, frames in v["checks"].items():
        for receiver, frame in frames.items():
            secret = secret_of(v, int(sender), int(receiver))
            assert ref.key_check(secret, transcript, int(sender)) == payload(frame)


@EACH
def test_reference_masks_as_the_silos_do(v: Any) -> None:
    turn, pairwise = v["round"], v is not NODES
    model = ref.digest(bytes.fromhex(turn["model"]))
    assert model.hex() == turn["model_digest"]
    for own, frame in zip(turn["active"], turn["masked"], strict=True):
        others = [other for other in turn["active"] if other != own] if pairwise else [4]
        keys = {other: _key(v, own, other, model) for other in others}
        values = turn["values"][str(own)]
        assert ref.masked(values, own, keys, 32, pairwise=pairwise) + model == payload(frame)


def test_reference_opens_a_full_share() -> None:
    v, turn = NODES, NODES["round"]
    now = (bytes.fromhex(v["transcript"]), turn["round"], turn["attempt"])
    key = ref.share_key(secret_of(v, 1, 4), *now, bytes.fromhex(turn["model_digest"]), 1)
    share = AESGCM(key).decrypt(bytes(12), payload(turn["shares"][0]), b"")
    assert ref.words(share, 32) == [value % 2**32 for value in turn["values"]["1"]]


def test_reference_says_of_shares_what_the_node_does() -> None:
    turn = NODES["round"]
    model, shares = bytes.fromhex(turn["model_digest"]), unhex(turn["shares"])
    assert payload(turn["arrived"]) == ref.bitmap((1, 2, 3), 3) + model
    found = ref.held_digest(model, dict(enumerate(shares, 1)))
    assert payload(turn["held"]) == ref.bitmap((3,), 3) + found


def test_reference_totals_as_the_node_does() -> None:
    model = bytes.fromhex(NODES["round"]["model_digest"])
    keys = {silo: _key(NODES, silo, 4, model) for silo in (1, 2, 3)}
    total = ref.masked([0] * 5, 4, keys, 32, pairwise=False)
    assert total == payload(NODES["round"]["totals"][0])


def _key(v: Any, one: int, other: int, model: bytes) -> bytes:
    transcript, turn = bytes.fromhex(v["transcript"]), v["round"]
    secret = secret_of(v, one, other)
    return ref.mask_key(secret, transcript, turn["round"], turn["attempt"], model)


@EACH
def test_the_sum_is_that_of_the_values(v: Any) -> None:
    values = v["round"]["values"].values()
    wrapped = [(sum(column) + 2**31) % 2**32 - 2**31 for column in zip(*values, strict=True)]
    assert wrapped == v["round"]["sum"]


@pytest.mark.parametrize("case", GRAPHS["regular"], ids=lambda c: f"{c['silos']}-{c['degree']}")
def test_reference_draws_the_same_mask_graph(case: Any) -> None:
    seed, silos, degree = bytes.fromhex(GRAPHS["seed"]), case["silos"], case["degree"]
    for one, found in case["neighbours"].items():
        assert ref.neighbours(int(one), silos, degree, seed) == found
        assert masks.neighbours_of(int(one), silos, degree, seed) == found


def test_reference_gives_every_silo_the_same_nodes() -> None:
    case = GRAPHS["nodes"]
    for silo, used in case["used"].items():
        assert ref.nodes_of(int(silo), case["nodes_per_silo"], case["silos"], case["nodes"]) == used


@EACH
def test_reference_builds_every_unsealed_frame(v: Any) -> None:
    """Headers, payloads and signatures, byte by byte."""
    turn, silos = v["round"], sum(one["role"] == "silo" for one in v["roster"])
    model = ref.bitmap(turn["active"], silos) + struct.pack("<2f", 0.5, -1.25)
    now = (turn["round"], turn["attempt"])
    assert remade(v, 0, 6, now, ALL, model) == turn["model"]
    for node, request in enumerate(turn["requests"], 4):
        named = ref.bitmap(turn["active"], silos) + bytes.fromhex(turn["model_digest"])
        assert remade(v, 0, 8, now, node, named) == request
        assert remade(v, node, 30, now, ALL, named) == turn["promises"][node - 4]
    for silo, answer in zip(turn["active"], turn["masked"], strict=True):
        assert remade(v, silo, 7, now, 0, payload(answer)) == answer
    transcript = bytes.fromhex(v["transcript"])
    there = [*turn["active"], *range(1 + silos, len(v["roster"]))]
    for index, confirm in zip(there, v["confirms"], strict=True):
        assert remade(v, index, 4, (0, 0), ALL, transcript) == confirm
    for sender, checks in v["checks"].items():
        for receiver, check in checks.items():
            key = ref.key_check(secret_of(v, int(sender), int(receiver)), transcript, int(sender))
            assert remade(v, int(sender), 5, (0, 0), int(receiver), key) == check


def remade(
    v: Any, sender: int, tag: int, now: tuple[int, int], receiver: int, content: bytes
) -> str:
    """A frame by the second implementation, signed with the sender's fixed key."""
    one = v["roster"][sender]
    place = (STUDY, SESSION, *now, sender, receiver)
    return ref.frame(tag, place, content, fixed_keys(one["name"], one["role"]).sign).hex()


# Parties that run apart ---------------------------------------------------------------------

NETWORK = make.stored("network")


def parcel(head: bytes, *parts: bytes) -> str:
    return (head + b"".join(struct.pack("<Q", len(part)) + part for part in parts)).hex()


def test_a_parcel_is_its_head_and_its_parts() -> None:
    model, ready = unhex([PAIRWISE["round"]["model"], NETWORK["frames"]["READY"]])
    parcels = NETWORK["parcels"]
    assert parcels["ping"] == parcel(b"hub?\4\0" + SESSION)
    assert parcels["model"] == parcel(b"hub?\4\7" + SESSION, model)
    assert parcels["ready"] == parcel(b"hub!\4", ready)
    assert parcels["finished"] == parcel(b"hub!\4")


@pytest.mark.parametrize("version", [0, 3, 255])
@pytest.mark.parametrize("name", ["model", "ready"])
def test_a_parcel_of_another_version_is_refused_with_what_to_do(name: str, version: int) -> None:
    read = read_request if name == "model" else read_answer
    good = bytes.fromhex(NETWORK["parcels"][name])
    assert read(good)
    says = f"wire version 4, got {version}; all parties must run the same version of hubbub"
    with refused("", says):  # nobody knows whose version is the wrong one
        read(good[:4] + bytes([version]) + good[5:])


@pytest.mark.parametrize("name", ["model", "ready"])
def test_a_parcel_that_is_cut_anywhere_is_refused(name: str) -> None:
    good = bytes.fromhex(NETWORK["parcels"][name])
    read, empty = (read_request, 22) if name == "model" else (read_answer, 5)
    for size in {*range(40), len(good) - 1} - {empty}:  # without parts it is whole
        with refused("relay", "envelope|known call"):
            read(good[:size])


def test_a_refusal_names_the_very_parcel() -> None:
    said = json.loads(payload(NETWORK["frames"]["REFUSAL"]))
    assert said["to"] == ref.sha(bytes.fromhex(NETWORK["parcels"]["model"])).hex()


def test_the_opening_is_part_of_what_all_must_have_been_shown() -> None:
    opening = payload(NETWORK["frames"]["OPEN"])
    roll = ref.digest(bytes.fromhex(PAIRWISE["roll"]))
    found = ref.sha(b"hubbub opening v2" + ref.sha(opening) + roll)
    assert found.hex() == NETWORK["context"]
    anchors = b"digest of the anchors"
    both = ref.sha(b"hubbub opening v2" + ref.sha(opening) + roll + anchors)
    assert context_of(opening, roll, anchors) == both != found


def test_a_collect_says_what_an_opening_says_and_until_when() -> None:
    said = payload(NETWORK["collect"])
    assert SessionOffer.read(said, "aggregator") == SessionOffer.read(
        payload(NETWORK["frames"]["OPEN"]), "aggregator"
    )
    assert until_of(said, "aggregator") == 1798070400
    place = CollectionPlace(roster=make.PAIRWISE.roster, study=STUDY, session=SESSION)
    offer, keys = SessionOffer.read(said, "aggregator"), make.PAIRWISE.keys[0]
    assert collect_frame(place, keys, offer, 1798070400.5).hex() == NETWORK["collect"]


@pytest.mark.parametrize("case", make.stored("encoding"), ids=lambda case: str(case["word_bits"]))
def test_reference_rounds_onto_the_ring(case: Any) -> None:
    bits = case["word_bits"]
    residues = [ref.encoded(real, case["grid_step"], bits) for real in case["reals"]]
    assert [str(residue) for residue in residues] == case["residues"]
    assert [ref.decoded(residue, bits) for residue in residues] == case["integers"]


# The mask stream ----------------------------------------------------------------------------

MASKS = pytest.mark.parametrize(
    "case", make.stored("masks"), ids=lambda case: f"{case['word_bits']}-{case['length']}"
)


@MASKS
def test_reference_makes_the_same_mask_stream(case: Any) -> None:
    secret, transcript, model = unhex([case["secret"], case["transcript"], case["model_digest"]])
    key = ref.mask_key(secret, transcript, case["round"], case["attempt"], model)
    assert key.hex() == case["key"]
    bits = case["word_bits"]
    stream = ref.keystream(key, case["length"] * bits // 8)
    assert ref.sha(stream).hex() == case["sha256"]
    assert [str(word) for word in ref.words(stream[: bits // 2], bits)] == case["first"]
    assert [str(word) for word in ref.words(stream[-bits // 2 :], bits)] == case["last"]


@MASKS
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_threads_change_nothing_but_the_speed(case: Any, threads: int) -> None:
    key = bytes.fromhex(case["key"])
    vector = ring.zeros(case["length"], case["word_bits"])
    mask_stream = MaskStream(threads)
    mask_stream.add(vector, key)
    assert ref.sha(ring.to_bytes(vector)).hex() == case["sha256"]
    mask_stream.add(vector, key, negative=True)
    assert not vector.any()


# What must be refused -----------------------------------------------------------------------


@cache
def sessions(name: str) -> dict[int, Session]:
    w = make.PAIRWISE if name == "pairwise" else make.NODES
    return make.session(w, make.sealing_from(make.stored("sealed")))[1]


class Prepared:
    """Silo 1, node 1 and the aggregator of the vectors, at the step where a frame arrives."""

    def __init__(self) -> None:
        self.w, self.v = make.PAIRWISE, PAIRWISE
        self.party: Agreement = make.party(self.w, 1)

    def parse(self, frame: bytes) -> None:
        parse(frame, self.w.roster, study=STUDY, session=SESSION)

    def roll(self, frame: bytes) -> None:
        self.w.roll_call(1).take(frame)

    def roll_again(self, frame: bytes) -> None:
        one = self.w.roll_call(1)
        one.take(bytes.fromhex(self.v["roll"]))
        one.take(frame)

    def learn_seed(self, frame: bytes) -> None:
        self._revealed().learn_seed(self._with(unhex(self.v["reveals"]), frame))

    def confirm(self, frame: bytes) -> None:
        self._learnt().confirm(self._with(self._inbox("contributions"), frame), self._digests())

    def finish(self, frame: bytes) -> None:
        party = self._learnt()
        party.confirm(self._inbox("contributions"), self._digests())
        confirms, checks = unhex(self.v["confirms"][1:]), self._inbox("checks")
        is_check = frame[1] == Tag.KEY_CHECK
        party.finish(
            confirms if is_check else self._with(confirms, frame),
            self._with(checks, frame) if is_check else checks,
        )

    def accept(self, frame: bytes) -> None:
        self._masking().accept(frame)

    def accept_again(self, frame: bytes) -> None:
        one = self._masking()
        one.accept(bytes.fromhex(self.v["round"]["model"]))
        one.accept(frame)

    def promise(self, frame: bytes) -> None:
        self._node().promise(frame)

    def promise_again(self, frame: bytes) -> None:
        one = self._node()
        one.promise(bytes.fromhex(NODES["round"]["requests"][0]))
        one.promise(frame)

    def total(self, frame: bytes) -> None:
        one = self._node()
        one.promise(bytes.fromhex(NODES["round"]["requests"][0]))
        one.total([frame])

    def receive(self, frame: bytes) -> None:
        self._aggregator().receive(frame)

    def receive_again(self, frame: bytes) -> None:
        aggregator = self._aggregator()
        aggregator.receive(bytes.fromhex(self.v["round"]["masked"][1]))
        aggregator.receive(frame)

    def _aggregator(self) -> Aggregator:
        aggregator = self.w.aggregator()
        aggregator.begin(make.ROUND, make.ATTEMPT, make.SILOS, make.PARAMETERS)
        return aggregator

    def _masking(self) -> Masking:
        return self.w.masking(sessions("pairwise")[1])

    def _node(self) -> ComputeNode:
        return make.NODES.node(sessions("nodes")[4])

    def _revealed(self) -> Agreement:
        self.party.commit()
        self.party.reveal(unhex(self.v["commits"]))
        return self.party

    def _learnt(self) -> Agreement:
        self._revealed().learn_seed(unhex(self.v["reveals"]))
        make.contributed(self.party, make.sealing_from(make.stored("sealed")))
        return self.party

    def _inbox(self, kind: str) -> list[bytes]:
        return unhex([frames["1"] for frames in self.v[kind].values() if "1" in frames])

    def _digests(self) -> bytes:
        return bytes.fromhex(self.v["digests"])

    def _with(self, frames: list[bytes], frame: bytes) -> list[bytes]:
        """The frame in the place of its sender's."""
        return [frame if data[58:62] == frame[58:62] else data for data in frames]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["name"])
def test_bad_frames_are_refused_at_their_step(case: Any) -> None:
    with refused(case["culprit"], case["says"]):
        getattr(Prepared(), case["step"])(bytes.fromhex(case["frame"]))


@pytest.mark.parametrize(
    "step", ["learn_seed", "confirm", "finish", "accept", "promise", "total", "receive"]
)
def test_the_good_frame_passes_the_same_step(step: str) -> None:
    """So that a bad frame is refused for what is bad in it."""
    good = {
        "learn_seed": PAIRWISE["reveals"][1],
        "confirm": PAIRWISE["contributions"]["2"]["1"],
        "finish": PAIRWISE["confirms"][1],
        "accept": PAIRWISE["round"]["model"],
        "promise": NODES["round"]["requests"][0],
        "total": NODES["round"]["promises"][0],
        "receive": PAIRWISE["round"]["masked"][1],
    }
    getattr(Prepared(), step)(bytes.fromhex(good[step]))


def test_signatures_of_fixed_keys_repeat() -> None:
    frame = make.stored("frames")["COMMIT"]
    content = b"hubbub frame v1" + bytes.fromhex(frame)[:HEADER_BYTES] + ref.sha(payload(frame))
    signature = bytes.fromhex(frame)[-SIGNATURE_BYTES:]
    assert fixed_keys("silo-1", "silo").sign(content) == signature
