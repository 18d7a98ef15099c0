"""Targets that are no classes: how a study states them, and what becomes of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hubbub
from hubbub import Study
from hubbub.core.errors import DataError, ModelError, StudyError
from hubbub.core.study.silo_records import statistic_cells
from hubbub.core.tabular.records import Records
from hubbub.core.tabular.table import encode_table
from hubbub.core.tabular.target import Outcome, refuse_other_targets
from hubbub.desk.cli.main import main
from hubbub.desk.drafting.table_check import checked
from hubbub.desk.report.comparison import compare, rehearse
from hubbub.learning.metric_words import words_of
from hubbub.learning.runs.trained_model import load

AMOUNT = {"kind": "numeric", "column": "y", "low": 0, "high": 20}
COUNT = {"kind": "count", "column": "y", "high": 20}
TIMES = {"kind": "time-to-event", "time": "y", "event": "died", "grid": [1, 2, 3, 4, 6]}
SILOS = ("east", "north", "west")
EXPOSED = COUNT | {"exposure": "years", "exposure_high": 4, "mean": 0.5}
LINKED = AMOUNT | {"scale": "log-link", "mean": 3}
VISITS = TIMES | {"step": 0.5}
METRIC = {"numeric": "rmse", "count": "poisson_deviance", "time-to-event": "c_index"}


def study_of(target: Any, *, model: Any = (), training: Any = (), data: Any = (), **more: Any):
    return Study(
        name="targets",
        parties={"names": list(SILOS), "colluders": 1},
        data={"files": "{name}.csv", "target": target, "records": 900, "capacity": 400}
        | {"columns": {f"x{k}": {"low": -1, "high": 1} for k in range(3)}}
        | dict(data),
        model={"kind": "logistic"} | dict(model),
        training={"steps": 30, "sample_rate": 0.3} | dict(training),
        privacy={"epsilon": 4.0, "delta": 1e-5},
        **more,
    )


def columns_of(kind: str, count: int, seed: int) -> dict[str, np.ndarray]:
    """A table whose first feature says much of the target, and the second a little."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (count, 3))
    table = {f"x{k}": x[:, k].round(4) for k in range(3)}
    says = x[:, 0] + 0.3 * x[:, 1]
    if kind == "numeric":
        return table | {"y": (10 + 6 * says + random.normal(0, 0.5, count)).round(3)}
    if kind == "count":
        return table | {"y": random.poisson(np.exp(1 + says))}
    time, end = random.exponential(3 * np.exp(-2 * says)), random.exponential(8, count)
    return table | {"y": np.minimum(time, end).round(3), "died": (time <= end).astype(int)}


