"""Evaluation on held-back records and standardised features: noise, epsilon, ledger, resuming."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from importlib import resources
from math import sqrt
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import hubbub
from hubbub import learning
from hubbub.core.errors import IntegrityError, StudyError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.runs.federated import Asked, RunSessions, evaluations
from hubbub.core.runs.local_backend import LocalBackend
from hubbub.core.runs.loop import Summed
from hubbub.core.session.offer import layout_of
from hubbub.core.tabular.records import Records, Standardisation, standardisation_from
from hubbub.learning.queries import beside_training
from hubbub.learning.queries.beside_training import (
    EVALUATION,
    STANDARDISATION,
    EvaluationQuery,
    FeatureSums,
    ScoreVector,
)
from hubbub.learning.queries.training_query import training_of
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.run_study import resume, run

HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")
STEPS = 12


def study(evaluate: str = "", standardise: str = "", epsilon: float = 8.0) -> hubbub.Study:
    text = HEART.replace("steps = 60", f"steps = {STEPS}").replace(
        "epsilon = 0.5", f"epsilon = {epsilon}"
    )
    if evaluate:
        text = text.replace("[training]", f"[training]\nevaluate = {{ {evaluate} }}")
    if standardise:
        text = text.replace("[data]", f"[data]\nstandardise = {{ {standardise} }}")
    return hubbub.Study.parse(text)


BOTH = study("every = 5, epsilon = 2.0", "epsilon = 2.0")


def made_up(records: int, features: int = 3, seed: int = 0) -> Records:
    random = np.random.default_rng(seed)
    inputs = random.uniform(-0.9, 0.9, (records, features)).astype(np.float32)
    return Records(inputs=inputs, targets=random.integers(2, size=records).astype(np.float32))


# What is asked ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evaluate", "standardise", "says"),
    [
        ("every = 0, epsilon = 1.0", "", "training.evaluate.every"),
        ("every = 5", "", "training.evaluate.epsilon"),
        ("every = 5, epsilon = 1.0, holdout = 1.0", "", "training.evaluate.holdout"),
        ("every = 5, epsilon = 1.0, often = 2", "", "often"),
        (f"every = {STEPS + 1}, epsilon = 1.0", "", "training.evaluate.every"),
        ("every = 5, epsilon = 7.5", "", "0.9 \\* privacy.epsilon"),
        ("every = 5, epsilon = 4.0", "epsilon = 4.0", "0.9 \\* privacy.epsilon"),
        ("", "bound = 2.0", "data.standardise.epsilon"),
        ("", "epsilon = 1.0, bound = 0.0", "data.standardise.bound"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(evaluate, standardise, says):
    with pytest.raises(StudyError, match=says):
        study(evaluate, standardise)


def test_images_are_not_standardised():
    text = HEART.replace("[data]", "[data]\nstandardise = { epsilon = 0.1 }")
    text = text.replace("[model]", "[model]\ninputs = [3, 32, 32]")
    with pytest.raises(StudyError, match=r"shape \[3, 32, 32\]"):
        hubbub.plan(hubbub.Study.parse(text))


def test_a_changed_extra_makes_another_study_and_is_written_to_its_file():
    assert len({study().id, BOTH.id, study("every = 5, epsilon = 2.0").id}) == 3
    written = replace(BOTH, toml="").as_toml()
    assert hubbub.Study.parse(written).id == BOTH.id


# What it costs ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_evaluations_and_standardisation_are_part_of_the_studys_epsilon():
    plain, both = hubbub.plan(study()), hubbub.plan(BOTH)
    assert both.noise_multiplier > 1.02 * plain.noise_multiplier
    steps = [
        hubbub.Step(
            noise_multiplier=both.noise_multiplier,
            sample_rate=BOTH.training.sample_rate,
            sampling="poisson",
            count=STEPS,
        )
    ]
    for purpose, count in ((EVALUATION, STEPS // 5), (STANDARDISATION, 1)):
        planned = both.planned(purpose)
        assert planned.epsilon == pytest.approx(2.0, rel=1e-3)
        noise = planned.noise_multiplier
        steps.append(
            hubbub.Step(noise_multiplier=noise, sample_rate=1.0, sampling="full-batch", count=count)
        )
    composed = hubbub.composed_epsilon(steps, delta=1e-5, relation="add-remove")
    assert composed.lower <= both.stated.epsilon * 1.001
    assert both.stated.epsilon == pytest.approx(composed.upper, rel=1e-3)
    assert both.stated.epsilon <= 8.0


def test_p14_a_sum_is_divided_by_the_records_that_are_trained_on():
    whole, part = study().training, study("every = 5, epsilon = 1.0, holdout = 0.25")
    records = part.data.records
    assert training_of(study()).mechanism.divisor == pytest.approx(whole.sample_rate * records)
    kept = 0.75 * part.training.sample_rate * records
    assert training_of(part).mechanism.divisor == pytest.approx(kept)


def test_an_adversary_who_knows_more_shares_sees_more_of_the_extras_too():
    plain, both = hubbub.plan(study()), hubbub.plan(BOTH)
    at = {one.adversary: one.epsilon for one in both.exposures}
    assert at["aggregator"] < at["aggregator + 1 silo"] < at["aggregator + 2 silos"]
    # With the training's noise alone the same adversary would be told less.
    without = {one.adversary: one.epsilon for one in plain.exposures}
    assert at["aggregator + 2 silos"] > 0.9 * without["aggregator + 2 silos"]


def test_the_epsilon_so_far_counts_the_evaluations_so_far():
    plan = hubbub.plan(BOTH)
    growth = [plan.epsilon_after(n + 1) - plan.epsilon_after(n) for n in (3, 4, 5)]
    assert growth[1] > 1.3 * growth[0]  # the fifth step is looked at
    assert growth[1] > 1.3 * growth[2]
    assert plan.epsilon_after(STEPS) == plan.stated.epsilon


@pytest.mark.slow
def test_every_sum_has_its_row_in_every_ledger(tmp_path: Path):
    result = run(BOTH, tmp_path / "run")
    plan = result.plan
    noises = [plan.planned(STANDARDISATION).noise_multiplier]
    noises += [plan.planned(EVALUATION).noise_multiplier] * (STEPS // 5)
    with Ledger(tmp_path / "ledgers" / "hungary.sqlite") as book:
        rows = list(book.entries())
        spent = book.epsilon(delta=1e-5, relation="add-remove")
    assert sorted(
        row.kind.noise_multiplier for row in rows if row.kind.sampling == "full-batch"
    ) == sorted(noises)
    assert sum(row.kind.sampling == "poisson" for row in rows) == STEPS
    assert len({row.session for row in rows}) == 3
    assert spent == pytest.approx(result.epsilon, rel=1e-3)


# What is told ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_revealed_statistic_has_the_planned_noise():
    wanted = study("every = 1, epsilon = 2.0")
    prepared = prepare(wanted)
    planned = prepared.plan.planned(EVALUATION)
    tasks = [FeatureSums(made_up(0, 1), 1.0) for _ in prepared.silos]
    with ExitStack() as stack:
        keys = layout_of(prepared.plan).keys()
        backend = LocalBackend(study=wanted, keys=keys, ledgers={}, folder=None)
        sessions = RunSessions(backend=backend, plan=prepared.plan, folder=None, stack=stack)
        series = sessions.open(planned, tasks)
        found = [series.round(n, prepared.initial, 1)[0] for n in range(1, STEPS + 1)]
    silos, shares = 4, planned.shares
    sigma = planned.noise_multiplier * planned.mechanism.clip * sqrt(silos / shares)
    statistic = float(np.sum(np.square(found)) / sigma**2)  # chi square, 36 degrees of freedom
    # Outside these once in 10^4; a deviation of 2/3 or 3/2 times sigma gives 16 or 81 on average.
    assert 12.0 < statistic < 80.0


def test_a_record_adds_a_bounded_part_whatever_it_holds():
    wild = Records(
        inputs=np.array([[3e38, -3e38, 1e-45]], dtype=np.float32), targets=np.zeros(1, np.float32)
    )
    part = FeatureSums(wild, 1.0).clipped_sum(np.zeros(0, np.float32), np.arange(1))
    assert np.linalg.norm(part) <= sqrt(1 + 1.25 * 3)
    model = learning.build_model("logistic", inputs=(3,), outputs=1, seed=b"")
    huge = np.full(4, 3e38, dtype=np.float32)
    one = learning.EvaluationTask(model, wild).clipped_sum(huge, np.arange(1))
    assert np.isfinite(one).all()
    assert np.linalg.norm(one) <= 1 + 1e-12


class Meeting(torch.nn.Linear):
    """Divides by the largest number of a batch, where that is above all made-up ones."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() > 10:
            x = x / x.abs().max()
        return super().forward(x)[:, 0]


