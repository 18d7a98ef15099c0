"""Joint batches in rounds and runs: their size, who is in them, what they cost, what is refused.

Four silos with 5, 6, 4 and 5 made-up records; a batch of 6 of the 20, so that an epoch is three
batches of 6 and one of 2. Lists come from the whole mixnet. A spy stands where a silo looks up
which of its own records were drawn; another one where a baseline sums the records of a silo.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2, hypergeom

import hubbub
from hubbub.core.errors import BudgetError, DataError, StudyError
from hubbub.core.ledger.entry import Cap
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.number_format import at_most
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.sampling_comparison import as_table
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.protocol.token_lists.joint_batch import TokenBatches, chosen_records
from hubbub.core.session.in_process import federate
from hubbub.core.session.offer import Layout, round_parameters_of
from hubbub.core.session.token_lists import TokenListBatches, TokenLists
from hubbub.learning.runs import baselines
from hubbub.learning.runs.run_study import resume, run

COUNTS, BATCH, STEPS = (5, 6, 4, 5), 6, 10
ALL, EPOCH = sum(COUNTS), 4
NAMES = ("a", "b", "c", "d")
STUDY = bytes(range(32))
EPSILON, DELTA = 8.0, 1e-5
# A list for every attempt, for every epoch, or one in all: how many for ten attempts.
LISTS = {"per-step": 10, "per-epoch": 3, "static": 1}
# Rows for ten attempts: an epoch of four is paid for at once where a list is kept.
ROWS = {"per-step": 10, "per-epoch": 3, "static": 3}
every_policy = pytest.mark.parametrize("tokens", LISTS)
kept_list = pytest.mark.parametrize("tokens", ["per-epoch", "static"])

WARD = """
import numpy as np
from hubbub.core.tabular.records import Records
COUNTS = {"a": 5, "b": 6, "c": 4, "d": 5, "test": 40}
def records(party, **_):
    generator = np.random.default_rng(len(party) + ord(party[0]))
    x = generator.normal(size=(COUNTS[party], 3)).astype(np.float32)
    return Records(inputs=x, targets=(x[:, 0] > 0).astype(np.float32))
