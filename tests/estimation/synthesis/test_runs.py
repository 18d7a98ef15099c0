"""Studies that ask for synthetic records, run and verified."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.estimation.synthesis.made_up import STUDY, write_silos

import hubbub
from hubbub import Study
from hubbub.core.errors import DataError, StudyError, UserError
from hubbub.core.planning.query import QueryState, SiloData
from hubbub.core.planning.study_plan import plan
from hubbub.core.tabular.table import CodedCells
from hubbub.core.verification.replay.checking import verify
from hubbub.desk.cli.main import main
from hubbub.estimation.queries.synthesis_query import synthesis_of
from hubbub.estimation.synthesis.design import MOST_UNITS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("synthetic")
    write_silos(folder)
    (folder / "study.toml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        hubbub.run(Study.load("study.toml"), "run")
    return folder / "run"


def copied(run: Path, to: Path) -> Path:
    """A run's folder to alter, without the evidence that lists its files."""
    import shutil

    shutil.copytree(run, to / "run")
    (to / "run" / "evidence.json").unlink()
    return to / "run"


@pytest.mark.slow
def test_a_run_gives_records_a_model_and_a_page(run: Path) -> None:
    text = (run / "synthetic.csv").read_text()
    caution, body = text.split("\n", 1)
    assert caution.startswith("# ")
    assert "too narrow" in caution
    rows = list(csv.DictReader(body.splitlines()))
    assert list(rows[0]) == ["age", "sex", "stage", "died"]
    assert 750 < len(rows) < 1050
    told = json.loads((run / "synthetic.json").read_text())
    assert told["synthetic"]["drawn"][0] == {"column": "died", "given": []}
    page = (run / "report.html").read_text()
    assert "Synthetic records beside the noisy sums" in page
    assert "Not for decisions about single people" in page
    assert "too narrow" in page
    assert "of the synthetic records, age and died, with 95 % intervals" in page  # folded or not
    assert "model-dependent: based on a pair that was not measured" in json.dumps(told)


def test_two_way_tables_are_those_of_the_sums_and_of_the_model(run: Path) -> None:
    """Of measured pairs alone, and never of private records."""
    data, told = hubbub.synthetic(run), json.loads((run / "synthetic.json").read_text())
    rows = told["statistics"]["synthetic tables"]["rows"]
    shares, inside = data.pair_shares("age", "died"), 0
    found = [one for one in rows if one["column"] == "age and died"]
    assert len(found) == 2 * len(shares)
    for measured, drawn in zip(found[::2], found[1::2], strict=True):
        share = shares[measured["group"], measured["level"]]
        assert (measured["value"], measured["low"]) == (share.value, share.low)
        assert (drawn["group"], drawn["level"]) == (measured["group"], measured["level"])
        assert abs(drawn["value"] - share.value) < 0.05
    for measured, drawn in zip(rows[::2], rows[1::2], strict=True):
        inside += measured["low"] <= drawn["value"] <= measured["high"]
    notes = told["statistics"]["synthetic tables"]["notes"]
    assert notes[0] == (
        f"of {len(rows) // 2} cells, in {inside} the synthetic share is inside the interval of the "
        "sums"
    )
    names = {one["column"] for one in rows}
    measured_pairs = [set(one["columns"]) for one in told["synthetic"]["pairs"] if one["measured"]]
    assert all(set(name.split(" and ")) in measured_pairs for name in names)


def test_records_are_like_those_of_the_silos(run: Path) -> None:
    """Within six standard errors, noise included; false alarms: 2e-9."""
    data = hubbub.synthetic(run)
    share = data.shares("sex")["f"]
    assert abs(share.value - 0.5) < 6 * share.standard_error < 0.3
    assert abs(share.value - 0.9) > 6 * share.standard_error
    older = data.pair_shares("age", "died")
    assert older["80 to 100", "yes"].value > older["0 to <20", "yes"].value


def test_verification_makes_all_of_it_again(run: Path) -> None:
    found = {one.claim: one.verdict for one in verify(run)}
    for name in ("synthetic.json", "synthetic-model.json", "synthetic.csv"):
        assert found[f"{run / name} says what the sums say"] == "re-derived"
    assert found[f"{run / 'synthetic-sums.json'} follows from the sums"] == "re-derived"


