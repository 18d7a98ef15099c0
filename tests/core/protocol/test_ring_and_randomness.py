"""Residues, and the exact draws that are made from the cryptographic stream.

Every test of a law is two-sided with a false-alarm rate of at most 1e-9 per comparison, and shown
to reject a wrong law. Keys are fixed, so a test that passes once always does.
"""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from hashlib import sha256
from itertools import permutations
from math import floor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, chi2

from hubbub.core.errors import StudyError
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.randomness import (
    CHUNK_BYTES,
    MOST_BYTES,
    SecureSource,
    cipher_at,
    keystream_into,
)

FALSE_ALARM = 1e-9
INT64 = st.integers(-(2**63), 2**63 - 1)
WORDS = pytest.mark.parametrize("bits", ring.WORD_BITS)


def source(number: int) -> SecureSource:
    """A source that repeats."""
    return SecureSource(number.to_bytes(16, "big"))


def fits_shares(counts: NDArray[np.int64], share: float) -> bool:
    """Pearson's test of equal shares, with too good a fit refused as well."""
    expected = counts.sum() * share
    statistic = float((np.square(counts - expected) / expected).sum())
    low, high = (f(FALSE_ALARM / 2, counts.size - 1) for f in (chi2.ppf, chi2.isf))
    return bool(low <= statistic <= high)


def fits_count(count: int, draws: int, probability: float) -> bool:
    """Whether a count is a binomial one, exactly."""
    low = binom.ppf(FALSE_ALARM / 2, draws, probability)
    return bool(low <= count <= binom.isf(FALSE_ALARM / 2, draws, probability))


# Residues ----------------------------------------------------------------------------------------


@given(st.lists(INT64, min_size=1, max_size=20), st.sampled_from(ring.WORD_BITS))
def test_p7_decoding_gives_the_centred_representative(integers, bits):
    decoded = ring.to_integers(ring.to_residues(np.array(integers, dtype=np.int64), bits))
    half = 2 ** (bits - 1)
    assert decoded.dtype == np.int64
    assert decoded.tolist() == [(value + half) % 2**bits - half for value in integers]


@WORDS
def test_p7_the_edges_are_kept_and_one_step_further_wraps_to_the_other_end(bits):
    largest = ring.largest_integer(bits)
    edges = np.array([-largest - 1, -1, 0, 1, largest], dtype=np.int64)
    residues = ring.to_residues(edges, bits)
    assert ring.to_integers(residues).tolist() == edges.tolist()
    assert ring.to_integers(residues[-1:] + residues[3:4]).tolist() == [-largest - 1]
    assert ring.to_integers(residues[:1] + residues[1:2]).tolist() == [largest]


@given(st.lists(st.tuples(INT64, INT64), min_size=1, max_size=20), st.sampled_from(ring.WORD_BITS))
def test_residues_add_and_subtract_as_integers_do(pairs, bits):
    left, right = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    a, b = ring.to_residues(left, bits), ring.to_residues(right, bits)
    assert (a + b).tolist() == [(x + y) % 2**bits for x, y in pairs]
    assert (a - b).tolist() == [(x - y) % 2**bits for x, y in pairs]


