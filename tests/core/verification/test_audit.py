"""The audit: what it must find, what it must not, and the arithmetic of its bound (P18)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, exp, log, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binom, ks_2samp, norm

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.planning import accounts
from hubbub.core.planning.accounts import account_of, releases
from hubbub.core.planning.mechanism import IndependentNoise
from hubbub.core.planning.noise_correlation import Correlation
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.study_plan import main_of
from hubbub.core.privacy.canary_guesses import Rates, lower_bound, worst_distance
from hubbub.core.privacy.tradeoff import TradeOff
from hubbub.core.protocol.agreement.key_agreement import PairSecret, Place
from hubbub.core.protocol.primitives import noise
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.protocol.round import batches
from hubbub.core.protocol.round.batches import Groups
from hubbub.core.protocol.round.draw import Draw
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.protocol.token_lists.joint_batch import TokenBatches
from hubbub.core.verification.evidence import audit_result
from hubbub.core.verification.evidence.audit_result import (
    SMALL_SHARE,
    SURELY,
    Seen,
    WorstRates,
    are_masked,
    choosing_runs,
    epsilon_shown,
)
from hubbub.desk.cli.main import main
from hubbub.learning.audit import audit
from hubbub.learning.audit import canaries as canaries_module
from hubbub.learning.audit import canaries as canary_runs
from hubbub.learning.audit.canaries import AuditRun, Canaries, of_lists, played
from hubbub.learning.audit.power import ExpectedPower, joint_part, scores_of, size_of
from hubbub.learning.audit.rules import Choice, Rule, Trials, chosen_rule, rates_of

# A sound study is contradicted by chance once in 100,000 audits.
SURE = 0.99999

TOML = """
[study]
name = "audited"

[parties]
silos = {silos}
colluders = {colluders}
compute_nodes = {nodes}
dropouts = {dropouts}
{parties}

[data]
source = "python:nowhere:nothing"
records = {records}

{extra}

[model]
kind = "logistic"
inputs = [600]

[training]
steps = {steps}
{sampling}
clip_norm = {clip}