"""


def table(tokens: str = "per-step") -> dict[str, dict[str, Any]]:
    return {
        "study": {"name": "joint batches"},
        "parties": {"names": list(NAMES), "colluders": 1},
        "data": {
            "source": "python:ward_of_joint_batches:records",
            "records": ALL,
            "counts": list(COUNTS),
        },
        "model": {"kind": "logistic", "inputs": [3]},
        "training": {
            "steps": STEPS,
            "sampling": "without-replacement",
            "batch": BATCH,
            "tokens": tokens,
            "optimizer": {"name": "adam", "lr": 0.1},
        },
        "privacy": {"epsilon": EPSILON, "delta": DELTA, "relation": "substitute"},
    }


def study(tokens: str = "per-step", **changed: dict[str, Any]) -> hubbub.Study:
    """The study with some keys of its sections changed; None takes a key out."""
    whole = table(tokens)
    for section, keys in changed.items():
        kept = {**whole[section], **keys}
        whole[section] = {key: value for key, value in kept.items() if value is not None}
    return hubbub.Study.from_table(whole)


@lru_cache(maxsize=4)
def planned(tokens: str) -> Plan:
    return hubbub.plan(study(tokens), dimension=4)


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the module that gives the records."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ward_of_joint_batches.py").write_text(WARD)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@dataclass
class Drawn:
    """By attempt, which records of each silo were in the batch."""

    batches: dict[tuple[int, int], dict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    lists: int = 0

    def members(self) -> list[list[tuple[int, int]]]:
        """The (silo, record) pairs of every batch, in order."""
        return [
            [(silo, record) for silo, those in sorted(batch.items()) for record in those]
            for _, batch in sorted(self.batches.items())
        ]

    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.members()]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    found = Drawn()
    chosen, contribute, prepare = TokenBatches.rows, Silo.contribute, TokenLists.prepare
    owner = {}

    def contributing(self: Silo) -> bytes:
        owner[self.batches] = self._masking._session.index
        return contribute(self)

    def choosing(self: TokenBatches, source: SecureSource, records: int, *now: Any) -> np.ndarray:
        those = chosen(self, source, records, *now)
        time = (now[0].round, now[0].attempt)
        found.batches[time][owner[self]] = sorted(those[those >= 0].tolist())
        return those

    def preparing(self: TokenLists) -> None:
        before = self.number
        prepare(self)
        found.lists += self.number - before

    monkeypatch.setattr(Silo, "contribute", contributing)
    monkeypatch.setattr(TokenBatches, "rows", choosing)
    monkeypatch.setattr(TokenLists, "prepare", preparing)
    return found


# Batches --------------------------------------------------------------------------------------


@pytest.mark.slow
@every_policy
def test_lists_are_made_as_often_as_the_policy_says(drawn: Drawn, tokens: str) -> None:
    run(study(tokens), plan=planned(tokens))
    assert drawn.lists == LISTS[tokens]
    assert len(drawn.batches) == STEPS
    assert all(set(batch) == {1, 2, 3, 4} for batch in drawn.batches.values())


@pytest.mark.slow
def test_every_batch_has_exactly_its_members_over_all_silos(drawn: Drawn) -> None:
    run(study(), plan=planned("per-step"))
    assert drawn.sizes() == [BATCH] * STEPS
    assert all(len(set(batch)) == BATCH for batch in drawn.members())
    assert len({tuple(batch) for batch in drawn.members()}) > STEPS // 2


@pytest.mark.slow
@kept_list
def test_where_a_list_is_kept_every_record_is_in_one_batch_of_an_epoch(
    drawn: Drawn, tokens: str
) -> None:
    run(study(tokens), plan=planned(tokens))
    assert drawn.sizes() == [6, 6, 6, 2, 6, 6, 6, 2, 6, 6]
    members = drawn.members()
    everybody = {(silo, k) for silo, count in enumerate(COUNTS, 1) for k in range(count)}
    orders = []
    for start in (0, EPOCH):
        order = [record for batch in members[start : start + EPOCH] for record in batch]
        assert Counter(order) == Counter(everybody)
        orders.append(order)
    assert orders[0] != orders[1]  # alike once in 10^11
    rest = [record for batch in members[2 * EPOCH :] for record in batch]
    assert len(set(rest)) == 2 * BATCH


# Who is in them -------------------------------------------------------------------------------


class Nothing:
    """A silo with so many records, whose sum is zero."""

    def __init__(self, count: int) -> None:
        self.count = self.capacity = count

    def clipped_sum(self, parameters: object, chosen: object) -> np.ndarray:
        return np.zeros(2)


def round_parameters(rounds: int) -> RoundParameters:
    return RoundParameters(
        dimension=2,
        parameters=2,
        silos=4,
        quorum=4,
        steps=rounds,
        word_bits=32,
        grid_step=1.0,
        sigma_grid=8.0,
        sample_rate=BATCH / ALL,
        nodes=0,
        batch=BATCH,
        records=ALL,
    )


def is_even(times: np.ndarray, rounds: int, alarm: float = 1e-7) -> bool:
    """Whether all records were in a batch equally often; wrongly denied with this probability.

    With b of n drawn afresh in each of many rounds, sum (c - rb/n)^2 / (rb/n (1 - b/n)) times
    (n - 1) / n is chi square with n - 1 degrees of freedom. Too even is no better than uneven.
    """
    mean = rounds * BATCH / ALL
    statistic = float(np.sum((times - mean) ** 2) / (mean * (1 - BATCH / ALL)) * (1 - 1 / ALL))
    return chi2.ppf(alarm / 2, ALL - 1) < statistic < chi2.isf(alarm / 2, ALL - 1)


def times_drawn(drawn: Drawn) -> np.ndarray:
    counted = Counter(record for batch in drawn.members() for record in batch)
    return np.array([counted[silo, k] for silo, n in enumerate(COUNTS, 1) for k in range(n)])


@pytest.mark.slow
def test_every_record_is_in_a_batch_as_often_as_any_other(drawn: Drawn) -> None:
    rounds = 200
    numbers = round_parameters(rounds)
    tasks = [Nothing(n) for n in COUNTS]
    joint = TokenListBatches(counts=COUNTS, attempts_per_list=1, epoch=1)
    parties = federate(Layout(names=NAMES), numbers, tasks, study=STUDY, joint=joint)
    for number in range(1, rounds + 1):
        parties.rounds.round(number, np.zeros(2, dtype=np.float32))
    assert set(drawn.sizes()) == {BATCH}
    assert is_even(times_drawn(drawn), rounds)
    # No two records meet more often than chance has any do: false alarms 1e-7.
    table = np.zeros((rounds, ALL))
    for row, batch in zip(table, drawn.members(), strict=True):
        row[[sum(COUNTS[: silo - 1]) + k for silo, k in batch]] = 1
    together = (table.T @ table)[np.triu_indices(ALL, 1)]
    chance = BATCH * (BATCH - 1) / (ALL * (ALL - 1))
    assert together.max() <= binom.isf(1e-7 / together.size, rounds, chance)


@pytest.mark.parametrize(("rounds", "heavier"), [(60, 4.0), (200, 2.0), (200, 3.0)])
def test_a_bias_towards_one_silos_records_would_be_noticed(rounds: int, heavier: float) -> None:
    """Records of silo b that are drawn more eagerly: the same rounds, the same test."""
    random = np.random.default_rng(1)
    weights = np.array([heavier if 5 <= k < 11 else 1.0 for k in range(ALL)])
    times = np.zeros(ALL)
    for _ in range(rounds):
        times[random.choice(ALL, BATCH, replace=False, p=weights / weights.sum())] += 1
    assert not is_even(times, rounds)


def test_batches_that_take_turns_would_be_noticed() -> None:
    """Every record equally often to the last one is not chance."""
    assert not is_even(np.full(ALL, 60.0), 200)


def test_a_list_that_was_not_shuffled_with_places_that_were_not_drawn_would_be_noticed() -> None:
    place, times = np.arange(ALL), np.zeros(ALL)
    random = np.random.default_rng(2)
    for _ in range(200):
        first = random.integers(ALL - BATCH + 1)  # a window: the ends are in fewer of them
        times[chosen_records(np.arange(first, first + BATCH), place)] += 1
    assert not is_even(times, 200)


# Baselines ------------------------------------------------------------------------------------


@dataclass
class Summed:
    """By silo, its records in every batch that a baseline summed, in their order."""

    batches: dict[int, list[list[int]]] = field(default_factory=lambda: defaultdict(list))

    def members(self) -> list[list[tuple[int, int]]]:
        """The (silo, record) pairs of every step; who pools records counts on from silo to silo."""
        if len(self.batches) == 1:
            pairs = [(silo, k) for silo, n in enumerate(COUNTS, 1) for k in range(n)]
            return [[pairs[place] for place in step] for step in next(iter(self.batches.values()))]
        return [
            [(silo, k) for silo, those in enumerate(step, 1) for k in those]
            for step in zip(*self.batches.values(), strict=True)
        ]

    def times(self) -> np.ndarray:
        """In how many batches each record was."""
        counted = Counter(record for batch in self.members() for record in batch)
        return np.array([counted[silo, k] for silo, n in enumerate(COUNTS, 1) for k in range(n)])


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> Summed:
    """Sums are zero here, for it is the batches that are looked at."""
    found = Summed()

    def summing(_transform: Any, task: Any, _model: Any, rows: Any, _draw: Any) -> np.ndarray:
        found.batches[id(task)].append(rows[rows >= 0].tolist())
        return np.zeros(4)  # three columns and the intercept

    monkeypatch.setattr(baselines, "clipped_sum", summing)
    return found


def epochs_of(batches: list[Any]) -> list[list[Any]]:
    """The members of the whole epochs, and of the one that is not finished."""
    return [
        [one for batch in batches[start : start + EPOCH] for one in batch]
        for start in range(0, STEPS, EPOCH)
    ]


together = pytest.mark.parametrize("baseline", ["trusted", "local-dp", "non-private"])


@pytest.mark.slow
@together
def test_a_baseline_has_exactly_b_records_of_all_silos_in_every_batch(
    summed: Summed, baseline: str
) -> None:
    run(study(), plan=planned("per-step"), baseline=baseline)
    batches = summed.members()
    assert [len(set(batch)) for batch in batches] == [len(batch) for batch in batches]
    assert [len(batch) for batch in batches] == [BATCH] * STEPS
    assert len({tuple(batch) for batch in batches}) > STEPS // 2


@pytest.mark.quick_cases("static-non-private")
@together
@kept_list
def test_a_baseline_has_every_record_once_in_an_epoch_where_the_plan_charges_for_that(
    summed: Summed, baseline: str, tokens: str
) -> None:
    run(study(tokens), plan=planned(tokens), baseline=baseline)
    assert [len(batch) for batch in summed.members()] == [6, 6, 6, 2, 6, 6, 6, 2, 6, 6]
    everybody = {(silo, k) for silo, count in enumerate(COUNTS, 1) for k in range(count)}
    first, second, rest = epochs_of(summed.members())
    assert Counter(first) == Counter(second) == Counter(everybody)
    assert first != second  # alike once in 10^11
    assert len(set(rest)) == len(rest) == 2 * BATCH


@pytest.mark.slow
@kept_list
def test_a_silo_alone_uses_each_of_its_records_once_in_an_epoch(
    summed: Summed, tokens: str
) -> None:
    run(study(tokens), plan=planned(tokens), baseline="alone")
    for count, batches in zip(COUNTS, summed.batches.values(), strict=True):
        first, second, rest = epochs_of(batches)
        assert Counter(first) == Counter(second) == Counter(range(count))
        assert len(set(rest)) == len(rest)


def sampled(summed: Summed, baseline: str, steps: int) -> None:
    """Many steps."""
    run(study(training={"steps": steps}), baseline=baseline)
    tasks = 4 if baseline == "alone" else 1
    assert [len(batches) for batches in summed.batches.values()] == [steps] * tasks


@pytest.mark.slow
def test_a_trusted_party_draws_every_record_as_often_as_any_other(summed: Summed) -> None:
    sampled(summed, "trusted", 200)
    assert is_even(summed.times(), 200)


def spread_of(sizes: np.ndarray) -> float:
    """Squared deviation of silos' parts, (steps, silos), from that of parts of joint batches.

    One in the mean; its own deviation is below sqrt(2 / parts).
    """
    own = np.array(COUNTS)
    law = hypergeom(ALL, own, BATCH)
    return float(np.mean((sizes - law.mean()) ** 2 / law.var()))


@pytest.mark.slow
def test_a_silo_alone_has_its_part_of_a_batch_and_no_poisson_batch(summed: Summed) -> None:
    """Within 6 deviations, which chance passes once in 10^7; Poisson batches are at 1.27."""
    steps = 600
    sampled(summed, "alone", steps)
    sizes = np.array([[len(one) for one in batches] for batches in summed.batches.values()]).T
    assert abs(spread_of(sizes) - 1) < 6 * np.sqrt(2 / sizes.size) < 0.18
    rate = BATCH / ALL
    off = np.abs(summed.times() - steps * rate) / np.sqrt(steps * rate * (1 - rate))
    assert off.max() < 6
    assert len(set(sizes.sum(axis=1))) > 3  # every silo draws for itself


def test_poisson_batches_of_a_silo_alone_would_be_noticed() -> None:
    sizes = np.random.default_rng(3).binomial(COUNTS, BATCH / ALL, size=(600, 4))
    assert abs(spread_of(sizes) - 1) > 0.18


# What they cost -------------------------------------------------------------------------------


def rows(folder: Path, name: str) -> list[tuple[int, int]]:
    with Ledger(folder / f"{name}.sqlite") as book:
        return [(entry.round, entry.attempt) for entry in book.entries()]


def spent(folder: Path, name: str) -> float:
    with Ledger(folder / f"{name}.sqlite") as book:
        return book.epsilon(delta=DELTA, relation="substitute")


@pytest.mark.slow
@every_policy
def test_the_ledger_has_a_row_for_every_attempt_or_epoch_and_the_plans_epsilon(
    tmp_path: Path, tokens: str
) -> None:
    result = run(study(tokens), tmp_path / "run", plan=planned(tokens))
    attempts = range(1, STEPS + 1) if tokens == "per-step" else range(1, STEPS + 1, EPOCH)
    for name in NAMES:
        assert rows(tmp_path / "ledgers", name) == [(number, 0) for number in attempts]
        found = spent(tmp_path / "ledgers", name)
        assert result.epsilon * (1 - 1e-9) <= found <= result.epsilon * (1 + 1e-3)
    assert len(attempts) == ROWS[tokens]
    assert result.epsilon == planned(tokens).epsilon() <= EPSILON


@kept_list
def test_a_kept_list_is_charged_as_if_all_batches_were_known(tokens: str) -> None:
    """P9 (c): three epochs without any amplification by sampling."""
    plan = planned(tokens)
    epochs = hubbub.epsilon(
        noise_multiplier=plan.noise_multiplier,
        sample_rate=1.0,
        steps=ceil(STEPS / EPOCH),
        delta=DELTA,
        relation="substitute",
        sampling="full-batch",
    )
    assert plan.mechanism.epoch == EPOCH
    assert plan.epsilon() == pytest.approx(epochs.upper, rel=1e-3)
    assert plan.epsilon_after(1) == plan.epsilon_after(4) < plan.epsilon_after(5)


def test_a_fresh_list_is_charged_for_the_records_that_colluders_own() -> None:
    """P10: the aggregator, one silo and the one that looks on have what the two largest hold."""
    plan = planned("per-step")
    assert plan.stated.known_records == sum(sorted(COUNTS)[-2:])
    found = hubbub.malicious_epsilon(
        records=ALL,
        batch=BATCH,
        malicious=sum(sorted(COUNTS)[-2:]),
        noise_multiplier=plan.noise_multiplier,
        steps=STEPS,
        delta=DELTA,
    )
    assert found.lower * (1 - 1e-3) <= plan.epsilon() <= found.upper * (1 + 1e-3)


# Interruptions --------------------------------------------------------------------------------


def stopping(after: int) -> Callable[[int, object], None]:
    calls = [0]

    def stop(_step: int, _row: object) -> None:
        calls[0] += 1
        if calls[0] == after:
            raise KeyboardInterrupt

    return stop


def assert_within(folder: Path, tokens: str) -> None:
    """No ledger holds more than the plan composes; a certificate counts once per session."""
    for name in NAMES:
        assert len(rows(folder, name)) <= ROWS[tokens]
        assert spent(folder, name) <= planned(tokens).epsilon() * (1 + 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "after"),
    [("per-step", 3), *((kept, after) for kept in ("per-epoch", "static") for after in (1, 3, 5))],
)
def test_a_run_that_is_stopped_again_and_again_never_spends_more(
    tmp_path: Path, drawn: Drawn, tokens: str, after: int
) -> None:
    home = tmp_path / "ledgers"
    with pytest.raises(KeyboardInterrupt):
        run(study(tokens), tmp_path / "run", progress=stopping(after), plan=planned(tokens))
    for _ in range(STEPS):
        assert_within(home, tokens)
        try:
            result = resume(tmp_path / "run", progress=stopping(after))
        except KeyboardInterrupt:
            continue
        break
    assert_within(home, tokens)
    assert result.epsilon == planned(tokens).epsilon()
    assert {len(rows(home, name)) for name in NAMES} == {ROWS[tokens]}
    if tokens != "per-step":  # a row pays for one use of each record
        assert times_drawn(drawn).max() <= ROWS[tokens]


@pytest.mark.slow
@every_policy
def test_what_was_charged_and_not_sent_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: str
) -> None:
    contribute, calls = Silo.contribute, [0]

    def dying(self: Silo) -> bytes:
        calls[0] += 1
        if calls[0] == 4 * 4 + 3:  # the third silo in the fifth round, with every row written
            raise KeyboardInterrupt
        return contribute(self)

    with monkeypatch.context() as patch:
        patch.setattr(Silo, "contribute", dying)
        with pytest.raises(KeyboardInterrupt):
            run(study(tokens), tmp_path / "run", plan=planned(tokens))
    before = rows(tmp_path / "ledgers", "a")
    assert before[-1] == (5, 0)
    result = resume(tmp_path / "run")
    assert_within(tmp_path / "ledgers", tokens)
    assert rows(tmp_path / "ledgers", "a")[: len(before)] == before
    # The fifth round is done again at the price of an attempt, or of the rest of its epoch.
    done = {"per-step": 9, "per-epoch": 6, "static": 6}[tokens]
    assert result.final["step"] == done


@pytest.mark.slow
@kept_list
def test_a_resumed_run_draws_from_a_new_list(tmp_path: Path, drawn: Drawn, tokens: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(study(tokens), tmp_path / "run", progress=stopping(2), plan=planned(tokens))
    assert drawn.lists == 1
    drawn.batches.clear()
    resume(tmp_path / "run")
    assert drawn.lists == {"per-epoch": 3, "static": 2}[tokens]
    first = [record for batch in drawn.members()[:EPOCH] for record in batch]
    assert len(set(first)) == len(first) == ALL


# What is refused ------------------------------------------------------------------------------


REFUSED = {
    "a batch of fixed size shows how many there are": (
        {"privacy": {"relation": "add-remove"}},
        'privacy.relation = "substitute".*makes the number of records public',
    ),
    "nobody can say how large a batch of unknown records is": (
        {"data": {"records": None}, "training": {"batch": None, "sample_rate": 0.3}},
        r"data\.records.*state the public number of records",
    ),
    "a batch over all silos needs all": (
        {"parties": {"dropouts": 1, "colluders": 0}},
        r"parties\.dropouts = 0.*does not have its size",
    ),
    "no record can be held back": (
        {"training": {"evaluate": {"every": 5, "epsilon": 1.0}}},
        r"training\.evaluate.*none can be held back",
    ),
    "a policy that there is not": (
        {"training": {"tokens": "sometimes"}},
        r"training\.tokens.*per-step.*per-epoch.*static",
    ),
    "tokens where nothing is drawn from a list": (
        {
            "training": {"sampling": "poisson", "tokens": "static"},
            "privacy": {"relation": "add-remove"},
        },
        r'training\.tokens.*without training\.sampling = "without-replacement"',
    ),
}


@pytest.mark.parametrize(("changed", "says"), REFUSED.values(), ids=list(REFUSED))
def test_a_study_that_cannot_keep_its_word_is_refused(changed: Any, says: str) -> None:
    with pytest.raises(StudyError, match=says):
        study(**changed)


@pytest.mark.parametrize("stated", [ALL - 1, ALL + 1])
def test_another_number_of_records_than_stated_is_refused_before_anything_is_charged(
    tmp_path: Path, stated: int
) -> None:
    with pytest.raises(DataError, match=rf"expected {stated} records.*{ALL} in all.*correct"):
        run(study(data={"records": stated, "counts": None}), tmp_path / "run")
    assert not any(rows(tmp_path / "ledgers", name) for name in NAMES)


@pytest.mark.slow
def test_a_silo_over_its_cap_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "ledgers").mkdir()
    with Ledger(tmp_path / "ledgers" / "b.sqlite") as book:
        cap = planned("per-epoch").epsilon_after(EPOCH) * 1.01
        book.set_cap(Cap(epsilon=cap, delta=DELTA, relation="substitute"))
    with pytest.raises(BudgetError, match="b: "):
        run(study("per-epoch"), tmp_path / "run", plan=planned("per-epoch"))
    assert rows(tmp_path / "ledgers", "b") == [(1, 0)]
    assert rows(tmp_path / "ledgers", "a") == [(1, 0), (5, 0)]
    assert rows(tmp_path / "ledgers", "c") == [(1, 0)]


# What the plan says of them -------------------------------------------------------------------


def test_terms_say_how_batches_are_drawn() -> None:
    found = {tokens: round_parameters_of(planned(tokens).main) for tokens in LISTS}
    assert {one.batch for one in found.values()} == {BATCH}
    assert {one.records for one in found.values()} == {ALL}
    assert {tokens for tokens, one in found.items() if one.fresh_lists} == {"per-step"}
    assert all(one.needs_joint_seed for one in found.values())


def hospitals(colluders: int, silos: int = 6) -> hubbub.Study:
    whole = table()
    whole["parties"] = {"silos": silos, "colluders": colluders}
    whole["data"] = {"source": "python:nowhere:records", "records": 600}
    whole["training"] |= {"batch": 60}
    return hubbub.Study.from_table(whole)


@pytest.mark.slow
@pytest.mark.parametrize("colluders", [0, 1, 3])
def test_the_plan_compares_joint_batches_with_poisson_for_every_number_of_colluders(
    colluders: int,
) -> None:
    plan = hubbub.plan(hospitals(colluders), dimension=4)
    said = plan.to_dict()["without_replacement"]["colluders"]
    assert [one["colluding_silos"] for one in said] == list(range(colluders + 1))
    # The one that looks on owns records too.
    assert [one["known_records"] for one in said] == [100 * (t + 1) for t in range(colluders + 1)]
    for one in said:
        poisson = hubbub.epsilon(
            noise_multiplier=one["noise_multiplier"],
            sample_rate=0.1,
            steps=STEPS,
            delta=DELTA,
            relation="substitute",
        )
        joint = hubbub.malicious_epsilon(
            records=600,
            batch=60,
            malicious=one["known_records"],
            noise_multiplier=one["noise_multiplier"],
            steps=STEPS,
            delta=DELTA,
        )
        assert one["epsilon_poisson"] == pytest.approx(poisson.upper, rel=1e-3)
        assert joint.lower * (1 - 1e-3) < one["epsilon"] < joint.upper * (1 + 1e-3)
        assert one["epsilon_poisson"] < one["epsilon"]
    listed = {(one.known_records, one.noise_multiplier): one.epsilon for one in plan.exposures}
    for one in said:
        assert listed[one["known_records"], one["noise_multiplier"]] == one["epsilon"]
    assert said[-1]["epsilon"] == plan.epsilon()


@pytest.mark.slow
def test_the_table_of_many_colluders_leaves_some_out_and_keeps_both_ends() -> None:
    found = hubbub.plan(hospitals(12, silos=16), dimension=4).joint_batches
    shown = as_table(found)
    assert len(shown) == 9
    assert shown[0][0] == "aggregator + 0 silos"
    assert shown[-1][0] == "aggregator + 12 silos"
    assert shown[-1][2:] == (at_most(found.epsilon), at_most(found.epsilon_poisson))
    assert [float(row[2]) for row in shown] == sorted(float(row[2]) for row in shown)


def test_a_poisson_study_and_one_with_a_kept_list_have_nothing_to_compare() -> None:
    assert planned("static").to_dict()["without_replacement"] is None
