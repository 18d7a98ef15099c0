"""A silo's records in a joint batch: which of its tokens the public seed has drawn.

Everybody knows which places of the list are drawn; only the owner knows which records they are.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.primitives.randomness import KEY_BYTES, SecureSource
from hubbub.core.protocol.round.batches import Rows, joint_rows
from hubbub.core.protocol.round.masking import Attempt
from hubbub.core.protocol.round.round_parameters import RoundParameters

# Which places of the list are in a step's batch: any function of the public seed.
#
# A *scheme* is a plain function from a seed, the length of the list, the batch and the step to the
# chosen places in rising order. It is public and the same for everybody, so it draws from a
# keystream of the seed and from nothing else. What a scheme costs in privacy is not known here:
# only fresh lists with `without_replacement` have a proof of amplification (docs/privacy.md P9).

Positions = NDArray[np.intp]


class Scheme(Protocol):
    """What a scheme looks like; write a function of this form to add one."""

    def __call__(self, seed: bytes, size: int, batch: int, step: int) -> Positions:
        """The places, from 0 and in rising order, that are in the batch of a step, from 1."""


def without_replacement(seed: bytes, size: int, batch: int, step: int) -> Positions:
    """A batch of exactly `batch` places, each set of that size equally likely.

    Guarantees:
        1. Steps are independent given their seeds and numbers.

    The places are those of the smallest of `size` random words; where the last of them is a tie,
    all are drawn anew.

    >>> without_replacement(bytes(32), size=10, batch=3, step=1).size
    3
    """
    _check(size, batch, step)
    if batch == size:
        return np.arange(size)
    stream = _stream(b"hubbub without replacement v1", seed, size, batch, step)
    while True:
        words = _words(stream, size)
        chosen = np.flatnonzero(words <= np.partition(words, batch - 1)[batch - 1])
        if chosen.size == batch:
            return chosen


def partition(seed: bytes, size: int, batch: int, step: int) -> Positions:
    """The step's part of an epoch's shuffled list: every place exactly once per epoch.

    An epoch has ceil(size / batch) steps, and a new order. If `batch` does not divide `size`, the
    last batch of each epoch is the smaller rest. The seed must be the same for all steps of an
    epoch; no amplification is proven for this scheme.

    >>> [partition(bytes(32), size=5, batch=2, step=step).size for step in (1, 2, 3, 4)]
    [2, 2, 1, 2]
    """
    _check(size, batch, step)
    epoch, part = divmod(step - 1, -(-size // batch))
    stream = _stream(b"hubbub partition v1", seed, size, batch, epoch)
    while True:
        words = _words(stream, size)
        order = np.argsort(words, kind="stable")
        # P9: equal words would stand in the order of their places, which is not uniform.
        ranked = words[order]
        if not np.any(ranked[1:] == ranked[:-1]):
            return np.sort(order[part * batch : (part + 1) * batch])


def places_of(round_parameters: RoundParameters, seed: bytes, step: int) -> Positions:
    """The places of a step's batch, from 1: of a fresh list (P10), or the part of an epoch (P9)."""
    scheme = without_replacement if round_parameters.fresh_lists else partition
    return scheme(seed, round_parameters.records, round_parameters.batch, step)


def chosen_records(chosen: Positions, positions: Positions) -> Positions:
    """Which of a silo's own records are in a batch: those whose tokens' places were chosen.

    Args:
        chosen: what a scheme returned.
        positions: of the silo's own records' tokens in the list.
    """
    # P9: a function of this silo's own tokens alone; nobody else learns how many they are.
    return np.flatnonzero(np.isin(positions, chosen))


def _stream(context: bytes, seed: bytes, *numbers: int) -> SecureSource:
    """The keystream of a public seed for one use."""
    use = b"".join(number.to_bytes(8, "little") for number in numbers)
    return SecureSource(hashlib.sha256(context + seed + use).digest()[:KEY_BYTES])


def _words(stream: SecureSource, count: int) -> NDArray[np.uint64]:
    """Words of 64 bits, little-endian on every machine."""
    return np.asarray(stream.words(count).view("<u8"), dtype=np.uint64)


def _check(size: int, batch: int, step: int) -> None:
    if not 1 <= batch <= size or step < 1:
        raise StudyError(
            f"expected a batch from 1 to the list's {size} tokens and a step from 1, got batch "
            f"{batch} and step {step}"
        )


class Tokens:
    """One shuffled token list as one silo knows it.

    Args:
        positions: of the silo's own records in the list, (records,).
        first: the round for which the list was made.
    """

    def __init__(self, positions: NDArray[np.intp], first: int) -> None:
        self._positions, self._first = positions, first
        self._seed: bytes | None = None

    def __repr__(self) -> str:
        return "Tokens(<private>)"

    def chosen(
        self, round_parameters: RoundParameters, seed: bytes, round: int
    ) -> NDArray[np.intp]:
        """The silo's records in the batch of a round.

        The joint seed of its first round is the list's (P9): nobody knew it when the tokens were
        wrapped and shuffled. Which batch it is follows from the round alone.

        Raises:
            ProtocolError: the list is for another round, or its first one was missed.
        """
        if round == self._first:
            self._seed = seed
        # P9: sampling amplifies for a list of its own in each step alone.
        if self._seed is None or (round_parameters.fresh_lists and round != self._first):
            raise ProtocolError(
                "expected a new shuffled token list for this batch, got another's; make one (P9)"
            )
        places = places_of(round_parameters, self._seed, round - self._first + 1)
        return chosen_records(places, self._positions)


class TokenBatches:
    """All silos draw one batch of a public size from a shuffled token list (P9, P10)."""

    def __init__(self, round_parameters: RoundParameters) -> None:
        self._round_parameters, self.most = round_parameters, round_parameters.batch
        self._tokens: Tokens | None = None

    def take_list(self, positions: Positions, first: int) -> None:
        """From now on, draw from a new list.

        Args:
            positions: of the silo's own records in it, (records,); known to nobody else.
            first: the round for which it was made.
        """
        self._tokens = Tokens(positions, first)

    def rows(
        self, source: SecureSource, records: int, attempt: Attempt, seed: bytes | None
    ) -> Rows:
        """The silo's own among those that the joint seed has drawn.

        Raises:
            ProtocolError: there is no list, or no seed.
        """
        if self._tokens is None or seed is None:
            raise ProtocolError(
                "expected a shuffled token list and a joint seed, got none; get them"
            )
        # P10: which places are drawn is public; whose they are, each silo knows of its own.
        chosen = self._tokens.chosen(self._round_parameters, seed, attempt.round)
        return joint_rows(source, chosen, self._round_parameters.batch, records)
