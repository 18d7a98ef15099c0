"""Correlated noise (P25): its law, its window, its groups, and who may take part in its sums."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hubbub.core.errors import BudgetError, ProtocolError
from hubbub.core.planning.noise_correlation import best_column
from hubbub.core.protocol.primitives.correlated_noise import UNIT, CorrelatedNoise
from hubbub.core.protocol.primitives.noise import standard_normal
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round import round_parameters as attempt_order
from hubbub.core.protocol.round.batches import EMPTY, Groups, group_rows
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.protocol.round.noise_share import CorrelatedShare
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.session.in_process import Federation, federate
from hubbub.core.session.offer import Layout
from protocol.parties import DIMENSION, refused, sessions_of, world

COLUMN = tuple(int(UNIT * one) for one in (0.8, 0.5, 0.3))  # of norm .99
W = world(correlation=COLUMN)
NODES = world(nodes=2, correlation=COLUMN)
ALL = (1, 2, 3, 4)
KEY = bytes(range(16))

Array = NDArray[np.float64]


def matrix(steps: int, column: Sequence[int] = COLUMN) -> Array:
    """C."""
    made = np.zeros((steps, steps))
    for lag, one in enumerate(column):
        made += one / UNIT * np.eye(steps, k=-lag)
    return made


def covariance(steps: int, column: Sequence[int] = COLUMN) -> Array:
    """Of C^-1 Z over the steps."""
    inverse = np.linalg.inv(matrix(steps, column))
    return np.asarray(inverse @ inverse.T)


def attended(present: Sequence[Sequence[int]], column: Sequence[int] = COLUMN) -> Array:
    """M: the sum of D L L' D over silos, from who was present in each step."""
    base = covariance(len(present), column)
    return sum(np.outer(at, at) * base for at in np.array(present, dtype=float).T)


def share_left(present: Sequence[Sequence[int]], column: Sequence[int] = COLUMN) -> float:
    """The largest lambda with M >= lambda Lambda on every prefix."""
    whole, c = attended(present, column), matrix(len(present), column)
    return min(
        float(np.linalg.eigvalsh(c[:t, :t] @ whole[:t, :t] @ c[:t, :t].T)[0])
        for t in range(1, len(present) + 1)
    )


def expect_covariance(seen: Array, wanted: Array) -> None:
    """Rows of independent coordinates have it, to 7 standard deviations of each estimate."""
    count = seen.shape[1]
    spread = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / count)
    assert (np.abs(seen @ seen.T / count - wanted) < 7 * spread).all()


# The noise itself ---------------------------------------------------------------------------------


def test_p25_rows_are_the_inverse_of_the_matrix_times_independent_noise() -> None:
    noise, source = CorrelatedNoise(COLUMN, 20_000, 5.0), SecureSource(KEY)
    rows = np.array([noise.row(number, source) for number in range(1, 9)])
    expect_covariance(rows, 25 * covariance(8))
    expect_covariance(matrix(8) @ rows, 25 * np.eye(8))


def test_p25_the_matrix_times_the_rows_is_the_noise_that_was_drawn() -> None:
    """To the last digits: a test of their covariance lets two per cent less pass."""
    noise, source, same = CorrelatedNoise(COLUMN, 50, 5.0), SecureSource(KEY), SecureSource(KEY)
    rows = np.array([noise.row(number, source) for number in range(1, 9)])
    independent = np.empty((8, 50))
    for one in independent:
        standard_normal(same, one)
    assert matrix(8) @ rows == pytest.approx(5.0 * independent, rel=1e-12)


def test_p25_no_row_is_made_twice_and_those_left_out_are_made_on_the_way() -> None:
    noise, other = CorrelatedNoise(COLUMN, 5, 5.0), CorrelatedNoise(COLUMN, 5, 5.0)
    sources = [SecureSource(KEY), SecureSource(KEY)]
    rows = [noise.row(number, sources[0]) for number in range(1, 7)]
    assert (other.row(2, sources[1]) == rows[1]).all()
    assert (other.row(6, sources[1]) == rows[5]).all()
    for number in (0, 1, 6):
        with pytest.raises(ProtocolError, match="after 6"):
            noise.row(number, sources[0])


