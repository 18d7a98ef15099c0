"""Shares of noise that follow from the set which a MODEL names (docs/privacy.md P3).

The silos are real, their numbers those of a real plan; their records are zero, so that what leaves
them is noise. The aggregator may lie. Its friends are the last silos of the roster, and it knows
all that they know. Statistical tests allow for 5 standard deviations: each of their comparisons
fails once in 1.7 million, and each says which other number it would refuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, product
from math import exp, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

import hubbub
from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.planning.noise_shares import NoiseShares
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import certificate_for
from hubbub.core.protocol.agreement.key_agreement import Place, Session
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import DIGEST_BYTES, unverified
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.session.offer import round_parameters_of
from protocol.parties import World, refused, sessions_of, world

Integers = NDArray[np.int64]
DRAWS, FEW = 40_000, 2_000
DEVIATIONS = 5
TABLE = ((5, 1, 1, -0.184), (8, 2, 2, -0.225), (20, 5, 4, -0.155))


def study(
    silos: int, colluders: int, dropouts: int, *, parties: Any = None, training: Any = None
) -> hubbub.Study:
    return hubbub.Study.from_table(
        {
            "study": {"name": "announced"},
            "parties": {
                "silos": silos,
                "colluders": colluders,
                "dropouts": dropouts,
                **(parties or {}),
            },
            "data": {"source": "python:none:none", "records": 1000},
            "model": {"kind": "logistic", "inputs": [9]},
            "training": {"steps": 9, "sample_rate": 0.2, **(training or {})},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
        }
    )


@lru_cache
def plan_of(silos: int, colluders: int, dropouts: int) -> Plan:
    return hubbub.plan(study(silos, colluders, dropouts))


class Zeros:
    """Records that add nothing."""

    count = capacity = 1

    def __init__(self, numbers: int) -> None:
        self._numbers = numbers

    def clipped_sum(self, parameters: Any, chosen: Any) -> NDArray[np.float64]:
        return np.zeros(self._numbers)


@dataclass(frozen=True, kw_only=True, eq=False)
class Hospitals:
    """Silos of a plan, in one session."""

    plan: Plan
    numbers: int

    @property
    def world(self) -> World:
        return _world(self.plan, self.numbers)

    @property
    def sessions(self) -> Mapping[int, Session]:
        return sessions_of(self.world)

    def silo(self, index: int) -> Silo:
        w = self.world
        return Silo(
            round_parameters=w.round_parameters,
            task=Zeros(self.numbers),
            masking=w.masking(self.sessions[index]),
            source=SecureSource(),
        )

    def in_noise(self, total: Integers) -> NDArray[np.float64]:
        """A sum in units of the noise that is promised, sigma = z C."""
        made = self.plan
        return np.asarray(
            total * (made.main.grid_step / (made.noise_multiplier * made.mechanism.clip))
        )


@lru_cache(maxsize=8)
def _world(made: Plan, numbers: int) -> World:
    """A world whose rounds have the plan's numbers."""
    silos = made.study.parties.silos
    plain = world(silos, quorum=made.quorum)
    own = replace(round_parameters_of(made.main, numbers=numbers), parameters=2)
    one = World(layout=plain.layout, keys=plain.keys, quorum=made.quorum)
    object.__setattr__(one, "round_parameters", own)
    return one


def hospitals(case: tuple[int, int, int], numbers: int = FEW) -> Hospitals:
    return Hospitals(plan=plan_of(*case), numbers=numbers)


def has_deviation(found: NDArray[np.float64], wanted: float) -> bool:
    """Whether numbers have this standard deviation; rounding has at most a 190th of a variance."""
    off = float(np.square(found).mean()) / wanted**2 - 1
    allowed = DEVIATIONS * sqrt(2 / found.size)
    return -allowed <= off <= allowed + 1 / (12 * 4**2)


# What is released --------------------------------------------------------------------------------


@pytest.mark.parametrize(("silos", "colluders", "dropouts", "less"), TABLE)
def test_p3_a_sum_has_the_noise_of_the_table(
    silos: int, colluders: int, dropouts: int, less: float
) -> None:
    """40,000 draws for every number of silos that may be missing.

    Refused: the noise of before, and that of shares for one colluder more or less.
    """
    one = hospitals((silos, colluders, dropouts), DRAWS)
    taken = {index: one.silo(index) for index in range(1, silos + 1)}
    aggregator, known = one.world.aggregator(), colluders + 1
    for missing in range(dropouts + 1):
        active = range(1 + missing, silos + 1)
        found = one.in_noise(summed(aggregator, taken, 1 + missing, active))
        n = len(active)
        assert has_deviation(found, sqrt(n / (n - known)))
        assert not has_deviation(found, sqrt(n / (n - known - 1)))
        assert not has_deviation(found, sqrt(n / (n - known + 1)))
        if not missing:
            before = sqrt(silos / (silos - known - dropouts))
            assert sqrt(n / (n - known)) / before - 1 == pytest.approx(less, abs=1e-3)
            assert not has_deviation(found, before)


