"""Coefficients of every kind of target among machines: over a relay, after absences and deaths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.learning.coefficients.made_up import COLUMNS, LOGARITHM, STAGES
from tests.learning.validation.made_up import SILOS, TARGETS, write_silos

from hubbub.core.verification.replay.checking import verify
from hubbub.learning.queries.coefficients.coefficients_query import (
    COEFFICIENT_SUMS,
    COEFFICIENTS,
    CoefficientsQuery,
)
from hubbub.learning.runs.result import Result
from network.consortium import Consortium, table
from network.lines import over_nats
from network.relay import HASTY, Watched
from network.test_statistics_apart import without

pytest.importorskip("nats", reason="needs the extra net")

EVERY = {
    "two classes": {"data": {"target": "died"}},
    "several classes": {"data": STAGES, "model": {"outputs": 3}},
    "counts": {"data": {"target": TARGETS["count"]}},
    "amounts": {"data": {"target": TARGETS["numeric"]}},
    "logarithms": {"data": LOGARITHM},
    "times": {"data": {"target": TARGETS["time-to-event"]}, "model": {"outputs": 4}},
}
QUANTITIES = {
    "two classes": {"odds ratio"},
    "several classes": {"odds ratio"},
    "counts": {"rate ratio"},
    "amounts": {"slope", "difference"},
    "logarithms": {"ratio of geometric means"},
    "times": {"hazard ratio"},
}


def asking(home: Path, kind: str, nodes: int = 0, *, dropouts: int = 0, sums: int = 2) -> Any:
    """A study of a model and its coefficients, and its files where each silo has its own."""
    write_silos(home / "files")
    for name in SILOS:
        (home / name).mkdir()
        (home / "files" / f"{name}.csv").rename(home / name / f"{name}.csv")
    made = table(SILOS, nodes, privacy={"epsilon": 40.0}, parties={"dropouts": dropouts})
    made["training"] = {"steps": 20, "sampling": "full-batch", "sample_rate": 1}
    columns = {name: COLUMNS[name] for name in ("age", "sex")}
    made["data"] = {"files": "{name}.csv", "records": 2000, "columns": columns}
    made["model"] = {"kind": "logistic"}
    for name, keys in EVERY[kind].items():
        made[name] |= keys
    return made | {"coefficients": {"epsilon": 30.0, "sums": sums}}


def check(home: Path, result: Result, kind: str) -> None:
    """What was told is in the folder, is about the right thing, and is made again."""
    (answer,) = result.statistics.values()
    assert {row.quantity for row in answer.rows} == QUANTITIES[kind], answer.refusal
    told = json.loads((home / "run" / COEFFICIENTS).read_text())["statistics"]
    assert list(told.values()) == [json.loads(json.dumps(answer.to_dict()))]
    claims = verify(home / "run")
    assert any(COEFFICIENTS in one.claim for one in claims)
    assert all(one.holds for one in claims)


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY)
def test_every_kind_of_target_has_its_coefficients_over_a_relay(tmp_path: Path, kind: str) -> None:
    parties = Watched.gather(tmp_path, asking(tmp_path, kind))
    with over_nats(tmp_path, parties) as (carrier, _):
        result = parties.serve(carrier.phase, timeouts=HASTY)
    check(tmp_path, result, kind)
    assert parties.broken == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sums"), [("amounts", 1), ("counts", 2)])
def test_with_nodes_they_are_told_though_a_silo_drops_out(
    tmp_path: Path, kind: str, sums: int
) -> None:
    parties = Consortium.gather(tmp_path, asking(tmp_path, kind, 2, dropouts=1, sums=sums))
    result = parties.serve(without(SILOS[3], parties.phase))
    assert result.plan.planned("coefficients").mechanism.steps == (1 if sums == 1 else 8)
    check(tmp_path, result, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["counts", "several classes"])
def test_who_dies_between_two_sums_goes_on_with_the_second_from_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    parties = Consortium.gather(tmp_path, asking(tmp_path, kind))
    store = CoefficientsQuery.store

    def die(query: CoefficientsQuery, folder: Path, state: Any) -> None:
        store(query, folder, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CoefficientsQuery, "store", die)
        with pytest.raises(KeyboardInterrupt):
            parties.serve()
    before = kept(tmp_path)
    result = parties.serve()
    check(tmp_path, result, kind)
    layout, after = result.plan.planned("coefficients").query.layout, kept(tmp_path)
    assert (layout.made(before), layout.made(after)) == (1, 8)
    assert np.array_equal(layout.sums(before)[0], layout.sums(after)[0])
    places = [np.split(layout.parameters(one), 2)[0] for one in (before, after)]
    assert np.array_equal(*places)


def kept(home: Path) -> np.ndarray:
    """How many sums there are, where they were taken, and they."""
    return np.array(json.loads((home / "run" / COEFFICIENT_SUMS).read_text())["kept"], np.float32)
