"""Runs that ask statistics: answers near the truth, charged first, verified, resumed, reported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.estimation.asking.made_up import (
    KINDS,
    SILOS,
    patients,
    study,
    table_of_study,
    write_silos,
)

import hubbub
from hubbub import Study
from hubbub.core.errors import DataError, IntegrityError, StudyError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.tally import kind_of
from hubbub.core.planning.query import QueryState
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.verification.replay.checking import verify
from hubbub.desk.cli.main import main
from hubbub.estimation.queries import sums_query
from hubbub.estimation.queries.statistics_query import (
    SUMS,
    expected_answers,
    planned_statistics,
    statistics_of,
)
from hubbub.estimation.queries.sums_query import sums_in, write_sums
from hubbub.estimation.statistic import Answer

FAR = 6  # standard errors: what is further off is wrong, whatever the noise


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_silos(tmp_path)
    return tmp_path


def everybody() -> dict[str, np.ndarray]:
    """All silos' tables in one."""
    tables = [patients(seed) for seed in range(len(SILOS))]
    return {name: np.concatenate([one[name] for one in tables]) for name in tables[0]}


def near(value: float, truth: float, error: float) -> bool:
    return abs(value - truth) <= FAR * error


def of(answer: Answer, quantity: str, **more: str) -> Any:
    """One number of an answer."""
    wanted = {"quantity": quantity, **more}
    return next(row for row in answer.rows if all(getattr(row, k) == v for k, v in wanted.items()))


def test_answers_are_near_the_pooled_truth(folder: Path) -> None:
    """Each is at most six standard errors off, which chance does once in 500 million."""
    kinds = ("table", "histogram", "quantiles", "crosstab")
    found = hubbub.run(study(folder, **{kind: KINDS[kind] for kind in kinds})).statistics
    whole = everybody()
    first = whole["stage"] == "I"
    age = np.clip(whole["age"], 20, 90)
    records = of(found["table"], "records", group="I")
    assert near(records.value, first.sum(), records.standard_error)
    mean = of(found["table"], "mean", column="age", group="I")
    assert near(mean.value, age[first].mean(), mean.standard_error)
    known = first & (whole["sex"] != "?")
    share = of(found["table"], "share", column="sex", level="male", group="I")
    assert near(share.value, (whole["sex"][known] == "male").mean(), share.standard_error)
    middle = of(found["quantiles"], "quantile", level="0.5")
    assert near(middle.value, float(np.median(age)), middle.standard_error + 70 / 64)
    cell = of(found["crosstab"], "records", group="male", level="II")
    truth = ((whole["sex"] == "male") & (whole["stage"] == "II")).sum()
    assert near(cell.value, truth, cell.standard_error)
    lowest = of(found["histogram"], "records", level="20 to <30")
    assert near(lowest.value, (age < 30).sum(), lowest.standard_error)


def much(folder: Path, kind: dict[str, Any]) -> Study:
    """A study whose noise leaves nothing to be refused."""
    table = table_of_study(folder, q=kind)
    return Study.from_table(table | {"privacy": {"epsilon": 40, "delta": 1e-5}})


@pytest.mark.quick_cases("histogram", "table", "quantiles", "crosstab")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_answered_in_one_epsilon(folder: Path, kind: str) -> None:
    # At epsilon 8 one in twelve Cox regressions on numbers is refused.
    asked = much(folder, KINDS[kind])
    found = hubbub.run(asked)
    assert found.statistics["q"].refusal == ""
    assert found.statistics["q"].rows or found.statistics["q"].curves
    assert found.epsilon <= asked.privacy.epsilon
    assert "q: " in repr(found)


ON_NUMBERS = {
    "logistic": {"kind": "logistic", "outcome": "died", "covariates": {"age": "number"}},
    "cox": KINDS["cox on numbers"],
}


@pytest.mark.parametrize("kind", ON_NUMBERS)
def test_numbers_in_a_regression_take_a_few_sums(folder: Path, kind: str) -> None:
    # Of real noise: at epsilon 8 one in fifty is refused, at 20 none of 150.
    told = much(folder, ON_NUMBERS[kind])
    found = hubbub.run(told)
    assert statistics_of(told).mechanism.steps == statistics_of(told).layout.rounds == 10
    assert found.steps == 10
    assert found.statistics["q"].refusal == ""


