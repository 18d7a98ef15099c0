"""Golden vectors of joint seeds, projections and batches: the second implementation agrees."""

from __future__ import annotations

import inspect
import math
import struct
from typing import Any

import numpy as np
import pytest

from hubbub.core.protocol.agreement.key_agreement import Agreement
from hubbub.core.protocol.projection.matrix import Projection
from hubbub.core.protocol.projection.projected_sum import project
from hubbub.core.protocol.round.draw import Draw
from hubbub.core.protocol.token_lists.joint_batch import partition, without_replacement
from hubbub.learning.layer_projection import layer_matrices
from protocol import reference as ref
from protocol import reference_draws as draws
from protocol.parties import SESSION, STUDY, fixed_keys, refused
from protocol.test_vectors import ALL, payload, unhex
from protocol.vectors import make
from protocol.vectors.joint import chains

V, PAIRWISE, BAD = make.stored("joint"), make.stored("pairwise"), make.stored("bad_joint")
TURN, W = V["round"], make.JOINT
NOW = (TURN["round"], TURN["attempt"])
SEED = bytes.fromhex(TURN["seed"])


def test_the_second_implementation_of_draws_shares_nothing_with_the_first() -> None:
    imports = [line for line in inspect.getsource(draws).splitlines() if "import" in line]
    assert [line for line in imports if "hubbub" in line or "protocol" in line] == [
        "from protocol.reference import keystream, sha, u32, words"
    ]


# Anchors, links, seeds ----------------------------------------------------------------------


def chained() -> dict[int, list[bytes]]:
    length = V["rounds"] * V["attempts"]
    tops = enumerate(unhex(V["tops"]), 1)
    return {silo: ref.links(STUDY, SESSION, silo, top, length) for silo, top in tops}


def remade(sender: int, tag: int, now: tuple[int, int], receiver: int, content: bytes) -> str:
    """A frame by the second implementation, signed with the sender's fixed key."""
    one, place = W.keys[sender].identity, (STUDY, SESSION, *now, sender, receiver)
    return ref.frame(tag, place, content, fixed_keys(one.name, one.role).sign).hex()


def test_reference_makes_every_anchor_and_link() -> None:
    chain, (round, attempt) = chained(), NOW
    number = (round - 1) * V["attempts"] + attempt + 1
    for silo, links in chain.items():
        assert remade(silo, 11, (0, 0), ALL, links[0]) == V["anchors"][silo - 1]
        assert remade(silo, 12, NOW, ALL, links[number]) == TURN["links"][silo - 1]


def test_reference_derives_the_anchors_digest_and_the_transcript_that_begins_with_it() -> None:
    anchors = dict(enumerate((payload(frame) for frame in V["anchors"]), 1))
    digest = ref.anchors_digest(STUDY, SESSION, V["rounds"], V["attempts"], anchors)
    assert digest.hex() == V["anchors_digest"]
    commits, shares = (
        dict(enumerate((payload(frame) for frame in PAIRWISE[name]), 1))
        for name in ("commits", "reveals")
    )
    start = (STUDY, SESSION, bytes.fromhex(PAIRWISE["roster_digest"]), commits, shares)
    whole = bytes.fromhex(PAIRWISE["digests"])
    found = ref.transcript(*start, [whole], digest)
    assert found.hex() == V["transcript"] != PAIRWISE["transcript"]
    assert ref.transcript(*start, [whole]).hex() == PAIRWISE["transcript"]
    for silo, confirm in enumerate(V["confirms"], 1):
        assert remade(silo, 4, (0, 0), ALL, found) == confirm


@pytest.mark.parametrize("case", V["seeds"], ids=lambda c: f"{c['round']}.{c['attempt']}")
def test_reference_derives_every_seed_from_its_links(case: Any) -> None:
    round, attempt, chain = case["round"], case["attempt"], chained()
    number = (round - 1) * V["attempts"] + attempt + 1
    links = dict(zip(case["active"], unhex(case["links"]), strict=True))
    assert links == {silo: chain[silo][number] for silo in case["active"]}
    assert ref.attempt_seed(STUDY, SESSION, round, attempt, links).hex() == case["seed"]


# A projected round --------------------------------------------------------------------------


def test_reference_derives_the_seed_and_the_key_of_the_round() -> None:
    links = {silo: payload(frame) for silo, frame in enumerate(TURN["links"], 1)}
    assert ref.attempt_seed(STUDY, SESSION, *NOW, links) == SEED
    model = struct.pack("<8f", *TURN["parameters"])
    assert ref.sha(model).hex() == TURN["model_digest"]
    active = ref.bitmap(TURN["active"], 3)
    assert remade(0, 6, NOW, ALL, active + model) == TURN["model"]
    key = draws.draw_key("sign", (8, 5, *NOW), SEED, TURN["parameters"])
    assert key.hex() == TURN["draw_key"]
    key = draws.draw_key("layers", (8, 5, *NOW), SEED, TURN["parameters"])
    assert key.hex() == TURN["layers_key"]