[privacy]
epsilon = {epsilon}
delta = 1e-3
relation = "{relation}"
"""


def study(**changed: Any) -> hubbub.Study:
    """A study that needs no data, loose enough for few canaries to see much of it."""
    values: dict[str, Any] = {
        "silos": 3,
        "colluders": 0,
        "nodes": 0,
        "dropouts": 0,
        "records": 8000,
        "extra": "",
        "parties": "",
        "steps": 4,
        "sampling": "sample_rate = 0.3",
        "clip": 0.7,
        "epsilon": 1.5,
        "relation": "add-remove",
    }
    return hubbub.Study.parse(TOML.format(**{**values, **changed}))


KINDS = {
    "poisson": {},
    "substitute": {"relation": "substitute"},
    "everybody": {"sampling": 'sampling = "full-batch"', "steps": 2, "records": 1000},
    "colluders": {"silos": 6, "colluders": 2, "clip": 1e-20},
    "full shares": {"silos": 4, "nodes": 2, "parties": 'shares = "full"'},
    "some nodes each": {"silos": 12, "nodes": 4, "parties": "nodes_per_silo = 3"},
    "nodes and drop-outs": {"silos": 5, "colluders": 1, "nodes": 2, "dropouts": 1, "clip": 1e9},
}
CORRELATED = {
    "sampling": "\n".join(
        (
            "sample_rate = 0.1",
            'noise = "correlated"',
            "bands = 3",
            'optimizer = {name = "sgd", lr = 1}',
        )
    ),
    "steps": 9,
    "epsilon": 4.0,
}


def joint(batch: int, tokens: str = "per-step", more: str = "", **changed: Any) -> dict[str, Any]:
    """A study with joint batches."""
    lines = f'sampling = "without-replacement"\nbatch = {batch}\ntokens = "{tokens}"\n{more}'
    return {"sampling": lines, "relation": "substitute", **changed}


def projected(numbers: int, kind: str = "gaussian") -> str:
    """The keys of a projection, as lines."""
    return f'projection = {numbers}\nprojection_kind = "{kind}"'


SAMPLED = "sample_rate = 0.2\n"
PROJECTED = {
    "gaussian": {"sampling": SAMPLED + projected(400)},
    "gaussian, exchanged": {"sampling": SAMPLED + projected(400), "relation": "substitute"},
    "signs": {"sampling": SAMPLED + projected(400, "sign")},
    "by layers": {"sampling": SAMPLED + projected(400, "layers")},
    "gaussian, everybody": {"sampling": 'sampling = "full-batch"\n' + projected(400), "steps": 2},
}
JOINT = {
    "fresh lists": joint(2000),
    "fresh lists, nodes": joint(2000, nodes=2, silos=4, colluders=1),
    "lists for an epoch": joint(2000, "per-epoch", steps=8),
    "one list": joint(2000, "static", steps=8),
    "fresh lists, by layers": joint(2000, more=projected(400, "layers")),
    "one list, gaussian": joint(2000, "static", projected(400), steps=8),
}


def size_for(changed: dict[str, Any]) -> dict[str, int]:
    """Of a quick audit of such a study."""
    lines = changed.get("sampling", "")
    if "static" in lines:
        return {"runs": 4, "canaries": 700}
    if "without-replacement" in lines:
        return {"runs": 2, "canaries": 60}
    return {"runs": 8, "canaries": 200} if "projection" in lines else {"runs": 6, "canaries": 2000}


def losses(seen: Any, noise: float, rate: float, *, exchanged: bool) -> Any:
    """The privacy loss of each coordinate of one step's sum."""
    return scores_of(seen[None], noise, rate, exchanged=exchanged)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [*KINDS, *PROJECTED, *JOINT, "correlated", "correlated, exchanged"]
)
def test_a_sound_study_is_not_contradicted(kind: str) -> None:
    more = {"correlated": CORRELATED, "correlated, exchanged": CORRELATED | KINDS["substitute"]}
    changed = (KINDS | more | PROJECTED | JOINT)[kind]
    size = size_for(changed)
    if kind != "poisson":  # one large audit is enough; `SURE` holds at any size
        size = {"runs": 3, "canaries": size["canaries"] // 2}
    found = hubbub.audit(study(**changed), **size, confidence=SURE)
    assert not found.contradicted
    assert 0 <= found.lower < found.audited == found.promised


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_canaries_are_as_strong_as_the_account_takes_records_to_be(kind: str) -> None:
    """Their scores have the law of P1's pair: no weaker, or nothing would be found; no stronger."""
    made, generator, count = hubbub.plan(study(**KINDS[kind])), np.random.default_rng(3), 50_000
    z, rate = made.stated.noise_multiplier, made.study.training.sample_rate
    exchanged = made.study.privacy.relation == "substitute"
    trials = played(made, 3000, 0, lambda _: None).trials[0]
    for side in (True, False):
        mean, expected = (1.0 if side else -1.0 * exchanged), np.zeros(count)
        for _ in range(made.study.training.steps):
            seen = mean * (generator.random(count) < rate) + z * generator.standard_normal(count)
            expected += losses(seen, z, rate, exchanged=exchanged)
        assert ks_2samp(trials.scores[trials.coins == side], expected).pvalue > 1e-9


def _less_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = noise.add_noise_and_round

    def weak(vector: Any, sigma: float, *rest: Any, **options: Any) -> Any:
        return honest(vector, sigma / 3, *rest, **options)

    monkeypatch.setattr(noise, "add_noise_and_round", weak)


def _sampled_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = SecureSource.chosen
    monkeypatch.setattr(SecureSource, "chosen", lambda at, count, q: honest(at, count, 8 * q))
    _with_room_for_all(monkeypatch)


def _with_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches have a row for everybody, or too many heads would be tossed again for ever."""
    monkeypatch.setattr(batches, "most_rows", lambda capacity, _: capacity)
    for kind in (IndependentNoise, Correlation):
        monkeypatch.setattr(kind, "batch_rows", lambda _, capacity, *__: capacity)


def _long_gradients(monkeypatch: pytest.MonkeyPatch, factor: float = 3.0) -> None:
    from hubbub.learning import clipped_sums, device_sums

    honest = clipped_sums.clip_factors
    for sums in (clipped_sums, device_sums):
        monkeypatch.setattr(sums, "clip_factors", lambda *given: factor * honest(*given))


def _clip_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    _long_gradients(monkeypatch, 10.0)


def _colluders_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = canaries_module.round_parameters_of

    def round_parameters(planned: PlannedQuery[Any], **numbers: Any) -> Any:
        found = honest(planned, **numbers)
        share = sqrt(planned.shares / planned.parties.silos)
        return replace(found, sigma_grid=found.sigma_grid * share)

    monkeypatch.setattr(canaries_module, "round_parameters_of", round_parameters)


def _noise_once_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[int, Any] = {}
    honest = noise._fill

    def again(source: Any, room: Any, out: Any) -> None:
        if out.size not in drawn:
            honest(source, room, out)
            drawn[out.size] = out.copy()
        out[:] = drawn[out.size] * (-1) ** len(seen)
        seen.append(0)

    seen: list[int] = []
    monkeypatch.setattr(noise, "_fill", again)


def _half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_sigma(monkeypatch, 0.5)


def _a_share_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the two shares that the stated adversary does not know."""
    honest = noise.add_noise_and_round

    def weak(vector: Any, sigma: float, *rest: Any, **options: Any) -> Any:
        calls.append(0)
        return honest(vector, sigma if len(calls) % 3 else 0.0, *rest, **options)

    calls: list[int] = [0]  # silo 1's is the second call, silo 2's the third
    monkeypatch.setattr(noise, "add_noise_and_round", weak)


def _with_sigma(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    honest = noise.add_noise_and_round

    def weak(vector: Any, sigma: float, *rest: Any, **options: Any) -> Any:
        return honest(vector, factor * sigma, *rest, **options)

    monkeypatch.setattr(noise, "add_noise_and_round", weak)


def _one_batch_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kept list of tokens is, charged as if each step had a fresh one."""
    honest, drawn = batches.poisson_rows, {}

    def again(source: Any, records: int, capacity: int, rate: float) -> Any:
        return drawn.setdefault((records, capacity), honest(source, records, capacity, rate))

    monkeypatch.setattr(batches, "poisson_rows", again)


def _a_mask_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = PairSecret.mask_key

    def constant(secret: Any, transcript: bytes, _: Place) -> bytes:
        return honest(secret, transcript, Place(round=1, attempt=0, model=bytes(32)))

    monkeypatch.setattr(PairSecret, "mask_key", constant)


def _no_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Masking, "_add_masks", lambda *_: None)


def _groups_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place has its turn in every attempt, at the rate of its group."""
    monkeypatch.setattr(
        batches.Groups,
        "heads",
        lambda groups, source, _, rate: source.chosen(groups._groups.size, rate * groups._turns),
    )
    monkeypatch.setattr(batches, "group_rows", lambda capacity, *_: capacity)
    _with_room_for_all(monkeypatch)


def _the_same_batch_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second attempt has the batches of the one before."""
    honest, calls, drawn = batches.poisson_rows, [0], {}

    def again(*given: Any) -> Any:
        step, silo = divmod(calls[0], 3)
        calls[0] += 1
        if step % 2 == 0:
            drawn[silo] = honest(*given)
        return drawn[silo]

    monkeypatch.setattr(batches, "poisson_rows", again)


def _a_list_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silos look their records up in their first list, whichever was made since."""
    honest, kept = TokenBatches.take_list, {}

    def first(silo: TokenBatches, positions: Any, round: int) -> None:
        honest(silo, kept.setdefault(silo, positions), round)

    monkeypatch.setattr(TokenBatches, "take_list", first)


def _a_matrix_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Draw, "key_of", lambda *_: bytes(16))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defect", "changed"),
    [
        (_less_noise, {}),
        # The few canaries that were sampled tell all there is to tell.
        (_less_noise, {"sampling": "sample_rate = 0.02", "steps": 2, "records": 100_000}),
        (_sampled_more_often, {"sampling": "sample_rate = 0.05"}),
        (_long_gradients, {"sampling": 'sampling = "full-batch"', "steps": 2, "records": 1000}),
        (_colluders_forgotten, {"silos": 6, "colluders": 4}),
        (_noise_once_and_for_all, {"silos": 3, "steps": 4}),
        (_half_the_noise, {}),
        (_a_share_left_out, KINDS["everybody"] | {"epsilon": 4.0}),
        (_one_batch_for_ever, {"sampling": "sample_rate = 0.1", "steps": 12, "epsilon": 2.0}),
        (_a_mask_used_again, {}),
        (_a_mask_used_again, {"nodes": 2}),
        (_no_masks, {}),
        (_groups_forgotten, CORRELATED),
        (_the_same_batch_twice, {"sampling": "sample_rate = 0.05", "steps": 24, "epsilon": 8.0}),
        (_a_list_kept, joint(2000, steps=20)),
        (_half_the_noise, joint(2000, "static", steps=8)),
        (_a_matrix_kept, PROJECTED["by layers"]),
        (_a_matrix_kept, PROJECTED["gaussian"]),
        (_a_matrix_kept, PROJECTED["signs"]),
        (_clip_forgotten, PROJECTED["by layers"]),
    ],
    ids=[
        "less noise",
        "less noise, seldom sampled",
        "sampled more often",
        "no clipping",
        "colluders forgotten",
        "noise that cancels",
        "half the noise",
        "a share left out",
        "one batch for ever",
        "mask used again",
        "mask used again, nodes",
        "no masks",
        "groups forgotten",
        "same batch twice",
        "static list charged as fresh",
        "half the noise, one list",
        "matrices of layers kept",
        "matrix kept",
        "matrix of signs kept",
        "clip after projecting forgotten",
    ],
)
def test_a_defect_is_found(
    defect: Callable[[pytest.MonkeyPatch], None],
    changed: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is shown is at least six of its standard deviations above what is promised, by scores
    # that were drawn as each defect makes them: 7 for the same batch twice, 8 for half the noise
    # of one list, 9 for one batch for ever and for less noise where few are sampled, else 12.
    defect(monkeypatch)
    thin = {
        _one_batch_for_ever: {"runs": 4, "canaries": 3000},
        _the_same_batch_twice: {"runs": 8, "canaries": 8000},
    }
    size = thin.get(defect) or size_for(changed)
    assert hubbub.audit(study(**changed), **size, confidence=0.99).contradicted


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_most_of_an_epsilon_is_shown_by_what_a_sound_study_has(epsilon: float) -> None:
    """By scores drawn from the pairs of the account, as many as an audit judges at least."""
    asked = study(epsilon=epsilon, steps=60, sampling="sample_rate = 0.05")
    made, generator, count = hubbub.plan(asked), np.random.default_rng(11), 20_000
    coins = generator.random(count) < 0.5
    batch = (generator.random((60, count)) < 0.05) & coins
    seen = batch + made.stated.noise_multiplier * generator.standard_normal((60, count))
    scores = scores_of(seen, made.stated.noise_multiplier, 0.05, exchanged=False)
    best = ExpectedPower(made, 10_000, 0.95).best(count)
    rates = rates_of(best.rule, Trials(scores=scores, coins=coins))
    assert 0.6 * epsilon < epsilon_shown(asked, rates, 0.95) <= epsilon


@pytest.mark.slow
def test_a_batch_that_is_drawn_twice_is_told_by_scores_that_expect_it() -> None:
    """Sums as a study has them whose every second attempt has the coins of the one before."""
    asked = study(epsilon=4.0, steps=24, sampling="sample_rate = 0.05")
    made, generator = hubbub.plan(asked), np.random.default_rng(13)
    z, count = made.stated.noise_multiplier, 60_000
    coins = generator.random(count) < 0.5
    batch = np.repeat(generator.random((12, count)) < 0.05, 2, axis=0) & coins
    seen = batch + z * generator.standard_normal((24, count))
    shown = {}
    for same in (1, 2):
        scores = scores_of(seen, z, 0.05, exchanged=False, same=same)
        first, second = (
            Trials(scores=scores[half], coins=coins[half])
            for half in (slice(20_000), slice(20_000, None))
        )
        rates = rates_of(chosen_rule(first, 1e-3, 0.95), second)
        shown[same] = epsilon_shown(asked, rates, 0.95)
    assert shown[2] > 1.1 * made.epsilon()
    assert shown[2] > shown[1]


def test_lists_are_called_kept_only_where_fresh_ones_would_hardly_look_so() -> None:
    generator = np.random.default_rng(19)
    places = np.array([generator.permutation(40) < 10 for _ in range(30)])
    fresh = np.array([generator.permutation(40) < 10 for _ in range(30)])
    moved = places[:, generator.permutation(40)]
    assert of_lists(moved, places) == Seen(lists=1, kept=1)
    assert of_lists(fresh, places) == Seen(lists=1, kept=0)
    assert of_lists(moved[:4], places[:4]) == Seen(lists=1, kept=0)


def test_numbers_are_called_unmasked_once_so_many_small_ones_hardly_come_by_chance() -> None:
    most = int(binom.isf(SURELY, 10_000, SMALL_SHARE))
    assert binom.sf(most, 10_000, SMALL_SHARE) <= SURELY < binom.sf(most - 1, 10_000, SMALL_SHARE)
    assert are_masked(10_000, most)
    assert not are_masked(10_000, most + 1)


def test_vectors_are_looked_at_alone_and_less_the_last_one_of_the_same_silo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a mask that is used again is seen, though each vector looks random; and on both sides."""
    numbers: Any = SimpleNamespace(full_shares=False, dimension=2, word_bits=32, masked_bytes=8)
    frames = canary_runs.MaskedFrames(numbers)

    def kept(sender: int, *signed: int) -> Seen:
        payload = np.array(signed, dtype="<i4").tobytes()
        header = SimpleNamespace(tag=Tag.MASKED, sender=sender, payload=payload)
        monkeypatch.setattr(canary_runs, "unverified", lambda _: header)
        frames.keep(b"")
        return frames.seen

    far = 2**30
    assert kept(1, far, -far) == Seen(numbers=2, small=0)
    assert kept(1, far + 9, 9 - far) == Seen(numbers=6, small=2)
    assert kept(2, 7, -7) == Seen(numbers=8, small=4)


def test_no_silo_without_a_share_that_counts_sends_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four silos, with one that colludes and one that looks on (P3)."""
    asked = {}

    def watched(*_: Any, **options: Any) -> None:
        asked.update(options)
        raise StudyError("seen")

    monkeypatch.setattr(canary_runs, "federate", watched)
    made = hubbub.plan(study(relation="substitute", silos=4, colluders=1))
    with pytest.raises(StudyError, match="seen"):
        played(made, 9, 0, lambda _: None)
    assert [*asked["noiseless"]] == [3, 4]


def test_right_guesses_bound_how_far_two_laws_are_apart() -> None:
    rates = Rates(true=60, positives=100, false=30, negatives=110)
    least = _root(lambda p: binom.sf(139, 210, p), 0.05)
    assert worst_distance(rates, 0.95) == pytest.approx(2 * least - 1, rel=1e-9)


def _with_much_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than any study here needs: the least takes long to find, and does not matter."""
    monkeypatch.setattr(accounts, "least_noise", lambda *_: 50.0)


@pytest.mark.quick_cases("50-50")
@pytest.mark.parametrize(("records", "batch"), [(8000, 800), (8000, 2399), (997, 10), (50, 50)])
def test_canaries_are_no_larger_a_part_of_a_joint_batch_than_records(
    records: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_much_noise(monkeypatch)
    made = hubbub.plan(study(**joint(batch, records=records)))
    for wanted in (100, 101, 999):
        _, count = size_of(made, 2, wanted, 0.95)
        part = joint_part(made.mechanism, count)
        assert count <= max(wanted, 100)
        assert part * records <= count * batch
        assert ceil(count / part) == ceil(records / batch)


@pytest.mark.slow
def test_an_audit_is_as_large_as_its_study_lets_it_be() -> None:
    made = hubbub.plan(study(epsilon=4.0))
    assert size_of(made, None, None, 0.95) == (3, 10_000)
    assert size_of(made, 7, 50, 0.95) == (7, 50)
    runs, canaries = size_of(hubbub.plan(study(**PROJECTED["signs"])), None, None, 0.95)
    assert runs > 12
    assert canaries < 1000


@pytest.mark.slow
def test_small_epsilons_get_as_many_canaries_as_show_most_of_them() -> None:
    made = hubbub.plan(study(**CORRELATED | {"epsilon": 0.2}))
    runs, canaries = size_of(made, None, None, 0.95)
    foreseen = ExpectedPower(made, canaries, 0.95)
    shares = [foreseen.share((one - choosing_runs(one)) * canaries) for one in (3, runs - 1, runs)]
    assert shares[0] < shares[1] < 0.9 <= shares[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poisson", "substitute", "by layers", "correlated"])
def test_canaries_show_what_is_foreseen(kind: str) -> None:
    """The first kind of scores has the rates of the account's own curve where it is tight (P18)."""
    made = hubbub.plan(study(**(KINDS | PROJECTED | {"correlated": CORRELATED})[kind]))
    count = 200 if kind == "by layers" else 3000
    expected = ExpectedPower(made, count, 0.95).best(20_000)
    seen = [played(made, count, 0, lambda _: None) for _ in range(2)]
    found = rates_of(expected.rule, audit._joined(seen, 0))
    for rate, many, of in (
        (expected.true, found.true, found.positives),
        (expected.false, found.false, found.negatives),
    ):
        # Six standard deviations, and what canaries are short of the clipping norm.
        assert abs(many / of - rate) < 6 * sqrt(0.25 / of) + 0.005


def test_groups_are_told_of_canaries_that_are_not_there_as_of_those_that_are() -> None:
    made = hubbub.plan(study(**CORRELATED))
    canaries = Canaries.tossed(made, 9000)
    silos = [Groups(SecureSource(), 4500, 3) for _ in range(2)]
    told = canaries.groups(silos)
    for first, silo in enumerate(silos):
        there = canaries.coins[first::2]
        mine = told[first::2][there]
        np.testing.assert_array_equal(mine, silo.of(np.arange(mine.size)))
    # Eight standard deviations of a sixth of 9000.
    for side in (True, False):
        assert np.all(np.abs(np.bincount(told[canaries.coins == side]) - 1500) < 283)


@pytest.mark.slow
def test_another_rule_is_chosen_only_if_it_surely_shows_more() -> None:
    made, generator = hubbub.plan(study()), np.random.default_rng(23)
    choice, foreseen = Choice(made.study, 1.0, 0.95), Rule(threshold=0.5, says=True)
    coins = np.arange(2000) % 2 == 0
    noise, sure = (
        Trials(scores=generator.standard_normal(2000) + c * coins, coins=coins) for c in (0.3, 9.0)
    )
    for second, expected in ((noise, (0, foreseen)), (sure, (1, None))):
        kind, rule = audit._chosen(choice, foreseen, [AuditRun(trials=(noise, second))], 0.95)
        assert kind == expected[0]
        assert expected[1] in (None, rule)


@pytest.mark.slow
def test_what_is_shown_needs_less_than_the_noise_there_is() -> None:
    """Rates that the account's pair has with more noise are not shown to need less."""
    asked = study(steps=10)
    weak = Rates(true=5000, positives=10_000, false=5000, negatives=10_000)
    assert epsilon_shown(asked, weak, 0.95) == 0
    strong = Rates(true=8000, positives=10_000, false=1000, negatives=10_000)
    shown = epsilon_shown(asked, strong, 0.95)
    assert shown > 1.5
    assert epsilon_shown(asked, strong, 0.999999) < shown


def test_rates_and_right_guesses_share_what_the_confidence_leaves() -> None:
    """Rates that say something at all of the confidence, and nothing at their part of it."""
    rates = Rates(true=3000, positives=10_000, false=260, negatives=1000)
    assert lower_bound(rates, 1e-3, 0.975) == 0 < lower_bound(rates, 1e-3, 0.95)
    assert epsilon_shown(study(), rates, 0.95) == 0


def test_correlated_scores_are_those_of_the_whole_covariance() -> None:
    """The likelihood ratio by the inverse of the covariance matrix, all coins being 1."""
    asked = study(**CORRELATED)
    column = hubbub.plan(asked).mechanism.noise.column
    assert len(column) == 3
    steps, z, generator = 9, 1.7, np.random.default_rng(2)
    c = sum(one * np.eye(steps, k=-lag) for lag, one in enumerate(column))
    seen = generator.standard_normal((steps, 5))
    wanted = []
    for first in range(3):
        canary = (np.arange(steps) % 3 == first).astype(float)
        # Each turn apart: c times the turn's unit vector has no place in common with the others'.
        pull, length = c @ canary, (c @ canary) @ (c @ canary)
        wanted.append((2 * pull @ (c @ seen) - length) / (2 * z * z))
    ratio = np.log(np.mean(np.exp(wanted), axis=0))
    found = scores_of(seen, z, 1 / 3, exchanged=False, column=column)
    np.testing.assert_allclose(found, ratio)


def test_the_loss_is_the_log_ratio_of_the_densities() -> None:
    seen, z, q = np.linspace(-4, 5, 40), 0.8, 0.25
    nothing, one, minus = (norm.pdf(seen, loc=mean, scale=z) for mean in (0, 1, -1))
    there, other = (1 - q) * nothing + q * one, (1 - q) * nothing + q * minus
    np.testing.assert_allclose(losses(seen, z, q, exchanged=False), np.log(there / nothing))
    np.testing.assert_allclose(losses(seen, z, q, exchanged=True), np.log(there / other))
    np.testing.assert_allclose(losses(seen, z, 1.0, exchanged=True), np.log(one / minus))


def test_the_bound_has_clopper_and_pearsons_rates() -> None:
    rates = Rates(true=60, positives=200, false=9, negatives=180)
    # By their definition: the rates at which as much is seen with probability 0.025 only.
    least = _root(lambda p: binom.sf(59, 200, p))
    most = _root(lambda p: -binom.cdf(9, 180, p), -0.025)
    assert lower_bound(rates, 1e-2, 0.95) == pytest.approx(log((least - 1e-2) / most), rel=1e-9)


def _root(rising: Callable[[float], float], level: float = 0.025) -> float:
    low, high = 0.0, 1.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < level else (low, middle)
    return low


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        (Rates(true=0, positives=50, false=0, negatives=50), 0.0),
        (Rates(true=50, positives=50, false=50, negatives=50), 0.0),
        (Rates(true=0, positives=0, false=0, negatives=0), 0.0),
        # The least rate of 50 in 50 and the largest of 0 in 50 are 0.025^(1/50) and 1 less that.
        (
            Rates(true=50, positives=50, false=0, negatives=50),
            log((0.025 ** (1 / 50) - 1e-3) / (1 - 0.025 ** (1 / 50))),
        ),
    ],
)
def test_the_bound_at_its_corners(rates: Rates, expected: float) -> None:
    assert lower_bound(rates, 1e-3, 0.95) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_the_bound_is_wrong_as_seldom_as_it_says() -> None:
    """Randomised response has no slack: a bound that errs shows."""
    epsilon, generator, wrong = 1.0, np.random.default_rng(5), 0
    honest = exp(epsilon) / (1 + exp(epsilon))
    for _ in range(2000):
        coins = generator.random(400) < 0.5
        scores = np.where(generator.random(400) < honest, coins, ~coins).astype(float)
        first, second = (
            Trials(scores=scores[half], coins=coins[half])
            for half in (slice(200), slice(200, None))
        )
        rates = rates_of(chosen_rule(first, 0.0, 0.8), second)
        wrong += lower_bound(rates, 0.0, 0.8) > epsilon
    # At most 20 % of 2000, and three standard deviations; and no bound that never errs.
    assert 20 < wrong < 400 + 54