def test_p25_no_more_than_the_window_is_kept_and_it_is_erased() -> None:
    noise, source = CorrelatedNoise(COLUMN, 5, 5.0), SecureSource(KEY)
    rows = [noise.row(number, source) for number in range(1, 20)]
    kept = [value for value in vars(noise).values() if isinstance(value, np.ndarray)]
    numbers = {float(one) for array in kept for one in array.ravel()}
    assert noise.kept == 2
    for row in rows[:-2]:
        assert not numbers & set(row.tolist())
    for row in rows[-2:]:
        assert numbers >= set(row.tolist())
    assert "secret" in repr(noise)
    noise.erase()
    assert not any(array.any() for array in kept if array.shape == (2, 5))
    with pytest.raises(ProtocolError, match="after"):
        noise.row(20, source)


# Groups -----------------------------------------------------------------------------------------


def test_p25_a_place_is_in_a_batch_once_in_as_many_attempts_as_there_are_bands() -> None:
    """Were it in two that are closer, its part of the noise's matrix would be longer than 1."""
    source = SecureSource(KEY)
    groups = Groups(source, 103, 4)
    turns = [set(groups.heads(source, attempt, 1.0).tolist()) for attempt in range(1, 13)]
    for first in range(9):
        assert sorted(place for turn in turns[first : first + 4] for place in turn) == list(
            range(103)
        )
    assert {len(turn) for turn in turns} == {25, 26}


def test_p25_the_group_belongs_to_the_place_and_not_to_the_record() -> None:
    """The same coins give neighbouring tables batches that differ in the record in question."""
    for count in (30, 29):
        source = SecureSource(KEY)
        groups = Groups(source, 30, 3)
        rows = [groups.rows(source, count, attempt, 0.2) for attempt in range(1, 31)]
        if count == 30:
            whole = rows
    for one, other in zip(whole, rows, strict=True):
        assert one.size == other.size == group_rows(30, 0.2, 3)
        assert (np.where(one == 29, EMPTY, one) == other).all()
    assert any((one == 29).any() for one in whole)


def test_p25_two_sessions_divide_places_differently() -> None:
    source = SecureSource(KEY)
    divided = [Groups(source, 60, 3).heads(source, 1, 1.0).tolist() for _ in range(2)]
    assert divided[0] != divided[1]


# Who may take part ------------------------------------------------------------------------------


def silo(index: int, w: Any = W) -> Masking:
    return w.masking(sessions_of(w)[index])


def test_p25_whoever_has_left_stays_away_until_the_next_session() -> None:
    one = silo(1)
    assert one.accept(W.model(ALL, row=1)).row == 1
    assert one.accept(W.model((1, 2, 3), 2, row=2)).row == 2
    with refused("aggregator", "expected 4 to stay away"):
        one.accept(W.model(ALL, 3, row=3))
    with refused("aggregator", "expected 4 to stay away"):
        one.accept(W.model((1, 2, 4), 4, row=3))


@pytest.mark.parametrize("row", [0, 1, 3, 2**32 - 1])
def test_p25_a_silo_that_has_missed_an_attempt_answers_no_more(row: int) -> None:
    """Its rows would be other rows than those of the others, and the sum's noise a mixture."""
    one = silo(1)
    one.accept(W.model(ALL, row=1))
    with refused("relay", "expected attempt 2 of the session"):
        one.accept(W.model(ALL, 2, row=row))
    with refused("relay", "expected attempt 2"):
        one.accept(W.model(ALL, 3, row=4))


def test_p25_a_node_adds_up_nobody_who_was_left_out_before() -> None:
    """Silos cannot see whose answers an aggregator leaves out of the sum; an honest node does."""
    node = NODES.node(sessions_of(NODES)[5])
    node.promise(NODES.request(5, (1, 2, 3)))
    with refused("aggregator", "expected 4 to stay away"):
        node.promise(NODES.request(5, ALL, 2))
    with refused("aggregator", "expected 4 to stay away"):
        node.promise(NODES.request(5, (1, 2, 4), 3))
    assert node.promise(NODES.request(5, (1, 2, 3), 4))


def answered(w: Any, named: Sequence[Sequence[int]]) -> list[list[int]]:
    """Who is in each sum that an honest party serves, of what an aggregator asks for.

    Silo 1 answers MODELs where masks are pairwise; else an honest node answers REQUESTs.
    """
    node = w.node(sessions_of(w)[len(w.layout.names) + 1]) if w.layout.nodes else None
    one, served = silo(1, w), []
    for attempt, silos in enumerate(named, 1):
        with contextlib.suppress(ProtocolError):
            if node is None:
                one.accept(w.model(silos, attempt, row=len(served) + 1))
            else:
                node.total([node.promise(w.request(7, silos, attempt))])
            served.append([int(number in silos) for number in range(1, 7)])
    return served


