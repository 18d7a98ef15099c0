"""Where a record is exchanged for another, how far apart two parts are counts, not their length."""

from __future__ import annotations

from dataclasses import replace
from math import exp, pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.estimation.asking.made_up import KINDS, patients, table_of_study

import hubbub
from hubbub import Study
from hubbub.core.errors import StudyError
from hubbub.core.ledger.entry import Entry
from hubbub.core.ledger.tally import cost_of, kind_of
from hubbub.core.planning.accounts import Account, releases
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.dominating_pairs import Step, release
from hubbub.estimation.queries.statistics_query import statistics_of

HERE = Path()


def planned(relation: str, kind: str = "histogram") -> hubbub.Plan:
    table = table_of_study(HERE, q=KINDS[kind])
    table["privacy"]["relation"] = relation
    return hubbub.plan(Study.from_table(table))


def test_p23_a_histogram_under_exchange_needs_the_square_root_of_two_and_not_two() -> None:
    apart, there = planned("substitute"), planned("add-remove")
    ratio = apart.noise_multiplier / there.noise_multiplier
    assert apart.mechanism.diameter == pytest.approx(sqrt(2), rel=1e-3)
    assert ratio == pytest.approx(sqrt(2), rel=1e-3)


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
@pytest.mark.parametrize("kind", ["table", "histogram", "quantiles", "survival", "cox on numbers"])
def test_p23_no_two_records_are_further_apart_than_is_charged(kind: str, relation: str) -> None:
    """All pairs of 60 records, at the unit of a sum; and no record is longer than C."""
    made = planned(relation, kind)
    layout = statistics_of(made.study).layout
    parts = layout.stacked.encode(_coded(made.study)) / layout.unit
    gaps = np.linalg.norm(parts[:, None] - parts[None, :], axis=2)
    assert gaps.max() <= made.mechanism.diameter
    assert np.linalg.norm(parts, axis=1).max() <= 1.0


def _coded(study: Study) -> dict[str, Any]:
    from hubbub.core.study.data import columns_of
    from hubbub.core.tabular.cells import cells_of
    from hubbub.core.tabular.table import coded_cells

    columns = columns_of(study.data).values()
    return dict(coded_cells(cells_of(patients(3, 60)), columns, "made up").columns)


def test_p23_the_account_is_that_of_a_gaussian_pair_at_the_diameter() -> None:
    """An exchange at distance D in noise sigma is P1's with 2 C = D."""
    made = planned("substitute")
    kind = kind_of(made.main)
    step = Step(
        noise_multiplier=made.noise_multiplier * 2 / kind.diameter,
        sample_rate=1.0,
        sampling="full-batch",
        count=1,
    )
    by_hand = Composition([release(step, "substitute")]).epsilon(1e-5).upper
    charged = Composition(cost_of(kind, 1, "substitute")).epsilon(1e-5).upper
    assert charged == pytest.approx(by_hand, rel=1e-9)


def test_p23_a_ledger_charges_a_record_that_is_gone_by_its_length() -> None:
    """Not by half of the diameter, which may be shorter."""
    made = planned("substitute")
    kind = kind_of(made.main)
    gone = Step(
        noise_multiplier=made.noise_multiplier, sample_rate=1.0, sampling="full-batch", count=1
    )
    by_hand = Composition([release(gone, "add-remove")]).epsilon(1e-5).upper
    charged = Composition(cost_of(kind, 1, "add-remove")).epsilon(1e-5).upper
    assert charged == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
def test_p23_a_stack_has_the_diameter_of_its_own_blocks(relation: str) -> None:
    """Two one-hot vectors side by side are 2 apart where they are the square root of 2 long."""
    table = table_of_study(HERE, one=KINDS["histogram"], two=KINDS["crosstab"])
    table["privacy"]["relation"] = relation
    made = hubbub.plan(Study.from_table(table))
    parts = statistics_of(made.study).layout.stacked.encode(_coded(made.study))
    gaps = np.linalg.norm(parts[:, None] - parts[None, :], axis=2)
    lengths = np.linalg.norm(parts, axis=1)
    assert made.mechanism.diameter == pytest.approx(gaps.max() / lengths.max(), rel=1e-5)
    assert made.mechanism.diameter == pytest.approx(sqrt(2), rel=1e-5)


def test_a_row_of_the_ledger_keeps_a_diameter_and_others_have_none() -> None:
    kind = kind_of(planned("add-remove").main)
    rows = [
        Entry(study=bytes(32), session=bytes(16), round=1, attempt=0, kind=one)
        for one in (kind, replace(kind, diameter=2.0))
    ]
    plain = [row.to_dict() for row in rows]
    assert "diameter" in plain[0]
    assert "diameter" not in plain[1]
    assert [Entry.of(one) for one in plain] == rows


def test_p23_a_private_sum_of_one_hot_vectors_has_less_noise() -> None:
    """Of 40,000 numbers the deviation is off by more than 3 % (8 errors) never."""
    vectors = [np.zeros(40_000)] * 3
    asked: dict[str, Any] = {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-5}
    plain = hubbub.private_sum(vectors, relation="substitute", **asked)
    near = hubbub.private_sum(vectors, relation="substitute", diameter=sqrt(2), **asked)
    assert near.epsilon <= 1.0
    assert near.value.std() / plain.value.std() == pytest.approx(sqrt(0.5), rel=0.03)


@pytest.mark.parametrize(
    ("diameter", "relation"), [(1.0, "add-remove"), (2.1, "substitute"), (0.0, "substitute")]
)
def test_a_diameter_that_means_nothing_is_refused(diameter: float, relation: str) -> None:
    with pytest.raises(StudyError, match="diameter"):
        hubbub.private_sum(
            [[1.0]] * 3,
            sensitivity=1.0,
            epsilon=1.0,
            delta=1e-5,
            relation=relation,
            diameter=diameter,
        )


def test_p23_a_diameter_says_nothing_of_who_is_sampled() -> None:
    """Two that are near to each other, far from nobody: whoever sees one knows it was drawn."""
    rate, apart, noise, level = 0.1, 1.0, 0.4, exp(1.0)
    x = np.linspace(-12.0, 12.0, 1201)
    bell = lambda mean: np.exp(-((x - mean) ** 2) / 2) / sqrt(2 * pi)  # noqa: E731
    # In the plane both stand at C = 1 from 0, half a diameter to either side of an axis.
    across = apart / 2 / noise
    along = sqrt(1 - (apart / 2) ** 2) / noise
    one, other = (
        (1 - rate) * np.outer(bell(0), bell(0)) + rate * np.outer(bell(along), bell(side))
        for side in (across, -across)
    )
    realised = float(np.maximum(one - level * other, 0).sum() * (x[1] - x[0]) ** 2)
    account = Account(
        sampling="poisson", sample_rate=rate, relation="substitute", records=0, diameter=apart
    )
    charged = Composition(releases(account, noise, 1)).delta(1.0)
    assert charged.upper >= realised
    nearer = Composition(releases(account, noise * 2 / apart, 1)).delta(1.0)
    assert nearer.upper < realised  # what the diameter alone would have said