def summed(
    aggregator: Aggregator, taken: Mapping[int, Silo], turn: int, active: Sequence[int]
) -> Integers:
    """The sum of an honest attempt."""
    model = aggregator.begin(turn, 0, active, np.zeros(2, dtype=np.float32))
    for index in active:
        taken[index].accept(model)
        aggregator.receive(taken[index].contribute())
    return aggregator.attempt.integers()


def test_p3_a_set_below_the_quorum_is_answered_by_nobody() -> None:
    one = hospitals((5, 1, 1))
    with refused("aggregator", "at least 4 active silos, got 3"):
        one.silo(1).accept(one.world.model((1, 2, 3)))


# A cheating aggregator ---------------------------------------------------------------------------


class Lying:
    """An aggregator with T + 1 silos, which shows everybody what it likes in one attempt."""

    def __init__(self, one: Hospitals, attempt: int = 0) -> None:
        self._one, self._attempt = one, attempt
        parties = one.plan.study.parties
        self.honest = range(1, parties.silos - parties.colluders)
        self.friends = range(parties.silos - parties.colluders, parties.silos + 1)
        everybody = range(1, parties.silos + 1)
        self.sets = [
            frozenset(some)
            for size in range(one.plan.quorum, parties.silos + 1)
            for some in combinations(everybody, size)
        ]

    def answer(self, index: int, active: frozenset[int]) -> ring.Residues:
        """What an honest silo answers to a MODEL that names this set, without its friends' masks.

        Every answer is of a copy of the silo with fresh randomness: of one attempt a silo answers
        one MODEL, and which one is the aggregator's choice.
        """
        w = self._one.world
        model = w.model(sorted(active), 1, self._attempt)
        silo = self._one.silo(index)
        silo.accept(model)
        payload = unverified(silo.contribute()).payload
        size = len(payload) - DIGEST_BYTES
        found = ring.from_bytes(
            payload[:size], w.round_parameters.dimension, w.round_parameters.word_bits
        ).copy()
        self.unmask(found, index, active, self.friends)
        return found

    def unmask(
        self, total: ring.Residues, index: int, active: frozenset[int], known: Sequence[int]
    ) -> None:
        """Take the masks off that a silo's answer has of those whose secrets are known."""
        w, session = self._one.world, self._one.sessions[index]
        model = unverified(w.model(sorted(active), 1, self._attempt)).digest
        place = Place(round=1, attempt=self._attempt, model=model)
        secrets = {other: self._one.sessions[other].secrets[index] for other in known}
        keys = [
            (secrets[other].mask_key(session.transcript, place), other > index)
            for other in known
            if other in active
        ]
        MaskStream().add_all(total, keys)


def is_open(total: ring.Residues) -> bool:
    """Whether no mask is on it; masked numbers are 2^(w - 2) large in the mean."""
    return bool(np.abs(ring.to_integers(total)).mean() < 2.0 ** (8 * total.itemsize - 4))


def told(lying: Lying) -> Iterator[dict[int, frozenset[int]]]:
    """Every way to show honest silos MODELs that name them, or nothing."""
    options = [[None, *(some for some in lying.sets if i in some)] for i in lying.honest]
    for choice in product(*options):
        shown = {i: some for i, some in zip(lying.honest, choice, strict=True) if some}
        if shown:
            yield shown


