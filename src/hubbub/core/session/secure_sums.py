"""Only the secure sum, for people who want nothing else: exact, or with noise and its guarantee.

Both play every party of the real protocol in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.core.errors import StudyError
from hubbub.core.kept_pages import kept_pages
from hubbub.core.planning.exposure import Exposure
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.noise_shares import mask_degree, shares_of
from hubbub.core.planning.query import VECTOR, GivenSum, SiloData, VectorQuery
from hubbub.core.planning.study_plan import plan_alone
from hubbub.core.privacy import arguments
from hubbub.core.protocol.agreement import masks
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session import in_process
from hubbub.core.session.offer import Layout, round_parameters_of
from hubbub.core.study.parties import Parties, Privacy, numbered

_STUDY = b"hubbub secure sum".ljust(32, b"\0")
_MOST_NODES = 1000
_USUAL_COLLUDERS = 16
_NOTHING = np.zeros(0, dtype=np.float32)
# P6 (i): neighbours' vectors are rounded twice each, as float64 and in grid steps. Up to this norm,
# in units of C, that moves a sum by at most 2^-51 of 1 + the norm, which this part of C covers.
_LONGEST, _ROUNDING = 2.0**30, 2.0**-20


def secure_sum(
    vectors: Sequence[ArrayLike],
    *,
    compute_nodes: int = 0,
    word_bits: int = 64,
    colluders: int | None = None,
) -> NDArray[np.int64]:
    """The exact sum of integer vectors, one from each silo; nobody sees another silo's vector.

    Guarantees:
        1. Exact: an error instead of a sum that does not fit the word.
        2. What the aggregator and up to `colluders` silos see depends on their own vectors and the
           sum of the others' only, but for a chance of 2^-50 over the mask graph. With compute
           nodes, or up to 16 silos, that holds for any silos without that chance, and for all
           nodes but one besides (docs/privacy.md P4). No noise is added: the sum itself is
           revealed.

    Args:
        vectors: at least two (three, for the guarantee to mean something) integer vectors of one
            shape (m,).
        compute_nodes: how many nodes remove the masks, up to 1000; 0 for pairwise masks.
        word_bits: bits of one number on its way, 16, 32 or 64.
        colluders: how many silos may join the adversary, from 0 to two less than there are; by
            default 16, or a tenth of the silos where that is more. The more, the more masks.

    Returns:
        (m,) int64, in the unit of the vectors.

    Raises:
        StudyError: not integers, different lengths, a sum that a word does not hold, or an option
            out of range.

    >>> secure_sum([[1, 2], [3, 4], [5, -6]], compute_nodes=3, word_bits=32)
    array([9, 0])
    """
    integers = _integers(vectors)
    word_bits = arguments.whole("word_bits", word_bits, least=16, most=64)
    compute_nodes = arguments.whole("compute_nodes", compute_nodes, least=0, most=_MOST_NODES)
    _check_fits(integers, word_bits)
    silos = len(integers)
    most = max(silos - 2, 0)
    given = min(max(_USUAL_COLLUDERS, silos // 10), most) if colluders is None else colluders
    colluders = arguments.whole("colluders", given, least=0, most=most)
    round_parameters = RoundParameters(
        dimension=integers[0].size,
        parameters=0,
        silos=silos,
        quorum=silos,
        steps=1,
        word_bits=word_bits,
        grid_step=1.0,
        sigma_grid=0.0,
        sample_rate=1.0,
        nodes=compute_nodes,
    )
    layout = Layout(
        names=tuple(f"silo-{number}" for number in range(1, silos + 1)),
        nodes=compute_nodes,
        # With the one that looks on; nobody is corrupted later in one process (P4).
        degree=masks.degree(silos, min(colluders + 1, most), 0),
    )

    tasks = [GivenSum(vector) for vector in integers]
    with kept_pages(integers[0].size):
        return in_process.federate(layout, round_parameters, tasks, study=_STUDY).sum(1, _NOTHING)


@dataclass(frozen=True, kw_only=True)
class PrivateSum:
    """A noisy sum and its guarantee.

    Args:
        value: the sum with its noise, (m,) float64, in the unit of the vectors.
        epsilon: certified, against the aggregator with `colluders` silos; no unit.
        delta: the probability that was asked for.
        noise_multiplier: standard deviation of the noise that is left against that adversary, over
            the sensitivity; no unit.
        exposures: one for each adversary, with its epsilon.

    >>> found = private_sum([[1.0, 2.0]] * 3, sensitivity=1.0, epsilon=1.0, delta=1e-5)
    >>> found.value.shape, round(found.noise_multiplier, 2), len(found.exposures)
    ((2,), 3.73, 6)
    """

    value: NDArray[np.float64]
    epsilon: float
    delta: float
    noise_multiplier: float
    exposures: tuple[Exposure, ...]


def private_sum(
    vectors: Sequence[ArrayLike],
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    colluders: int = 0,
    compute_nodes: int = 0,
    relation: str = "add-remove",
    diameter: float | None = None,
) -> PrivateSum:
    """The sum of real vectors, one from each silo, with distributed Gaussian noise.

    Guarantees:
        1. (epsilon, delta)-DP of one record against the aggregator with `colluders` silos, if no
           record moves its silo's vector by more than `sensitivity` (by more than `diameter` when
           exchanged).

    Args:
        vectors: each silo's own sum over its records, finite real numbers of one shape (m,); at
            least two vectors.
        sensitivity: L2 norm that bounds one record's part in a vector, in the unit of the vectors;
            from 1e-30 to 1e30; the caller's promise.
        epsilon: in [0.001, 50]; no unit.
        delta: probability, in [1e-12, 0.1].
        colluders: how many silos may join the adversary, from 0 to two less than there are.
        compute_nodes: how many nodes remove the masks, up to 1000; 0 for pairwise masks.
        relation: "add-remove" or "substitute".
        diameter: with "substitute", the largest L2 distance of two records' parts, in the unit of
            the vectors; the caller's promise. None: twice the sensitivity. One-hot vectors are the
            square root of 2 apart.

    Returns:
        The noisy sum, and what it promises; its noise multiplier counts in half diameters then.

    Raises:
        StudyError: an argument is out of range, or the vectors do not match.

    Source: docs/privacy.md P1-P7, P23.

    >>> found = private_sum([[1.0, 2.0]] * 3, sensitivity=1.0, epsilon=1.0, delta=1e-5)
    >>> found.epsilon <= 1.0, found.delta
    (True, 1e-05)
    """
    reals = _reals(vectors)
    # P6: so that numbers are rounded relatively, and squares of lengths are float64s.
    sensitivity = arguments.within("sensitivity", sensitivity, least=1e-30, most=1e30)
    if diameter is not None:
        sensitivity = _half(diameter, sensitivity, relation)
    colluders = arguments.whole("colluders", colluders, least=0, most=max(len(reals) - 2, 0))
    compute_nodes = arguments.whole("compute_nodes", compute_nodes, least=0, most=_MOST_NODES)
    epsilon = arguments.epsilon(epsilon, least=arguments.LEAST_EPSILON)
    delta = arguments.within("delta", delta, least=1e-12, most=0.1)
    parties = Parties(names=numbered(len(reals)), colluders=colluders, compute_nodes=compute_nodes)
    privacy = Privacy(epsilon=epsilon, delta=delta, relation=relation)
    clip = sensitivity * (1 + _ROUNDING)
    mechanism = Mechanism(purpose=VECTOR, relation=relation, delta=delta, steps=1, clip=clip)
    query = VectorQuery(mechanism, reals[0].size)
    planned, threat = plan_alone(query, parties, privacy, shares_of(parties))
    # P7: a sum that no word holds would wrap around.
    _check_capacity(reals, planned.sum_limit * sensitivity)
    if max(float(np.linalg.norm(vector)) for vector in reals) > _LONGEST * sensitivity:
        raise StudyError(
            f"expected vectors no longer than {_LONGEST:.2g} sensitivities, past which float64 is "
            "too coarse for one record's part, got a longer one; split the vectors"
        )
    federation = in_process.federate(
        Layout(names=parties.names, nodes=compute_nodes, degree=mask_degree(parties)),
        round_parameters_of(planned),
        [query.task(SiloData(vector=vector)) for vector in reals],
        study=_STUDY,
    )
    return PrivateSum(
        value=federation.noisy_sum(1, _NOTHING),
        epsilon=planned.epsilon,
        delta=delta,
        noise_multiplier=planned.noise_multiplier,
        exposures=threat.exposures,
    )


def _half(diameter: float, sensitivity: float, relation: str) -> float:
    """What takes the place of the sensitivity where records are exchanged (P23)."""
    if relation != "substitute":
        raise StudyError(
            f'expected diameter beside relation = "substitute" alone, got it with "{relation}"; '
            "leave it out: where a record is there or not, its length counts"
        )
    # P1, P23: an exchange moves the sum by two of these.
    return arguments.within("diameter", diameter, least=1e-29, most=2 * sensitivity) / 2


def _arrays(vectors: Sequence[ArrayLike]) -> list[NDArray[Any]]:
    """The vectors as arrays of one length, of whatever type they have."""
    try:
        whole = list(vectors)
        arrays = [np.asarray(vector) for vector in whole]
    except (TypeError, ValueError, RuntimeError):  # the last of a tensor that has a gradient
        raise StudyError(
            "expected a list of vectors, one from each silo, got something else; "
            "give every silo a flat vector of numbers"
        ) from None
    if any(isinstance(vector, np.ma.MaskedArray) for vector in whole):
        raise StudyError(
            "expected vectors without hidden numbers, got a masked array, whose hidden numbers "
            "would be summed; fill them first"
        )
    _check_lengths(arrays)
    return arrays


def _reals(vectors: Sequence[ArrayLike]) -> list[NDArray[np.float64]]:
    """The vectors as finite float64."""
    arrays = _arrays(vectors)
    for array in arrays:
        # A longer float may be finite, and past all float64.
        if array.dtype.kind not in "iuf" or not (abs(array) <= np.finfo(np.float64).max).all():
            raise StudyError(
                f"expected finite real numbers in the vectors, got {array.dtype} or others; "
                "clean them first"
            )
    return [array.astype(np.float64, copy=False) for array in arrays]


def _integers(vectors: Sequence[ArrayLike]) -> list[NDArray[np.int64]]:
    """The vectors as int64, without changing a value."""
    arrays = _arrays(vectors)
    for array in arrays:
        if array.dtype.kind not in "iu" or (array.dtype.kind == "u" and (array >> 63).any()):
            raise StudyError(
                f"expected vectors of integers within int64, got {array.dtype}; "
                "round them, or use hubbub.private_sum for real numbers"
            )
    return [array.astype(np.int64, copy=False) for array in arrays]


def _check_lengths(arrays: Sequence[NDArray[np.generic]]) -> None:
    """At least two vectors, all of one length."""
    shapes = {array.shape for array in arrays}
    if len(arrays) < 2 or len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise StudyError(
            f"expected at least two vectors of one length, got {len(arrays)} with shapes "
            f"{sorted(shapes)}; give every silo a vector of the same length"
        )
    if arrays[0].size == 0:
        raise StudyError("expected vectors of at least one number, got empty ones; fill them")


def _check_fits(vectors: Sequence[NDArray[np.int64]], word_bits: int) -> None:
    """The sum has to fit a word."""
    largest = ring.largest_integer(word_bits)
    if sum(max(int(v.max()), -int(v.min())) for v in vectors) <= largest:
        return
    total = np.sum([v.astype(object) for v in vectors], axis=0)
    if total.max() > largest or total.min() < -largest - 1:
        raise StudyError(
            f"expected sums within {word_bits}-bit words, up to {largest} in size, got a larger "
            "one; choose more word_bits or scale the vectors down"
        )


def _check_capacity(vectors: Sequence[NDArray[np.float64]], capacity: float) -> None:
    """The sum has to fit the word that the plan chose."""
    if sum(float(np.abs(vector).max()) for vector in vectors) > capacity:
        raise StudyError(
            f"expected vectors whose sum stays below {capacity:.3g}, got larger ones; "
            "check the sensitivity, or split the vectors"
        )
