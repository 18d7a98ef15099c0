"""docs/privacy.md P27: what a unit adds is 1 long at most, and two are sqrt 2 apart at most."""

from __future__ import annotations

from functools import cache
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learning.validation.made_up import BY, study_of, write_silos

import hubbub
from hubbub.core.ledger.tally import kind_of
from hubbub.core.tabular.records import Records
from hubbub.learning import CellMarks, EvaluationTask
from hubbub.learning.batches import per_unit_model
from hubbub.learning.queries.validation import noisy_table
from hubbub.learning.queries.validation.kinds import Amounts, ClassValidation, Risks, Times
from hubbub.learning.queries.validation.layout import (
    SiloTask,
    ValidationBlock,
    ValidationLayout,
    groups_of,
)
from hubbub.learning.target_types import Amount, Classes, Count, TargetType, TimeToEvent

KINDS: dict[str, tuple[TargetType, object]] = {
    "risks": (Classes(), Risks(bins=noisy_table.of_risks(6))),
    "classes": (Classes(), ClassValidation(many=3)),
    "amounts": (
        Amount(low=-2.0, high=3.0),
        Amounts(bins=noisy_table.of_amounts(-2, 3, 5), seen=noisy_table.of_amounts(-2, 3, 5)),
    ),
    "counts": (
        Count(high=6.0),
        Amounts(bins=noisy_table.of_rates(6, 4), seen=noisy_table.of_counts(6, 4), counts=True),
    ),
    "times": (
        TimeToEvent(grid=(1.0, 2.0, 3.0)),
        Times(bins=noisy_table.of_risks(4), ends=(1.0, 2.0, 3.0)),
    ),
}
BLOCKS = (
    ValidationBlock(by="", groups=("",), part=0.5),
    ValidationBlock(by="centre", groups=("a", "b"), part=0.25),
    ValidationBlock(by="sex", groups=("F", "M"), part=0.25),
)


