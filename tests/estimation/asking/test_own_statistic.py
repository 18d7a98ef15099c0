"""A statistic that is no part of hubbub: one class gets plan, run, verification and report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import numpy as np
import pytest
from tests.estimation.asking.made_up import study, write_silos

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.settings import number
from hubbub.core.study.study_file import json_schema
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells
from hubbub.core.verification.replay.checking import verify
from hubbub.estimation import kinds
from hubbub.estimation.histogram import Histogram
from hubbub.estimation.kinds import register
from hubbub.estimation.statistic import Answer, Estimate, Expectation, OneSum
from hubbub.estimation.statistic_keys import COLUMN, StatisticKeys

TOO_NOISY = "too few records for the noise"


@dataclass(frozen=True, kw_only=True)
class Above(OneSum):
    """How many records have more than so much of a column."""

    column: Column
    than: float

    kind = "above"
    keys: ClassVar = {"column": COLUMN, "than": number(0, 100, "How much is exceeded.")}
    methods = "records above a limit were counted"
    title, size, sensitivity, diameter = "Records above a limit", 1, 1.0, 1.0

    @classmethod
    def read(cls, keys: StatisticKeys) -> Above:
        column = keys.column("column", numeric=True)
        low, high = column.bounds
        than = keys.section.number("than", None, least=low, most=high)
        return cls(column=column, than=than, **keys.common)

    def settings(self) -> dict[str, Any]:
        return {"column": self.column.name, "than": self.than}

    def encode(self, cells: Cells) -> Array:
        return (cells[self.column.name] > self.than).astype(np.float64)[:, None]

    def expected(self, records: float, sigma: float) -> Expectation:
        told = f"known to ±{sigma:.3g} records"
        return self.make_expectation({"records": sigma}, sigma, told, answered=records > 20 * sigma)

    def answer(self, sums: Array, sigma: float) -> Answer:
        if sums[0] < 3 * sigma:
            return self.make_answer(TOO_NOISY)
        value, reach = float(sums[0]), 1.96 * sigma
        ends = {"low": value - reach, "high": value + reach}
        row = Estimate(quantity="records", value=value, standard_error=sigma, **ends)
        return self.make_answer(rows=(row,))


@pytest.fixture
def above() -> Iterator[dict[str, Any]]:
    register(Above)
    yield {"kind": "above", "column": "age", "than": 50}
    del kinds.KINDS["above"]


@pytest.mark.slow
def test_a_statistic_of_ones_own_is_planned_asked_verified_and_shown(
    tmp_path: Path, above: dict[str, Any]
) -> None:
    write_silos(tmp_path)
    asked = study(tmp_path, old=above)
    assert hubbub.Study.parse(asked.as_toml()).id == asked.id
    result = hubbub.run(asked, tmp_path / "run")
    (row,) = result.statistics["old"].rows
    assert 800 < row.value < 1000  # of 1,200, of whom three in four are above 50
    findings = verify(tmp_path / "run")
    assert all(one.holds for one in findings)
    assert any("sums.json follows from the sums" in one.claim for one in findings)
    assert "Records above a limit" in result.report().read_text()


def test_its_keys_are_in_the_schema(above: dict[str, Any]) -> None:
    schema = jsonschema.Draft202012Validator(json_schema()["properties"]["statistics"])
    assert schema.is_valid({"epsilon": 1.0, "old": above})
    assert not schema.is_valid({"epsilon": 1.0, "old": {**above, "than": "much"}})


def test_without_its_class_nobody_can_read_such_a_study(above: dict[str, Any]) -> None:
    text = study(Path(), old=above).as_toml()
    del kinds.KINDS["above"]
    with pytest.raises(StudyError, match=r'statistics\.old\.kind to be one of "table"'):
        hubbub.Study.parse(text)
    register(Above)


def test_no_two_statistics_have_one_kind() -> None:
    class Other(Histogram):
        kind = "table"

    with pytest.raises(StudyError, match='a name of its own, got "table"'):
        register(Other)
