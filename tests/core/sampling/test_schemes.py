"""Batches from a list and a public seed: exact sizes, uniform choice, the same everywhere."""

from __future__ import annotations

import hashlib
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from hubbub.core.errors import StudyError
from hubbub.core.protocol.token_lists import joint_batch
from hubbub.core.protocol.token_lists.joint_batch import (
    Scheme,
    Tokens,
    chosen_records,
    partition,
    without_replacement,
)

SEEDS = st.binary(min_size=32, max_size=32)
SHAPES = st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))
FALSE_ALARM = 1e-6


def seed(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(4, "little")).digest()


@given(SEEDS, SHAPES, st.integers(1, 1000))
def test_a_batch_without_replacement_has_exactly_its_size_in_every_round(
    seed: bytes, shape: tuple[int, int], step: int
) -> None:
    size, batch = shape
    chosen = without_replacement(seed, size, batch, step)
    assert chosen.size == batch
    assert np.all(np.diff(chosen) > 0)
    assert 0 <= chosen[0] <= chosen[-1] < size


@given(SEEDS, SHAPES, st.integers(0, 5))
def test_a_partition_has_every_token_exactly_once_per_epoch(
    seed: bytes, shape: tuple[int, int], epoch: int
) -> None:
    size, batch = shape
    steps = -(-size // batch)
    parts = [partition(seed, size, batch, epoch * steps + step) for step in range(1, steps + 1)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(size))
    assert [part.size for part in parts[:-1]] == [batch] * (steps - 1)
    assert parts[-1].size == size - batch * (steps - 1)


@pytest.mark.parametrize("first", [1, 3, 5])
def test_p9_a_list_is_used_up_once_from_whichever_round_it_serves(first: int) -> None:
    """Its epochs begin with it: counted from round 1 they would end between two of its parts."""
    numbers: Any = SimpleNamespace(fresh_lists=False, records=9, batch=3)
    tokens = Tokens(np.arange(9), first)
    chosen = [tokens.chosen(numbers, seed(round), round) for round in range(first, first + 3)]
    assert sorted(np.concatenate(chosen).tolist()) == [*range(9)]


@pytest.mark.parametrize("scheme", [without_replacement, partition])
def test_words_that_are_alike_are_drawn_anew(
    scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = [np.array([5, 5, 5, 7], np.uint64), np.array([9, 2, 4, 3], np.uint64)]
    monkeypatch.setattr(joint_batch, "_words", lambda *_: drawn.pop(0))
    assert scheme(bytes(32), 4, 2, 1).tolist() == [1, 3]


@given(SEEDS, SHAPES)
def test_what_silos_choose_of_their_own_records_makes_up_the_batch(
    seed: bytes, shape: tuple[int, int]
) -> None:
    size, batch = shape
    owners = np.array_split(np.random.default_rng(0).permutation(size), 3)
    chosen = without_replacement(seed, size, batch, 1)
    found = [positions[chosen_records(chosen, positions)] for positions in owners]
    assert sorted(np.concatenate(found).tolist()) == chosen.tolist()


def test_steps_epochs_and_seeds_have_batches_of_their_own() -> None:
    many = [without_replacement(seed(k), 1000, 100, step) for k in (0, 1) for step in (1, 2)]
    many += [partition(seed(0), 1000, 100, step) for step in (1, 2, 11)]
    assert len({chosen.tobytes() for chosen in many}) == len(many)


def stream(context: bytes, seed: bytes, *numbers: int) -> list[int]:
    """docs/sampling.md in other words: the words of a scheme's keystream, for lists up to 200."""
    text = context + seed + b"".join(struct.pack("<Q", number) for number in numbers)
    cipher = Cipher(AES(hashlib.sha256(text).digest()[:16]), CTR(bytes(16))).encryptor()
    return list(struct.unpack("<200Q", cipher.update(bytes(1600))))


@given(SEEDS, SHAPES, st.integers(1, 1000))
def test_the_same_seed_gives_the_same_batch_in_another_implementation(
    seed: bytes, shape: tuple[int, int], step: int
) -> None:
    size, batch = shape
    if batch < size:
        words = stream(b"hubbub without replacement v1", seed, size, batch, step)[:size]
        smallest = sorted(range(size), key=words.__getitem__)[:batch]
        assert without_replacement(seed, size, batch, step).tolist() == sorted(smallest)
    epoch, part = divmod(step - 1, -(-size // batch))
    words = stream(b"hubbub partition v1", seed, size, batch, epoch)[:size]
    order = sorted(range(size), key=words.__getitem__)[part * batch :][:batch]
    assert partition(seed, size, batch, step).tolist() == sorted(order)


def test_batches_of_a_fixed_seed_never_change() -> None:
    assert without_replacement(bytes(32), 20, 5, 1).tolist() == [4, 6, 12, 15, 19]
    assert partition(bytes(32), 20, 5, 2).tolist() == [1, 4, 5, 14, 15]


def inclusions(scheme: Scheme, size: int, batch: int, rounds: int) -> np.ndarray:
    chosen = [scheme(seed(k), size, batch, 1) for k in range(rounds)]
    return np.bincount(np.concatenate(chosen), minlength=size)


def far_from_uniform(counts: np.ndarray, rounds: int, rate: float) -> bool:
    """Two-sided, for every record, at a false alarm rate of 1e-6 for all of them together."""
    each = FALSE_ALARM / counts.size / 2
    low, high = binom.ppf(each, rounds, rate), binom.isf(each, rounds, rate)
    return bool(np.any((counts < low) | (counts > high)))


@pytest.mark.parametrize("scheme", [without_replacement, partition])
def test_every_record_is_included_as_often_as_it_should_be(scheme: Scheme) -> None:
    counts = inclusions(scheme, 40, 10, 4000)
    assert not far_from_uniform(counts, 4000, 0.25)


def test_the_inclusion_test_notices_a_biased_scheme() -> None:
    def lazy(seed: bytes, size: int, batch: int, step: int) -> np.ndarray:
        """Drops one place in twenty for its neighbour."""
        chosen = without_replacement(seed, size, batch, step)
        return np.unique(np.where((chosen == 7) & (seed[0] < 64), 8, chosen))

    assert far_from_uniform(inclusions(lazy, 40, 10, 4000), 4000, 0.25)


def pair_statistic(scheme: Scheme, rounds: int) -> float:
    """Chi-square of all C(6, 3) = 20 batches of 3 of 6."""
    batches = [tuple(scheme(seed(k), 6, 3, 1).tolist()) for k in range(rounds)]
    counts = np.array([batches.count(one) for one in set(batches)] + [0] * (20 - len(set(batches))))
    return float(np.sum((counts - rounds / 20) ** 2) / (rounds / 20))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [without_replacement, partition])
def test_every_set_of_records_is_as_likely(scheme: Scheme) -> None:
    assert pair_statistic(scheme, 6000) < chi2.isf(FALSE_ALARM, 19)


def test_the_set_test_notices_records_that_come_together() -> None:
    def clumped(seed: bytes, size: int, batch: int, step: int) -> np.ndarray:
        """Right for each record, wrong for pairs: one time in ten three in a row, on a circle."""
        if seed[0] >= 26:
            return without_replacement(seed, size, batch, step)
        return np.sort((seed[1] % size + np.arange(batch)) % size)

    assert pair_statistic(clumped, 6000) > chi2.isf(FALSE_ALARM, 19)


@pytest.mark.parametrize("scheme", [without_replacement, partition])
@pytest.mark.parametrize(("size", "batch", "step"), [(5, 0, 1), (5, 6, 1), (5, 2, 0), (0, 0, 1)])
def test_batches_that_cannot_be_are_refused(
    scheme: Scheme, size: int, batch: int, step: int
) -> None:
    with pytest.raises(StudyError, match="expected a batch"):
        scheme(bytes(32), size, batch, step)
