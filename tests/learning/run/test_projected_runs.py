"""Projected sums in rounds and runs: what is revealed, which matrix it went through, what it costs.

Spies stand where a silo encodes and where it reveals. The seed of an attempt and the draw of its
matrix are worked out again here from the links on the wire, by the words of docs/protocol.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.stats import chi2

import hubbub
from hubbub import learning
from hubbub.core.ledger.entry import Cap
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.planning import exposure
from hubbub.core.planning.plan import Plan
from hubbub.core.protocol.primitives import noise
from hubbub.core.protocol.primitives.wire import (
    HEADER_BYTES,
    OVERHEAD,
    SIGNATURE_BYTES,
    Frame,
    Tag,
)
from hubbub.core.protocol.projection.matrix import Projection
from hubbub.core.protocol.projection.projected_sum import lift, project
from hubbub.core.protocol.round import batches, draw
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.attempt_sum import AttemptSum
from hubbub.core.protocol.round.draw import Draw
from hubbub.core.protocol.round.round_parameters import RoundParameters, decoded
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.session.ask import Absent
from hubbub.core.session.in_process import Federation, federate
from hubbub.core.session.offer import Layout, round_parameters_of
from hubbub.core.tabular.records import Records
from hubbub.learning.layer_projection import LayerProjection
from hubbub.learning.runs import baselines
from hubbub.learning.runs.run_study import run

HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")
HOSPITALS = ("cleveland", "hungary", "switzerland", "va-long-beach")
KINDS = ("gaussian", "sign", "layers")
WHOLE, SENT, RECORDS, STUDY = 27, 10, 6, bytes(range(32))
TOPOLOGIES = {"pairwise": {}, "nodes": {"nodes": 2}, "full": {"nodes": 2, "full_shares": True}}

every_kind = pytest.mark.parametrize("kind", KINDS)


# Rounds of made-up silos ------------------------------------------------------------------------


@lru_cache(maxsize=1)
def model() -> Any:
    return learning.build_model("logistic", inputs=(WHOLE - 1,), outputs=1, seed=STUDY)


@lru_cache(maxsize=8)
def task(number: int) -> learning.TrainingTask:
    """A silo with a few made-up records, all of which are in every batch."""
    random = np.random.default_rng(number)
    inputs = random.normal(size=(RECORDS, WHOLE - 1)).astype(np.float32)
    targets = random.integers(2, size=RECORDS).astype(np.float32)
    records = Records(inputs=inputs, targets=targets)
    layers = partial(LayerProjection.of, dimension=SENT)
    return learning.TrainingTask(
        model(), records, clip=0.99, margin=2**-9, method="auto", layers=layers
    )


class Nothing:
    """A silo without records: all that it sends is noise."""

    count = capacity = 0

    def __init__(self, sent: int = SENT) -> None:
        self._sent = sent

    def clipped_sum(self, parameters: object, chosen: object) -> np.ndarray:
        return np.zeros(WHOLE)

    def projected_sum(self, parameters: object, chosen: object, key: bytes) -> Any:
        return np.zeros(self._sent)


def round_parameters(
    kind: str, *, nodes: int = 0, full_shares: bool = False, **changed: Any
) -> RoundParameters:
    numbers = {
        "dimension": SENT,
        "parameters": WHOLE,
        "silos": 4,
        "quorum": 3,
        "steps": 9,
        "word_bits": 32,
        "grid_step": 2.0**-12,
        "sigma_grid": 8.0,
        "sample_rate": 1.0,
        "most_records": 4 * RECORDS,
    }
    return RoundParameters(
        **(numbers | changed), nodes=nodes, full_shares=full_shares, projection=kind, clip=1.0
    )


def federation(kind: str, topology: str = "pairwise") -> Federation:
    layout = Layout(names=HOSPITALS, nodes=TOPOLOGIES[topology].get("nodes", 0))
    tasks = [task(number) for number in range(4)]
    return federate(layout, round_parameters(kind, **TOPOLOGIES[topology]), tasks, study=STUDY)


def parameters(number: int = 0) -> np.ndarray:
    return np.random.default_rng(100 + number).normal(size=WHOLE).astype(np.float32)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[np.ndarray, np.ndarray]]:
    """What each silo puts on the grid, before noise and after it."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    original = noise.add_noise_and_round

    def spy(
        vector: Any, sigma_grid: float, source: Any, word_bits: int, *, grid_step: float
    ) -> Any:
        before = vector / grid_step
        residues = original(vector, sigma_grid, source, word_bits, grid_step=grid_step)
        seen.append((before, residues.view(f"i{word_bits // 8}").astype(np.int64)))
        return residues

    monkeypatch.setattr(noise, "add_noise_and_round", spy)
    return seen


