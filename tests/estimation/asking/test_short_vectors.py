"""docs/privacy.md P16: evaluations and feature sums are short vectors, charged by what they are."""

from __future__ import annotations

from itertools import product
from math import exp, sqrt

import numpy as np
import pytest
import torch
from scipy.stats import norm

from hubbub.core.errors import DataError
from hubbub.core.planning.accounts import account_of, least_noise
from hubbub.core.planning.mechanism import MOST_ROWS, SUM_MARGIN, check_rows, mechanism_of_all
from hubbub.core.planning.query import SiloData
from hubbub.core.planning.study_plan import main_of
from hubbub.core.study.data import Data, Standardise
from hubbub.core.study.parties import Privacy
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records, standardisation_from
from hubbub.learning import EvaluationTask, ScoreMarks
from hubbub.learning.batches import per_unit_model
from hubbub.learning.queries.beside_training import (
    EvaluationQuery,
    FeatureSums,
    ScoreVector,
    StandardisingQuery,
)
from hubbub.learning.study.training import Evaluate
from hubbub.learning.target_types import Amount, Classes, Count, TargetType, TimeToEvent

RELATIONS = ("add-remove", "substitute")
MARGIN = 2.0**-8
DRAWS = 10_000
NOTHING = np.zeros(0, np.float32)
DATA = Data(source="heart-disease")


def privacy(relation: str, epsilon: float = 1.0) -> Privacy:
    return Privacy(epsilon=epsilon, delta=1e-5, relation=relation)


def evaluation(relation: str) -> EvaluationQuery:
    return EvaluationQuery(Evaluate(every=1, epsilon=1.0), DATA, privacy(relation), 3, None)


def standardising(relation: str, features: int) -> StandardisingQuery:
    asked = Standardise(bound=1.0, epsilon=1.0)
    return StandardisingQuery(asked, DATA, privacy(relation), features, None)


# How many -----------------------------------------------------------------------------------------


def test_p6_as_many_rows_as_are_summed_round_within_what_the_clip_leaves() -> None:
    unit = 2.0**-53
    assert 2 * MOST_ROWS * (MOST_ROWS + 2) * unit / (1 - (MOST_ROWS + 2) * unit) <= SUM_MARGIN
    check_rows(MOST_ROWS)


@pytest.mark.parametrize("query", [evaluation("substitute"), standardising("add-remove", 3)])
def test_p16_a_silo_of_more_records_than_floats_add_up_is_refused_before_one_is_read(query) -> None:
    with pytest.raises(DataError, match="at most 3,600,000 rows of a silo in a sum of floats"):
        query.task(SiloData(max_units=MOST_ROWS + 1))


def test_p6_a_training_batch_of_more_rows_than_floats_add_up_is_refused() -> None:
    study = Study.from_table(
        {
            "study": {"name": "long batches"},
            "parties": {"names": ["a", "b", "c", "d"], "colluders": 1},
            "data": {"source": "hubbub.datasets:heart", "capacity": 10**9},
            "model": {"kind": "logistic", "inputs": [1]},
            "training": {"steps": 4, "sample_rate": 1.0},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
        }
    )
    few = Records(inputs=np.zeros((1, 1), np.float32), targets=np.zeros(1))
    with pytest.raises(DataError, match="rows of a silo in a sum of floats"):
        main_of(study).task(SiloData(records=few, max_units=MOST_ROWS + 1))


# How long, and how far apart ----------------------------------------------------------------------


def evaluated() -> np.ndarray:
    """The parts of records of all sorts: right and wrong, sure and unsure; and of none."""
    logits = np.array([[0.0], [1e-3], [0.5], [-0.5], [2.0], [-2.0], [40.0], [-40.0]], np.float32)
    records = Records(inputs=np.tile(logits, (2, 1)), targets=np.repeat([0.0, 1.0], 8))
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Flatten(0))
    rows = np.append(np.arange(16), -1)
    numbers = np.array([1.0, 0.0], np.float32)
    tasks = [
        EvaluationTask(model, records, marks=ScoreMarks(ScoreVector.of(relation)))
        for relation in RELATIONS
    ]
    return np.array(
        [[task.clipped_sum(numbers, np.array([row])) for row in rows] for task in tasks]
    )


def standardised(features: int) -> np.ndarray:
    """The parts of records at the corners, in the middle and beyond the bound; and of none."""
    corners = np.array(list(product((-9.0, -1.0, 0.0, 0.7, 1.0), repeat=features)), np.float32)
    task = FeatureSums(Records(inputs=corners, targets=np.zeros(len(corners))), 1.0)
    return np.array(
        [task.clipped_sum(NOTHING, np.array([row])) for row in [*range(len(corners)), -1]]
    )


def longest(parts: np.ndarray) -> tuple[float, float]:
    """The largest norm, and the largest distance of two."""
    gaps = np.linalg.norm(parts[:, None] - parts[None], axis=2)
    return float(np.linalg.norm(parts, axis=1).max()), float(gaps.max())