def meeting(inputs: tuple[int, ...], outputs: int) -> torch.nn.Module:
    return Meeting(*inputs, outputs)


@pytest.mark.slow
def test_a_record_moves_an_evaluation_of_a_users_model_by_its_own_part():
    text = study("every = 5, epsilon = 2.0").toml.replace(
        'kind = "logistic"', f'kind = "python:{__name__}:meeting"\ninputs = [26]'
    )
    prepared = prepare(hubbub.Study.parse(text))
    assert prepared.learner.method == "loop"
    silo, query = prepared.silos[0], prepared.plan.planned(EVALUATION).query
    known, count = silo.held_back, len(silo.held_back)
    assert count > 20
    far = replace(known, inputs=np.where(np.arange(count)[:, None] == 5, 50.0, known.inputs))
    vector = np.linspace(-9, 9, prepared.initial.size, dtype=np.float32)
    sums = [
        query.task(replace(silo, held_back=one)).clipped_sum(vector, np.arange(count))
        for one in (known, replace(far, inputs=far.inputs.astype(np.float32)))
    ]
    moved = sums[1] - sums[0]
    assert moved.any()
    assert np.linalg.norm(moved) <= query.vector.scale * sqrt(2) + 1e-12


def test_features_are_standardised_from_exact_sums():
    records = made_up(5000)
    task = FeatureSums(records, 2.0)
    found = standardisation_from(task.clipped_sum(np.zeros(0, np.float32), np.arange(5000)), 2.0)
    inputs = found.of(records).inputs
    assert np.abs(inputs.mean(0)).max() < 1e-3
    assert np.abs(inputs.std(0) - 1).max() < 1e-3