class Says(torch.nn.Module):
    """Outputs that are the record's own numbers, whatever they are; it raises at some."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.outputs = outputs

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        said = self.scale * inputs[:, : self.outputs]
        return said.squeeze(1) if self.outputs == 1 else said


@cache
def model_of(outputs: int, places: int) -> torch.nn.Module:
    """One for all tasks, as it is looked at before its first."""
    return per_unit_model(Says(outputs), places)


def task(kind: str, seed: int, centre: int, places: int) -> SiloTask:
    target_type, cells = KINDS[kind]
    rng, outputs = np.random.default_rng(seed), {"classes": 3, "times": 3}.get(kind, 1)
    wild = rng.choice([0.0, 1e-30, 0.4, -0.7, 3.0, -50.0, 1e30], (12, 3)).astype(np.float32)
    targets = {
        "risks": rng.integers(0, 2, 12).astype(np.float32),
        "classes": rng.integers(0, 3, 12).astype(np.int64),
        "amounts": rng.choice([-1e300, -2.0, 0.1, 3.0, 1e300], 12),
        "counts": rng.choice([0.0, 1.0, 6.0, 1e12], 12),
        "times": np.column_stack([rng.choice([0.0, 1.0, 2.5, 9e9], 12), rng.integers(0, 2, 12)]),
    }[kind]
    records = Records(
        inputs=wild,
        targets=targets,
        patients=rng.integers(0, 5, 12) if places else None,
        groups=rng.integers(-1, 2, (12, 1)),
    )
    evaluation = EvaluationTask(
        model_of(outputs, places),
        records,
        method="vmap",
        target_type=target_type,
        capacity=15,
        marks=CellMarks(cells),
    )
    layout = ValidationLayout(kind=cells, blocks=BLOCKS)
    return SiloTask(layout, evaluation, groups_of(layout, records, centre, places))


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    seed=st.integers(0, 10**6),
    places=st.sampled_from([0, 3]),
    scale=st.sampled_from([0.0, 1.0, -2.0, 1e38, float("inf"), float("nan")]),
)
def test_p27_no_unit_is_longer_than_one_and_no_two_are_further_apart_than_root_two(
    kind: str, seed: int, places: int, scale: float
) -> None:
    one, other = task(kind, seed, 0, places), task(kind, seed + 1, 1, places)
    parameters = np.array([scale], np.float32)
    parts = [
        made.clipped_sum(parameters, np.array([row])) for made in (one, other) for row in (-1, 0, 1)
    ]
    lengths = np.linalg.norm(parts, axis=1)
    gaps = np.linalg.norm(np.array(parts)[:, None] - np.array(parts)[None], axis=2)
    assert lengths.max() <= 1 + 1e-6
    assert gaps.max() <= sqrt(2) + 1e-6
    assert lengths[0] == 0  # an empty row
    if not places and KINDS[kind][1].code is None:  # a record with all classes reaches it
        assert set(np.round(lengths**2, 9)) <= {0.0, 0.75, 1.0}


@pytest.mark.parametrize("kind", ["risks", "times"])
def test_p27_a_code_reaches_one_in_its_first_bin_and_is_nowhere_longer(kind: str) -> None:
    """What is charged is the length of the longest column, and no column has a negative number."""
    cells = KINDS[kind][1]
    layout = ValidationLayout(kind=cells, blocks=BLOCKS[:1])
    sent = np.array([layout.encoded(record) for record in np.eye(layout.cells)])
    lengths = np.linalg.norm(sent, axis=1)
    assert (sent >= 0).all()
    assert lengths.max() == pytest.approx(1.0)
    assert lengths[0] == pytest.approx(1.0)
    assert lengths.max() <= 1 + 1e-12


def test_p27_a_patients_part_is_the_mean_of_the_records_parts() -> None:
    made = task("risks", 3, 0, 4)
    records = made._evaluation._rows._records
    singles = EvaluationTask(
        model_of(1, 0),
        Records(inputs=records.inputs, targets=records.targets),
        method="vmap",
        marks=CellMarks(KINDS["risks"][1]),
    )
    for patient in range(records.units):
        mine = np.flatnonzero(records.patients == patient)[:4]
        mean = np.mean(
            [singles.clipped_sum(np.ones(1, np.float32), np.array([row])) for row in mine], axis=0
        )
        wanted = made._layout.encoded(mean)
        part = made.clipped_sum(np.ones(1, np.float32), np.array([patient]))
        np.testing.assert_allclose(part[: len(wanted)], sqrt(0.5) * wanted, atol=1e-7)


def test_p27_one_record_more_or_less_changes_nothing_else() -> None:
    made = task("amounts", 5, 1, 0)
    parameters, everybody = np.ones(1, np.float32), np.append(np.arange(12), [-1, -1])
    whole = made.clipped_sum(parameters, everybody)
    for gone in range(12):
        rest = made.clipped_sum(parameters, np.where(everybody == gone, -1, everybody))
        alone = made.clipped_sum(parameters, np.array([gone]))
        np.testing.assert_allclose(whole - rest, alone, atol=1e-12)


def test_p19_the_model_sees_one_shape_of_rows_for_each_table_whoever_is_in_it() -> None:
    made, seen = task("risks", 3, 0, 0), list[np.ndarray]()
    summed = made._evaluation.clipped_sum

    def shown(parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
        seen.append(rows)
        return summed(parameters, rows)

    made._evaluation.clipped_sum = shown
    rows = np.array([3, -1, 0, 7, -1])
    made.clipped_sum(np.ones(1, np.float32), rows)
    assert len(seen) == sum(len(block.groups) for block in BLOCKS)
    for one in seen:
        assert one.shape == rows.shape
        assert (one[one >= 0] == rows[one >= 0]).all()
    assert (seen[0] == rows).all()
    assert (np.maximum(*seen[3:]) <= rows).all()


@pytest.mark.parametrize(("relation", "diameter"), [("add-remove", 2.0), ("substitute", sqrt(2))])
def test_p27_what_is_charged_is_one_and_root_two(
    tmp_path: Path, relation: str, diameter: float
) -> None:
    write_silos(tmp_path, 20)
    plan = hubbub.plan(study_of(tmp_path, privacy={"relation": relation}, validation={"by": BY}))
    planned = plan.planned("validation")
    assert planned is not None
    assert planned.mechanism.clip * (1 - 2.0**-8) == pytest.approx(1.0)
    assert planned.mechanism.diameter == pytest.approx(diameter)
    assert planned.mechanism.sample_rate == 1
    parts = [block.part for block in planned.query.layout.blocks]
    assert parts == pytest.approx([0.5, *[0.5 / (len(parts) - 1)] * (len(parts) - 1)])
    assert sum(block.scale**2 for block in planned.query.layout.blocks) == pytest.approx(1.0)
    assert kind_of(planned).diameter == pytest.approx(diameter)
    alone = hubbub.epsilon(
        noise_multiplier=planned.noise_multiplier * 2 / diameter
        if relation == "substitute"
        else planned.noise_multiplier,
        sample_rate=1.0,
        steps=1,
        delta=1e-5,
        relation=relation,
    )
    assert 0.98 * 4.0 < alone.upper <= 4.0
    assert plan.epsilon() <= 8.0