def written(folder: Path, kind: str) -> Path:
    """A file for each silo and the public test set."""
    for seed, name in enumerate((*SILOS, "test")):
        table = columns_of(kind, 300, seed)
        rows = zip(*(column.tolist() for column in table.values()), strict=True)
        lines = [",".join(table), *(",".join(map(str, row)) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


# What a study says -----------------------------------------------------------------------------


@pytest.mark.parametrize("target", [AMOUNT, COUNT, TIMES, EXPOSED, LINKED, VISITS])
def test_a_target_is_written_to_the_file_and_changes_the_id(target) -> None:
    made = study_of(target)
    assert Study.parse(made.as_toml()).id == made.id
    assert made.data.outcome is not None
    assert made.id != study_of("y").id


def test_a_class_may_be_said_either_way() -> None:
    assert study_of({"kind": "class", "column": "y"}).id == study_of("y").id


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"column": "y"}, r"data\.target\.kind"),
        ({"kind": "ordinal", "column": "y"}, r"data\.target\.kind to be one of"),
        (AMOUNT | {"low": 20}, r"data\.target\.high to be above low = 20, got 20"),
        ({"kind": "numeric", "column": "y", "low": 0}, r"data\.target\.high"),
        ({"kind": "numeric", "low": 0, "high": 1}, r"data\.target\.column"),
        (AMOUNT | {"grid": [1, 2]}, r'data\.target\.grid to be absent for kind = "numeric"'),
        (COUNT | {"low": 1}, r'data\.target\.low to be absent for kind = "count"'),
        (COUNT | {"high": 0}, r"data\.target\.high to be a number from 1"),
        (COUNT | {"high": float("nan")}, r"data\.target\.high to be a number"),
        (TIMES | {"event": "y"}, r"data\.target\.event to be another column"),
        (TIMES | {"event": ""}, r"data\.target\.event to be another column"),
        (TIMES | {"grid": [2, 1]}, r"data\.target\.grid to be 2 to 1000 rising times"),
        (TIMES | {"grid": [1, True]}, r"data\.target\.grid"),
        (TIMES | {"grid": [1]}, r"data\.target\.grid"),
        (TIMES | {"grid": [0, 1]}, r"data\.target\.grid"),
        (TIMES | {"positive": []}, r"data\.target\.positive to be at least one spelling"),
        (TIMES | {"positive": ["0"]}, r"data\.target\.negative to be spellings that positive"),
        (COUNT | {"exposure": "y", "exposure_high": 3}, r"data\.target\.exposure to be another"),
        (COUNT | {"exposure": "years"}, r"data\.target\.exposure_high"),
        (COUNT | {"exposure_high": 3}, r"data\.target\.exposure to be another"),
        (COUNT | {"exposure": "years", "exposure_high": 0}, r"data\.target\.exposure_high"),
        (COUNT | {"mean": 0}, r"data\.target\.mean to be above 0"),
        (COUNT | {"mean": 21}, r"data\.target\.mean to be above 0 and from 0 to 20"),
        (AMOUNT | {"mean": -1}, r"data\.target\.mean to be from 0 to 20"),
        (AMOUNT | {"scale": "log"}, "log-link"),
        (AMOUNT | {"low": 1, "scale": "log-link"}, r"data\.target\.low to be 0"),
        (AMOUNT | {"exposure": "years"}, r"data\.target\.exposure to be absent"),
        (TIMES | {"step": 2}, r"data\.target\.step to be at most"),
        (TIMES | {"step": 0}, r"data\.target\.step"),
        (TIMES | {"positives": ["x"]}, r"data\.target\].*positive\?"),
    ],
)  # fmt: skip
def test_a_target_that_makes_no_sense_is_refused_by_its_key(target, says) -> None:
    with pytest.raises(StudyError, match=says):
        study_of(target)


@pytest.mark.parametrize(
    ("target", "more", "says"),
    [
        (AMOUNT, {"model": {"outputs": 2}}, r"model\.outputs = 1 for a target of kind"),
        (TIMES, {"model": {"outputs": 4}}, r"model\.outputs = 1 \(proportional odds\) or 5"),
        (TIMES, {"model": {"kind": "python:a:b"}}, r"model\.outputs = 5, one for each time"),
        (COUNT, {"model": {"loss": "huber"}}, "it is for amounts"),
        ("y", {"model": {"loss": "huber"}}, "for a target of classes"),
        (AMOUNT, {"model": {"loss": "hinge"}}, r"model\.loss to be"),
        (AMOUNT, {"training": {"metrics": ["sklearn:f"]}}, r"training\.metrics to be"),
        (AMOUNT, {"training": {"metrics": ["python:a:f", "python:b:f"]}}, "names of their own"),
        (AMOUNT, {"data": {"positive": ["1"], "negative": ["0"]}}, r"data\.positive to be absent"),
        (TIMES, {"data": {"columns": {"died": {"low": 0, "high": 1}}}}, r"none of data\.columns"),
        (EXPOSED, {"coefficients": {"epsilon": 1.0}}, r"no \[coefficients\] of a count with"),
        (LINKED, {"coefficients": {"epsilon": 1.0}}, "an amount with a log link"),
        (COUNT | {"mean": 2}, {"coefficients": {"epsilon": 1.0}}, r"beside data\.target\.mean"),
        (LINKED, {"model": {"loss": "huber"}}, "learn less than the mean"),
        (COUNT | {"mean": 2}, {"model": {"intercept": 1}}, "leave one of them out"),
        (AMOUNT, {"code": {"python:a:b": "00" * 32}}, "code that the study names"),
        (AMOUNT, {"code": {"python:a:b": "00"}}, "64 small hexadecimal digits"),
    ],
)
def test_a_target_that_does_not_fit_the_rest_is_refused(target, more, says) -> None:
    with pytest.raises(StudyError, match=says):
        study_of(target, **more)


# What becomes of cells -------------------------------------------------------------------------


def encoded(outcome: Outcome, *cells: str, events: list[str] | None = None) -> np.ndarray:
    table = {"x": ["0"] * len(cells), "y": list(cells)}
    table |= {"died": events} if events else {}
    return encode_table(table, target="y", outcome=outcome).targets