def test_reference_projects_encodes_and_masks_as_the_silos_do() -> None:
    key, step = bytes.fromhex(TURN["draw_key"]), TURN["quantum"]
    assert step == draws.grid_of(TURN["clip"], TURN["most_records"], 8)
    transcript, total = bytes.fromhex(V["transcript"]), [0] * 5
    model = ref.digest(bytes.fromhex(TURN["model"]))
    for own, frame in enumerate(TURN["masked"], 1):
        numbers = draws.projected(TURN["sums"][str(own)], 5, key, step)
        values = [ref.encoded(one, TURN["grid_step"], 32) for one in numbers]
        total = [(a + b) % 2**32 for a, b in zip(total, values, strict=True)]
        keys = {
            other: ref.mask_key(secret_of(own, other), transcript, *NOW, model)
            for other in TURN["active"]
            if other != own
        }
        answer = ref.masked(values, own, keys, 32, pairwise=True) + model
        assert remade(own, 7, NOW, 0, answer) == frame
    assert [ref.decoded(one, 32) for one in total] == TURN["sum"]


def secret_of(one: int, other: int) -> bytes:
    return bytes.fromhex(V["secrets"][f"{min(one, other)}-{max(one, other)}"])


def test_reference_lifts_the_sum_as_the_aggregator_does() -> None:
    numbers = [value * TURN["grid_step"] for value in TURN["sum"]]
    assert draws.lifted(numbers, 8, bytes.fromhex(TURN["draw_key"])) == TURN["lifted"]


# Matrices -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sign", "gaussian", "layers"])
def test_reference_derives_every_key(kind: str) -> None:
    case = V["matrices"][kind]
    places = (case["parameters"], case["dimension"], *NOW)
    assert draws.draw_key(kind, places, SEED, TURN["parameters"]).hex() == case["key"]


def test_reference_makes_the_same_signs() -> None:
    case = V["matrices"]["sign"]
    key, columns = bytes.fromhex(case["key"]), range(case["dimension"])
    for row, entries in case["rows"].items():
        assert [draws.sign(key, int(row), column) for column in columns] == entries


def test_reference_makes_the_same_gaussian_entries() -> None:
    case = V["matrices"]["gaussian"]
    key, k = bytes.fromhex(case["key"]), case["dimension"]
    for row, entries in case["rows"].items():
        assert [draws.gaussian(key, int(row), column, k) for column in range(k)] == entries


@pytest.mark.parametrize("k", [2, 7, 40])
@pytest.mark.parametrize("kind", ["sign", "gaussian"])
def test_reference_projects_vectors_that_are_in_no_file(kind: str, k: int) -> None:
    d, draw = 50, Draw(seed=SEED, step=k, model=bytes(32))
    projection = Projection(kind=kind, parameters=d, dimension=k, clip=2.0, records=3)
    vector, key = np.random.default_rng(k).normal(size=d), projection.key(draw)
    whole = [round(value / draws.grid_of(2.0, 3, d)) for value in vector]
    step = projection.quantum / math.sqrt(k)
    if kind == "gaussian":
        columns = [[draws.gaussian(key, i, j, k) for i in range(d)] for j in range(k)]
        step /= 2**20
    else:
        columns = [[draws.sign(key, i, j) for i in range(d)] for j in range(k)]
    exact = [sum(a * b for a, b in zip(column, whole, strict=True)) * step for column in columns]
    assert project(vector, projection, draw) == pytest.approx(exact, rel=1e-14, abs=1e-300)


@pytest.mark.parametrize("case", V["matrices"]["layers"]["divided"], ids=str)
def test_reference_divides_the_numbers_over_the_layers(case: Any) -> None:
    sizes = [math.prod(shape) for shape in case["shapes"]]
    assert draws.divided(sizes, sum(case["sent"])) == case["sent"]