@pytest.mark.parametrize("case", [(5, 1, 1), (4, 0, 1)], ids=str)
def test_p3_sets_that_differ_from_silo_to_silo_open_nothing_or_a_sum_with_all_its_noise(
    case: tuple[int, int, int],
) -> None:
    """Every sum of answers that T + 1 silos and the aggregator can form, in one attempt.

    Refused: shares for all silos where fewer are named, or for one colluder less.
    """
    one = hospitals(case)
    lying, made = Lying(one), {}
    known = one.plan.study.parties.colluders + 1
    for index in lying.honest:
        for some in lying.sets:
            if index in some:
                made[index, some] = lying.answer(index, some)
    opened: set[frozenset[tuple[int, frozenset[int]]]] = set()
    for shown in told(lying):
        for size in range(1, len(shown) + 1):
            for added in combinations(shown.items(), size):
                opened.add(frozenset(added))
    seen: Counter[int] = Counter()
    word = next(iter(made.values())).dtype
    for each in opened:
        total = np.sum([made[one] for one in each], axis=0, dtype=word)
        sets = {some for _, some in each}
        whole = all((i, some) in each for some in sets for i in lying.honest if i in some)
        assert is_open(total) == whole
        if whole:
            left = sum(len(some.intersection(lying.honest)) / (len(some) - known) for some in sets)
            assert left >= len(sets)
            assert has_deviation(one.in_noise(ring.to_integers(total)), sqrt(left))
            seen[len(min(sets, key=len))] += 1
    assert set(seen) == {case[0], case[0] - 1}


def test_p3_the_noise_that_is_left_is_what_is_promised_whoever_is_named() -> None:
    """T + 1 silos in the set leave z; every set of fewer of them leaves more."""
    one = hospitals((5, 1, 1), DRAWS)
    lying = Lying(one)
    for some in lying.sets:
        answers = [lying.answer(index, some) for index in lying.honest if index in some]
        total = np.sum(answers, axis=0, dtype=answers[0].dtype)
        left = len(answers) / (len(some) - 2)
        assert has_deviation(one.in_noise(ring.to_integers(total)), sqrt(left))
        assert left == 1.0 or not set(lying.friends) <= some
        fixed = len(answers) / (5 - 1 - 1 - 1)  # of shares as before
        assert left == fixed or not has_deviation(
            one.in_noise(ring.to_integers(total)), sqrt(fixed)
        )


def test_p3_who_is_named_and_corrupted_later_opens_no_sum_with_less_noise() -> None:
    """Silo 4 is named, is shown nothing, and tells its secrets once the others have answered.

    Then it is one of T + 1, and the three that are left have all that is promised. Refused: shares
    for as many silos as have answered, and those of five silos with one adversary.
    """
    one, everybody, answered = hospitals((5, 1, 1), DRAWS), frozenset(range(1, 6)), (1, 2, 3)
    lying = Lying(one)
    lying.friends = range(5, 6)
    answers = [lying.answer(index, everybody) for index in answered]
    total = np.sum(answers, axis=0, dtype=answers[0].dtype)
    assert not is_open(total)
    for index in answered:
        lying.unmask(total, index, everybody, (4,))
    found = one.in_noise(ring.to_integers(total))
    assert has_deviation(found, 1.0)
    assert not has_deviation(found, sqrt(3 / (3 - 2)))
    assert not has_deviation(found, sqrt(3 / (5 - 1)))


def test_p3_asking_again_with_another_set_gets_fresh_noise_or_nothing() -> None:
    one = hospitals((5, 1, 1), DRAWS)
    w, everybody, fewer = one.world, (1, 2, 3, 4, 5), (1, 2, 3, 4)
    taken = {index: one.silo(index) for index in everybody}
    sums = []
    for turn, active in ((1, everybody), (2, fewer)):
        model = w.model(active, turn)
        total = ring.zeros(DRAWS, w.round_parameters.word_bits)
        for index in active:
            taken[index].accept(model)
            payload = unverified(taken[index].contribute()).payload
            total += ring.from_bytes(payload[:-DIGEST_BYTES], DRAWS, w.round_parameters.word_bits)
        sums.append(one.in_noise(ring.to_integers(total)))
        with refused("relay", "a mask is never used twice"):
            taken[1].accept(model)
        with refused("aggregator", "a mask is never used twice"):
            taken[1].accept(w.model(fewer if active is everybody else everybody, turn))
        with pytest.raises(ProtocolError, match="accepted model"):
            taken[1].contribute()
    whole, less = sums
    assert has_deviation(whole, sqrt(5 / 3))
    assert has_deviation(less, sqrt(4 / 2))
    assert has_deviation((whole - less) / sqrt(2), sqrt((5 / 3 + 4 / 2) / 2))
    again = w.model(everybody, 1, 1)  # a time that is over
    with refused("relay", "a mask is never used twice"):
        taken[2].accept(again)


# Every adversary ---------------------------------------------------------------------------------


@st.composite
def divisions(draw: st.DrawFn) -> NoiseShares:
    silos = draw(st.integers(2, 14))
    dropouts = draw(st.integers(1, silos - 1))
    known = draw(st.integers(0, silos - dropouts - 1))
    return NoiseShares(sharing=silos, dropouts=dropouts, known=known, announced=True)