def test_cells_become_numbers_in_their_own_unit() -> None:
    amount = Outcome(kind="numeric", low=0, high=1)
    assert encoded(amount, "-7", "1e3", " 2.5").tolist() == [-7, 1000, 2.5]
    count = Outcome(kind="count", high=3)
    assert encoded(count, "0", "4.0", "17").tolist() == [0, 4, 17]
    times = study_of(TIMES | {"positive": ["dead"], "negative": ["alive", "lost"]}).data.outcome
    found = encoded(times, "0", "2.5", "99", events=["dead", "alive", "lost"])
    assert found.tolist() == [[0, 1], [2.5, 0], [99, 0]]
    assert found.dtype == np.float64


@pytest.mark.parametrize(
    ("outcome", "cell", "says"),
    [
        (AMOUNT, "", "expected a target in table, column 'y', row 1 after the header"),
        (AMOUNT, "nan", "expected a number .*row 1.*found something that is no number"),
        (AMOUNT, "1e400", "no number"),
        (COUNT, "-1", "expected a whole number from 0 .*found a negative number"),
        (COUNT, "1.5", "found a number with a fraction"),
        (TIMES, "-0.1", "expected a time from 0 .*found a negative number"),
        (TIMES, "inf", "no number"),
        (LINKED, "-1", "found a negative number"),
    ],
)
def test_a_cell_that_is_no_target_is_refused_and_not_quoted(outcome, cell, says) -> None:
    with pytest.raises(DataError, match=says) as refused:
        encoded(study_of(outcome).data.outcome, cell, events=["1"])
    assert not cell or repr(cell) not in str(refused.value)


def test_an_event_of_no_known_spelling_is_refused() -> None:
    with pytest.raises(DataError, match=r"data\.target\.positive or data\.target\.negative lists"):
        encoded(study_of(TIMES).data.outcome, "1", events=["perhaps"])


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        (np.array([[1.0, -0.5]]), "from 0"),
        (np.array([[-1.0, 1.0]]), "from 0"),
        (np.array([[np.nan, 1.0]]), "finite"),
        (np.array([[1.0, 1.0]], dtype=np.float32), "two-dimensional|dimensions"),
        (np.array([[1.0, 1.0, 1.0]]), "dimensions"),
    ],
)
def test_records_refuse_targets_that_no_loss_takes(targets, says) -> None:
    with pytest.raises(DataError, match=says):
        Records(inputs=np.zeros((1, 2), dtype=np.float32), targets=targets)


@pytest.mark.parametrize(
    ("target", "targets"),
    [
        ("y", np.ones(2)),
        (AMOUNT, np.ones(2, dtype=np.float32)),
        (AMOUNT, np.ones((2, 2))),
        (COUNT, np.array([0.5, 1.0])),
        (COUNT, np.array([-1.0, 1.0])),
        (TIMES, np.ones(2)),
        (TIMES, np.array([[1.0, 0.5]])),
        (EXPOSED, np.ones(2)),
        (EXPOSED, np.array([[1.0, 0.0]])),
        (EXPOSED, np.array([[0.5, 1.0]])),
        (LINKED, np.array([-1.0, 1.0])),
    ],
)
def test_a_functions_targets_must_be_of_the_studys_kind(target, targets) -> None:
    outcome = study_of(target).data.outcome
    with pytest.raises(DataError, match="as the study's target says, found others"):
        refuse_other_targets(outcome, targets, "north")


# From end to end -------------------------------------------------------------------------------

# 40 runs reached 0.65 (deviation 0.08), 1.29 (0.035) and 0.768 (0.002), so these are more than 8
# deviations away; a model that knows nothing has 3.3, 1.96 and 0.5.
REACHED = {"numeric": 1.6, "count": 1.6, "time-to-event": 0.68}


@pytest.mark.slow
@pytest.mark.parametrize("target", [AMOUNT, COUNT, TIMES], ids=METRIC)
def test_every_kind_of_target_is_learned(tmp_path, monkeypatch, target) -> None:
    monkeypatch.chdir(written(tmp_path, target["kind"]))
    asked = {"evaluate": {"every": 30, "epsilon": 1.0, "holdout": 0.2}}
    study = study_of(target, data={"test": "test.csv"}, training=asked)
    result = hubbub.run(study, tmp_path / "run")
    metric, sign = METRIC[target["kind"]], -1 if target["kind"] == "time-to-event" else 1
    assert sign * result.final[metric] < sign * REACHED[target["kind"]]
    held_back = {"time-to-event": "held_back_hazard_brier"}.get(target["kind"], "held_back_rmse")
    assert held_back in result.final
    page = (tmp_path / "run" / "report.html").read_text()
    assert words_of(metric).name in page
    trained = load(tmp_path / "run")
    found = trained.predict("test.csv")
    assert found.shape == ((300, 5) if target is TIMES else (300,))
    assert main(["predict", str(tmp_path / "run"), "test.csv", "--out", "scores.csv"]) == 0
    header = Path("scores.csv").read_text().splitlines()[0]
    assert header == ("row,predicted" if target is not TIMES else "row," + ",".join(
        f"free of it after {time}" for time in TIMES["grid"]
    ))  # fmt: skip