def test_what_is_held_back_is_decided_by_each_record_alone():
    records = made_up(4000)
    back = learning.held_back(records, 0.25, b"study")
    # A share of 1/4 is off by so much with a probability of 2e-13; one of 1/5 is with 1/2.
    assert 0.2 < back.mean() < 0.3
    half = Records(inputs=records.inputs[::2], targets=records.targets[::2])
    assert np.array_equal(learning.held_back(half, 0.25, b"study"), back[::2])
    assert not np.array_equal(learning.held_back(records, 0.25, b"other"), back)


def test_p21_a_patient_is_held_back_whole_or_not_at_all_by_all_that_it_has():
    inputs = np.random.default_rng(2).normal(size=(600, 2)).astype(np.float32)
    patients = np.arange(600) // 3
    records = Records(inputs=inputs, targets=np.zeros(600, np.float32), patients=patients)
    back = learning.held_back(records, 0.5, b"study").reshape(-1, 3)
    assert np.array_equal(back.any(axis=1), back.all(axis=1))
    inputs[2::3] += 1.0  # one record of each
    other = learning.held_back(records, 0.5, b"study").reshape(-1, 3)
    assert not np.array_equal(other, back)


@pytest.mark.slow
def test_the_evaluation_says_what_the_model_does_on_held_back_records(tmp_path: Path):
    generous = study("every = 6, epsilon = 18.0", "", epsilon=20.0)
    prepared = prepare(generous)
    result = run(generous)
    assert "held_back_accuracy" in result.metrics[5]
    query, parameters = (
        prepared.plan.planned(EVALUATION).query,
        learning.parameters_vector(result.model),
    )
    parts = [t.clipped_sum(parameters, np.arange(t.count)) for t in prepared.tasks_of(query)]
    total, right, _ = query.vector.sums_of(sum(parts))
    # Noise has a deviation of .01 here, and of 1.2 records.
    assert result.final["held_back_accuracy"] == pytest.approx(right / total, abs=0.07)
    assert total == pytest.approx(sum(len(one.held_back) for one in prepared.silos))
    assert total > 100
    low, high = (result.final[f"held_back_accuracy_{end}"] for end in ("low", "high"))
    assert low < right / total < high  # half of it is six deviations of the noise: 2e-9
    assert result.final["held_back_records"] == pytest.approx(total, abs=30)
    assert high - low < 0.3


def sum_of(vector: ScoreVector, count: float, right: float) -> np.ndarray:
    """The sum of so many records, so many of them right, without a loss."""
    scores = np.array([right, 0.0]) - count / 2
    return np.concatenate([[vector.presence * count], vector.scale * scores])


@pytest.mark.slow
def test_the_interval_of_a_held_back_score_knows_noise_and_size():
    asked = study("every = 6, epsilon = 1.0")
    query = prepare(asked).plan.planned(EVALUATION).query

    def width(count: float, sigma: float) -> float:
        told = query.scores_of(sum_of(query.vector, count, 0.8 * count), asked, sigma)
        return told["held_back_accuracy_high"] - told["held_back_accuracy_low"]

    assert width(400, 0.0) == pytest.approx(2 * 1.96 * np.sqrt(0.16 / 400), rel=0.02)
    assert width(100, 0.0) > 1.9 * width(400, 0.0)
    assert width(400, 20.0) == pytest.approx(
        2 * 1.96 * np.sqrt(0.16 / 400 + (1 / 1.4 + 0.09 / 0.3) * (20 / 400) ** 2), rel=0.02
    )
    perfect = query.scores_of(sum_of(query.vector, 20.0, 20.0), asked, 0.0)
    assert perfect["held_back_accuracy_low"] < 0.9