@pytest.fixture
def revealed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every link that a silo has revealed."""
    seen: list[bytes] = []
    original = Silo.reveal

    def spy(self: Silo) -> bytes:
        seen.append(original(self))
        return seen[-1]

    monkeypatch.setattr(Silo, "reveal", spy)
    return seen


def seed_of(links: list[bytes]) -> bytes:
    """docs/protocol.md, section 4: from the links of one attempt to its seed."""
    ((study, session, time),) = {(one[2:34], one[34:50], one[50:58]) for one in links}
    whole = b"hubbub attempt seed v1" + study + session + time
    for one in sorted(links, key=sender_of):
        whole += one[58:62] + one[HEADER_BYTES:-SIGNATURE_BYTES]
    return hashlib.sha256(whole).digest()


def sender_of(frame: bytes) -> int:
    return int.from_bytes(frame[58:62], "little")


def draw_from(seed: bytes, round: int, attempt: int, model: np.ndarray) -> Draw:
    digest = hashlib.sha256(model.astype("<f4").tobytes()).digest()
    return Draw(seed=seed, step=round, attempt=attempt, model=digest)


def by_hand(kind: str, draw: Draw, model_now: np.ndarray) -> list[np.ndarray]:
    """Every silo's projected clipped sum."""
    everybody = np.arange(RECORDS)
    if kind == "layers":
        key = draw.key_of("layers", WHOLE, SENT)
        return [task(n).projected_sum(model_now, everybody, key) for n in range(4)]
    private_queries = shape(kind)
    sums = [task(n).clipped_sum(model_now, everybody) for n in range(4)]
    return [project(one, private_queries, draw) for one in sums]


def shape(kind: str) -> Projection:
    return Projection(kind=kind, parameters=WHOLE, dimension=SENT, clip=1.0, records=4 * RECORDS)


def lifted(kind: str, found: np.ndarray, draw: Draw) -> np.ndarray:
    if kind == "layers":
        key = draw.key_of("layers", WHOLE, SENT)
        return LayerProjection.of(model(), SENT).lift(found, key)
    return lift(found, shape(kind), draw)


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records stand in the order of their places: a float sum's last bit follows from the rows."""
    monkeypatch.setattr(batches, "injected", lambda _source, chosen, _rows: chosen)


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.usefixtures("in_order")
@every_kind
def test_the_revealed_sum_is_that_of_the_projected_sums_to_the_last_bit(
    encoded: Any, revealed: list[bytes], kind: str, topology: str
) -> None:
    parties = federation(kind, topology)
    for number in (1, 2):
        encoded.clear(), revealed.clear()
        now = parameters(number)
        total = parties.sum(number, now)
        assert total.shape == (SENT,)
        assert np.array_equal(total, np.sum([after for _, after in encoded], axis=0))

        seed = seed_of(revealed)
        assert parties.rounds.aggregator.attempt.seed == seed
        draw, steps = draw_from(seed, number, 0, now), round_parameters(kind).grid_step
        mine = by_hand(kind, draw, now)
        for (before, _), expected in zip(encoded, mine, strict=True):
            assert np.array_equal(before * steps, expected)  # a grid step is a power of two
        found = decoded(round_parameters(kind), total)
        grid = np.sum([after for _, after in encoded], axis=0) * steps
        assert np.array_equal(lifted(kind, found, draw), lifted(kind, grid, draw))
        # Less its noise (32 grid steps of 2^-12 in all, at 12 deviations) it is that of the sums.
        assert np.abs(found - np.sum(mine, axis=0)).max() < 12 * 2 * 8 * steps