@pytest.mark.parametrize("target", [AMOUNT, COUNT, TIMES], ids=METRIC)
def test_statistics_beside_a_model_may_be_of_its_target(tmp_path, target) -> None:
    """Its bounds are public, as those of other columns; several spellings of an event are one."""
    written(tmp_path, target["kind"])
    asked, high = {"kind": "histogram", "column": "y", "bins": 4}, 20
    if target is TIMES:
        target = TIMES | {"positive": ["1", "yes"], "negative": ["0"]}
        asked, high = {"kind": "survival", "time": "y", "event": "died", "bins": 6}, 6
        path = tmp_path / "east.csv"
        path.write_text(path.read_text().replace(",1\n", ",yes\n"))
    study = study_of(target, statistics={"epsilon": 1.0, "q": asked})
    assert Study.parse(study.as_toml()).id == study.id
    assert study.cell_columns["y"].bounds == (0, high)
    cells = statistic_cells(study, "east", folder=tmp_path).columns
    wanted = columns_of(target["kind"], 300, 0)
    assert np.array_equal(np.minimum(cells["y"], high), np.minimum(wanted["y"], high))
    if high == 6:  # who is followed past the grid has had no event on it, whatever came later
        [(_, curve)] = study.statistics.named
        events, _ = curve.sets.followed(cells)
        assert events.sum() == (wanted["died"] * (wanted["y"] <= 6)).sum()
        assert (wanted["died"] * (wanted["y"] > 6)).sum() > 10


@pytest.mark.slow
def test_a_free_form_has_an_output_for_each_interval(tmp_path, monkeypatch) -> None:
    """Of 8 rehearsals .73 and .75, with deviations of .012 and .015: ten of them above .6."""
    monkeypatch.chdir(written(tmp_path, "time-to-event"))
    proportional, free = (
        rehearse(
            study_of(
                TIMES, data={"test": "test.csv"}, model={"outputs": many}, training={"steps": 8}
            )
        )[0]
        for many in (1, 5)
    )
    assert proportional.plan.dimension == 3 + 1 + 5
    assert free.plan.dimension == (3 + 1) * 5
    assert min(proportional.final["c_index"], free.final["c_index"]) > 0.6


