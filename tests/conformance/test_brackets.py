"""The published brackets are certified, and the plug-in tells right accountants from wrong ones."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import pytest
from benchmarks.conformance.accountant_brackets import (
    FAR,
    UNDERSTATED,
    Bracket,
    brackets,
    judged,
)
from benchmarks.conformance.accountants import ACCOUNTANTS, answered
from benchmarks.conformance.averaged_claims import claims, shown
from benchmarks.conformance.brackets import FILE, certified, settings
from benchmarks.conformance.claim import attacked

pytest_plugins = ["pytester"]

LISTED = json.loads(FILE.read_text(encoding="utf-8"))
PLUG_IN = "benchmarks.conformance.accountant_brackets"


def numbers(line: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in line.items() if key not in ("lower", "upper")}


def test_the_file_holds_500_settings_that_differ() -> None:
    assert [numbers(line) for line in LISTED] == list(settings())
    assert len({json.dumps(numbers(line)) for line in LISTED}) == 500
    assert all(
        0 < line["lower"] <= line["upper"] <= line["lower"] * 1.001 + 1e-3 for line in LISTED
    )


@pytest.mark.parametrize("line", LISTED[::50], ids=lambda line: str(Bracket(**line)))
def test_a_bracket_is_what_is_certified(line: dict[str, object]) -> None:
    bracket = certified(numbers(line))
    for end in ("lower", "upper"):
        assert bracket[end] == pytest.approx(line[end], rel=1e-9)


ANSWERS = {
    "bracket.lower": True,
    "bracket.upper": True,
    "bracket.upper * 1.04": True,
    "bracket.upper * 1.06": False,
    "bracket.lower * 0.999": False,
    "-bracket.upper": False,
    "float('nan')": False,
    "float('inf')": False,
}


def test_an_answer_has_to_be_in_each_bracket(pytester: pytest.Pytester) -> None:
    tests = "".join(
        f"""
@pytest.mark.brackets("without-replacement", relation="add-remove")
def test_{number}(bracket):
    bracket.check({answer}, loose=0.05)
"""
        for number, answer in enumerate(ANSWERS)
    )
    pytester.makepyfile(f"import pytest\n{tests}")
    passed, _, failed = pytester.inline_run("-p", PLUG_IN, "-q").listoutcomes()
    for number, is_right in enumerate(ANSWERS.values()):
        counts = [sum(f"test_{number}[" in one.nodeid for one in part) for part in (passed, failed)]
        assert counts == ([32, 0] if is_right else [0, 32])


def test_a_failure_says_what_was_expected(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(bracket): bracket.check(0)")
    result = pytester.runpytest_inprocess("-p", PLUG_IN, "-q", "-k", "gaussian-add-remove-z1-")
    result.stdout.fnmatch_lines(["*expected epsilon from *, found 0: understated (gaussian-*"])


@pytest.mark.slow
@pytest.mark.parametrize("package", ACCOUNTANTS)
def test_accountants_that_are_installed_are_not_below_a_bracket(package: str) -> None:
    try:
        version(package)
    except PackageNotFoundError:
        pytest.skip(f"{package.upper()} IS NOT CHECKED: it is not installed")
    names, make = ACCOUNTANTS[package]
    for name in set(names) - {"gdp"}:  # a limit, which is below many: `results.md`
        accountant = make(name)
        for bracket in brackets("poisson", "gaussian", relation="add-remove")[::60]:
            answer = answered(accountant, bracket)
            assert answer is not None
            assert judged(answer, bracket.lower, bracket.upper) != UNDERSTATED, str(bracket)


def test_a_sum_over_a_number_of_records_is_understated_by_the_account_of_the_sum() -> None:
    assert [claim.verdict for claim in claims("made up")] == [UNDERSTATED] * 4


def test_what_a_length_shows_is_no_more_than_there_is_and_no_less_than_an_attack() -> None:
    law = {1.0: 0.5, 0.25: 0.5}
    assert shown(law, law, 30, 1e-5).lower == pytest.approx(0, abs=1e-9)
    draw = np.random.default_rng(3)
    lengths = [scale * np.sqrt(draw.chisquare(50, 4000)) for scale in (1.5, 1.0)]
    seen = attacked(lengths[0], lengths[1], delta=1e-3).lower
    assert 1 < seen < shown({1.5: 1.0}, {1.0: 1.0}, 50, 1e-3).lower


def test_far_is_more_than_half_above() -> None:
    assert judged(1.6, 1.0, 1.001) == FAR
