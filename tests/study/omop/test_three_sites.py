"""A made-up OMOP at three sites, two with PostgreSQL and one with DuckDB, to its answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from hubbub import Study, run
from hubbub.study.omop import made_up

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "omop.md"


def the_study() -> str:
    """The study of the page."""
    (found,) = re.findall(
        r"```toml\n(\[study\]\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    return str(found)


def test_three_sites_come_to_a_table_1_a_survival_curve_and_a_model(
    postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    lines = []
    for seed, name in enumerate(("north", "south")):
        url = postgresql.made(f"omop_{name}")
        with postgresql.owner(f"omop_{name}") as opened, opened.cursor() as cursor:
            made_up.write(cursor.execute, made_up.rows(150, seed), "%s")
            cursor.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        lines += [f"[{name}]", f'url = "{url}"']
    with duckdb.connect("west.duckdb") as opened:
        made_up.write(opened.execute, made_up.rows(150, 2))
    lines += ["[west]", 'url = "duckdb:///west.duckdb"']
    Path("sources.toml").write_text("\n".join(lines))
    Path("sources.toml").chmod(0o600)
    text = the_study().replace("steps = 60", "steps = 3")
    result = run(Study.parse(text), tmp_path / "run", ledgers=tmp_path / "ledgers")
    assert (tmp_path / "run" / "model.safetensors").is_file()
    answers = json.loads((tmp_path / "run" / "statistics.json").read_text())
    assert {"characteristics", "survival"} <= set(json.dumps(answers).split('"'))
    assert (tmp_path / "run" / "tables" / "characteristics.csv").is_file()
    assert (tmp_path / "run" / "tables" / "survival-curves.csv").is_file()
    assert result is not None
    kept = tmp_path / "extracts"
    assert len(list(kept.iterdir())) == 3
    left = [path for path in tmp_path.rglob("*") if path.is_file() and kept not in path.parents]
    secret = re.compile(rb"postgresql://")
    assert not [
        path.name
        for path in left
        if path.name != "sources.toml" and secret.search(path.read_bytes())
    ]