@pytest.mark.parametrize("seed", range(20))
def test_reference_divides_numbers_that_are_in_no_file(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sizes = [int(size) for size in draw.integers(1, 300, size=draw.integers(1, 6))]
    k = int(draw.integers(len(sizes), sum(sizes), endpoint=True))
    made = layer_matrices([(size,) for size in sizes], k)
    assert draws.divided(sizes, k) == [matrix.sent for matrix in made]


@pytest.mark.parametrize("case", V["matrices"]["layers"]["signs"], ids=lambda c: str(c["place"]))
def test_reference_makes_the_same_signs_of_a_layer(case: Any) -> None:
    key = bytes.fromhex(V["matrices"]["layers"]["key"])
    shape = (case["rows"], case["columns"], case["sent"])
    assert draws.layer_signs(key, case["place"], *shape) == (case["outer"], case["inner"])


# Batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["without_replacement", "partition"])
def test_reference_chooses_the_same_batches(scheme: str) -> None:
    listed = V["batches"]
    n, b, own = listed["records"], listed["batch"], listed["positions"]
    for case in listed[scheme]:
        places = getattr(draws, scheme)(bytes.fromhex(listed["seed"]), n, b, case["step"])
        assert places == case["places"]
        assert [i for i, place in enumerate(own) if place in places] == case["own"]


def test_an_epoch_has_every_place_once_and_its_last_batch_is_the_rest() -> None:
    cases = V["batches"]["partition"][:4]
    assert [len(case["places"]) for case in cases] == [6, 6, 6, 2]
    assert sorted(place for case in cases for place in case["places"]) == list(range(20))


@pytest.mark.parametrize(("n", "b"), [(1, 1), (2, 1), (7, 7), (33, 5), (101, 100)])
def test_reference_chooses_batches_that_are_in_no_file(n: int, b: int) -> None:
    for step in range(1, 9):
        for one, other in (
            (without_replacement, draws.without_replacement),
            (partition, draws.partition),
        ):
            assert one(SEED, n, b, step).tolist() == other(SEED, n, b, step)


# What must be refused -----------------------------------------------------------------------


class Prepared:
    """Silo 1 or the aggregator at the step where a frame arrives."""

    def anchors(self, frame: bytes) -> None:
        chains(W)[1].learn_anchors(_with(unhex(V["anchors"]), frame))

    def anchors_added(self, frame: bytes) -> None:
        chains(W)[1].learn_anchors([*unhex(V["anchors"]), frame])

    def links(self, frame: bytes) -> None:
        self._draws(_with(unhex(TURN["links"]), frame))

    def links_added(self, frame: bytes) -> None:
        self._draws([*unhex(TURN["links"]), frame])

    def links_among_two(self, frame: bytes) -> None:
        links = unhex(TURN["links"])
        self._draws([links[0], frame, links[2]], active=(1, 3))

    def confirm(self, frame: bytes) -> None:
        """Silo 1 was shown another anchor; the others' CONFIRM says so."""
        seeds = chains(W)[1]
        party = self._learnt(seeds.learn_anchors(_with(unhex(V["anchors"]), frame)))
        sent = [frames["1"] for frames in PAIRWISE["contributions"].values() if "1" in frames]
        party.confirm(unhex(sent), bytes.fromhex(PAIRWISE["digests"]))
        checks = [frames["1"] for frames in V["checks"].values() if "1" in frames]
        party.finish(unhex(V["confirms"][1:]), unhex(checks))

    def reveal(self, frame: bytes) -> None:
        one = make.party(W, 1)
        one.commit()
        one.reveal(_with(unhex(PAIRWISE["commits"]), frame))

    def accept(self, frame: bytes) -> None:
        W.masking(make.session(W, make.sealing_from(make.stored("sealed")))[1][1]).accept(frame)

    def receive(self, frame: bytes) -> None:
        aggregator = W.aggregator()
        aggregator.begin(*NOW, (1, 2, 3), np.array(TURN["parameters"], dtype=np.float32))
        aggregator.receive(frame)

    def _draws(self, frames: list[bytes], active: tuple[int, ...] = (1, 2, 3)) -> None:
        seeds = chains(W)[1]
        seeds.learn_anchors(unhex(V["anchors"]))
        seeds.reveal(*NOW)
        seeds.seed(*NOW, active, frames)

    def _learnt(self, context: bytes) -> Agreement:
        key = ref.sha(b"randomness of party 1")[:16]
        party = W.agreement(1, source=make.SecureSource(key), context=context)
        party.commit()
        party.reveal(unhex(PAIRWISE["commits"]))
        party.learn_seed(unhex(PAIRWISE["reveals"]))
        make.contributed(party, make.sealing_from(make.stored("sealed")))
        return party


def _with(frames: list[bytes], frame: bytes) -> list[bytes]:
    """The frame in the place of its sender's."""
    return [frame if data[58:62] == frame[58:62] else data for data in frames]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["name"])
def test_bad_frames_are_refused_at_their_step(case: Any) -> None:
    with refused(case["culprit"], case["says"]):
        getattr(Prepared(), case["step"])(bytes.fromhex(case["frame"]))


def of(step: str) -> Any:
    """The bad frames of a step, but for those of which only their owner can tell."""
    cases = [case for case in BAD if case["step"] == step and "my own" not in case["says"]]
    return pytest.mark.parametrize("case", cases, ids=lambda case: case["name"])


@of("anchors")
def test_who_has_no_chain_refuses_the_same_anchors(case: Any) -> None:
    with refused(case["culprit"], case["says"]):
        W.seed_check().learn_anchors(_with(unhex(V["anchors"]), bytes.fromhex(case["frame"])))


@of("links")
def test_who_has_no_chain_refuses_the_same_links(case: Any) -> None:
    check = W.seed_check()
    check.learn_anchors(unhex(V["anchors"]))
    with refused(case["culprit"], case["says"]):
        check.seed(*NOW, (1, 2, 3), _with(unhex(TURN["links"]), bytes.fromhex(case["frame"])))


@pytest.mark.parametrize(
    ("step", "good"),
    [
        ("anchors", V["anchors"][1]),
        ("links", TURN["links"][1]),
        ("confirm", V["anchors"][1]),
        ("reveal", PAIRWISE["commits"][1]),
        ("accept", TURN["model"]),
        ("receive", TURN["masked"][1]),
    ],
)
def test_the_good_frame_passes_the_same_step(step: str, good: str) -> None:
    """So that a bad frame is refused for what is bad in it."""
    getattr(Prepared(), step)(bytes.fromhex(good))