@given(st.lists(INT64, max_size=20), st.sampled_from(ring.WORD_BITS))
def test_bytes_are_little_endian_and_come_back(integers, bits):
    residues = ring.to_residues(np.array(integers, dtype=np.int64), bits)
    data = ring.to_bytes(residues)
    assert data == b"".join((v % 2**bits).to_bytes(bits // 8, "little") for v in integers)
    assert ring.from_bytes(data, len(integers), bits).tolist() == residues.tolist()
    assert ring.from_bytes(memoryview(data), len(integers), bits).tolist() == residues.tolist()


@WORDS
def test_zeros_have_the_type_of_their_word(bits):
    zeros = ring.zeros(3, bits)
    assert zeros.tolist() == [0, 0, 0]
    assert zeros.dtype == np.dtype(f"u{bits // 8}") == ring.residue_type(bits)


@pytest.mark.parametrize("bits", [0, 8, 24, 31, 128, -16, "32", None])
def test_other_words_are_refused_with_the_three_that_there_are(bits):
    for function in (ring.residue_type, ring.largest_integer):
        with pytest.raises(StudyError, match="16, 32 or 64"):
            function(bits)


# The stream --------------------------------------------------------------------------------------


def test_the_stream_is_aes_128_in_counter_mode():
    # FIPS 197's cipher on the all-zero key and block.
    assert source(0).bytes(16).hex() == "66e94bd4ef8a2c3b884cfa59ca342b2e"
    blocks = 3 * CHUNK_BYTES // 16 + 5
    counters = b"".join(number.to_bytes(16, "big") for number in range(blocks))
    key = bytes(range(16))
    # The block cipher itself is what counter mode is checked against.
    wanted = Cipher(AES(key), ECB()).encryptor().update(counters)  # noqa: S305
    assert SecureSource(key).words(2 * blocks).tobytes() == wanted


@given(st.lists(st.integers(0, 40), max_size=8))
def test_pieces_continue_each_other_and_nothing_is_given_twice(sizes):
    pieces, whole = source(1), source(1)
    given_out = [pieces.words(size) for size in sizes]
    assert np.concatenate([np.empty(0, np.uint64), *given_out]).tolist() == (
        whole.words(sum(sizes)).tolist()
    )


def test_bytes_have_the_asked_length_and_do_not_repeat():
    one = source(2)
    drawn = [one.bytes(count) for count in range(40)]
    assert [len(piece) for piece in drawn] == list(range(40))
    assert len({piece[:8] for piece in drawn[8:]}) == 32


def test_fill_overwrites_all_of_the_array_and_nothing_else():
    words = np.zeros(3 * CHUNK_BYTES // 8 + 7, dtype=np.uint64)
    source(3).fill(words[2:-2])
    assert not words[[0, 1, -2, -1]].any()
    assert words[2:-2].all()


def test_a_buffer_is_filled_to_its_end_or_not_at_all():
    for size in (0, 1, CHUNK_BYTES + 3, MOST_BYTES):
        buffer = bytearray(size)
        keystream_into(cipher_at(bytes(16), 0), memoryview(buffer))
        assert bytes(buffer) == source(0).bytes(size)
    longer = bytearray(MOST_BYTES + 1)
    with pytest.raises(ValueError, match=f"a buffer of {MOST_BYTES} bytes at most, got"):
        keystream_into(cipher_at(bytes(16), 0), memoryview(longer))
    assert not any(longer)


def test_every_byte_and_every_bit_of_the_words_is_uniform():
    drawn = source(4).words(1_000_000)
    for place in range(8):
        byte = (drawn >> np.uint64(8 * place)).astype(np.uint8)
        assert fits_shares(np.bincount(byte, minlength=256), 1 / 256)
        assert not fits_shares(np.bincount(byte & 0xFE | byte >> 7, minlength=256), 1 / 256)
    for place in range(64):
        ones = int(np.count_nonzero(drawn >> np.uint64(place) & np.uint64(1)))
        assert fits_count(ones, drawn.size, 0.5)


def test_neighbouring_bytes_are_independent():
    drawn = np.frombuffer(source(5).bytes(4_000_000), dtype=np.uint8).astype(np.int64)
    pairs = drawn[:-1] * 256 + drawn[1:]
    assert fits_shares(np.bincount(pairs, minlength=1 << 16), 2.0**-16)
    stale = np.where(np.arange(pairs.size) % 20, pairs, drawn[:-1] * 257)
    assert not fits_shares(np.bincount(stale, minlength=1 << 16), 2.0**-16)


def test_sources_that_nobody_keyed_all_differ():
    assert len({SecureSource().bytes(16) for _ in range(1000)}) == 1000


# The batch: each record with probability q, independently -----------------------------------------


class Scripted(SecureSource):
    """A source whose words are given."""

    def __init__(self, *scripts: list[int]) -> None:
        super().__init__()
        self.scripts = [np.array(script, dtype=np.uint64) for script in scripts]

    def words(self, count: int) -> NDArray[np.uint64]:
        script = self.scripts.pop(0)
        assert script.size == count
        return script


@given(st.floats(1e-9, 1, exclude_max=True))
def test_p1_the_rate_is_exact_in_law_and_never_above_what_is_accounted(rate):
    # Of the 2^64 words, those below floor(rate 2^64) choose the record, and no other.
    chosen = floor(rate * 2**64)
    script = [chosen - 1, chosen, 0, 2**64 - 1]
    assert Scripted(script).chosen(4, rate).tolist() == [0, 2]
    assert chosen / 2**64 <= rate


@pytest.mark.parametrize("rate", [0.5, 0.2, 0.008, 1e-4])
def test_p1_batches_are_binomial_in_size_and_every_record_is_as_likely(rate):
    one, records, rounds = source(6), 2000, 2000
    sizes, times = np.empty(rounds), np.zeros(records, dtype=np.int64)
    for number in range(rounds):
        batch = one.chosen(records, rate)
        sizes[number] = batch.size
        times[batch] += 1
    assert fits_count(int(times.sum()), records * rounds, rate)
    assert not fits_count(int(times.sum()), records * rounds, rate * 3 / 2)
    assert not fits_count(int(times.sum()), records * rounds, rate * 2 / 3)
    # Fixed-size batches, or records that come together, would have another spread.
    for spread in (sizes, times):
        variance = (records if spread is sizes else rounds) * rate * (1 - rate)
        ratio = float(np.square(spread - spread.mean()).sum()) / variance
        low, high = chi2.ppf(FALSE_ALARM / 2, 1999), chi2.isf(FALSE_ALARM / 2, 1999)
        assert low <= ratio <= high
        assert not low <= ratio * 3 / 2 <= high


def test_p1_two_records_meet_as_often_as_independent_ones():
    one, rounds, rate = source(7), 40_000, 0.3
    seen = np.zeros((rounds, 4), dtype=bool)
    for row in seen:
        row[one.chosen(4, rate)] = True
    for first in range(4):
        for second in range(first):
            both = int(np.count_nonzero(seen[:, first] & seen[:, second]))
            assert fits_count(both, rounds, rate**2)
            assert not fits_count(both, rounds, rate)


def test_all_none_and_nobody_are_batches_too():
    assert source(8).chosen(5, 1.0).tolist() == [0, 1, 2, 3, 4]
    assert source(8).chosen(5, 0.0).tolist() == []
    assert source(8).chosen(0, 0.5).tolist() == []


# Permutations ------------------------------------------------------------------------------------


@pytest.mark.slow_cases("3", "2")
@pytest.mark.parametrize("size", [2, 3, 4])
def test_p9_permutations_of_a_few_are_all_as_likely(size):
    one, draws = source(9), 24_000
    drawn = Counter(tuple(one.permutation(size).tolist()) for _ in range(draws))
    orders = list(permutations(range(size)))
    counts = np.array([drawn[order] for order in orders])
    assert counts.sum() == draws
    assert fits_shares(counts, 1 / len(orders))
    biased = counts.copy()
    biased[0] += draws // 10
    assert not fits_shares(biased, 1 / len(orders))


def test_p9_every_place_goes_everywhere():
    one, size, draws = source(10), 16, 20_000
    table = np.zeros((size, size), dtype=np.int64)
    for _ in range(draws):
        table[np.arange(size), one.permutation(size)] += 1
    for row in (*table, *table.T):
        assert fits_shares(row, 1 / size)


@pytest.mark.parametrize("size", [0, 1, 2, 1000])
def test_a_permutation_holds_everyone_once(size):
    assert sorted(source(11).permutation(size).tolist()) == list(range(size))


def test_p9_equal_words_are_drawn_again_and_not_ranked_by_place():
    tied, clear = [5, 3, 5], [9, 8, 7]
    assert Scripted(tied, clear).permutation(3).tolist() == [2, 1, 0]


# Keeping the state to itself ---------------------------------------------------------------------


@pytest.mark.parametrize("key", ["None", "bytes(16)"])
def test_a_fork_does_not_repeat_its_parent(key):
    script = (
        "import os, sys\n"
        "from hubbub.core.protocol.primitives.randomness import SecureSource\n"
        f"one = SecureSource({key})\n"
        "one.bytes(8)\n"
        "child = os.fork()\n"
        "if child:\n"
        "    os.waitpid(child, 0)\n"
        "print(one.bytes(32).hex(), flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert len(set(done.stdout.split())) == 2


def test_threads_on_one_source_never_get_the_same_words():
    one, drawn = source(12), []

    def draw() -> None:
        for _ in range(100):
            try:
                drawn.append(one.words(20_000)[:2].tobytes())
            except RuntimeError:  # refused loudly while another thread draws: as good
                continue

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert drawn
    assert len(set(drawn)) == len(drawn)


def test_neither_key_nor_stream_is_shown_or_written_out():
    key = bytes(range(200, 216))
    one = SecureSource(key)
    shown = f"{one!r} {one!s} {vars(one)!r}"
    assert "secret" in repr(one)
    for secret in (key, SecureSource(key).bytes(16)):
        assert secret.hex() not in shown
        assert repr(secret)[2:-1] not in shown
    for leak in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(one)


def test_a_copy_shares_the_stream_and_does_not_repeat_it():
    one = source(13)
    other = copy.copy(one)
    assert one.bytes(16) != other.bytes(16)


# Copies of a state, as a restored image of a machine makes them ----------------------------------


@pytest.fixture
def restored(monkeypatch):
    """The operating system gives every source the same key, and from then on fresh bytes."""
    fresh, given = os.urandom, []

    def urandom(count):
        given.append(count)
        return bytes(count) if count == 16 else fresh(count)

    monkeypatch.setattr("hubbub.core.protocol.primitives.randomness.os.urandom", urandom)
    return given


def test_branches_of_copies_are_the_same_for_one_name_and_others_for_another(restored):
    one, other = SecureSource(), SecureSource()
    assert one.branch(b"a").bytes(32) == other.branch(b"a").bytes(32)
    one, other = SecureSource(), SecureSource()
    assert one.branch(b"a").bytes(32) != other.branch(b"b").bytes(32)


def test_a_branch_is_not_its_source_and_no_two_branches_are_alike():
    one = source(14)
    drawn = [one.branch(b"a").bytes(16), one.branch(b"a").bytes(16), one.bytes(16)]
    assert len({*drawn, source(14).bytes(16)}) == 4


def test_a_branch_follows_from_256_bits_of_its_source_and_the_name():
    drawn = sha256(b"hubbub branch v1" + source(16).bytes(32) + b"a").digest()[:16]
    assert source(16).branch(b"a").bytes(32) == SecureSource(drawn).bytes(32)


def test_copies_that_were_renewed_have_nothing_in_common(restored):
    one, other = SecureSource(), SecureSource()
    for each in (one, other):
        each.renew()
    assert restored == [16, 16, 32, 32]
    assert one.bytes(32) != other.bytes(32)
    assert one.branch(b"a").bytes(32) != other.branch(b"a").bytes(32)


def test_what_is_fresh_is_mixed_in_and_does_not_replace_the_state(monkeypatch):
    """An operating system that repeats itself takes nothing away from two secret states."""
    monkeypatch.setattr("hubbub.core.protocol.primitives.randomness.os.urandom", bytes)
    one, other = SecureSource(), SecureSource()
    other.bytes(16)
    for each in (one, other):
        each.renew()
    assert one.bytes(32) != other.bytes(32)


def test_a_source_of_a_test_repeats_itself_also_when_renewed():
    one, other = source(15), source(15)
    before = one.bytes(32)
    assert other.bytes(32) == before
    for each in (one, other):
        each.renew()
    assert (after := one.bytes(32)) == other.bytes(32) != before
    assert after == SecureSource(sha256(b"hubbub renew v1" + _after(before)).digest()[:16]).bytes(
        32
    )


def _after(drawn):
    """What the source of the last test draws after that."""
    one = source(15)
    assert one.bytes(32) == drawn
    return one.bytes(32)
