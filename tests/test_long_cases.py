"""The lists of cases that take long, in `conftest.py`, against the tests that there are."""

from __future__ import annotations


def test_what_is_called_long_or_quick_is_a_test(unknown_cases: list[str]) -> None:
    assert unknown_cases == []
