"""Made-up patients, and studies that train a linear model of them and ask for its effects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.learning.validation.made_up import SILOS, write_silos
from tests.learning.validation.made_up import table_of as scored_table

from hubbub import Study

__all__ = ["SILOS", "study_of", "table_of", "write_silos"]
COLUMNS: dict[str, Any] = {
    "age": {"low": 20, "high": 90},
    "sex": {"categories": ["F", "M"]},
    "ward": {"categories": ["a", "b", "c"], "default": "a", "indicator": True},
}
STAGES: dict[str, Any] = {"target": "stage", "classes": ["I", "II", "III"]}
LOGARITHM: dict[str, Any] = {
    "target": {"column": "pressure", "kind": "numeric", "low": 20, "high": 100, "scale": "log"}
}


def table_of(folder: Path, kind: str = "classes", **changed: Any) -> dict[str, Any]:
    """A study's tables; `changed` replaces keys of them."""
    made = scored_table(folder, kind, data={"columns": COLUMNS}, privacy={"epsilon": 24.0})
    del made["validation"]
    made["coefficients"] = {"epsilon": 16.0}
    for name, keys in changed.items():
        made[name] = {**made.get(name, {}), **keys}
    return made


def study_of(folder: Path, kind: str = "classes", **changed: Any) -> Study:
    """The study."""
    return Study.from_table(table_of(folder, kind, **changed))
