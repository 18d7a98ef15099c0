"""One accountant over events, and the shorthands for events of one kind."""

from __future__ import annotations

import pytest
from scipy.stats import hypergeom

import hubbub
from hubbub import JointBatches, ProjectedStep, Step
from hubbub.core.errors import StudyError
from hubbub.core.privacy import accountant, dominating_pairs
from hubbub.core.privacy.laws import Enclosed, Mixture, ReplacedInBatch

TRAINING = Step(noise_multiplier=1.0, sample_rate=0.008, count=1250)
EVALUATION = Step(noise_multiplier=10.0, sampling="full-batch")
JOINT = JointBatches(records=1000, batch=10, malicious=500, noise_multiplier=2.0, count=100)
PROJECTED = ProjectedStep(dimension=100, noise_multiplier=4.0, sample_rate=0.1, count=60)
DELTA = 1e-5


def test_equal_steps_and_one_event_of_them_are_the_same_question() -> None:
    said = {"noise_multiplier": 1.0, "sample_rate": 0.008, "steps": 1250}
    assert hubbub.epsilon(events=[TRAINING], delta=DELTA) == hubbub.epsilon(**said, delta=DELTA)
    assert hubbub.delta(events=[TRAINING], epsilon=1.0) == hubbub.delta(**said, epsilon=1.0)
    power = hubbub.attack_power(events=[TRAINING], false_positive_rate=0.01)
    assert power == hubbub.attack_power(**said, false_positive_rate=0.01)
    curve = hubbub.trade_off(events=[TRAINING], epsilons=[0.5, 1.0])
    assert curve.delta.tolist() == hubbub.trade_off(**said, epsilons=[0.5, 1.0]).delta.tolist()


def test_shorthands_say_what_events_say() -> None:
    both = [TRAINING, EVALUATION]
    assert hubbub.composed_epsilon(both, delta=DELTA) == hubbub.epsilon(events=both, delta=DELTA)
    joint = {"batch": 10, "malicious": 500, "noise_multiplier": 2.0, "steps": 100, "delta": DELTA}
    expected = hubbub.epsilon(events=[JOINT], delta=DELTA, relation="substitute")
    assert hubbub.malicious_epsilon(records=1000, **joint) == expected
    projected = hubbub.projected_epsilon(
        dimension=100, noise_multiplier=4.0, sample_rate=0.1, steps=60, delta=DELTA
    )
    assert projected == hubbub.epsilon(events=[PROJECTED], delta=DELTA)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "relation"), [(JOINT, "substitute"), (PROJECTED, "add-remove")], ids=["joint", "sent"]
)
def test_events_of_all_sorts_are_composed_together(event, relation) -> None:
    alone = hubbub.epsilon(events=[event], delta=DELTA, relation=relation)
    beside = hubbub.epsilon(events=[EVALUATION, event], delta=DELTA, relation=relation)
    other = hubbub.epsilon(events=[EVALUATION], delta=DELTA, relation=relation)
    assert max(alone.lower, other.lower) < beside.lower
    assert beside.upper < alone.upper + other.upper
    assert (
        hubbub.delta(events=[event], epsilon=alone.upper, relation=relation).lower < 1.001 * DELTA
    )


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"events": []}, "at least one step"),
        ({"events": TRAINING}, "a list of hubbub.Step"),
        ({"events": [1.0]}, "a list of hubbub.Step"),
        ({"events": [TRAINING], "noise_multiplier": 1.0}, "events alone"),
        ({"events": [TRAINING], "sample_rate": 0.1}, "events alone"),
        ({"events": [TRAINING], "records_per_unit": 2}, "events alone"),
        ({"noise_multiplier": 1.0}, "or events"),
        ({"steps": 1}, "or events"),
        ({"events": [JOINT]}, 'relation = "substitute" for joint batches'),
        ({"events": [PROJECTED], "relation": "substitute"}, 'relation = "add-remove" for'),
        ({"events": [Step(noise_multiplier=0.01, sample_rate=0.5)]}, "at least 0.03"),
    ],
)
def test_what_is_no_question_is_refused_by_what_it_lacks(said, says) -> None:
    with pytest.raises(StudyError, match=says):
        hubbub.epsilon(delta=DELTA, **said)


@pytest.mark.parametrize(
    ("kind", "said", "says"),
    [
        (JointBatches, {"records": 10, "batch": 11, "noise_multiplier": 1.0}, "batch"),
        (
            JointBatches,
            {"records": 10, "batch": 1, "malicious": 10, "noise_multiplier": 1.0},
            "mal",
        ),
        (ProjectedStep, {"dimension": 1, "noise_multiplier": 1.0}, "dimension"),
        (ProjectedStep, {"dimension": 9, "noise_multiplier": 1.0, "kind": "layers"}, "kind"),
    ],
)
def test_events_refuse_numbers_out_of_range(kind, said, says) -> None:
    with pytest.raises(StudyError, match=says):
        kind(**said)


