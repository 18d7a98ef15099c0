"""Claims of other libraries are judged by the bracket of what ran; planted faults are caught."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from math import inf

import numpy as np
import pytest
from benchmarks.conformance.__main__ import page, table
from benchmarks.conformance.accountant_brackets import FAR, OVERSTATED, UNDERSTATED, WITHIN
from benchmarks.conformance.claim import Claim, attacked

import hubbub
from hubbub.core.privacy.composition import Bound


def claim(claimed: float, lower: float = 1.0, upper: float = 1.001) -> Claim:
    bound = Bound(lower=lower, upper=upper)
    return Claim(library="made-up 1.0", case="a case", claimed=claimed, certified=bound)


@pytest.mark.parametrize(
    ("claimed", "verdict"),
    [
        (0.9999, UNDERSTATED),
        (-0.1, UNDERSTATED),
        (1.0, WITHIN),
        (1.001, WITHIN),
        (1.002, OVERSTATED),
        (1.502, FAR),
        (inf, FAR),
    ],
)
def test_only_what_lies_below_the_bracket_is_understated(claimed: float, verdict: str) -> None:
    assert claim(claimed).verdict == verdict


def test_a_claim_that_an_attack_refutes_is_understated_and_others_are_not_judged() -> None:
    assert claim(3.0, 3.1, inf).verdict == UNDERSTATED
    assert claim(30.0, 3.1, inf).verdict == WITHIN


def test_an_attack_shows_epsilon_where_there_is_some_and_none_where_there_is_none() -> None:
    """False alarms: 1 in 100 each, over two seeds, and the bound may not pass the truth."""
    draw = np.random.default_rng(1)
    noise = draw.normal(size=(2, 2000))
    assert attacked(noise[0], noise[1], delta=1e-5).lower == 0
    truth = hubbub.epsilon(noise_multiplier=1.0, sampling="full-batch", steps=1, delta=1e-5)
    seen = attacked(noise[0] + 1.0, noise[1], delta=1e-5).lower
    assert 0.3 < seen < truth.upper
    assert attacked(100 * noise[0], noise[1], delta=1e-5).lower > 4


def test_unsafe_claims_come_first_and_missing_libraries_are_named() -> None:
    found = [claim(1.0), claim(0.5)]
    rows = table(found).splitlines()
    assert "understated" in rows[2]
    assert "within" in rows[3]
    text = page([["a library", *"0123456"]], found, ["other: not installed"])
    assert "| a library | 0 | 1 |" in text
    assert "other: not installed" in text
    assert hubbub.__version__ in text


@pytest.mark.slow
def test_planted_faults_of_opacus_are_caught() -> None:
    """#813, #571, #819, #585, its Gaussian accountant, a fixed order, an engine a round."""
    try:
        told = version("opacus")
    except PackageNotFoundError:
        pytest.skip("OTHER LIBRARIES ARE NOT CHECKED: opacus is not installed")
    opacus_claims = pytest.importorskip("benchmarks.conformance.opacus_claims")
    by = {one.case.split(":")[0]: one.verdict for one in opacus_claims.claims(f"opacus {told}")}
    assert by == {
        "accountant rdp": UNDERSTATED,  # below zero
        "accountant gdp": UNDERSTATED,
        "WeightedRandomSampler": FAR,
        "poisson_sampling=False": UNDERSTATED,
        "Flower's example, a new engine a round": UNDERSTATED,
        "batches of 2 of 3 records or of 2, z 4, 1 step, 400 numbers": UNDERSTATED,
        "batches of 10 of 99 records or of 100, z 4, 1 step, 20,000 numbers": UNDERSTATED,
    }