@pytest.mark.slow
def test_runs_are_compared_by_the_telling_metric_and_which_way_is_better(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(written(tmp_path, "numeric"))
    study = study_of(AMOUNT, data={"test": "test.csv"}, training={"steps": 5})
    Path("study.toml").write_text(study.as_toml())
    asked = ["compare", "study.toml", "--repeats", "2", "--baselines", "alone", "--out", "out"]
    assert main(asked) == 0
    assert "RMSE, mean of 2 runs, lower is better" in " ".join(capsys.readouterr().out.split())
    page = Path("out/report.html").read_text()
    assert "Test RMSE, lower is better" in page
    assert "a gain of" in page or "No clear difference" in page or "a loss of" in page
    with pytest.raises(StudyError, match="expected one of the metrics rmse, mae, got 'auc'"):
        compare(study, repeats=1, metric="auc", modes=("alone",))


@pytest.mark.slow
def test_fit_takes_targets_of_every_kind() -> None:
    def silo(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
        table = columns_of(kind, 60, seed)
        features = np.column_stack([table[f"x{k}"] for k in range(3)])
        targets = [table["y"], table["died"]] if kind == "time-to-event" else [table["y"]]
        return features, np.column_stack(targets).squeeze()

    for stated in (AMOUNT, COUNT, TIMES):
        kind = stated["kind"]
        target = {key: stated[key] for key in ("kind", "low", "high", "grid") if key in stated}
        silos = {name: silo(kind, seed) for seed, name in enumerate(SILOS)}
        result = hubbub.fit(silos, target=target, epsilon=3, steps=2, test=silo(kind, 9))
        assert METRIC[kind] in result.final
        assert len(result.predict(np.zeros((2, 3)))) == 2
    with pytest.raises(DataError, match="expected numbers as targets of east"):
        hubbub.fit(dict.fromkeys(SILOS, (np.ones((1, 3)), ["a"])), target=AMOUNT, epsilon=3)
    with pytest.raises(StudyError, match="expected target to be a mapping"):
        hubbub.fit(dict.fromkeys(SILOS, silo("numeric", 1)), target="numeric", epsilon=3)


@pytest.mark.slow
def test_rates_are_foretold_in_one_unit_and_for_a_rows_own_exposure(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(written(tmp_path, "count"))
    for name in SILOS:
        head, *rows = Path(f"{name}.csv").read_text().splitlines()
        rows = [f"{row},{1 + k % 5}" for k, row in enumerate(rows)]
        Path(f"{name}.csv").write_text("\n".join([f"{head},years", *rows]) + "\n")
    study = study_of(EXPOSED, training={"steps": 2})
    faults = checked(study, SILOS, Path())
    assert not any(fault.refused for fault in faults)
    assert any("60 of 300 exposures are above 4" in fault.what for fault in faults)
    trained = hubbub.run(study, tmp_path / "run").trained
    rates = trained.predict("east.csv")
    assert main(["predict", "run", "east.csv", "--out", "told.csv"]) == 0
    told = np.genfromtxt("told.csv", delimiter=",", names=True)
    np.testing.assert_allclose(told["rate"], rates, rtol=1e-5)
    np.testing.assert_allclose(told["predicted"], rates * (1 + np.arange(300) % 5), rtol=1e-5)
    short = Path("east.csv").read_text().replace(",3\n", ",0\n")
    Path("east.csv").write_text(short)
    assert any(
        fault.refused and fault.column == "years" for fault in checked(study, ["east"], Path())
    )
    with pytest.raises(DataError, match="an exposure above 0"):
        hubbub.run(study)


def test_check_notes_records_that_are_lost_within_an_interval_and_visits_off_the_grid(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)

    def said(times: np.ndarray, target: dict[str, Any]) -> str:
        died = random.random(len(times)) < 0.3
        lines = [f"{time:g},{int(one)},0,0,0" for time, one in zip(times, died, strict=True)]
        Path("east.csv").write_text("\n".join(["y,died,x0,x1,x2", *lines]))
        faults = checked(study_of(target), ["east"], Path())
        assert not any(fault.refused for fault in faults)
        return " ".join(fault.what for fault in faults)

    late = said(random.uniform(4, 6, 400), TIMES)
    assert "records leave observation after 4 and before 6, in one interval" in late
    spread = said(random.uniform(0, 6, 400), TIMES | {"grid": [1, 2, 3, 4, 5, 6]})
    assert "in one interval" not in spread
    visits = random.integers(1, 8, 400) * 0.75
    assert "7 values make up all times, and 6 of them are not times" in said(visits, TIMES)
    assert "make up all times" not in said(visits, TIMES | {"step": 0.75})
    assert "make up all times" not in said(random.integers(1, 5, 400), TIMES)
    assert "lie beyond the grid, which ends at 6" in said(random.uniform(0, 12, 400), TIMES)


# First drafts and checks -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("numeric", []),
        ("count", ["--kind", "count"]),
        ("time-to-event", ["--kind", "time-to-event", "--event", "died"]),
        ("time-to-event", ["--event", "died"]),
    ],
)
def test_init_drafts_a_study_of_every_kind_that_runs(
    tmp_path, monkeypatch, capsys, kind, more
) -> None:
    monkeypatch.chdir(written(tmp_path, kind))
    files = [f"{name}.csv" for name in SILOS]
    assert main(["init", *files, "--target", "y", *more, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["kind"], said["ready"]) == (kind, True)
    assert "data.target" in said["private"]
    made = Study.load("study.toml")
    assert made.data.outcome is not None
    assert made.data.outcome.kind == kind
    assert {column.name for column in made.data.columns} == {"x0", "x1", "x2"}
    assert all(not fault.refused for fault in checked(made, SILOS, Path()))
    assert main(["init", *files, "--target", "y", *more, "--tidy", "tidy", "--replace"]) == 0
    assert Path("tidy/east.csv").read_text().splitlines()[0].startswith("y,")


def test_init_says_what_it_cannot_learn_so(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(written(tmp_path, "numeric"))
    assert main(["init", "east.csv", "--target", "y", "--kind", "time-to-event"]) == 2
    assert "expected --event to name a column of every file" in capsys.readouterr().err
    Path("words.csv").write_text("y,x\n" + "".join(f"w{k},{k}\n" for k in range(40)))
    assert main(["init", "words.csv", "--target", "y", "--kind", "numeric"]) == 2
    assert "expected numbers in the target 'y'" in capsys.readouterr().err
    assert main(["init", "words.csv", "--target", "y"]) == 2
    assert "use --kind numeric, count or time-to-event" in capsys.readouterr().err


def test_check_lists_every_cell_that_a_run_refuses(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = ["1,1", "2.5,0", ",1", "-3,1", "x,0", "99,1", "4,perhaps", *["3,1"] * 20]
    text = "y,died,x0,x1,x2\n" + "".join(f"{row},0,0,0\n" for row in rows)
    for name in SILOS:
        Path(f"{name}.csv").write_text(text)
    made = study_of(TIMES)
    faults = checked(made, SILOS[:1], Path())
    refused = [(fault.column, fault.row) for fault in faults if fault.refused]
    assert sorted(refused) == [("died", 7), ("y", 3), ("y", 4), ("y", 5)]
    assert all(fault.refused for fault in faults)  # one time is beyond the grid, as many may be


# A loss and metrics of one's own ---------------------------------------------------------------

OWN = """
import torch
from pathlib import Path

def absolute(outputs, targets):
    return (outputs - targets).abs()

def mixing(outputs, targets):
    return (outputs - targets - outputs.mean()) ** 2

def mixing_little(outputs, targets):
    return 1e-12 * mixing(outputs, targets)

def summed(outputs, targets):
    return ((outputs - targets) ** 2).sum()

def endless(outputs, targets):
    return (outputs - targets) / 0

def raising(outputs, targets):
    raise OSError("of no use")

def within_one(targets, predictions):
    return (abs(targets - predictions) <= 1).mean()

def words(targets, predictions):
    return "very good"
"""


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """A module of a user's beside the files."""
    (tmp_path / "centre_code.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "centre_code", raising=False)
    monkeypatch.chdir(written(tmp_path, "numeric"))
    return tmp_path


def with_own(loss: str = "", metrics: tuple[str, ...] = (), **more: Any) -> Study:
    model = {"loss": f"python:centre_code:{loss}"} if loss else {}
    named = [f"python:centre_code:{name}" for name in metrics]
    training = {"metrics": named} if named else {}
    return study_of(AMOUNT, data={"test": "test.csv"}, model=model, training=training, **more)


@pytest.mark.slow
def test_a_loss_and_a_metric_of_ones_own_are_used_and_named(own, capsys) -> None:
    study = with_own("absolute", ("within_one",))
    assert study.own_code == ("python:centre_code:absolute", "python:centre_code:within_one")
    assert study.id != with_own().id
    result = hubbub.run(study, own / "run")
    assert 0 <= result.final["within_one"] <= 1
    # The unit of the loss is half the range of 20.
    assert result.final["loss"] == pytest.approx(result.final["mae"] / 10, rel=1e-3)
    assert result.final["rmse"] < 2.0  # 40 runs: 0.66 with a deviation of 0.11
    assert "within_one is a metric of the study" in (own / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ("mixing", "records mix"),
        ("mixing_little", "records mix"),
        ("summed", "one finite number for each record"),
        ("endless", "one finite number for each record"),
        ("raising", "raised OSError"),
    ],
)
def test_a_loss_that_is_none_of_each_record_is_refused(own, loss, says) -> None:
    with pytest.raises(ModelError, match=says):
        hubbub.run(with_own(loss))


def test_a_metric_that_gives_no_number_is_refused_before_anything_is_charged(own) -> None:
    with pytest.raises(StudyError, match="centre_code:words to give") as refused:
        hubbub.run(with_own(metrics=("words",)), own / "run", ledgers=own / "ledgers")
    assert "got str" in str(refused.value)
    assert not list(own.glob("ledgers/*"))


@pytest.mark.slow
def test_the_source_of_own_code_is_part_of_the_study_where_it_says_so(own) -> None:
    from hubbub.core.study.foreign_code import source_hash

    name = "python:centre_code:absolute"
    study = with_own("absolute", code={name: source_hash(name)})
    assert study.id != with_own("absolute").id
    assert Study.parse(study.as_toml()).id == study.id
    assert rehearse(study)
    (own / "centre_code.py").write_text(OWN + "# another\n")
    with pytest.raises(StudyError, match=r"as study\.code says, found"):
        rehearse(study)