def fewer_and_fewer(left: int) -> list[tuple[int, ...]]:
    """Nine attempts, in which silos are left out one by one until so many are left."""
    return [tuple(range(1, max(left, 7 - k) + 1)) for k in range(1, 10)]


@pytest.mark.parametrize("nodes", [0, 1], ids=["pairwise", "nodes"])
@pytest.mark.parametrize("quorum", [2, 4, 5])
def test_p25_no_order_of_attempts_leaves_less_noise_than_the_quorums(
    quorum: int, nodes: int
) -> None:
    """Those below it would: the last silo's share alone of six, were each set served."""
    w = world(6, nodes, quorum=quorum, correlation=COLUMN)
    draw = np.random.default_rng(quorum)
    orders = [fewer_and_fewer(1), *(drawn(draw) for _ in range(20))]
    left = [share_left(served) for order in orders if (served := answered(w, order))]
    assert len(left) > 1
    assert min(left) >= quorum - 1e-9


@pytest.mark.parametrize("nodes", [0, 1], ids=["pairwise", "nodes"])
def test_p25_sabotage_is_seen_without_a_quorum_five_shares_of_six_are_lost(nodes: int) -> None:
    """The test above fails where the rule is taken away: a quorum of 1 is none."""
    w = world(6, nodes, quorum=1, correlation=COLUMN)
    served = answered(w, fewer_and_fewer(1))
    assert share_left(served[:1]) == pytest.approx(6)
    assert share_left(served) < 1.5


def drawn(draw: np.random.Generator) -> list[tuple[int, ...]]:
    """Nine sets that an aggregator may try, silo 1 in each; most are smaller than the last."""
    chosen, order = set(range(1, 7)), []
    for _ in range(9):
        leaves, comes = draw.integers(2, 7, size=2).tolist()
        chosen = (chosen - {leaves}) if draw.random() < 0.5 else chosen
        order.append(tuple(sorted(chosen | ({comes} if draw.random() < 0.2 else set()))))
    return order


def test_p25_independent_noise_asks_nothing_of_attendance() -> None:
    w = world()
    one = w.masking(sessions_of(w)[1])
    one.accept(w.model((1, 2, 3)))
    assert one.accept(w.model(ALL, 2)).row == 0


def rotated(silos: int, steps: int) -> list[list[int]]:
    """One silo is absent in each step, in turn."""
    return [[int(k != t % silos) for k in range(silos)] for t in range(steps)]


def test_p25_what_is_left_is_at_least_the_share_of_those_always_present() -> None:
    """Random attendances in which silos leave for good, as the protocol has it."""
    draw = np.random.default_rng(7)
    for _ in range(50):
        leaves = draw.integers(1, 25, size=6)
        present = [[int(t < leaves[k]) or int(k < 3) for k in range(6)] for t in range(20)]
        assert share_left(present) >= min(map(sum, present)) - 1e-9


def test_p25_attendance_in_turn_leaves_less_than_its_quorum() -> None:
    """Why nobody may come back: 19 of 20 in each step, and yet less than the noise of 19."""
    column = best_column(4, 0.0, "constant", 40)
    assert share_left(rotated(20, 40), column) == pytest.approx(18.4, abs=0.1)
    draw = np.random.default_rng(3)
    left = [share_left((draw.random((40, 20)) > 0.02).astype(int), column) for _ in range(5)]
    assert 16 < min(left) <= max(left) < 19


# The protocol as it runs ------------------------------------------------------------------------


class Nothing:
    """No records."""

    count, capacity = 0, 4

    def __init__(self, size: int) -> None:
        self._size = size

    def clipped_sum(self, parameters: Any, chosen: Any) -> Array:
        return np.zeros(self._size)


def session(silos: int = 3, nodes: int = 0, size: int = 6000, quorum: int = 2) -> Federation:
    """Silos without records: what is revealed is noise."""
    round_parameters = RoundParameters(
        dimension=size,
        parameters=1,
        silos=silos,
        quorum=quorum,
        steps=8,
        word_bits=32,
        grid_step=1.0,
        sigma_grid=200.0,
        sample_rate=0.1,
        nodes=nodes,
        correlation=COLUMN,
    )
    names = tuple(f"silo-{number}" for number in range(1, silos + 1))
    return federate(
        Layout(names=names, nodes=nodes),
        round_parameters,
        [Nothing(size)] * silos,
        study=bytes(32),
        source=lambda index: SecureSource(bytes([index]) * 16),
    )