def test_rates_count_ties_and_both_directions() -> None:
    trials = Trials(
        scores=np.array([1.0, 2.0, 2.0, 3.0, 0.0]),
        coins=np.array([False, True, False, True, False]),
    )
    above, below = (Rule(threshold=2.0, says=one) for one in (True, False))
    assert rates_of(above, trials) == Rates(true=2, positives=2, false=1, negatives=3)
    assert rates_of(below, trials) == Rates(true=2, positives=3, false=0, negatives=2)


def planted(*, true: Sequence[float], false: Sequence[float]) -> Trials:
    """Trials with these scores on the two sides of the coin, 500 of each."""
    scores = np.concatenate([np.repeat(true, 500), np.repeat(false, 500)])
    return Trials(scores=scores, coins=np.arange(scores.size) < 500 * len(true))


@pytest.mark.parametrize(
    ("trials", "rule"),
    [
        (planted(true=[0, 0, 0, 5], false=[0, 0, 0, 0]), Rule(threshold=5.0, says=True)),
        (planted(true=[0, 0, 0, 0], false=[0, 0, 0, -5]), Rule(threshold=0.0, says=False)),
    ],
    ids=["there", "not there"],
)
def test_a_rule_may_speak_of_either_side(trials: Trials, rule: Rule) -> None:
    assert chosen_rule(trials, 1e-5, 0.95) == rule


