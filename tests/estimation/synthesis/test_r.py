"""The page's lines for R, run by R where it is installed: they combine tables as hubbub does."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hubbub
from hubbub.estimation.queries.synthesis_query import records_text
from hubbub.estimation.synthesis.release import example

PAGE = Path(__file__).parents[3] / "docs" / "synthetic.md"
RSCRIPT = shutil.which("Rscript")


def slope(age: np.ndarray, died: np.ndarray) -> float:
    """Of a logistic regression, by Newton's steps."""
    features, found = np.column_stack((np.ones(len(age)), age)), np.zeros(2)
    for _ in range(30):
        chance = 1 / (1 + np.exp(-features @ found))
        information = (features * (chance * (1 - chance))[:, None]).T @ features
        found = found + np.linalg.solve(information, features.T @ (died - chance))
    return float(found[1])


@pytest.mark.slow
@pytest.mark.skipif(RSCRIPT is None, reason="R is not installed")
def test_r_combines_tables_as_hubbub_does(tmp_path: Path) -> None:
    (lines,) = re.findall(r"^```r\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "tables").mkdir()
    slopes = []
    for number, table in enumerate(example().tables(), 1):
        (tmp_path / "tables" / f"table-{number}.csv").write_text(records_text(table))
        died = np.array([one == "yes" for one in table["died"]], float)
        slopes.append(slope(np.array(table["age"], float), died))
    (tmp_path / "page.R").write_text(lines)
    told = subprocess.run(
        [str(RSCRIPT), "page.R"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    found = [float(one) for one in told.stdout.split()[1:]]
    expected = hubbub.combine(slopes)
    assert found == pytest.approx([expected.low, expected.value, expected.high], rel=1e-5)