@pytest.mark.parametrize("name", ["synthetic.csv", "synthetic-model.json", "synthetic.json"])
def test_what_was_altered_is_named(run: Path, tmp_path: Path, name: str) -> None:
    folder = copied(run, tmp_path)
    path = folder / name
    text = path.read_text()
    path.write_text(text.replace("no", "yes", 1) if "no" in text else text.replace("0", "1", 1))
    wrong = [one for one in verify(folder) if not one.holds]
    assert wrong
    assert all(name in one.claim for one in wrong)


def test_other_sums_are_wrong(run: Path, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    path = folder / "synthetic-sums.json"
    kept = json.loads(path.read_text())["kept"]
    kept[-1] += 1.0
    path.write_text(json.dumps({"kept": kept}))
    assert any("synthetic-sums" in one.claim for one in verify(folder) if not one.holds)


def test_sample_draws_as_many_as_are_asked_for(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sample", str(run), "--records", "7", "--out", str(tmp_path / "r.csv")]) == 0
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 2 + 7
    capsys.readouterr()
    assert main(["sample", str(run), "--records", "5", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["columns"]["age"]) == 5
    assert main(["sample", str(run), "--records", "0"]) == 2


@pytest.mark.slow
def test_sample_writes_the_tables_of_an_analysis(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of `tables`, not of one model drawn several times."""
    told = ["sample", str(run), "--tables", "5"]
    assert main([*told, "--out", str(tmp_path / "tables"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"] == 5
    for number, table in enumerate(hubbub.synthetic(run).tables(5), 1):
        text = (tmp_path / "tables" / f"table-{number}.csv").read_text()
        rows = list(csv.DictReader(text.splitlines()[1:]))
        assert [row["died"] for row in rows] == table["died"]
    for wrong in (told, [*told, "--out", "x", "--records", "9"], [*told[:-1], "4", "--out", "x"]):
        assert main(wrong) == 2


def test_sample_needs_a_run_of_synthetic_records(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"study\.toml"):
        hubbub.synthetic(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    with pytest.raises(UserError, match="0 of 3"):
        hubbub.synthetic(tmp_path)


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_sums_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_silos(tmp_path)
    monkeypatch.chdir(tmp_path)

    def stop(step: int, _: object) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hubbub.run(Study.parse(STUDY), "run", progress=stop)
    found = hubbub.resume("run")
    assert found.synthetic.sums.shape[0] == 3
    assert found.epsilon <= 4.0
    assert all(one.holds for one in verify(tmp_path / "run"))


def test_patients_are_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_silos(tmp_path, patients=True)
    monkeypatch.chdir(tmp_path)
    text = STUDY.replace("records = 900", 'records = 450\npatient = "who"\nmost_per_patient = 2')
    found = hubbub.run(Study.parse(text)).synthetic
    assert 300 < found.components.records < 600  # 450 patients, noise of some 15


def test_a_silo_of_more_units_than_sums_are_exact_for_takes_no_part() -> None:
    """P26 (d)."""
    study = Study.parse(STUDY.replace("records = 900\n", ""))
    names, query = ("age", "sex", "stage", "died"), synthesis_of(study)
    rows = np.broadcast_to(np.zeros(1), MOST_UNITS + 1)
    cells = CodedCells(dict.fromkeys(names, rows))
    with pytest.raises(DataError, match="at most 4,194,304 units"):
        query.task(SiloData(cells=cells, max_cells=2**23))
    few = CodedCells(dict.fromkeys(names, rows[:5]))
    assert query.task(SiloData(cells=few, max_cells=2**23)).count == 5


def test_a_plan_says_which_silos_are_too_large() -> None:
    """P26 (d): refused where one may or must be; said where one might."""
    most = MOST_UNITS

    def planned(records: int, capacity: str = "") -> tuple[str, ...]:
        stated = f"records = {records}\n{capacity}"
        return hubbub.plan(Study.parse(STUDY.replace("records = 900", stated))).warnings

    assert not [one for one in planned(most) if "take part in synthetic" in one]
    assert [one for one in planned(most + 1) if "4,194,304 records cannot take part" in one]
    assert not [
        one for one in planned(most + 1, f"capacity = {most}") if "take part in synthetic" in one
    ]
    with pytest.raises(StudyError, match="capacity of at most 4,194,304 records"):
        planned(900, f"capacity = [5, 5, {most + 1}]")
    with pytest.raises(StudyError, match=r"12,582,912 in all, got data\.records = 12,582,913"):
        planned(3 * most + 1)


def test_a_plan_says_where_targets_have_too_many_levels() -> None:
    targets = STUDY.replace('["died"]\nbins = 5', '["age", "weight", "died"]\nbins = 31')
    text = targets.replace(
        "sex = {", "weight = {low = 0, high = 9}\nheight = {low=0, high=9}\nsex = {"
    )
    (said,) = [one for one in hubbub.plan(Study.parse(text)).warnings if "levels together" in one]
    assert "height will not be counted with each of them" in said
    assert "age" not in said


@pytest.mark.slow
def test_it_may_stand_beside_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_silos(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = STUDY + 'epsilon = 2.0\n[statistics.all]\nkind = "table"\n'
    study = Study.parse(text)
    assert Study.parse(study.as_toml()).id == study.id
    assert Study.parse(text.replace("bins = 5", "bins = 6")).id != study.id
    found = hubbub.run(study, "run")
    assert set(found.statistics) == {
        "all",
        "synthetic records",
        "synthetic pairs",
        "synthetic tables",
    }
    assert all(one.holds for one in verify(tmp_path / "run"))
    assert found.plan.epsilon() <= 4.0


def test_the_plan_says_what_noise_will_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    assert main(["plan", str(tmp_path / "study.toml"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["asked"]
    assert [one["words"] for one in rows][-1] == "columns too fine for the noise"
    assert 0 < rows[0]["value"] < 0.1


REFUSED = {
    "a strange column": ('targets = ["died"]', 'targets = ["weight"]', "targets"),
    "one column": ('targets = ["died"]', 'columns = ["age"]', "2 to 60 columns"),
    "one sum": ("bins = 5", "sums = 1", "sums"),
    "cuts of classes": ("bins = 5", "cuts = {sex = [1]}", "cuts"),
    "falling cuts": ("bins = 5", "cuts = {age = [60, 30]}", "synthetic.cuts.age"),
    "a part of nothing else": ("bins = 5", "epsilon = 1.0", "epsilon"),
    "a strange key": ("bins = 5", "bin = 5", "bin"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_asked_is_refused(what: str) -> None:
    stated, instead, word = REFUSED[what]
    with pytest.raises(StudyError, match=word):
        Study.parse(STUDY.replace(stated, instead))


def test_a_program_asks_of_tables_in_memory_once() -> None:
    rng = np.random.default_rng(3)
    silos = {
        name: {"age": rng.uniform(0, 100, 200), "sex": rng.choice(["f", "m"], 200)}
        for name in ("north", "south", "east")
    }
    columns = {"age": {"low": 0, "high": 100}, "sex": {"categories": ["f", "m"]}}
    made = hubbub.synthesize(silos, columns=columns, epsilon=3.0, targets=["sex"], bins=4)
    again = hubbub.synthesize(silos, columns=columns, epsilon=3.0, targets=["sex"], bins=4)
    assert made.draw(20) == again.draw(20)
    frame = made.to_frame(30)
    assert list(frame.columns) == ["age", "sex"]
    assert len(frame) == 30


@pytest.mark.slow
def test_sums_that_are_spent_say_the_rest_where_no_record_keeps_the_rules(run: Path) -> None:
    study = Study.load(run / "study.toml")
    query = synthesis_of(study)
    sums = query.restored(run, QueryState(parameters=query.layout.start)).parameters
    query = replace(query, asked=replace(query.asked, possible=("1 > 2",)))
    given = query.released(plan(study), QueryState(parameters=sums))
    assert set(given.files) == {"synthetic.json", "synthetic-model.json"}
    assert not given.copies
    assert "no records: expected records that obey the rules" in given.files["synthetic.json"]


def test_the_study_id_knows_in_which_order_columns_follow() -> None:
    rules = (
        'follows = {age = "age", died = "sex == \'f\'"}',
        'follows = {died = "sex == \'f\'", age = "age"}',
    )
    studies = [Study.parse(STUDY.replace("[synthetic]", f"[synthetic]\n{one}")) for one in rules]
    assert studies[0].id != studies[1].id