MODEL = np.zeros(1, dtype=np.float32)


def gone(*_: Any) -> None:
    """A silo that does not answer any more."""
    raise BudgetError("expected a cap that holds, got one that does not")


def test_p25_the_revealed_noise_has_the_covariance_of_the_matrix() -> None:
    parties = session()
    seen = np.array([parties.noisy_sum(step, MODEL) for step in range(1, 9)])
    expect_covariance(seen, 3 * 200.0**2 * covariance(8))


@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_p25_after_a_silo_has_left_the_noise_is_that_of_its_attendance(
    nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = session(nodes=nodes)
    rounds, seen = parties.rounds, []
    for step in range(1, 8):
        if step == 4:
            monkeypatch.setattr(parties.peers.parties[3], "take", gone)
        found, made = rounds.round(step, MODEL, attempts=2)
        assert found is not None
        seen.append(found.astype(float))
        assert made == (2 if step == 4 and not nodes else 1)
    # With pairwise masks the fourth attempt fails: its row is used up and is in no sum.
    rows = list(range(7)) if nodes else [0, 1, 2, 4, 5, 6, 7]
    whole = attended([[1, 1, int(row < 3)] for row in range(8)])
    expect_covariance(np.array(seen), 200.0**2 * whole[np.ix_(rows, rows)])
    assert rounds.attendance.absent.keys() == {3}


def test_p25_sabotage_is_seen_a_row_that_is_used_twice_bares_a_difference() -> None:
    """The test of the covariance fails for noise whose row is repeated, or that has no window."""
    noise, source = CorrelatedNoise(COLUMN, 20_000, 5.0), SecureSource(KEY)
    rows = [noise.row(number, source) for number in range(1, 8)]
    with pytest.raises(AssertionError):
        expect_covariance(np.array([*rows, rows[-1]]), 25 * covariance(8))
    fresh = [CorrelatedNoise(COLUMN, 20_000, 5.0).row(1, source) for _ in range(8)]
    with pytest.raises(AssertionError):
        expect_covariance(np.array(fresh), 25 * covariance(8))


def test_p25_sums_open_for_nobody_who_was_shown_another_row() -> None:
    """The row stands in the MODEL, whose digest is in the masks' keys."""
    answers = []
    for index, row in ((1, 1), (2, 1), (3, 2)):
        one = silo(index)
        if row == 2:
            one.accept(W.model((1, 2, 3), row=1))
        model = W.model((1, 2, 3), 2, row=row)
        answers.append(one.masked(one.accept(model), np.zeros(DIMENSION, dtype=np.uint32)))
    total = sum(np.frombuffer(one[-64 - 32 - 4 * DIMENSION : -64 - 32], "<u4") for one in answers)
    assert np.any(total)


def test_p25_a_silo_adds_the_row_of_the_attempt_even_if_it_could_not_pay_for_the_last() -> None:
    """An attempt that was declined has used its row up."""
    round_parameters = replace(W.round_parameters, sigma_grid=50.0, sample_rate=0.1)
    source = SecureSource(KEY)
    one = Silo(
        round_parameters=round_parameters, task=Nothing(DIMENSION), masking=silo(1), source=source
    )
    one.accept(W.model(ALL, row=1))
    one.decline()
    assert one.accept(W.model(ALL, 2, row=2)).row == 2
    one.contribute()
    assert isinstance(one._noise, CorrelatedShare)
    noise = one._noise._rows
    assert noise.last == 2
    one.forget()
    assert noise.last > 2


def test_p25_numbers_of_rows_are_in_models_only_where_noise_is_correlated() -> None:
    plain, parameters = world().round_parameters, np.zeros(2, dtype=np.float32)
    assert len(b"".join(W.round_parameters.model_parts(ALL, parameters, 7))) == 4 + len(
        b"".join(plain.model_parts(ALL, parameters, 7))
    )
    assert W.round_parameters.noise_epoch == 3
    assert plain.noise_epoch == 1


def test_p25_attendance_names_who_came_back() -> None:
    book = attempt_order.PresentThroughout(W.round_parameters)
    book.stay(frozenset({1, 2}), "aggregator")
    with pytest.raises(ProtocolError, match="expected 3, 4 to stay away"):
        book.stay(frozenset({1, 2, 3, 4}), "aggregator")
    assert isinstance(NODES.node(sessions_of(NODES)[5]), ComputeNode)
