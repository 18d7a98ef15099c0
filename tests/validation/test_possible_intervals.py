"""No interval leaves the possible, or leaves all of it open; and how many bins there are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.validation.made_up import TARGETS, study_of, table_of

from hubbub.queries import usual_bins, whose_records
from hubbub.queries.validation import bins
from hubbub.queries.validation.amounts import Amounts
from hubbub.queries.validation.classes import ClassValidation
from hubbub.queries.validation.noisy_table import UNKNOWN, NoisyTable, ScoreInterval
from hubbub.queries.validation.risks import Risks
from hubbub.queries.validation.times import Times
from hubbub.study import Study

TEN = bins.of_amounts(0, 100, 10)
KINDS = {
    "risks": Risks(bins=bins.of_risks(64)),
    "classes": ClassValidation(many=4),
    "amounts": Amounts(bins=TEN, seen=TEN),
    "counts": Amounts(bins=bins.of_rates(12, 10), seen=bins.of_counts(12, 10), counts=True),
    "times": Times(bins=bins.of_risks(32), ends=(6.0, 12.0, 18.0)),
}
# By score what is possible of it, and from which width on an interval says nothing.
POSSIBLE = {
    **dict.fromkeys(("auc", "c_index", "brier", "accuracy"), (0.0, 1.0, 0.5)),
    **{f"found_of_class_{one}": (0.0, 1.0, 0.5) for one in range(4)},
    **dict.fromkeys(("r_squared", "deviance_explained"), (-np.inf, 1.0, 1.0)),
}
GAPS = {"risks": 1.0, "times": 1.0, "amounts": 90.0, "counts": 12.0}


@pytest.mark.parametrize("kind", KINDS)
def test_no_interval_leaves_the_possible_or_leaves_all_of_it_open(kind: str) -> None:
    rng, layout, told = np.random.default_rng(0), KINDS[kind], 0
    for sigma in (0.0, 1.0, 5.0, 20.0, 60.0):
        for records in (30.0, 300.0, 3000.0):
            counts = rng.poisson(layout.guess(records)) + sigma * rng.standard_normal(
                (layout.predictions, layout.outcomes)
            )
            for one in layout.scored(NoisyTable(counts=counts, sigma=sigma)).scores:
                far = GAPS.get(kind, np.inf)
                gap = (-far, far, far)
                error = (0.0, far, far / 2)
                usual = {"calibration_gap": gap, "rmse": error, "mae": error} | POSSIBLE
                low, high, wide = usual.get(one.name, (-np.inf, np.inf, np.inf))
                assert low <= one.low <= one.value <= one.high <= high
                assert one.high - one.low < wide or wide == np.inf
                told += 1
    assert told > 20


def test_an_interval_that_says_nothing_is_not_told() -> None:
    assert ScoreInterval(value=0.4, low=-0.2, high=1.3).within(0.0, 1.0) == UNKNOWN
    assert UNKNOWN.within(0.0, 1.0) == UNKNOWN
    kept = ScoreInterval(value=1.02, low=0.8, high=1.3).within(0.0, 1.0)
    assert (kept.low, kept.value, kept.high) == (0.8, 1.0, 1.0)


def test_the_c_index_of_amounts_is_that_of_all_pairs() -> None:
    counts = np.random.default_rng(1).poisson(2.0, (5, 4)).astype(float)
    where = [(p, o) for p in range(5) for o in range(4) for _ in range(int(counts[p, o]))]
    pairs = [(a, b) for a in where for b in where if a[1] > b[1]]
    alike = sum(1.0 if a[0] > b[0] else 0.5 if a[0] == b[0] else 0.0 for a, b in pairs)
    layout = Amounts(bins=bins.of_amounts(0, 1, 5), seen=bins.of_amounts(0, 1, 4))
    (first, *_) = layout.scored(NoisyTable(counts=100 * counts, sigma=0.0)).scores
    assert first.name == "c_index"
    assert first.value == pytest.approx(alike / len(pairs))


def asked(kind: str, records: int, **more: object) -> Study:
    part = {"epsilon": 0.3, "records": "auto"}
    some = {"privacy": {"epsilon": 1.0}, "validation": part, **more}
    return study_of(Path("nowhere"), kind, data={"records": records}, **some)


@pytest.mark.slow_cases("numeric")
@pytest.mark.parametrize("kind", TARGETS)
def test_fewer_records_have_fewer_bins_and_tell_more_than_the_default(kind: str) -> None:
    studies = [asked(kind, records) for records in (2000, 8000, 1_000_000)]
    taken = [usual_bins(one) for one in studies]
    assert taken == sorted(taken)
    assert taken[0] < taken[-1]
    few = replace(studies[0], validation=replace(studies[0].validation, bins=taken[0]))
    assert whose_records(few).error < whose_records(studies[0]).error
    assert whose_records(few).is_telling


def test_several_classes_have_no_bins() -> None:
    target = {
        "target": "ward",
        "classes": ["a", "b", "c"],
        "columns": {"age": {"low": 0, "high": 99}},
    }
    made = table_of(Path("nowhere"), data=target, model={"outputs": 3})
    assert usual_bins(Study.from_table(made)) == 0
