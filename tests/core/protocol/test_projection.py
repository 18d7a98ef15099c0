"""Random projection: exact, fresh, reproducible, and no heavier in the tail than is accounted for.

Statistical tests have fixed draws; each states the false-alarm rate that it would have over random
ones, and each is shown to reject a wrong scale.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from math import cosh, exp, sqrt, tanh
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.core.errors import StudyError, UserError
from hubbub.core.protocol.primitives.randomness import SecureSource, cipher_at, keystream_into
from hubbub.core.protocol.projection import entries as gaussian_matrix
from hubbub.core.protocol.projection import entries as sign_matrix
from hubbub.core.protocol.projection.matrix import (
    KINDS,
    Projection,
    joined,
    limbs,
    quantum,
    rounded,
)
from hubbub.core.protocol.projection.projected_sum import ProjectedSums, lift, project
from hubbub.core.protocol.round.draw import Draw, draw_of
from hubbub.core.protocol.round.silo import Silo
from protocol.parties import world

VECTORS = Path(__file__).with_name("vectors_projection.json")
SEED = bytes(range(32))
DRAW = Draw(seed=SEED, step=1)
BOTH = pytest.mark.parametrize("kind", KINDS)


def shape(kind: str, d: int, k: int, *, clip: float = 1.0, records: int = 4) -> Projection:
    return Projection(kind=kind, parameters=d, dimension=k, clip=clip, records=records)


def vector(d: int, seed: int = 0, norm: float = 1.0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=d)
    return drawn * (norm / np.linalg.norm(drawn))


@cache
def matrix(kind: str, d: int, k: int) -> np.ndarray:
    """P^T (k, d), from the projections of unit vectors or, where that is slow, from its maker."""
    one = shape(kind, d, k, records=1)
    if kind == "sign":
        return np.stack([project(row, one, DRAW) for row in np.eye(d)], axis=1)
    columns = [part.copy() for _, part in gaussian_matrix._entries(one.key(DRAW), 0, d, k)]
    return np.concatenate(columns) / 2**20 / sqrt(k)


def keystream(key: bytes, block: int, size: int) -> np.ndarray:
    out = np.empty(size, dtype=np.uint8)
    keystream_into(cipher_at(key, block), out.data)
    return out


# Exactness ----------------------------------------------------------------------------------


def naive_signs(d: int, k: int, key: bytes) -> np.ndarray:
    """The sign matrix (k, d), written down word by word in plain Python."""
    rows = np.empty((k, d), dtype=int)
    for group in range(-(-k // 20)):
        words = keystream(key, group << 64, 2 * d).view("<u2")
        for i, word in enumerate(words.tolist()):
            bits = [word >> place & 1 for place in range(16)]
            numbers = [*range(1, 16), 15]
            bits += [
                sum(b for b, n in zip(bits, numbers, strict=True) if n >> c & 1) for c in range(4)
            ]
            for column, bit in enumerate(bits[: k - 20 * group]):
                rows[20 * group + column, i] = 1 - 2 * (bit % 2)
    return rows


def test_signs_are_those_of_a_naive_matrix_exactly() -> None:
    d, k = 700, 33
    one = shape("sign", d, k)
    naive = naive_signs(d, k, one.key(DRAW))
    x = np.rint(vector(d, norm=3.9) / one.quantum).astype(np.int64)
    exact = [sum(int(s) * int(v) for s, v in zip(row, x, strict=True)) for row in naive]
    got = sign_matrix.Signs().project(x, k, one.key(DRAW))
    assert got.tolist() == exact
    y = np.arange(1, k + 1) * 2**40 + 1
    lifted = [sum(int(s) * int(v) for s, v in zip(row, y, strict=True)) for row in naive.T]
    assert sign_matrix.Signs().lift(y, d, one.key(DRAW)).tolist() == lifted


def test_gaussian_entries_are_those_of_box_and_muller_to_the_stated_error() -> None:
    blocks = np.random.default_rng(5).integers(0, 2**32, size=(500, 4), dtype=np.uint32)
    blocks[:4, :2] = [[0, 0], [1, 0], [2**32 - 1, 2**32 - 1], [0, 1]]
    blocks[:2, 2] = [2**25, 0]
    one, other = np.empty(500), np.empty(500)
    gaussian_matrix.normal_pairs(blocks, one, other)
    import mpmath as mp

    for row, *got in zip(blocks.tolist(), one, other, strict=True):
        low, high, fine, angle = row
        u = (mp.mpf((high << 64) + (low << 32) + fine) + mp.mpf(1) / 2) / mp.mpf(2) ** 96
        radius = mp.sqrt(-2 * mp.log(u))
        turn = ((angle >> 2) + mp.mpf(1) / 2) * mp.pi / 2 / 2**30
        exact = [radius * mp.cos(turn), radius * mp.sin(turn)]
        for bit, mine, true in zip((1, 2), got, exact, strict=True):
            assert abs(abs(mine) * 2.0**-20 - true) < 2.0**-21 + 2.0**-27
            assert bool(np.signbit(mine)) == bool(angle & bit)


def test_gaussian_products_are_exact_on_the_grid() -> None:
    d, k = 90, 7
    one = shape("gaussian", d, k)
    entries = matrix("gaussian", d, k) * sqrt(k) * 2**20
    assert np.abs(entries - np.rint(entries)).max() < 1e-7
    whole = [[round(v) for v in row] for row in entries.tolist()]
    x = np.rint(vector(d, norm=3.9) / one.quantum).astype(np.int64)
    exact = [sum(a * int(b) for a, b in zip(row, x, strict=True)) for row in whole]
    got = gaussian_matrix.Gaussian().project(x, k, one.key(DRAW)) * 2**20
    assert [int(v) for v in got] == [int(float(v)) for v in exact]


@given(st.lists(st.integers(-(2**47), 2**47), min_size=1, max_size=20))
def test_limbs_join_to_the_number(numbers: list[int]) -> None:
    parts = limbs(np.array(numbers, dtype=np.int64))
    assert np.abs(parts).max() <= 2**15
    assert joined(parts.astype(np.int64)).tolist() == numbers


@given(st.floats(1e-6, 1e9), st.floats(1, 1e4))
def test_the_grid_is_the_finest_power_of_two_that_keeps_sums_exact(
    length: float, spread: float
) -> None:
    step = quantum(length, spread)
    fits = [length / s <= 2.0**46 and length * spread / s <= 2.0**52 for s in (step, step / 2)]
    assert fits == [True, False]


# Laws ---------------------------------------------------------------------------------------


@BOTH
@settings(max_examples=20, deadline=None)
@given(st.integers(-50, 50), st.integers(-50, 50))
def test_projection_is_linear_on_the_grid(kind: str, a: int, b: int) -> None:
    one = shape(kind, 300, 12, records=1000)
    x, y = (np.rint(vector(300, seed, 1e6)) * one.quantum for seed in (1, 2))
    whole = project(a * x + b * y, one, DRAW)
    parts = a * project(x, one, DRAW) + b * project(y, one, DRAW)
    assert np.abs(whole - parts).max() <= 1e-17  # of sums up to 1e-2: only the results are rounded


@BOTH
def test_off_the_grid_the_difference_stays_within_the_allowance(kind: str) -> None:
    one = shape(kind, 2000, 40, records=2**20)
    x = vector(2000, norm=1000.0)
    on_grid = np.rint(x / one.quantum) * one.quantum
    assert (project(x, one, DRAW) == project(on_grid, one, DRAW)).all()
    assert np.linalg.norm(x - on_grid) <= one.allowance * one.clip / 2


@BOTH
def test_lift_is_the_transpose(kind: str) -> None:
    one = shape(kind, 9000, 50)
    x, y = vector(9000, 1), vector(50, 2, 7.0)
    assert project(x, one, DRAW) @ y == pytest.approx(x @ lift(y, one, DRAW), rel=1e-9)
    assert not lift(np.zeros(50), one, DRAW).any()


@pytest.mark.slow
@BOTH
def test_lift_after_project_is_the_identity_on_average(kind: str) -> None:
    """E[P P^T] = I: mean over 400 draws of a (3 x 3) corner; six sigma, false alarm 2e-8."""
    d, k, draws = 24, 10, 400
    one, total = shape(kind, d, k, records=1), np.zeros((3, 3))
    for step in range(1, draws + 1):
        draw = Draw(seed=SEED, step=step)
        columns = [project(row, one, draw) for row in np.eye(d)[:3]]
        total += [[a @ b for b in columns] for a in columns]
    close = 6 * sqrt(2 / k / draws)
    assert np.abs(total / draws - np.eye(3)).max() < close
    assert abs(total[0, 0] / draws * (3 / 2) ** 2 - 1) > close  # another scale is seen


def test_gaussian_entries_have_gaussian_moments() -> None:
    """160,000 entries against 1, 3, 15 at six standard errors (false alarm 1e-8)."""
    entries = matrix("gaussian", 400, 400).ravel() * sqrt(400)
    n = entries.size
    for scale, agrees in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        z = entries * scale
        errors = [abs((z**p).mean() - m) / sqrt(v / n) for p, m, v in MOMENTS]
        assert (max(errors) < 6) == agrees


MOMENTS = [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10395 - 225)]


@pytest.mark.slow
@BOTH
def test_columns_and_rows_are_uncorrelated(kind: str) -> None:
    """All pairs among 200 rows or columns, at 7 standard errors (false alarm 1e-7)."""
    entries = matrix(kind, 200, 200) * sqrt(200)
    for table in (entries, entries.T):
        products = np.triu(table @ table.T, 1)
        assert np.abs(products).max() < 7 * sqrt(200)
    signs_only = np.abs(entries) == pytest.approx(1)
    assert signs_only == (kind == "sign")


def test_any_nine_of_twenty_signs_are_independent() -> None:
    """The code dual to the twenty columns has no word lighter than ten."""
    masks = sign_matrix.column_masks()
    weights = []
    for chosen in product((0, 1), repeat=4):
        relation = 0
        for use, mask in zip(chosen, masks[16:], strict=True):
            relation ^= mask * use
        weights.append(relation.bit_count() + sum(chosen))
    assert sorted(weights) == [0] + [10] * 10 + [12] * 5
    assert len(set(masks)) == 20


@pytest.mark.parametrize("scale", [1.0, 1.1])
def test_rows_of_signs_have_no_heavier_tail_than_a_gaussian(scale: float) -> None:
    """log E exp<r, g> <= |g|^2 / 2 over all 2^16 rows; 1.1 times the signs is refused (P8)."""
    rows = (
        sign_matrix._HIGH[:, :, None] * sign_matrix._LOW.swapaxes(0, 1).reshape(20, 1, 256)
    ).reshape(20, -1)
    rng, worst = np.random.default_rng(3), -np.inf
    for size in (0.3, 1.0, 3.0, 6.0):
        for direction in (*rng.normal(size=(6, 20)), np.ones(20), rows[:, 77], *np.eye(20)[:2]):
            g = size * direction / np.linalg.norm(direction)
            worst = max(worst, np.log(np.exp(scale * (g @ rows)).mean()) / (size**2 / 2))
    assert (worst <= 1 + 1e-12) == (scale == 1.0)


def test_the_lemma_behind_the_tail_bound() -> None:
    """exp(g^2 / 2) / cosh g - 1 >= 0.77 tanh(g)^10 between 0.5 and 2; the ends are on paper."""
    step = 1e-4
    for g in np.arange(0.5, 2.0, step):
        left = exp(g * g / 2) / cosh(g) - 1
        assert left >= 0.77 * tanh(g + step) ** 10  # both sides grow with g


@pytest.mark.slow
@BOTH
def test_norms_stay_below_the_accounted_tail(kind: str) -> None:
    """P(|P^T a|^2 >= x) <= (x e^(1-x))^(k/2): for a flat, a lone and a sparse vector.

    Counts among the draws stay under the bound plus six standard errors (false alarm 1e-8).
    """
    d, k, draws = 40, 20, 600 if kind == "sign" else 120
    trial = np.zeros((3, d))
    trial[0], trial[1, 3], trial[2, :2] = 1 / sqrt(d), 1, sqrt(0.5)
    one = shape(kind, d, k, records=1)
    engine = gaussian_matrix.Gaussian() if kind == "gaussian" else sign_matrix.Signs()
    squares = np.empty((draws, 3))
    for step in range(draws):
        key = one.key(Draw(seed=SEED, step=step + 1))
        for place, a in enumerate(trial):
            y = engine.project(np.rint(a * 2.0**40).astype(np.int64), k, key) * 2.0**-40
            squares[step, place] = y @ y / k
    for x in (1.2, 1.5, 2.0):
        bound = (x * exp(1 - x)) ** (k / 2)
        assert (squares >= x).mean(axis=0).max() <= bound + 6 * sqrt(bound / draws)
    assert (squares[:, 1].std() < 1e-9) == (kind == "sign")  # a lone coordinate keeps its norm


# Reproducible and fresh ---------------------------------------------------------------------


def test_lift_in_several_batches_of_tables_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    one, y = shape("sign", 2000, 400), vector(400)
    whole = lift(y, one, DRAW)
    monkeypatch.setattr(sign_matrix, "_TABLES", 8)  # of 20
    assert (lift(y, one, DRAW) == whole).all()


def test_a_projection_in_several_spans_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    one, x = shape("sign", 150_000, 45), vector(150_000)
    whole = project(x, one, DRAW)
    monkeypatch.setattr(sign_matrix, "_SPAN", 1 << 16)  # three, the last of them short
    assert (project(x, one, DRAW) == whole).all()


@BOTH
def test_every_part_of_the_draw_makes_another_matrix(kind: str) -> None:
    one, x = shape(kind, 64, 8), vector(64)
    draws = [
        DRAW,
        Draw(seed=bytes(32), step=1),
        Draw(seed=SEED, step=2),
        Draw(seed=SEED, step=1, attempt=1),
        Draw(seed=SEED, step=1, model=b"theta"),
    ]
    assert len({project(x, one, draw).tobytes() for draw in draws}) == len(draws)
    assert (project(x, one, DRAW) == project(x, one, Draw(seed=SEED, step=1))).all()
    keys = {shape(other, 64, k).key(DRAW) for other in KINDS for k in (8, 9)}
    assert len(keys) == 4


def golden() -> list[dict[str, Any]]:
    """Both kinds at sizes that end inside a tile, a chunk, a group and a pair."""
    made = []
    for kind, d, k in [
        ("sign", 65_543, 23),
        ("sign", 8, 2),
        ("gaussian", 8_197, 11),
        ("gaussian", 8, 2),
    ]:
        one = shape(kind, d, k)
        draw = Draw(seed=SEED, step=3, attempt=1, model=b"model")
        x = (np.arange(d) * 2654435761 % 1009 - 504) / 1024 / sqrt(d)
        y = (np.arange(k) * 37 % 101 - 50) / 64
        lifted = lift(y, one, draw)
        made.append(
            {
                "kind": kind,
                "parameters": d,
                "dimension": k,
                "key": one.key(draw).hex(),
                "projected": [value.hex() for value in project(x, one, draw).tolist()],
                "lifted_ends": [value.hex() for value in lifted[[0, 1, -2, -1]].tolist()],
            }
        )
    return made


def test_p8_the_matrix_of_an_attempt_follows_from_its_very_model() -> None:
    """Who chooses the model has not known it; also of two that differ in the last bit of one."""
    models = [np.zeros(3, np.float32), np.array([0, 0, 1e-45], np.float32)]
    draws = [draw_of(SEED, *time, model) for model in models for time in ((1, 0), (1, 1), (2, 0))]
    keys = {draw.key_of("gaussian", 3, 2) for draw in draws}
    assert len(keys) == 6
    assert draw_of(SEED, 1, 0, models[0]) == draws[0]


def test_matrices_have_not_changed() -> None:
    assert golden() == json.loads(VECTORS.read_text())


# Refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "hadamard"}, "gaussian or sign"),
        ({"dimension": 1}, "dimension"),
        ({"dimension": 101}, "dimension"),
        ({"parameters": 2**24 + 1}, "parameters"),
        ({"parameters": 100.0}, "parameters"),
        ({"clip": 0.0}, "clip"),
        ({"clip": float("nan")}, "clip"),
        ({"records": 0}, "records"),
        ({"records": 2**40}, "lower one of them"),
    ],
)
def test_projections_that_cannot_be_certified_are_refused(
    change: dict[str, Any], says: str
) -> None:
    good = {"kind": "sign", "parameters": 100, "dimension": 10, "clip": 1.0, "records": 4}
    Projection(**good)
    with pytest.raises(StudyError, match=says):
        Projection(**(good | change))


@BOTH
def test_the_last_grid_within_the_margin_is_taken_and_the_next_refused(kind: str) -> None:
    """P8 (8): 2^-11 for the grid, 2^-17 for the results, whichever ends first."""
    for parameters, records in ((2**24, 2**17), (2**10, 2**24)):
        one = shape(kind, parameters, 10, records=records)
        assert one.allowance <= 2.0**-11 + 2.0**-17
        with pytest.raises(StudyError, match="lower one of them"):
            shape(kind, parameters, 10, records=records + 1)
    for clip in (0.999, 1.5):  # the grid alone, whose steps are powers of two
        with pytest.raises(StudyError, match="lower one of them"):
            shape(kind, 2**24, 10, clip=clip, records=2**17)


@pytest.mark.parametrize(
    ("change", "says"),
    [({"seed": b"short"}, "32 bytes"), ({"step": 0}, "step"), ({"attempt": -1}, "attempt")],
)
def test_draws_without_a_fresh_matrix_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(StudyError, match=says):
        Draw(**({"seed": SEED, "step": 1} | change))


@BOTH
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e9])
def test_vectors_out_of_bounds_are_refused_without_showing_a_value(kind: str, bad: float) -> None:
    one, x = shape(kind, 100, 10), vector(100)
    x[7] = bad
    with pytest.raises(UserError, match="raise `records`") as caught:
        project(x, one, DRAW)
    assert str(bad) not in str(caught.value)
    with pytest.raises(UserError, match="100 numbers"):
        project(x[1:], one, DRAW)


def test_numbers_whose_sum_no_float_holds_exactly_are_refused_each_of_which_would_pass() -> None:
    assert rounded(np.full(64, 2.0**47), 1.0).sum() == 2.0**53
    with pytest.raises(UserError, match="raise `records`"):
        rounded(np.full(65, 2.0**47), 1.0)


@BOTH
def test_lift_refuses_what_is_not_finite_or_of_another_length(kind: str) -> None:
    one = shape(kind, 100, 10)
    for bad in (np.nan, np.inf):
        with pytest.raises(UserError, match="finite"):
            lift(np.full(10, bad), one, DRAW)
    with pytest.raises(UserError, match="10 numbers"):
        lift(np.ones(11), one, DRAW)


# Sums of a silo -----------------------------------------------------------------------------

PROJECTED = world(4, 0, quorum=3, joint=True).round_parameters


class Alike:
    """Records that are as long as they may be, all in one direction."""

    def __init__(self, count: int) -> None:
        self.count = self.capacity = count

    def clipped_sum(self, parameters: object, rows: np.ndarray) -> np.ndarray:
        return np.eye(PROJECTED.parameters)[0] * PROJECTED.clip * rows.size


@pytest.mark.parametrize("times", [1, 100])
def test_p19_a_silo_of_more_records_than_the_plan_assumed_projects_any_sum(times: int) -> None:
    rows = np.arange(times * PROJECTED.most_records)
    total = ProjectedSums(PROJECTED).clipped_sum(Alike(rows.size), np.zeros(0), rows, DRAW)
    expected = PROJECTED.clip * rows.size / sqrt(PROJECTED.dimension)
    np.testing.assert_allclose(np.abs(total), expected, rtol=1e-12)


@pytest.mark.parametrize("is_stated", [True, False])
def test_p8_a_silo_projects_what_the_round_parameters_state_and_nothing_else(
    is_stated: bool,
) -> None:
    with pytest.raises(StudyError, match="expected the projection that the round parameters state"):
        Silo(
            round_parameters=PROJECTED if is_stated else world().round_parameters,
            task=Alike(3),
            masking=None,  # type: ignore[arg-type]
            source=SecureSource(),
            transform=None if is_stated else ProjectedSums(PROJECTED),
        )


def test_p19_a_silo_whose_rows_no_grid_holds_is_refused_before_a_record_is_read() -> None:
    with pytest.raises(StudyError, match="expected sums that fit a grid"):
        Silo(
            round_parameters=PROJECTED,
            task=Alike(1 << 36),
            masking=None,  # type: ignore[arg-type]
            source=SecureSource(),
            transform=ProjectedSums(PROJECTED),
        )