# The matrix -------------------------------------------------------------------------------------


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[Draw]:
    """The draw of every silo in every attempt."""
    seen, true = list[Draw](), draw.draw_of

    def spy(*arguments: Any) -> Draw:
        seen.append(true(*arguments))
        return seen[-1]

    monkeypatch.setattr(draw, "draw_of", spy)
    return seen


@pytest.mark.slow
@every_kind
def test_the_matrix_is_new_in_every_attempt_and_for_every_model(
    encoded: Any, draws: list[Draw], kind: str
) -> None:
    parties, first = federation(kind), []
    for number, attempt in ((1, 0), (1, 1), (2, 0), (3, 1), (4, 0)):
        encoded.clear(), draws.clear()
        parties.rounds.attempt(number, attempt, parameters())
        assert len(set(draws)) == 1  # everybody's is the same
        first.append(encoded[0][0])
    for one in range(len(first)):
        for other in range(one):
            assert np.abs(first[one] - first[other]).max() > 1.0  # grid steps


@every_kind
def test_the_matrix_follows_from_the_link_of_every_active_silo_and_from_the_model(
    draws: list[Draw], revealed: list[bytes], kind: str
) -> None:
    parties = federation(kind)
    parties.rounds.attendance.absent[2] = Absent(why="silent", said="it is away")
    parties.rounds.attempt(1, 1, parameters())
    assert len(revealed) == 3
    names = (kind, WHOLE, SENT)
    right = draw_from(seed_of(revealed), 1, 1, parameters())
    assert {draw.key_of(*names) for draw in draws} == {right.key_of(*names)}
    others = [draw_from(seed_of(revealed), 1, 1, parameters(1))]
    for turn in range(3):
        fewer = [link for place, link in enumerate(revealed) if place != turn]
        others.append(draw_from(seed_of(fewer), 1, 1, parameters()))
    nudged = parameters()
    nudged[-1] = np.nextafter(nudged[-1], np.float32(9))
    others.append(draw_from(seed_of(revealed), 1, 1, nudged))
    assert right.key_of(*names) not in {draw.key_of(*names) for draw in others}


@pytest.mark.parametrize("silo", range(4))
def test_one_bit_of_any_silos_link_would_be_another_seed(revealed: list[bytes], silo: int) -> None:
    parties = federation("sign")
    parties.sum(1, parameters())
    assert parties.rounds.aggregator.attempt.seed == seed_of(revealed)
    altered = bytearray(revealed[silo])
    altered[HEADER_BYTES + 31] ^= 1
    assert seed_of([*revealed[:silo], bytes(altered), *revealed[silo + 1 :]]) != seed_of(revealed)


# Noise ------------------------------------------------------------------------------------------


def two_sided(found: np.ndarray, sigma: float, alarm: float = 1e-7) -> bool:
    """Whether the variance is as planned; wrongly denied with this probability."""
    statistic = float(np.sum(np.square(found)) / sigma**2)
    return chi2.ppf(alarm / 2, found.size) < statistic < chi2.isf(alarm / 2, found.size)