def test_the_few_largest_scores_are_looked_at() -> None:
    """A defect that one canary in a thousand shows is missed by thresholds at equal shares."""
    scores = np.random.default_rng(2).standard_normal(100_000)
    coins = np.arange(scores.size) % 2 == 0
    scores[:200:2] += 100.0
    trials = Trials(scores=scores, coins=coins)
    rates = rates_of(chosen_rule(trials, 1e-6, 0.95), trials)
    assert rates.true > 80
    assert rates.false == 0


def test_the_rule_is_chosen_on_runs_that_do_not_judge_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first runs call for one rule, the others would call for its opposite."""
    first, others = planted(true=[1], false=[0]), planted(true=[0], false=[1])
    monkeypatch.setattr(
        audit,
        "played",
        lambda _m, _c, before, _p: AuditRun(trials=(others if before else first,)),
    )
    found = hubbub.audit(study(), runs=2, confidence=0.9)
    assert found.rates == Rates(true=0, positives=500, false=500, negatives=500)
    assert found.lower == 0


def test_the_bound_has_the_studys_delta_and_the_callers_confidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = AuditRun(trials=(planted(true=[0, 0, 0, 1], false=[0]),))
    monkeypatch.setattr(audit, "played", lambda *_: one)
    found = hubbub.audit(study(), runs=2, confidence=0.9)
    assert found.rates == Rates(true=500, positives=2000, false=0, negatives=500)
    assert found.lower == epsilon_shown(study(), found.rates, 0.9)
    assert found.lower >= lower_bound(found.rates, 1e-3, 0.9)
    assert lower_bound(found.rates, 1e-3, 0.9) < lower_bound(found.rates, 0.0, 0.9)
    assert lower_bound(found.rates, 1e-3, 0.9) > lower_bound(found.rates, 1e-3, 0.95)


@pytest.mark.slow
def test_other_releases_do_not_cover_for_the_trainings_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = study(sampling="sample_rate = 0.3", extra="standardise = { epsilon = 1.2 }")
    one = AuditRun(trials=(planted(true=[0] * 10 + [1] * 5, false=[0] * 12 + [1] * 3),))
    monkeypatch.setattr(audit, "played", lambda *_: one)
    found = hubbub.audit(asked, runs=2)
    assert found.audited < found.lower < found.promised
    assert found.contradicted


def test_a_canary_is_one_coordinate_of_the_clipping_norm() -> None:
    made = hubbub.plan(study(relation="substitute", silos=4, colluders=1))
    canaries = Canaries.tossed(made, 9)
    tasks = canaries.tasks()
    sums = [
        task.clipped_sum(np.zeros(9, dtype=np.float32), np.arange(task.count)) for task in tasks
    ]
    expected = np.where(canaries.coins, made.main.record_clip, -made.main.record_clip)
    np.testing.assert_allclose(sum(sums), expected, rtol=2e-6)
    assert [task.count for task in tasks] == [5, 4, 0, 0]


@pytest.mark.slow
def test_silos_of_the_adversary_have_neither_records_nor_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    honest = canary_runs.federate

    def watched(*given: Any, **options: Any) -> Any:
        seen.append(honest(*given, **options))
        return seen[-1]

    monkeypatch.setattr(canary_runs, "federate", watched)
    hubbub.audit(study(silos=6, colluders=2, steps=1), runs=2, canaries=12)
    # The aggregator with two silos, and the one of them that looks on (P3).
    for parties in seen:
        silos = [parties.peers.parties[index].silo for index in range(1, 7)]
        assert [silo._round_parameters.sigma_grid > 0 for silo in silos] == [True] * 3 + [False] * 3
        assert [silo._task.count for silo in silos[3:]] == [0, 0, 0]


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        (joint(40), "at least 200 canaries"),
        (joint(1, records=20_000), "at least 20000 canaries"),
        ({"parties": 'trust = "tee"'}, "their owners know"),
    ],
)
def test_what_canaries_cannot_test_is_refused(
    changed: dict[str, Any], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_much_noise(monkeypatch)
    with pytest.raises(StudyError, match=word):
        hubbub.audit(study(**changed), canaries=100)


@pytest.mark.parametrize(
    "options",
    [{"runs": 1}, {"runs": 2.5}, {"canaries": 0}, {"canaries": 10_001}, {"confidence": 1.0}],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match=next(iter(options))):
        hubbub.audit(study(), **options)


@pytest.fixture
def written(tmp_path: Path) -> str:
    path = tmp_path / "study.toml"
    path.write_text(study(steps=1).toml, encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_the_command_speaks_to_machines(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["audit", written, "--runs", "2", "--canaries", "40", "--json"]
    assert main([*command, "--confidence", str(SURE)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["epsilon_promised"] == pytest.approx(1.5, abs=0.01)
    assert 0 <= told["epsilon_lower"] < told["epsilon_audited"] == told["epsilon_promised"]
    assert (told["runs"], told["canaries"], told["contradicted"]) == (2, 40, False)
    assert told["rule"]["positives"] + told["rule"]["negatives"] == 40


@pytest.mark.slow
def test_the_command_says_no_when_more_is_seen(
    written: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "_fill", lambda source, room, out: out.fill(0))
    command = ["audit", written, "--runs", "2", "--canaries", "3000"]
    assert main(command) == 1
    assert "CONTRADICTED" in capsys.readouterr().out


def test_the_command_refuses_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(tmp_path / "none.toml")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_rates_and_their_distance_share_what_the_confidence_leaves() -> None:
    """Two claims of 97.5 % hold together in 95 %; that of the rates is two again."""
    found = WorstRates.of(Rates(true=40, positives=50, false=5, negatives=50), 0.95)
    least, most = beta.ppf(0.0125, 40, 11), beta.ppf(0.9875, 6, 45)
    apart = 2 * beta.ppf(0.025, 85, 16) - 1
    assert (found.least, found.most, found.apart) == pytest.approx((least, most, apart))


def test_noise_has_to_explain_right_guesses_as_well_as_rates() -> None:
    curve = TradeOff(epsilon=np.array([0.0, 1.0]), delta=np.array([0.3, 0.0]))
    assert WorstRates(least=-1.0, most=0.5, apart=0.25).spare(curve) == pytest.approx(0.05)
    power = float(curve.true_positive_rate(0.5))
    assert WorstRates(least=0.5, most=0.5, apart=-1.0).spare(curve) == pytest.approx(power - 0.5)


def test_p10_an_audit_is_held_against_who_knows_its_own_records_in_joint_batches() -> None:
    mechanism = main_of(one := study(**joint(800, silos=4, colluders=1))).mechanism
    expected = releases(account_of(mechanism), 2.0, mechanism.steps, 4000)
    assert audit_result._released(one, 2.0) == expected
