"""Statistics of patients: each counts once, with the mean of what its records say (P21, P23)."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.estimation.asking.made_up import COLUMNS, KINDS, SILOS, patients, table_of_study

import hubbub
from hubbub import Study
from hubbub.core.errors import DataError
from hubbub.core.tabular.column import columns_from
from hubbub.core.tabular.table import coded_cells
from hubbub.estimation.queries.statistics_query import statistics_of
from hubbub.estimation.queries.sum_layout import StatisticTask, pooled
from hubbub.estimation.stacking import Stacked

MOST = 3


def asking(folder: Path, **asked: dict[str, Any]) -> Study:
    table = table_of_study(folder, **asked)
    data = {**table["data"], "patient": "who", "most_per_patient": MOST, "records": 600}
    return Study.from_table({**table, "data": data})


def task(whose: Sequence[int], table: dict[str, list[Any]], *names: str) -> StatisticTask:
    study = asking(Path("nowhere"), **{name: KINDS[name] for name in names})
    texts = {name: [str(cell) for cell in cells] for name, cells in table.items()}
    texts["who"] = [f"p{one}" for one in whose]
    cells = coded_cells(
        {**texts, "sex": [t if t != "?" else "" for t in texts["sex"]]},
        columns_from(COLUMNS),
        "north.csv",
        patient="who",
        most=MOST,
    )
    return StatisticTask(statistics_of(study).layout, cells, 200)


def total(one: StatisticTask, rows: Sequence[int]) -> np.ndarray:
    return one.clipped_sum(one._layout.start, np.array(rows, dtype=np.intp))


def test_p23_a_patients_part_is_the_mean_of_the_first_records_parts():
    rng = np.random.default_rng(5)
    table, whose = patients(1, 60), rng.integers(0, 25, 60)
    kinds = ("table", "quantiles", "survival", "cox on numbers")
    whole, singles = task(whose, table, *kinds), task(range(60), table, *kinds)
    for number, name in enumerate(dict.fromkeys(whose.tolist())):
        mine = np.flatnonzero(whose == name)[:MOST]
        expected = np.mean([total(singles, [row]) for row in mine], axis=0)
        np.testing.assert_allclose(total(whole, [number]), expected, atol=1e-6)


def test_p23_all_records_of_a_patient_at_once_move_a_sum_by_one_at_most():
    rng = np.random.default_rng(6)
    for seed in range(30):
        table, whose = patients(seed, 40), rng.integers(0, 12, 40)
        kinds = ("table", "quantiles", "crosstab", "survival", "linear", "cox on numbers")
        made = task(whose, table, *kinds)
        everybody = [*range(made.count)]
        gone = total(made, everybody) - total(made, [*everybody[1:], -1])
        assert np.linalg.norm(gone) <= 1


def test_p19_a_sum_is_made_of_a_public_number_of_records(monkeypatch: pytest.MonkeyPatch):
    seen, honest = [], Stacked.encode

    def spied(stacked: Stacked, cells: Any, parameters: Any = None) -> Any:
        seen.append(len(next(iter(cells.values()))))
        return honest(stacked, cells, parameters)

    monkeypatch.setattr(Stacked, "encode", spied)
    for number in (0, 1, 40):
        made = task([row // 2 for row in range(number)], patients(3, number), "table")
        held = [*range(made.count)]
        total(made, held + [-1] * (50 - made.count))
    assert seen == [50 * MOST] * 3


def test_empty_rows_add_nothing():
    made = task([0, 0, 1], patients(4, 3), "table", "survival")
    assert np.array_equal(total(made, [0, 1]), total(made, [0, -1, 1, -1, -1]))
    assert not total(made, [-1, -1]).any()


def test_a_patients_column_that_is_not_in_the_file_is_named():
    cells = {name: [str(cell) for cell in cells] for name, cells in patients(1, 3).items()}
    cells["sex"] = ["male"] * 3
    with pytest.raises(DataError, match=r"expected a column 'who' in north\.csv, found none"):
        coded_cells(cells, columns_from(COLUMNS), "north.csv", patient="who", most=MOST)


def test_all_silos_tables_together_are_the_sum_of_theirs():
    study = asking(Path("nowhere"), table=KINDS["table"])
    tables = [
        coded_cells(
            {
                **{
                    name: [str(cell) for cell in cells] for name, cells in patients(seed, 9).items()
                },
                "sex": ["male"] * 9,
                "who": ["a", "b", "a", "c", "c", "c", "c", "d", "e"],
            },
            columns_from(COLUMNS),
            "file",
            patient="who",
            most=MOST,
        )
        for seed in range(3)
    ]
    layout, apart = statistics_of(study).layout, 0.0
    for one in tables:
        apart = apart + total(StatisticTask(layout, one, 9), range(5))
    together = StatisticTask(layout, pooled(tables), 27)
    assert together.count == 15
    np.testing.assert_allclose(total(together, range(15)), apart, atol=1e-9)


def test_a_run_counts_patients(tmp_path: Path):
    for seed, name in enumerate(SILOS):
        table = {"who": [f"p{row // 2}" for row in range(400)], **patients(seed)}
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))
    asked = {"kind": "table", "columns": ["age"]}
    found = hubbub.run(asking(tmp_path, baseline=asked), tmp_path / "run").statistics["baseline"]
    told = json.loads((tmp_path / "run" / "statistics.json").read_text())
    assert told["unit"] == "patient"
    records = next(row for row in found.rows if row.quantity == "records")
    assert abs(records.value - 600) <= 6 * records.standard_error < 60
    blank = (tmp_path / "north.csv").read_text().replace("p7,", ",", 1)
    (tmp_path / "north.csv").write_text(blank)
    with pytest.raises(DataError, match="expected a patient"):
        hubbub.run(asking(tmp_path, baseline=asked))