@pytest.mark.slow
@every_kind
def test_the_revealed_numbers_have_the_planned_noise(kind: str) -> None:
    plan = planned(kind)
    planned_terms = replace(round_parameters_of(plan.main), steps=60)
    layout = Layout(names=HOSPITALS)
    parties = federate(layout, planned_terms, [Nothing()] * 4, study=STUDY)
    sums = [parties.sum(number, parameters()) for number in range(1, 61)]
    found = np.concatenate([decoded(planned_terms, one) for one in sums])
    sigma = plan.total_noise_multiplier * plan.mechanism.clip
    assert found.size == 60 * SENT
    assert two_sided(found, sigma)
    # 600 numbers: either wrong scale passes with probability below 10^-9.
    assert not two_sided(found * 2 / 3, sigma)
    assert not two_sided(found * 3 / 2, sigma)


# Whole runs -------------------------------------------------------------------------------------


def study(kind: str = "", *, k: int = SENT, steps: int = 8, **replaced: str) -> hubbub.Study:
    """The heart study with a projection; `replaced` exchanges whole lines by their key."""
    lines = {"steps": str(steps), "epsilon": "8.0", **replaced}
    text = HEART
    for key, value in lines.items():
        found = next(line for line in text.splitlines() if line.startswith(f"{key} ="))
        text = text.replace(found, f"{key} = {value}")
    if kind:
        asked = f'projection = {k}\nprojection_kind = "{kind}"'
        text = text.replace("[training]", f"[training]\n{asked}")
    return hubbub.Study.parse(text)


@lru_cache(maxsize=16)
def planned(kind: str = "", k: int = SENT, nodes: int = 0, dropouts: int = 0) -> Plan:
    """With no coalition but the stated one: the others take most of the time."""
    with mock.patch.object(exposure, "_curve", lambda parties: [parties.colluders]):
        return hubbub.plan(shaped(kind, k, nodes, dropouts), dimension=WHOLE)