@given(divisions())
def test_p3_a_row_is_the_worst_of_all_sets_that_may_be_announced(shares: NoiseShares) -> None:
    """Over the sizes of the set, and the adversary's silos in it; the record's own is not."""
    for silos in range(shares.sharing):
        left = min(
            (n - inside) / (n - shares.known)
            for n in range(shares.fewest, shares.sharing + 1)
            for inside in range(min(silos, n - 1) + 1)
        )
        assert shares.left(silos) ** 2 == pytest.approx(left)
    assert shares.left(shares.known) == 1.0
    assert shares.left(shares.sharing) == 0.0


def test_p3_rows_of_a_plan_say_the_worst() -> None:
    """All but one of eight silos are worse off with all than with six, which MODELs may name."""
    made = plan_of(8, 2, 2)
    left = {one.known_shares: one.noise_multiplier for one in made.exposures}
    z = made.noise_multiplier
    assert left[0] == pytest.approx(z * sqrt(8 / 5))
    assert left[3] == pytest.approx(z)
    assert left[4] == pytest.approx(z * sqrt(2 / 3))
    assert left[7] == pytest.approx(z * sqrt(1 / 5))
    assert made.stated.epsilon <= 1.0 < made.exposures[-1].epsilon
    enclaves = NoiseShares(sharing=8, dropouts=2, known=0, announced=True)
    assert [enclaves.left(k) for k in (0, 1, 5, 6, 7)] == pytest.approx(
        [1.0, sqrt(5 / 6), sqrt(1 / 6), sqrt(1 / 7), sqrt(1 / 8)]
    )


@pytest.mark.slow_cases("130-40-20-none", "130-3-2-tee")
@pytest.mark.parametrize(
    ("silos", "colluders", "dropouts", "trust"),
    [
        (6, 0, 3, "none"),
        (6, 2, 1, "tee"),
        (5, 0, 4, "tee"),
        (130, 40, 20, "none"),
        (130, 3, 2, "tee"),
    ],
)
def test_p3_no_row_of_a_plan_claims_more_than_its_worst_set(
    silos: int, colluders: int, dropouts: int, trust: str
) -> None:
    """With and without enclaves, also where a sparse mask graph may be taken apart (P4)."""
    made = hubbub.plan(study(silos, colluders, dropouts, parties={"trust": trust}))
    known = 0 if trust == "tee" else colluders + 1
    for row in made.exposures:
        left = min(
            max(n - row.known_shares, 1) / (n - known) for n in range(silos - dropouts, silos + 1)
        )
        assert row.noise_multiplier == pytest.approx(made.noise_multiplier * sqrt(left))
    assert made.stated.noise_multiplier == made.noise_multiplier
    if trust == "tee":
        rows = {row.adversary: row.known_shares for row in made.exposures}
        assert rows[f"aggregator + {colluders} silos, no enclave holding"] == colluders + 1


@pytest.mark.parametrize("adapts", [True, False])
def test_p3_corrupting_in_view_of_sums_of_sets_that_change_gains_nothing(adapts: bool) -> None:
    """The privacy loss of an adversary that chooses sets and silos in view of the sums.

    Five silos, T + 1 = 2 of them corrupted one after the other once both sums are seen, silo 0 the
    record's. The losses that are likeliest under the record's presence are compared with those of
    two sums with noise 1. Refused: the shares of five silos where four are named.
    """
    bound = _gauss(sqrt(2.0), 1.0)
    for wrong, share_of_four in ((False, 1 / 2), (True, 1 / 3)):
        loss = _losses(np.random.default_rng(3), share_of_four, adapts=adapts)
        over = np.maximum(0.0, 1 - np.exp(1.0 - loss))
        error = float(over.std()) / sqrt(over.size)
        assert (float(over.mean()) > bound + DEVIATIONS * error) == wrong