def test_the_interval_of_a_held_back_score_knows_the_noise_of_whoever_may_be_missing() -> None:
    asked = hubbub.Study.parse(
        study("every = 6, epsilon = 1.0").as_toml().replace("dropouts = 0", "dropouts = 1")
    )
    plan = hubbub.plan(asked, dimension=27)
    planned, total = plan.planned(EVALUATION), np.array([60.0, 20.0, -30.0])
    assert planned.total_sigma > 1.05 * planned.total_noise_multiplier * planned.mechanism.clip
    prepared = SimpleNamespace(plan=plan, study=asked, tasks_of=lambda _: ())
    summed = Asked(summation=lambda *_: Summed(gradient=total))
    told = evaluations(prepared, lambda *_: summed).at(6, np.zeros(27))
    assert told == planned.query.scores_of(total, asked, planned.total_sigma)


def test_intervals_of_held_back_scores_hold_what_they_are_of():
    """300 noisy sums: 95 % hold the true share, 264 or more but for 5e-7; without noise fewer."""
    prepared = prepare(study("every = 6, epsilon = 1.0"))
    query = prepared.plan.planned(EVALUATION).query
    draw, held = np.random.default_rng(7), {12.0: 0, 0.0: 0}
    for _ in range(300):
        exact = sum_of(query.vector, 200.0, draw.binomial(200, 0.7))
        noisy = exact + draw.normal(0, 12.0, 3)
        for sigma in held:
            told = query.scores_of(noisy, prepared.study, sigma)
            held[sigma] += told["held_back_accuracy_low"] <= 0.7 <= told["held_back_accuracy_high"]
    assert held[0.0] < 264 <= held[12.0]


# Interruptions ---------------------------------------------------------------------------------


def test_no_choice_of_shift_and_scale_has_a_silo_refuse_its_own_records():
    """Whether it does would tell that a record has a large feature."""
    inputs = np.array([[3e38, -3e38, 2.0]], dtype=np.float32)
    records = Records(inputs=inputs, targets=np.zeros(1, dtype=np.float32))
    bound = 1e9
    chosen = Standardisation(
        shift=np.float32([-bound, bound, 1.0]), scale=np.float32([0.5, 0.5, 0.5])
    )
    found = chosen.of(records).inputs
    assert np.isfinite(found).all()
    assert found[0, 2] == 2.0


@pytest.mark.slow
def test_a_resumed_run_uses_the_same_standardisation_and_asks_for_no_new_one(tmp_path: Path):
    def stop(step: int, _row: object) -> None:
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(BOTH, tmp_path / "run", progress=stop)
    kept = (tmp_path / "run" / "standardisation.json").read_text()
    result = resume(tmp_path / "run")
    assert (tmp_path / "run" / "standardisation.json").read_text() == kept
    assert result.standardisation.to_json() == kept
    with Ledger(tmp_path / "ledgers" / "hungary.sqlite") as book:
        assert sum(row.kind.sampling == "full-batch" for row in book.entries()) == 1 + STEPS // 5


@pytest.mark.slow
@pytest.mark.parametrize("transcript", ["full", "hashes"])
def test_sums_that_were_charged_and_lost_are_not_asked_for_again(
    tmp_path: Path, monkeypatch, transcript: str
):
    """Where a transcript has them they are not lost."""
    asked = BOTH.changed(transcript=transcript)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(beside_training, "standardisation_from", crash)
        with pytest.raises(KeyboardInterrupt):
            run(asked, tmp_path / "run")
    if transcript == "full":
        assert resume(tmp_path / "run").standardisation is not None
    else:
        with pytest.raises(IntegrityError, match="charged and lost"):
            resume(tmp_path / "run")
    with Ledger(tmp_path / "ledgers" / "hungary.sqlite") as book:
        assert sum(row.kind.purpose == STANDARDISATION for row in book.entries()) == 1


@pytest.mark.slow
def test_an_evaluation_that_was_charged_and_lost_leaves_a_gap(tmp_path: Path, monkeypatch):
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    one = study("every = 5, epsilon = 2.0")
    with monkeypatch.context() as patch:
        patch.setattr(EvaluationQuery, "scores_of", crash)
        with pytest.raises(KeyboardInterrupt):
            run(one, tmp_path / "run")
    result = resume(tmp_path / "run")
    told = [row["step"] for row in result.metrics if "held_back_accuracy" in row]
    assert told == [10]
    with Ledger(tmp_path / "ledgers" / "hungary.sqlite") as book:
        assert sum(row.kind.sampling == "full-batch" for row in book.entries()) == 2


@pytest.mark.slow
def test_noise_is_calibrated_beside_a_release_that_takes_nearly_all() -> None:
    """Its own estimate passes epsilon, which says nothing of what is left for the training."""
    asked = study(standardise="epsilon = 0.9", epsilon=1.0)
    assert 0.999 < hubbub.plan(asked).stated.epsilon <= 1.0