def shaped(kind: str, k: int = SENT, nodes: int = 0, dropouts: int = 0) -> hubbub.Study:
    colluders = "0" if dropouts else "1"
    return study(kind, k=k, compute_nodes=str(nodes), dropouts=str(dropouts), colluders=colluders)


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every MASKED that reaches the aggregator."""
    seen: list[bytes] = []
    original = Aggregator.receive

    def spy(self: Aggregator, message: bytes, shares: Sequence[Frame] = ()) -> bytes:
        if message[1] == Tag.MASKED:
            seen.append(message)
        return original(self, message, shares)

    monkeypatch.setattr(Aggregator, "receive", spy)
    return seen


@pytest.mark.parametrize(("kind", "tried"), [("layers", SENT), ("sign", 0)])
def test_p14_the_sum_that_is_tried_at_set_up_is_the_one_that_is_sent(
    monkeypatch: pytest.MonkeyPatch, kind: str, tried: int
) -> None:
    """Or a model that raises in the projection alone would send nothing but noise.

    Rounding in its sums may cost no more than the margin that records are clipped by.
    """

    class Seen(Exception):  # noqa: N818 (no error)
        pass

    def stop(*_: object, clip: float, margin: float, layers: Any, **__: object) -> None:
        assert clip * (1 + margin) <= plan.mechanism.clip
        raise Seen(layers(model()).dimension if layers else 0)

    monkeypatch.setattr(learning, "TrainingTask", stop)
    plan = planned(kind)
    with pytest.raises(Seen, match=f"^{tried}$"):
        run(plan.study, plan=plan)


@pytest.mark.slow
@every_kind
def test_a_study_that_sends_ten_numbers_of_twenty_seven_trains(
    tmp_path: Path, frames: list[bytes], kind: str
) -> None:
    plan = planned(kind)
    result = run(plan.study, tmp_path / "run", plan=plan)
    assert [row["step"] for row in result.metrics] == list(range(1, 9))
    assert all(np.isfinite(row["loss"]) for row in result.metrics)
    assert learning.parameters_vector(result.model).size == WHOLE
    assert result.epsilon == plan.epsilon() <= 8
    assert len(frames) == 8 * 4
    sent = SENT * plan.word_bits // 8 + 32
    assert {len(frame) - HEADER_BYTES - SIGNATURE_BYTES for frame in frames} == {sent}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dropouts"), [("gaussian", 0), ("sign", 0), ("sign", 1), ("layers", 0), ("layers", 1)]
)
def test_every_step_is_taken_along_the_lifted_sum(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, revealed: list[bytes], kind: str, dropouts: int
) -> None:
    plan, totals = planned(kind, SENT, 0, dropouts), []
    steps: list[tuple[np.ndarray, np.ndarray]] = []
    original, stepped = AttemptSum.integers, learning.Optimizer.step

    def summed(self: AttemptSum) -> np.ndarray:
        totals.append(original(self))
        return totals[-1]

    def step(optimizer: Any, now: np.ndarray, gradient: np.ndarray, divisor: float) -> Any:
        steps.append((now.copy(), np.array(gradient)))
        return stepped(optimizer, now, gradient, divisor)

    monkeypatch.setattr(AttemptSum, "integers", summed)
    monkeypatch.setattr(learning.Optimizer, "step", step)
    if dropouts:  # hungary pays for nothing, so the first round takes two attempts
        with Ledger(tmp_path / "hungary.sqlite") as book:
            book.set_cap(Cap(epsilon=1e-3, delta=1e-5, relation="add-remove"))
    run(plan.study, ledgers=tmp_path, plan=plan)
    assert len(steps) == len(totals) == 8 - dropouts
    each = 4 - dropouts
    for number, ((now, gradient), total) in enumerate(zip(steps, totals, strict=True), 1):
        links = revealed[each * (number - 1) : each * number]
        draw = draw_from(seed_of(links), number, dropouts if number == 1 else 0, now)
        assert np.array_equal(
            gradient, lifted(kind, decoded(round_parameters_of(plan.main), total), draw)
        )


@pytest.mark.slow
@every_kind
def test_with_hardly_any_noise_it_learns(kind: str) -> None:
    """AUC 0.80 to 0.89 in 48 runs; guessing has one half."""
    plan = planned(kind)
    mechanism = replace(plan.mechanism, noise_multiplier=plan.noise_multiplier / 20)
    loud = replace(plan, main=replace(plan.main, mechanism=mechanism))
    assert run(plan.study, plan=loud).final["auc"] > 0.65


@pytest.mark.slow
def test_a_number_less_is_a_word_less_in_the_plan_and_on_the_wire(frames: list[bytes]) -> None:
    sizes, plans = [], [planned("layers", k) for k in (SENT, 20)]
    for plan in plans:
        frames.clear()
        parties = federate(
            Layout(names=HOSPITALS),
            round_parameters_of(plan.main),
            [Nothing(plan.mechanism.projection.dimension)] * 4,
            study=STUDY,
        )
        parties.sum(1, parameters())
        (size,) = {len(frame) for frame in frames}
        sizes.append(size)
        assert size == plan.main.numbers_sent * plan.word_bits // 8 + 32 + OVERHEAD
    bits = [plan.word_bits for plan in plans]
    saved = plans[1].upload_bytes_per_step - plans[0].upload_bytes_per_step
    assert saved == sizes[1] - sizes[0] == (20 * bits[1] - SENT * bits[0]) // 8 > 0


def test_an_unprojected_plan_sends_all_parameters() -> None:
    whole, small = planned(), planned("layers")
    assert whole.main.numbers_sent == WHOLE
    assert small.main.numbers_sent == SENT
    assert whole.upload_bytes_per_step == WHOLE * whole.word_bits // 8 + 32 + OVERHEAD


@pytest.mark.slow
@pytest.mark.parametrize("baseline", ["trusted", "local-dp", "alone", "non-private"])
@every_kind
def test_baselines_project_too_unless_they_keep_no_privacy(
    monkeypatch: pytest.MonkeyPatch, kind: str, baseline: str
) -> None:
    drawn: list[Draw | None] = []
    shapes: list[tuple[int, ...]] = []
    original = baselines.clipped_sum

    def spy(*arguments: Any) -> np.ndarray:
        drawn.append(arguments[-1])
        found = original(*arguments)
        shapes.append(found.shape)
        return found

    monkeypatch.setattr(baselines, "clipped_sum", spy)
    plan = planned(kind)
    result = run(plan.study, baseline=baseline, plan=plan)
    assert np.isfinite(result.final["loss"])
    assert len(drawn) == (8 * 4 if baseline == "alone" else 8)
    if baseline == "non-private":
        assert set(drawn) == {None}
        assert set(shapes) == {(WHOLE,)}
        return
    assert set(shapes) == {(SENT,)}
    # One matrix for all silos in a step; alone, every silo has its own.
    assert len(set(drawn)) == (8 * 4 if baseline == "alone" else 8)


# Drop-outs --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "nodes"), [("sign", 0), ("layers", 0), ("layers", 2)])
def test_without_a_silo_that_does_not_reveal_the_attempt_is_repeated_and_charged(
    tmp_path: Path, revealed: list[bytes], kind: str, nodes: int
) -> None:
    plan, books = planned(kind, SENT, nodes, 1), tmp_path / "ledgers"
    books.mkdir()
    with Ledger(books / "hungary.sqlite") as book:
        cap = plan.epsilon_after(3) * 1.001
        book.set_cap(Cap(epsilon=cap, delta=1e-5, relation="add-remove"))
    result = run(plan.study, tmp_path / "run", ledgers=books, plan=plan)

    charged = {name: entries(books, name) for name in HOSPITALS}
    left = len(charged["hungary"]) + 1
    assert 2 <= left <= 6
    # Cleveland had paid for the attempt that hungary refused; those after hungary had not.
    assert charged["cleveland"] == [*((n, 0) for n in range(1, left + 1)), (left, 1), *after(left)]
    assert charged["switzerland"] == [*((n, 0) for n in range(1, left)), (left, 1), *after(left)]
    assert len(charged["cleveland"]) == 8  # attempts are what is promised
    assert result.final["step"] == 7
    assert result.epsilon == plan.epsilon()

    times = [links_time(frame) for frame in revealed]
    assert (left, 0) not in {time for _, time in times}  # nobody reveals before all have paid
    assert {silo for silo, time in times if time == (left, 1)} == {1, 3, 4}
    assert {silo for silo, time in times if time > (left, 1)} == {1, 3, 4}
    payloads = [frame[HEADER_BYTES:-SIGNATURE_BYTES] for frame in revealed]
    assert len(set(payloads)) == len(payloads)


def after(left: int) -> list[tuple[int, int]]:
    return [(number, 0) for number in range(left + 1, 8)]


def entries(folder: Path, name: str) -> list[tuple[int, int]]:
    with Ledger(folder / f"{name}.sqlite") as book:
        return [(entry.round, entry.attempt) for entry in book.entries()]


def links_time(frame: bytes) -> tuple[int, tuple[int, int]]:
    """Who revealed, and for which attempt: sender, (round, attempt)."""
    number = partial(int.from_bytes, byteorder="little")
    assert frame[1] == Tag.SEED_LINK
    return sender_of(frame), (number(frame[50:54]), number(frame[54:58]))


@pytest.mark.slow
@every_kind
def test_every_ledger_holds_the_projected_studys_epsilon(tmp_path: Path, kind: str) -> None:
    plan = planned(kind)
    run(plan.study, ledgers=tmp_path, plan=plan)
    for name in HOSPITALS:
        with Ledger(tmp_path / f"{name}.sqlite") as book:
            assert len(book) == 8
            spent = book.epsilon(delta=1e-5, relation="add-remove")
        assert plan.epsilon() * (1 - 1e-9) <= spent <= plan.epsilon() * (1 + 1e-3)