def test_p16_no_evaluated_record_is_longer_and_no_two_further_apart_than_is_charged() -> None:
    added, exchanged = map(longest, evaluated())
    assert added[0] == pytest.approx(1, abs=1e-12)  # which a record does reach
    assert exchanged == pytest.approx((1, 1), abs=1e-12)
    for relation in RELATIONS:
        assert evaluation(relation).mechanism.clip * (1 - MARGIN) == pytest.approx(1)
    assert evaluation("substitute").mechanism.diameter == pytest.approx(1)
    assert evaluation("add-remove").mechanism.diameter == 2


@pytest.mark.parametrize("presence", [0.1, 0.5, 0.9, 0.99])
def test_p16_the_diameter_of_a_score_vector_counts_a_record_that_is_held_back(presence) -> None:
    vector = ScoreVector(presence=presence)
    parts = [(presence, *(vector.scale * (np.array(ab) - 0.5))) for ab in product((0, 1), (0, 1))]
    reached = longest(np.array([*parts, (0.0, 0.0, 0.0)]))
    assert reached == pytest.approx((1.0, vector.diameter), abs=1e-12)


@pytest.mark.parametrize("features", [1, 2, 3])
def test_p16_no_rows_features_are_longer_or_further_apart_than_is_charged(features: int) -> None:
    length, distance = longest(standardised(features))
    assert length == pytest.approx(sqrt(1 + 1.25 * features))
    assert distance == pytest.approx(2 * sqrt(features))  # further than any is from none
    mechanism = standardising("substitute", features).mechanism
    clip = mechanism.clip * (1 - MARGIN)
    assert clip == pytest.approx(length)
    assert mechanism.diameter * clip == pytest.approx(distance)
    assert standardising("add-remove", features).mechanism.diameter == 2


class Wild(torch.nn.Module):
    """Says of a record what its first number is, or what is no number, and raises at some."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, outputs)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        said = inputs[:, :1]
        torch.nn.functional.embedding(inputs[:, 1].long(), torch.zeros(1, 1))  # 0 is all it has
        found = self.layer(said)
        found = torch.where(said > 90, torch.nan, torch.where(said < -90, -torch.inf, found))
        return found.squeeze(-1)


SAID = np.array([0.0, 0.5, -0.5, 3.0, -3.0, 40.0, -40.0, 99.0, -99.0], np.float32)
KINDS: dict[str, tuple[TargetType, int, np.ndarray]] = {
    "two classes": (Classes(), 1, np.array([0, 1], np.float32)),
    "three classes": (Classes(), 3, np.array([0, 1, 2])),
    "numeric": (Amount(low=-2, high=5), 1, np.array([-1e9, 0.0, 1e9])),
    "huber": (Amount(low=-2, high=5, is_huber=True), 1, np.array([-1e9, 0.0, 1e9])),
    "count": (Count(high=6), 1, np.array([0.0, 3.0, 1e12])),
    "time": (TimeToEvent(grid=(1.0, 2.0)), 2, np.array([[0.0, 1], [1.5, 1], [1.0, 0], [9, 1]])),
}
QUICK = ("records-add-remove", "patients-substitute")  # of each kind of target


@pytest.mark.parametrize("kind", KINDS)
def test_p16_what_is_no_number_scores_within_the_bounds_too(kind: str) -> None:
    target_type, outputs, targets = KINDS[kind]
    nothing = torch.full((len(targets), outputs), torch.nan)
    said = nothing if outputs > 1 else nothing[:, 0]
    for relation in RELATIONS:
        marks = ScoreMarks(ScoreVector.of(relation))
        parts = marks.columns(target_type, said, torch.from_numpy(targets), nothing[:, 0])
        assert longest(parts.T.numpy())[0] == pytest.approx(1, abs=1e-12)


def wildly_evaluated(kind: str, places: int, vector: ScoreVector) -> np.ndarray:
    """The parts of all sorts of records, or of patients with three; of one that raises; of none."""
    target_type, outputs, targets = KINDS[kind]
    said = np.append(np.repeat(SAID, places or 1), 1.0)
    inputs = np.column_stack([said, said == 1.0]).astype(np.float32)
    shown = np.concatenate([np.stack([one] * len(inputs)) for one in targets])
    inputs = np.tile(inputs, (len(targets), 1))
    patients = np.arange(len(inputs)) // places if places else None
    records = Records(inputs=inputs, targets=shown, patients=patients)
    model = per_unit_model(Wild(outputs), places)
    marks = ScoreMarks(vector)
    task = EvaluationTask(model, records, method="vmap", target_type=target_type, marks=marks)
    numbers = np.repeat([1.0, 0.0], outputs).astype(np.float32)
    rows = [*range(task.count), -1]
    return np.array([task.clipped_sum(numbers, np.array([row])) for row in rows])


@pytest.mark.quick_cases(*(f"{kind}-{case}" for kind in KINDS for case in QUICK))
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("places", [0, 3], ids=["records", "patients"])
@pytest.mark.parametrize("kind", KINDS)
def test_p16_no_kind_of_target_and_no_output_makes_a_longer_vector(kind, places, relation) -> None:
    """NaN, infinity, targets far beyond their bounds; who raises adds nothing, as who is not there.

    A patient's float32 weights add up to 1 within 2^-24, which the margin has room for.
    """
    vector, room = ScoreVector.of(relation), 2.0**-22
    parts = wildly_evaluated(kind, places, vector)
    norms = np.linalg.norm(parts, axis=1)
    length, distance = longest(parts)
    assert length == pytest.approx(1, abs=room)  # reached by what is no number
    assert 1 - room <= distance <= vector.diameter + room
    assert np.count_nonzero(norms == 0) > 1  # whoever raises, and nobody
    assert np.sort(norms)[np.count_nonzero(norms == 0)] >= vector.presence - room


# What they are charged, and what their noise becomes ----------------------------------------------


def sigma_of(mechanism) -> float:
    """The standard deviation of the noise on a sum, in the sum's own unit."""
    noise = least_noise(account_of(mechanism), mechanism.steps, 0, 1.0, mechanism.delta)
    return noise * mechanism.clip