@pytest.mark.slow
def test_answers_of_like_or_long_names_have_files_of_their_own(folder: Path) -> None:
    """What is charged is written, whatever it is called."""
    names = ("a b", "a-b", "字" * 100, "字" * 99, "crossed", "crossed-tests")
    kinds = dict.fromkeys(names, KINDS["table"]) | {"crossed": KINDS["crosstab"]}
    hubbub.run(study(folder, **kinds), folder / "run")
    found = [one.name for one in (folder / "run" / "tables").iterdir()]
    assert len(found) == 2 * len(names)
    assert {"a-b.csv", "a-b-2.csv", "crossed-tests.csv", "crossed-tests-2.csv"} <= {*found}


def test_a_run_writes_what_it_found_and_it_is_verified(folder: Path) -> None:
    out = folder / "run"
    found = hubbub.run(study(folder, baseline=KINDS["table"], tests=KINDS["crosstab"]), out)
    told = json.loads((out / "statistics.json").read_text())
    assert told["statistics"]["baseline"] == found.statistics["baseline"].to_dict()
    assert told["unit"] == "record"
    assert {one.name for one in (out / "tables").iterdir()} == {
        *("baseline.csv", "baseline-tests.csv", "tests.csv", "tests-tests.csv"),
    }
    page = (out / "report.html").read_text()
    assert "Description of age, sex by stage" in page
    assert "Chi-square test, adjusted for noise" in page
    findings = verify(out)
    assert all(one.holds for one in findings)
    assert any("statistics.json says what the sums say" in one.claim for one in findings)


def _forge_answers(out: Path) -> None:
    told = json.loads((out / "statistics.json").read_text())
    told["statistics"]["baseline"]["rows"][0]["value"] += 50
    (out / "statistics.json").write_text(json.dumps(told, indent=1))


def _forge_both(out: Path) -> None:
    """With a new digest and signature, as only the aggregator could."""
    _forge_answers(out)
    (out / "evidence.json").unlink()


@pytest.mark.parametrize("forge", [_forge_answers, _forge_both])
def test_forged_answers_are_found(folder: Path, forge: Callable[[Path], None]) -> None:
    out = folder / "run"
    hubbub.run(study(folder), out)
    forge(out)
    wrong = [one for one in verify(out) if not one.holds]
    assert wrong
    assert any("statistics.json" in one.claim + one.verdict for one in wrong)


