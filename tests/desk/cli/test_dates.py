"""Until when a sum is open, as people write it."""

from __future__ import annotations

import pytest

from hubbub.core.errors import UserError
from hubbub.desk.cli.main import _parser
from hubbub.site.collected.collection_run import DAY, HOUR, next_reminder


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-12-24", 1798156800.0),
        ("2026-12-24T18:00", 1798135200.0),
        ("2026-12-24T18:00+01:00", 1798131600.0),
    ],
)
def test_a_date_is_its_end_and_a_time_is_utc(text: str, seconds: float) -> None:
    assert _parser().parse_args(["serve", "study.toml", "--until", text]).until == seconds


def test_what_is_no_date_is_refused() -> None:
    with pytest.raises(UserError, match="--until: expected a date such as"):
        _parser().parse_args(["serve", "study.toml", "--until", "christmas"])


@pytest.mark.parametrize("text", ["0001-01-01", "1969-12-30", "0001-01-01T00:00+05:00"])
def test_a_date_before_all_computers_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--until: expected a date in the future"):
        _parser().parse_args(["serve", "study.toml", "--until", text])


def test_people_are_reminded_before_the_date_and_daily_after_it() -> None:
    until, now, times = 20 * DAY, 0.0, []
    while now < until + 3 * DAY:
        now = next_reminder(now, until)
        times.append((until - now) / HOUR)
    assert times == [336, 168, 72, 24, 6, 1, 0, -24, -48, -72]
