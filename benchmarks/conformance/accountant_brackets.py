"""Test a privacy accountant against certified brackets of epsilon: a plug-in of pytest.

It needs this file and brackets.json beside it, and nothing else of hubbub. In a conftest.py:

    pytest_plugins = ["accountant_brackets"]

and in a test, which runs once for each setting that the marker leaves:

    @pytest.mark.brackets("poisson", "gaussian", relation="add-remove")
    def test_accountant(bracket):
        epsilon = my_accountant(bracket.noise_multiplier, bracket.sample_rate, bracket.steps)
        bracket.check(epsilon.at(bracket.delta))

Mechanisms add N(0, (noise_multiplier C)^2) to a sum of vectors of norm at most C, in each of some
steps: "gaussian" of all records, "poisson" of a batch that each record is in with the chance
sample_rate, "without-replacement" of a batch that holds that share of the records. Neighbours
differ in one record, which is there or not ("add-remove") or another one ("substitute").
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("brackets.json")
ROOM = 1e-9  # relative: of rounding
UNDERSTATED, WITHIN, OVERSTATED, FAR = "understated", "within", "overstated", "far overstated"
WIDE = 1.5  # times the upper end: more than loose accounting of the right mechanism costs


@dataclass(frozen=True)
class Bracket:
    """A setting, and between what its epsilon lies: the truth is in [lower, upper]."""

    mechanism: str
    relation: str
    noise_multiplier: float
    sample_rate: float
    steps: int
    delta: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return (
            f"{self.mechanism}-{self.relation}-z{self.noise_multiplier:g}-q{self.sample_rate:g}"
            f"-{self.steps}-delta{self.delta:g}"
        )

    def check(self, epsilon: float, *, loose: float = 0.0) -> None:
        """Fail unless an accountant's answer is in the bracket.

        Args:
            epsilon: the answer.
            loose: by how much, relative to the upper end, it may be above, as those of RDP are.
        """
        verdict = judged(epsilon, self.lower, self.upper * (1 + loose))
        if verdict != WITHIN:
            pytest.fail(
                f"expected epsilon from {self.lower:.9g} to {self.upper * (1 + loose):.9g}, found "
                f"{epsilon:.9g}: {verdict} ({self})",
                pytrace=False,
            )


def judged(epsilon: float, lower: float, upper: float) -> str:
    """How an answer lies to a bracket; only an understated one is unsafe, and nan is that too."""
    if not epsilon >= lower * (1 - ROOM):
        return UNDERSTATED
    if epsilon <= upper * (1 + ROOM):
        return WITHIN
    return FAR if epsilon > WIDE * upper else OVERSTATED


def brackets(*mechanisms: str, relation: str = "") -> list[Bracket]:
    """Those of some mechanisms and a relation; of all where none is named."""
    listed = [Bracket(**line) for line in json.loads(FILE.read_text(encoding="utf-8"))]
    return [
        bracket
        for bracket in listed
        if (not mechanisms or bracket.mechanism in mechanisms)
        and relation in ("", bracket.relation)
    ]


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marker."""
    config.addinivalue_line("markers", "brackets(*mechanisms, relation=''): which to test")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with `bracket` runs once for each."""
    if "bracket" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("brackets")
        chosen = brackets(*marker.args, **marker.kwargs) if marker else brackets()
        metafunc.parametrize("bracket", chosen, ids=str)