def _losses(rng: np.random.Generator, share_of_four: float, *, adapts: bool) -> NDArray[np.float64]:
    """Of the record's presence, which moves each sum by 1."""
    many = 200_000
    rows = np.arange(many)
    noise = rng.normal(size=(2, many, 5)) * sqrt(1 / 3)
    first = 1 + noise[0].sum(axis=1)
    gone = np.where(first > 1, 4, 3) if adapts else np.full(many, 4)
    noise[1] *= sqrt(share_of_four * 3)
    noise[1, rows, gone] = 0.0
    second = 1 + noise[1].sum(axis=1)
    one = np.where(second > first, 1, 2) if adapts else np.full(many, 1)
    # Silo 3 or 4 next: who was there twice, or if the first one's noise was large who was once.
    stayed = 7 - gone
    other = np.where(noise[0, rows, one] < 0, stayed, gone) if adapts else stayed
    rest = np.stack([first, second]) - noise[:, rows, one] - noise[:, rows, other]
    inside = 2 - (other == gone)
    variances = np.stack([np.full(many, 1.0), (4 - inside) * share_of_four])
    return np.asarray((rest / variances - 0.5 / variances).sum(axis=0))


def _gauss(mean: float, epsilon: float) -> float:
    """delta at epsilon of N(mean, 1) against N(0, 1)."""
    high, low = mean / 2 - epsilon / mean, -mean / 2 - epsilon / mean
    return float(norm.cdf(high) - exp(epsilon) * norm.cdf(low))


# Numbers of the plan -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", [row[:3] for row in TABLE], ids=str)
def test_p7_word_and_grid_fit_every_set(case: tuple[int, int, int]) -> None:
    """The least share, of all silos, has four grid steps; the widest sum, of the fewest, fits."""
    made = plan_of(*case)
    terms = round_parameters_of(made.main)
    silos, record = case[0], made.mechanism.clip / made.main.grid_step
    shares = [terms.share_sigma_grid(n) for n in range(made.quorum, silos + 1)]
    assert min(shares) == shares[-1] == terms.sigma_grid >= 4
    assert shares[0] == pytest.approx(made.main.division.widest * made.main.share_sigma_grid)
    for n, share in enumerate(shares, made.quorum):
        assert 12 * sqrt(n) * share + made.main.sum_limit * record < 2.0 ** (made.word_bits - 1)
        assert made.main.total_sigma >= sqrt(n) * share * made.main.grid_step * (1 - 1e-12)


def test_p6_the_certificate_is_for_the_widest_share() -> None:
    """P6's eta, with its own formula, for a share of one of seven silos that is left: sqrt 7."""
    one = study(9, 1, 6)
    made = hubbub.plan(one)
    assert made.main.division.widest == pytest.approx(sqrt(7))
    narrow = certificate_for(made.mechanism, one.parties, 10)
    wide = certificate_for(made.mechanism, one.parties, 10, widest=sqrt(7))
    assert made.certificate == wide

    def eta(s: float) -> float:
        delta, beta = 2.0**-53 * (5 * s * 9 + 1), (9 * s + 1) / s**2
        return 2 * delta * (1 + beta) * exp(beta * delta)

    assert wide.epsilon / narrow.epsilon == pytest.approx(eta(16 * sqrt(7)) / eta(16), rel=1e-3)


@pytest.mark.parametrize(
    "given",
    [
        {"parties": {"compute_nodes": 2}},
        {"training": {"noise": "correlated", "bands": 3}},
        {"training": {"noise": "correlated", "bands": 3, "evaluate": {"every": 3, "epsilon": 0.3}}},
    ],
    ids=["nodes", "correlated", "beside independent"],
)
def test_p3_shares_stay_as_they_were_where_a_sum_may_open_for_fewer_or_noise_comes_back(
    given: dict[str, Any],
) -> None:
    made = hubbub.plan(study(5, 1, 1, **given))
    terms = round_parameters_of(made.main)
    assert (made.main.shares, terms.announced_shares) == (2, 0)
    assert terms.share_sigma_grid(4) == terms.share_sigma_grid(5) == terms.sigma_grid
    outsider = made.exposures[0].noise_multiplier
    assert outsider == pytest.approx(made.noise_multiplier * sqrt(4 / 2))
    assert "announced_shares" not in made.to_dict()
    assert "announced_shares" not in terms.to_dict()


def test_where_nobody_may_be_missing_nothing_has_changed() -> None:
    made = plan_of(5, 1, 0)
    assert "announced_shares" not in made.to_dict()
    assert "announced_shares" not in round_parameters_of(made.main).to_dict()


def test_round_parameters_that_contradict_themselves_are_refused() -> None:
    right = round_parameters_of(plan_of(5, 1, 1).main)
    assert right.to_dict()["announced_shares"] == right.announced_shares == 3
    assert RoundParameters(**right.to_dict()) == right
    for wrong in ({"nodes": 2}, {"correlation": (1 << 16,)}, {"announced_shares": 1}):
        with pytest.raises(StudyError, match="make the plan again"):
            replace(right, **wrong)