def test_the_ledger_is_charged_before_a_silo_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of the first silo is never made; its row is there."""

    def broken(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(Masking, "masked", broken)
    with pytest.raises(KeyboardInterrupt):
        hubbub.run(study(folder), folder / "run")
    with Ledger(folder / "ledgers" / f"{SILOS[0]}.sqlite") as book:
        assert sum(1 for _ in book.entries()) == 1


def test_a_run_that_was_killed_after_its_charge_spends_no_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum is lost with the process, so there is nothing to answer with."""
    masked = Masking.masked

    def broken(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(Masking, "masked", broken)
    with pytest.raises(KeyboardInterrupt):
        hubbub.run(study(folder), folder / "run")
    monkeypatch.setattr(Masking, "masked", masked)
    with pytest.raises(IntegrityError, match="charged and lost"):
        hubbub.resume(folder / "run")
    with Ledger(folder / "ledgers" / f"{SILOS[0]}.sqlite") as book:
        assert sum(1 for _ in book.entries()) == 1


@pytest.mark.slow
def test_of_two_sums_one_may_be_lost(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is answered, with more noise, and two rows are charged."""
    table = table_of_study(folder, q=KINDS["histogram"])
    table["statistics"]["sums"] = 2
    told, masked = Study.from_table(table), Masking.masked
    whole = hubbub.run(told).statistics["q"]

    def broken(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(Masking, "masked", broken)
    with pytest.raises(KeyboardInterrupt):
        hubbub.run(told, folder / "run")
    monkeypatch.setattr(Masking, "masked", masked)
    half = hubbub.resume(folder / "run").statistics["q"]
    errors = [of(one, "records").standard_error for one in (half, whole)]
    assert errors[0] / errors[1] == pytest.approx(2**0.5)
    assert all(one.holds for one in verify(folder / "run"))
    with Ledger(folder / "ledgers" / f"{SILOS[0]}.sqlite") as book:
        assert sum(1 for _ in book.entries()) == 2


def two_sums(folder: Path, kind: str, transcript: str = "full") -> Study:
    """Statistics of which one sum may be lost, alone or beside a model."""
    table = beside(folder) if kind == "beside" else table_of_study(folder, q=KINDS["histogram"])
    table["statistics"]["sums"] = 2
    table["study"]["transcript"] = transcript
    return Study.from_table(table)


def about_sums(folder: Path) -> dict[str, str]:
    """What is said of the kept sums."""
    found = verify(folder / "run")
    assert all(one.holds for one in found if "sums.json" not in one.claim)
    return {one.claim: one.verdict for one in found if "sums.json" in one.claim}


def leave_the_last_out(folder: Path, told: Study) -> None:
    """Show the answers that one sum fewer would have given."""
    made = hubbub.plan(told)
    layout, run = planned_statistics(made).query.layout, folder / "run"
    kept = sums_in(run, layout, SUMS)
    kept[0] = 1
    kept[-layout.numbers :] = 0
    write_sums(run, kept, SUMS)
    released = statistics_of(made.study).released(made, QueryState(parameters=kept))
    for name, text in {**released.files, **released.copies}.items():
        (run / name).write_text(str(text))
    (run / "evidence.json").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["alone", "beside"])
def test_sums_without_the_last_one_follow_only_where_it_was_lost(folder: Path, kind: str) -> None:
    """Else whoever shows them could choose between two answers."""
    told = two_sums(folder, kind)
    hubbub.run(told, folder / "run")
    assert {*about_sums(folder).values()} == {"re-derived"}
    leave_the_last_out(folder, told)
    (verdict,) = about_sums(folder).values()
    assert verdict.startswith("wrong")


def test_answers_of_no_sums_are_wrong(folder: Path) -> None:
    hubbub.run(two_sums(folder, "alone"), folder / "run")
    path = folder / "run" / "sums.json"
    kept = json.loads(path.read_text())["kept"]
    path.write_text(json.dumps({"kept": [0.0] * len(kept)}))
    (folder / "run" / "evidence.json").unlink()
    assert any("too few for an answer" in one.verdict for one in verify(folder / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["alone", "beside"])
def test_a_last_sum_is_made_again_from_what_was_kept_if_its_step_was_lost(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    real = sums_query._KeptSums.step

    def stopped(*given: Any) -> Any:
        seen.append(given)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(sums_query._KeptSums, "step", stopped)
        with pytest.raises(KeyboardInterrupt):
            hubbub.run(two_sums(folder, kind), folder / "run")
    hubbub.resume(folder / "run")
    assert {*about_sums(folder).values()} == {"re-derived"}
    assert json.loads((folder / "run" / "sums.json").read_text())["kept"][0] == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["alone", "beside"])
def test_what_only_the_aggregator_sent_is_no_proof_of_sums(folder: Path, kind: str) -> None:
    """Without vectors, what went down for the second sum is not known to follow from the first."""
    told = two_sums(folder, kind, transcript="hashes")
    hubbub.run(told, folder / "run")
    assert {*about_sums(folder).values()} == {"not verifiable"}
    leave_the_last_out(folder, told)
    assert {*about_sums(folder).values()} == {"not verifiable"}


def test_two_sums_are_as_exact_as_one(folder: Path) -> None:
    """Twice the variance in each, which certified accounting gives to 0.1 %."""
    errors = []
    for sums in (1, 2):
        table = table_of_study(folder, q=KINDS["histogram"])
        table["statistics"]["sums"] = sums
        expected = expected_answers(hubbub.plan(Study.from_table(table)))["q"]
        errors.append(dict(expected.errors)["records"])
    assert errors[1] == pytest.approx(errors[0], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ON_NUMBERS)
def test_a_run_of_several_sums_goes_on_where_it_was_killed(folder: Path, kind: str) -> None:
    asked = ON_NUMBERS[kind]

    def stop(step: int, _row: Mapping[str, float]) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hubbub.run(study(folder, q=asked), folder / "run", progress=stop)
    # Whether noise leaves an answer is chance; that it is made, and of all sums, is not.
    assert "q" in hubbub.resume(folder / "run").statistics
    assert all(one.holds for one in verify(folder / "run"))
    with Ledger(folder / "ledgers" / f"{SILOS[0]}.sqlite") as book:
        assert sum(1 for _ in book.entries()) == 10


def test_what_is_below_the_noise_is_refused_before_anything_is_spent(folder: Path) -> None:
    table = table_of_study(folder, q=KINDS["table"])
    table["privacy"]["epsilon"] = 0.005
    with pytest.raises(StudyError, match="stand out from the noise"):
        hubbub.run(Study.from_table(table), folder / "run")
    assert not (folder / "ledgers").exists()


@pytest.mark.parametrize(
    ("column", "cell"), [("age", "nan"), ("age", "1e999"), ("sex", "<b>"), ("months", "=1+1")]
)
def test_a_hostile_cell_is_refused_and_not_quoted(folder: Path, column: str, cell: str) -> None:
    path = folder / "north.csv"
    rows = path.read_text().splitlines()
    place = rows[0].split(",").index(column)
    cells = rows[7].split(",")
    cells[place] = cell
    path.write_text("\n".join([*rows[:7], ",".join(cells), *rows[8:]]))
    with pytest.raises(DataError, match="row 7") as refused:
        hubbub.run(study(folder, q=KINDS["table"], s=KINDS["survival"]))
    assert cell not in str(refused.value)


def test_a_silo_without_records_takes_part(folder: Path) -> None:
    path = folder / "east.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert "baseline" in hubbub.run(study(folder), folder / "run").statistics
    with Ledger(folder / "ledgers" / "east.sqlite") as book:
        assert sum(1 for _ in book.entries()) == 1


def test_no_baseline_asks_statistics(folder: Path) -> None:
    with pytest.raises(StudyError, match="no baseline"):
        hubbub.run(study(folder), baseline="trusted")


@pytest.mark.slow
def test_a_rehearsal_has_the_noise_of_a_run(folder: Path) -> None:
    """Seven bins of ten years, 40 times: a deviation is off by more than 25 % once in a billion."""
    told = study(folder, q=KINDS["histogram"])
    found = [one.statistics["q"] for one in hubbub.rehearse(told, repeats=40)]
    values = np.array(
        [[row.value for row in one.rows if row.quantity == "records"] for one in found]
    )
    deviation = float(np.sqrt(values.var(axis=0, ddof=1).mean()))
    expected = of(found[0], "records").standard_error
    assert abs(deviation / expected - 1) < 0.25
    assert expected >= planned_statistics(hubbub.plan(told)).total_sigma * 0.99


def beside(folder: Path) -> dict[str, Any]:
    """A model and statistics in one study."""
    table = table_of_study(folder, q=KINDS["histogram"])
    table["data"] |= {"target": "died", "classes": ["no", "yes"]}
    columns = {name: dict(one) for name, one in table["data"]["columns"].items() if name != "died"}
    columns["months"]["feature"] = False
    columns["sex"]["default"] = "male"
    table["data"]["columns"] = columns
    table["statistics"]["epsilon"] = 2.0
    table["statistics"]["death"] = {
        "kind": "survival",
        "time": "months",
        "event": "died",
        "bins": 6,
    }
    model = {"model": {"kind": "logistic"}, "training": {"steps": 3, "sampling": "full-batch"}}
    return table | model


@pytest.mark.slow
def test_a_model_and_statistics_share_the_epsilon(folder: Path) -> None:
    told = Study.from_table(beside(folder))
    found = hubbub.run(told, folder / "run")
    assert found.epsilon <= told.privacy.epsilon
    assert found.plan.epsilon_of_training < told.privacy.epsilon
    assert found.statistics["q"].refusal == ""
    assert found.steps == 3
    findings = verify(folder / "run")
    assert all(one.holds for one in findings)
    assert any("sums.json follows from the sums" in one.claim for one in findings)
    with Ledger(folder / "ledgers" / f"{SILOS[0]}.sqlite") as book:
        assert sum(1 for _ in book.entries()) == 4


def test_sums_beside_a_model_that_were_forged_are_found(folder: Path) -> None:
    hubbub.run(Study.from_table(beside(folder)), folder / "run")
    path = folder / "run" / "sums.json"
    kept = json.loads(path.read_text())
    kept["kept"][0] += 1000.0
    path.write_text(json.dumps(kept))
    (folder / "run" / "evidence.json").unlink()
    wrong = [one.claim for one in verify(folder / "run") if not one.holds]
    assert any("sums.json" in one for one in wrong)


@pytest.mark.slow
def test_a_run_with_both_goes_on_without_asking_statistics_again(folder: Path) -> None:
    def stop(_step: int, _row: Mapping[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hubbub.run(Study.from_table(beside(folder)), folder / "run", progress=stop)
    kept = (folder / "run" / "sums.json").read_bytes()
    found = hubbub.resume(folder / "run")
    assert (folder / "run" / "sums.json").read_bytes() == kept
    assert found.statistics["q"].refusal == ""
    assert all(one.holds for one in verify(folder / "run"))


@pytest.mark.slow
def test_the_commands_show_what_is_expected_and_what_was_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "study.toml"
    path.write_text(study(folder, baseline=KINDS["table"], tests=KINDS["crosstab"]).as_toml())
    assert main(["plan", str(path)]) == 0
    assert "Statistics: expected precision, before any record is read" in capsys.readouterr().out
    assert main(["plan", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["statistics"]["baseline"]["answered"] is True
    assert main(["run", str(path), "--out", str(folder / "run"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["statistics"]["tests"]["tests"][0]["name"] == "chi-square"
    assert main(["run", str(path), "--out", str(folder / "again")]) == 0
    shown = capsys.readouterr().out
    assert "Description of age, sex by stage" in shown
    assert "chi-square test, adjusted for noise" in shown


@pytest.mark.slow
def test_two_purposes_with_equal_noise_are_counted_apart(folder: Path) -> None:
    """A ledger that counted by the noise would let one use up what the other may ask."""
    table = beside(folder)
    table["data"]["standardise"] = {"epsilon": table["statistics"]["epsilon"]}
    told = Study.from_table(table)
    found = hubbub.run(told, folder / "run")
    first, second = (kind_of(one) for one in found.plan.beside)
    alike = replace(first, purpose=second.purpose, diameter=second.diameter)
    assert alike.like(second)  # the noise is the same
    assert not first.like(second)
    with Ledger(folder / "ledgers" / f"{SILOS[0]}.sqlite") as book:
        purposes = Counter(entry.kind.purpose for entry in book.entries())
    assert purposes == {"standardisation": 1, "statistics": 1, "training": 3}
    assert all(one.holds for one in verify(folder / "run"))


def test_p15_rows_of_another_run_of_a_study_stand_for_none_that_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who restores a ledger of before the second run has lost all that the second has paid for."""
    asked = study(folder, table=KINDS["table"])
    for name in ("first", "second"):
        hubbub.run(asked, folder / name)
    with Ledger(folder / "ledgers" / "north.sqlite") as whole, Ledger(folder / "older") as older:
        (first, *entries), spent = whole.entries(), whole.epsilon(delta=1e-5, relation="add-remove")
        before = [first, *(one for one in entries if one.session == first.session)]
        for entry in before:
            older.charge(entry)
    capsys.readouterr()
    command = ["ledger", "missing", str(folder / "older"), "north"]
    assert main([*command, str(folder / "first"), "--json"]) == 0
    capsys.readouterr()
    assert main([*command, str(folder / "second"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["missing"] == {"statistics": len(before)}
    assert told["epsilon_with"] == pytest.approx(spent, rel=1e-9)