def test_the_least_noise_of_events_is_that_of_equal_steps_and_never_overspends() -> None:
    said = {"sample_rate": 0.008, "steps": 1250}
    alike = hubbub.noise_multiplier(**said, epsilon=1.0, delta=DELTA)
    assert alike == hubbub.noise_multiplier(
        epsilon=1.0,
        delta=DELTA,
        events=lambda noise: [Step(noise_multiplier=noise, sample_rate=0.008, count=1250)],
    )

    def both(noise: float) -> list[Step]:
        return [Step(noise_multiplier=noise, sample_rate=0.008, count=1250), EVALUATION]

    beside = hubbub.noise_multiplier(epsilon=1.0, delta=DELTA, events=both)
    assert beside > 1.02 * alike
    assert 0.999 < hubbub.epsilon(events=both(beside), delta=DELTA).upper <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("events", "relation"),
    [
        (lambda z: [JointBatches(records=1000, batch=10, noise_multiplier=z)], "substitute"),
        (lambda z: [ProjectedStep(dimension=50, noise_multiplier=2 * z, count=9)], "add-remove"),
    ],
    ids=["joint", "projected"],
)
def test_the_least_noise_of_events_of_all_sorts(events, relation) -> None:
    noise = hubbub.noise_multiplier(epsilon=1.0, delta=DELTA, events=events, relation=relation)
    assert 0.995 < hubbub.epsilon(events=events(noise), delta=DELTA, relation=relation).upper <= 1


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({}, "or events"),
        ({"events": lambda z: [TRAINING], "steps": 3}, "events alone"),
        ({"events": lambda z: TRAINING}, "a list of hubbub.Step"),
        ({"events": lambda z: [Step(noise_multiplier=0.5, sampling="full-batch")]}, "reaches"),
    ],
)
def test_what_has_no_least_noise_is_refused(said, says) -> None:
    with pytest.raises(StudyError, match=says):
        hubbub.noise_multiplier(epsilon=1.0, delta=DELTA, **said)


MANY = {"records": 10_000, "batch": 1_500, "malicious": 3_000, "noise_multiplier": 5.0}


def test_p10_few_rates_are_spread_more_from_above_and_less_from_below_than_all() -> None:
    """Of two mixtures with one mean that which is spread more lies above: H_a is convex in it."""
    (law,) = dominating_pairs.release_with_malicious(**MANY, count=1).laws
    assert isinstance(law, Enclosed)
    honest, rate = MANY["records"] - MANY["malicious"], MANY["batch"] / MANY["records"]
    exact = hypergeom(MANY["records"], honest, MANY["batch"]).var() / honest**2
    above, below = (
        sum(w * (one.rate - rate) ** 2 for w, one in zip(side.weights, side.laws, strict=True))
        for side in (law.above, law.below)
    )
    assert 0.98 * exact < below < exact < above < 1.03 * exact


def test_p8_p10_a_promise_rests_on_the_law_that_is_above() -> None:
    one = dominating_pairs.release_with_malicious(**MANY, count=7)
    (law,) = one.laws
    (promised,) = dominating_pairs.from_above([one])
    assert promised.laws == (law.above,)
    assert promised.count == 7


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 300])
def test_p10_few_rates_enclose_all_that_are_likely(monkeypatch, count: int) -> None:
    """By the accountant, at every threshold, of one step and of many."""
    few = dominating_pairs.release_with_malicious(**MANY, count=count)
    monkeypatch.setattr(dominating_pairs, "_MANY_MEMBERS", 10**9)
    each = dominating_pairs.release_with_malicious(**MANY, count=count)
    (enclosed,), (whole,) = few.laws, each.laws
    assert isinstance(enclosed, Enclosed)
    assert isinstance(whole, Mixture)
    assert len(whole.laws) > 256 > len(enclosed.above.laws) > len(enclosed.below.laws)
    for law in (enclosed.above, enclosed.below):
        assert sum(law.weights) == pytest.approx(1.0, abs=1e-12)
        rates = [one.rate for one in law.laws]
        mean = sum(w * rate for w, rate in zip(law.weights, rates, strict=True))
        assert mean == pytest.approx(MANY["batch"] / MANY["records"], rel=1e-9)
    for epsilon in (0.0, 0.3):
        below, exact, above = (
            accountant.Composition(
                [dominating_pairs.Release(laws=(law,), count=count)],
            ).delta(epsilon)
            for law in (enclosed.below, whole, enclosed.above)
        )
        assert below.lower <= exact.upper
        assert exact.lower <= above.upper
        both = accountant.Composition([few]).delta(epsilon)
        assert both.lower <= exact.upper
        assert exact.lower <= both.upper
        assert both.upper - both.lower <= 0.01 * both.upper + 1e-12
    found, exact = (accountant.Composition([one]).epsilon(DELTA) for one in (few, each))
    assert found.lower <= exact.upper
    assert exact.lower <= found.upper
    assert found.upper - found.lower <= 2e-3 * max(1.0, found.upper)


def test_p10_the_hockey_stick_of_a_replaced_record_is_convex_in_its_rate() -> None:
    """Of which the two sides are made: at the middle of two rates no more than at both ends."""
    for epsilon in (0.1, 0.7):
        for first, last in ((0.01, 0.05), (1e-6, 0.9)):
            values = [
                accountant.Composition(
                    [
                        dominating_pairs.Release(
                            laws=(ReplacedInBatch(rate=rate, shift=0.8),), count=1
                        )
                    ]
                ).delta(epsilon)
                for rate in (first, (first + last) / 2, last)
            ]
            assert values[1].lower <= (values[0].upper + values[2].upper) / 2