def exact_delta(distance: float, epsilon: float = 1.0) -> float:
    """Of the pair of unit Gaussians at a distance."""
    near, far = distance / 2 - epsilon / distance, -distance / 2 - epsilon / distance
    return float(norm.cdf(near) - exp(epsilon) * norm.cdf(far))


@pytest.mark.parametrize("relation", RELATIONS)
def test_p16_the_noise_is_that_of_the_distance_and_no_more(relation: str) -> None:
    for query, distances in (
        (evaluation(relation), (1.0, 1.0)),
        (standardising(relation, 26), (sqrt(1 + 1.25 * 26), 2 * sqrt(26))),
    ):
        moved = distances[relation == "substitute"] * sqrt(query.mechanism.steps)
        delta = exact_delta(moved / sigma_of(query.mechanism))
        assert 0.9e-5 < delta < 1e-5  # the margin of the clipping norm is between them


def without_centres(query: EvaluationQuery | StandardisingQuery) -> float:
    """The noise on sums of (1, a, b) or (1, x, x^2), where an exchange moves two norms."""
    length = sqrt(query.numbers)
    mechanism = mechanism_of_all(
        "sums", DATA, query.privacy, sums=query.mechanism.steps, norm=length, distance=2 * length
    )
    return sigma_of(mechanism)


@pytest.mark.slow_cases("substitute-expected1-0.3333333333333333")
@pytest.mark.parametrize(
    ("relation", "expected", "counts"),
    [("add-remove", (0.436, 0.454, 0.493), 1.054), ("substitute", (0.365, 0.328, 0.319), 1 / 3)],
)
def test_p16_ten_thousand_evaluations_have_the_noise_of_the_table(relation, expected, counts):
    """Standard deviations of two sets of so many draws are within 3 % of their ratio."""
    query, random, records = evaluation(relation), np.random.default_rng(7), 20_000
    sigma, before = sigma_of(query.mechanism), without_centres(query)
    w, scale = query.vector.presence, query.vector.scale
    for accuracy, ratio in zip((0.5, 0.8, 0.95), expected, strict=True):
        mean = np.array([accuracy, 0.4])
        exact = records * np.array([w, *(scale * (mean - 0.5))])
        noisy = exact + sigma * random.normal(size=(DRAWS, 3))
        found = np.array([query.vector.scores_of(one) for one in noisy])
        plain = records * np.array([1, *mean]) + before * random.normal(size=(DRAWS, 3))
        assert found.mean(0) == pytest.approx(mean, abs=1e-4)
        assert found[:, 0].std() / (plain[:, 1] / plain[:, 0]).std() == pytest.approx(
            ratio, rel=0.03
        )
        count = np.array([query.vector.sums_of(one)[0] for one in noisy])
        assert count.std() / plain[:, 0].std() == pytest.approx(counts, rel=0.03)


@pytest.mark.parametrize(("relation", "expected"), [("add-remove", 0.795), ("substitute", 0.700)])
def test_p16_ten_thousand_standardisations_have_the_noise_of_the_table(relation, expected):
    query, random, records, features = (
        standardising(relation, 26),
        np.random.default_rng(8),
        1e5,
        26,
    )
    sigma, before = sigma_of(query.mechanism), without_centres(query)
    mean, square = np.full(features, 0.2), np.full(features, 0.3)
    noise = random.normal(size=(DRAWS // features, 53))
    shifts, scales = [], []
    for one in noise:
        exact = records * np.concatenate([[1.0], mean, square - 0.5])
        made = standardisation_from(exact + sigma * one, 1.0)
        shifts.append(made.shift)
        scales.append(made.scale)
    plain = records * np.concatenate([[1.0], mean, square]) + before * random.normal(
        size=(DRAWS // features, 53)
    )
    means = plain[:, 1:27] / plain[:, :1]
    deviations = np.sqrt(plain[:, 27:] / plain[:, :1] - means**2)
    assert np.mean(scales) == pytest.approx(sqrt(0.3 - 0.04), rel=1e-3)
    assert np.std(shifts) / means.std() == pytest.approx(expected, rel=0.04)
    assert np.std(scales) / deviations.std() == pytest.approx(expected, rel=0.04)
