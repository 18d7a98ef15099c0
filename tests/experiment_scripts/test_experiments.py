"""The small variant of every experiment, and what the committed results must show."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import re
from math import sqrt
from pathlib import Path

import pytest

import hubbub
from hubbub.core.errors import StudyError
from hubbub.learning.datasets import HEART_COLUMNS, HEART_SILOS

pytest.importorskip("torch", reason="training needs the extra learn")
pytest.importorskip("matplotlib", reason="figures need the extra experiments")

pytest.importorskip("experiments", reason="they are not part of this copy of hubbub")

from experiments.results import RESULTS, rows_of

ROOT = Path(__file__).parents[2]

PNG = b"\x89PNG\r\n\x1a\n"
NAMES = (
    "utility",
    "projection",
    "degradation",
    "effective_rate",
    "joining",
    "correlated_noise",
)


def committed(name):
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"{path} is not there: run python -m experiments.{name}")
    return rows_of(path)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


@pytest.fixture(scope="module")
def experiment():
    """An experiment's module, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield lambda name: importlib.import_module(f"experiments.{name}")


@pytest.fixture(scope="module")
def small(experiment, tmp_path_factory):
    """Rows and folder of a small variant; each runs once."""
    done = {}

    def played(name):
        if name not in done:
            out = tmp_path_factory.mktemp(name)
            experiment(name).main(["--small", "--out", str(out)])
            done[name] = out
        return rows_of(done[name] / f"{name}.csv"), done[name]

    return played


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_writes_table_figure_and_how_it_was_made(small, name):
    rows, out = small(name)
    assert rows
    assert (out / f"{name}.png").read_bytes().startswith(PNG)
    (said,) = (json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines())
    assert said["command"].startswith(f"python -m experiments.{name} --small")
    assert {"python", "hubbub", "torch", "hubbub_source_sha256"} <= set(said)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_finished_run_is_not_made_again(small, experiment, monkeypatch, name):
    _, out = small(name)
    before = (out / f"{name}.csv").read_bytes()

    def refused(*_):
        raise AssertionError("nothing was missing")

    monkeypatch.setattr(experiment(name), "measured", refused)
    experiment(name).main(["--small", "--out", str(out)])
    assert (out / f"{name}.csv").read_bytes() == before
    assert len((out / f"{name}.jsonl").read_text().splitlines()) == 1


def test_a_stopped_table_goes_on_where_it_was(experiment, tmp_path):
    results, command = experiment("results"), experiment("command")
    table = results.Table(path=tmp_path / "t.csv", key=("k",), columns=("k", "y"))
    keys = [{"k": 0.1 * n} for n in range(4)]
    made = []

    def measure(number, shown):
        shown(0.5)
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(number)
        return {"y": number}

    with pytest.raises(KeyboardInterrupt):
        command.fill(table, keys, measure, module="t", arguments=[])
    assert [row["y"] for row in table.rows()] == ["0", "1"]
    made.clear()
    command.fill(table, keys, measure, module="t", arguments=[])
    assert made == [2, 3]
    assert [row["y"] for row in table.rows()] == ["0", "1", "2", "3"]


def test_a_row_of_other_columns_is_refused(experiment, tmp_path):
    table = experiment("results").Table(path=tmp_path / "t.csv", key=("k",), columns=("k", "y"))
    with pytest.raises(ValueError, match="expected the columns"):
        table.append({"k": 1})
    assert not table.path.exists()


@pytest.mark.slow
def test_hubbub_and_the_trusted_aggregator_are_compared_at_the_same_noise(small):
    rows, _ = small("utility")
    mine = {(row["method"], row["colluders"]): row for row in rows if row["sampling"] == "poisson"}
    total = {key: float(row["total_noise_multiplier"]) for key, row in mine.items()}
    epsilon = {key: float(row["epsilon"]) for key, row in mine.items()}
    assert total["hubbub", "0"] == pytest.approx(2.0, rel=1e-3)
    assert total["trusted", "0"] == pytest.approx(2.0, rel=1e-3)
    assert total["local-dp", "0"] == pytest.approx(2.0 * sqrt(3), rel=1e-3)
    assert total["hubbub", "2"] == pytest.approx(2.0 * sqrt(3), rel=1e-3)
    assert total["local-dp-one-sum", "0"] == pytest.approx(2.0 * sqrt(3), rel=1e-3)
    assert epsilon["hubbub", "0"] == epsilon["local-dp", "0"] == epsilon["hubbub", "2"]
    assert epsilon["hubbub", "0"] == epsilon["local-dp-one-sum", "0"]
    assert epsilon["trusted", "0"] < epsilon["hubbub", "0"]
    assert {row["relation"] for row in mine.values()} == {"add-remove"}


@pytest.mark.slow
def test_joint_batches_are_charged_by_the_life_of_their_lists(small):
    rows, _ = small("utility")
    mine = {(row["method"], row["sampling"]): row for row in rows if row["sampling"] != "poisson"}
    epsilon = {key: float(row["epsilon"]) for key, row in mine.items()}
    assert len(mine) == 3
    for row in mine.values():
        assert row["relation"] == "substitute"
        assert float(row["total_noise_multiplier"]) == pytest.approx(2.0, rel=1e-3)
    fresh, static = epsilon["hubbub", "fresh-lists"], epsilon["hubbub", "static-list"]
    assert epsilon["trusted", "fresh-lists"] < fresh < static


def test_dealt_lists_give_every_place_to_one_silo_in_a_new_order(experiment):
    randomness = importlib.import_module("hubbub.core.protocol.primitives.randomness")
    dealt, source = experiment("joint_batches").dealt, randomness.SecureSource(bytes(16))
    orders = set()
    for _ in range(50):
        places = dealt((3, 1, 2), source)
        assert [len(places[silo]) for silo in (1, 2, 3)] == [3, 1, 2]
        order = [int(place) for silo in (1, 2, 3) for place in places[silo]]
        assert sorted(order) == list(range(6))
        orders.add(tuple(order))
    assert len(orders) > 40  # of 720; chance has fewer with probability below 1e-6


def test_a_training_with_dealt_lists_has_one_for_each_step(experiment, tmp_path):
    for name, records in (("a", 3), ("b", 4), ("test", 5)):
        rows = [f"{7 * k % 5},{'no' if k % 2 else 'yes'}" for k in range(records)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    study = hubbub.Study.from_table(
        {
            "study": {"name": "dealt"},
            "parties": {"names": ["a", "b"], "colluders": 0},
            "data": {
                "files": f"{tmp_path}/{{name}}.csv",
                "target": "y",
                "positive": ["yes"],
                "negative": ["no"],
                "columns": {"x": {"low": 0.0, "high": 4.0}},
                "counts": [3, 4],
                "records": 7,
            },
            "model": {"kind": "logistic"},
            "training": {"steps": 3, "sampling": "without-replacement", "batch": 2},
            "privacy": {"epsilon": 8.0, "delta": 1e-5, "relation": "substitute"},
        }
    )
    seen = []
    result = experiment("joint_batches").federated(study, lambda *one: seen.append(one))
    assert len(seen) == 3
    assert result.epsilon == result.plan.epsilon_after(3)


@pytest.mark.slow
def test_a_point_has_the_epsilon_that_its_study_promises(experiment):
    """The plan comes back to the noise that the table states, with every kind of batches."""
    study, hubbub = experiment("utility_study"), importlib.import_module("hubbub")
    setting = study.PreparedStudy(
        template=study.CIFAR,
        weights="w.npz",
        sha256="0" * 64,
        records=50_000,
        batch=400,
        steps=1250,
    )
    for sampling, level in (("poisson", 4.0), ("fresh-lists", 1.0)):
        point = study.Point(method="hubbub", sampling=sampling, level=level)
        planned = hubbub.plan(setting.study(point, 1), dimension=913_152)
        assert planned.total_noise_multiplier == pytest.approx(level, rel=1e-3)
        assert (planned.study.privacy.delta == 1e-5) == (setting.accounted(point) < study.LARGEST)
    # Who sees all sums adds what the claim says, though fewer silos are played.
    trusted = study.Point(method="trusted", sampling="fresh-lists", level=4.0)
    local = study.Point(method="local-dp-one-sum", level=4.0)
    for point, noise in ((trusted, 4.0), (local, 4.0 * sqrt(31))):
        planned = hubbub.plan(setting.study(point, 1), dimension=913_152)
        assert planned.noise_multiplier == pytest.approx(noise, rel=1e-3)
        assert planned.study.parties.silos == 4
    assert setting.accounted(trusted) < setting.accounted(
        study.Point(method="hubbub", sampling="fresh-lists", level=4.0)
    )


def test_intervals_off_the_grid_hold_as_often_as_they_say():
    """Of 200 releases and more; .95 of 200 has a standard deviation of .015."""
    rows = committed("coverage")
    assert {row["question"] for row in rows} == {
        *("survival", "log-rank", "cox", "quantiles", "linear")
    }
    for row in rows:
        told = float(row["answered"]) * int(row["releases"])
        for name in ("coverage", "coverage_band", "median_coverage", "at_risk_coverage"):
            if told >= 200 and row[name] != "nan":
                assert 0.91 <= float(row[name]) <= 0.98, row
        assert row["size"] == "nan" or float(row["size"]) <= 0.07
    curves = [row for row in rows if row["question"] == "survival"]
    assert {row["answered"] for row in curves} == {"1"}
    assert max(float(row["bias"]) for row in curves) < 0.4  # whole bins: beyond 2 at 20,000


def test_what_papers_print_holds_and_rejects_as_often_as_it_says():
    """Of 400 releases .95 has a standard deviation of .011, .05 too; 100 intervals say little."""
    rows = committed("paper_methods")
    assert len({row["question"] for row in rows}) >= 15
    for row in rows:
        if int(row["rows"]) >= 300 and row["coverage"] != "nan":
            assert 0.92 <= float(row["coverage"]) <= 0.985, row
        if int(row["rows"]) >= 300 and row["size"] != "nan":
            assert float(row["size"]) <= 0.085, row


@pytest.mark.slow
def test_projection_is_charged_by_its_kind_and_sends_fewer_bytes(small):
    rows, _ = small("projection")
    by_kind = {row["kind"]: row for row in rows}
    noise = {kind: float(row["noise_multiplier"]) for kind, row in by_kind.items()}
    assert noise["none"] == noise["layers"] < noise["gaussian"] < noise["sign"]
    assert len({row["account"] for row in rows}) == 4
    for kind in ("layers", "sign", "gaussian"):
        assert float(by_kind[kind]["bytes_saved_fold"]) > 1.5
    assert all(float(row["epsilon"]) <= 2.0 for row in rows)


@pytest.mark.slow
def test_degradation_keeps_its_promise_and_rises_beyond_it(small):
    rows, _ = small("degradation")
    for promised in ("0", "3"):
        mine = [row for row in rows if row["promised"] == promised]
        epsilons = [float(row["epsilon"]) for row in mine]
        assert epsilons == sorted(epsilons)
        (kept,) = (row for row in mine if row["colluding"] == promised)
        assert 1.59 < float(kept["epsilon"]) <= 1.6
        assert epsilons[-1] > 10


@pytest.mark.slow
def test_the_mixture_costs_less_than_any_quantile(small):
    rows, _ = small("effective_rate")
    (row,) = (r for r in rows if (r["batch"], r["malicious"]) == ("500", "25000"))
    assert float(row["rate_slack_1e-15"]) == pytest.approx(0.01348)
    assert float(row["rate_slack_1e-05"]) == pytest.approx(0.01188)
    assert 0.01 <= float(row["rate_mixture"]) < 0.0101
    assert float(row["epsilon_mixture"]) < float(row["epsilon_slack_1e-10"])


@pytest.mark.slow
def test_joining_compares_everybody_at_one_epsilon(small):
    rows, _ = small("joining")
    total = {row["method"]: float(row["total_noise_multiplier"]) for row in rows}
    assert total["non-private"] == 0 < total["trusted"] == total["alone"]
    assert total["hubbub"] == pytest.approx(total["trusted"] * sqrt(2), rel=1e-3)
    assert total["local-dp"] == pytest.approx(total["trusted"] * 2, rel=1e-3)
    assert all(0 < float(row["auc"]) <= 1 for row in rows)
    assert {row["data"] for row in rows} == {"heart"}


def test_joining_leaves_out_data_that_cannot_be_had_and_says_so(experiment, monkeypatch, capsys):
    joining = experiment("joining")

    def absent(*_):
        raise joining.DataError("expected a table, found none; put it there")

    assert joining.available("heart")
    monkeypatch.setattr(joining.silo_records, "records", absent)
    assert not joining.available("rand")
    assert "without rand: expected a table" in capsys.readouterr().err


@pytest.mark.parametrize("data", ["heart", "rand"])
def test_joining_asks_for_records_of_the_width_that_its_source_has(experiment, data):
    joining, datasets = experiment("joining"), experiment("datasets")
    columns = {"heart": HEART_COLUMNS, "rand": datasets.RAND_COLUMNS}[data]
    study = joining.study_of(data, 1.0, 3)
    assert study.parties.names == joining.SITES[data].silos
    assert study.model.inputs == (sum(column.width for column in columns),)
    assert dict(study.data.options)["split"] == 3


@pytest.mark.parametrize("data", ["heart", "rand"])
def test_committed_runs_of_those_who_join_are_better_than_alone(data):
    rows = [row for row in committed("joining") if row["data"] == data]
    epsilons = {row["epsilon"] for row in rows}
    assert len(epsilons) == 4
    for epsilon in epsilons:
        auc = {
            method: mean(
                float(row["auc"])
                for row in rows
                if (row["method"], row["epsilon"]) == (method, epsilon)
            )
            for method in ("alone", "hubbub")
        }
        assert auc["hubbub"] > auc["alone"] + 0.02


def accuracies(**wanted):
    """Of the committed runs with these cells, nobody colluding."""
    rows = committed("utility")
    cells = {"colluders": "0", "sampling": "poisson", **wanted}
    return [float(row["accuracy"]) for row in rows if cells.items() <= row.items()]


POINTS = [("4", "poisson", level) for level in ("1", "1.03", "2", "4")]
POINTS += [("32", kind, level) for kind in ("poisson", "fresh-lists") for level in ("1", "2", "4")]


@pytest.mark.parametrize(("silos", "sampling", "level"), POINTS)
def test_committed_accuracy_is_within_0_01_of_trusted_and_reference(
    experiment, silos, sampling, level
):
    """Means over the committed runs; hubbub's went through the protocol."""
    point = {"level": level, "sampling": sampling, "silos": silos}
    found = accuracies(method="hubbub", **point)
    if not found:
        pytest.skip(f"no such run: python -m experiments.utility --level {level} --silos {silos}")
    assert mean(found) == pytest.approx(experiment("utility").ANCHORS[float(level)], abs=0.01)
    # Whoever sees the sum of all adds the noise once, however many silos have the records.
    if trusted := accuracies(method="trusted", level=level, sampling=sampling):
        assert mean(found) == pytest.approx(mean(trusted), abs=0.01)


def test_committed_local_dp_is_below_hubbub_at_equal_epsilon():
    compared, methods = 0, {"4": "local-dp", "32": "local-dp-one-sum"}
    for silos, level in itertools.product(methods, ("1", "2", "4", "8", "16")):
        point = {"level": level, "silos": silos}
        hubbub = accuracies(method="hubbub", **point)
        local = accuracies(method=methods[silos], **point)
        compared += bool(hubbub and local)
        assert max(local, default=0.0) < min(hubbub, default=1.0)
    assert compared


def test_a_summary_holds_mean_least_and_largest(experiment, tmp_path):
    results = experiment("results")
    table = results.Table(path=tmp_path / "t.csv", key=("k", "run"), columns=("k", "run", "y"))
    for run, y in enumerate((1.0, 2.0, 6.0)):
        table.append({"k": "a", "run": run, "y": y})
    results.summarise(table, ("k",), ("y",), lambda row: {"twice": row["k"] * 2})
    (row,) = rows_of(tmp_path / "t_summary.csv")
    expected = {"k": "a", "runs": "3", "y_mean": "3", "y_least": "1", "y_largest": "6"}
    assert row == expected | {"twice": "aa"}


@pytest.mark.slow
def test_every_number_in_the_page_is_in_a_committed_table():
    """Decimals in the tables of docs/experiments.md are roundings of cells of the CSV files."""
    cells = set()
    for path in RESULTS.glob("*.csv"):
        for row in rows_of(path):
            for cell in row.values():
                with contextlib.suppress(ValueError):
                    cells.add(float(cell))
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    numbers = [found for line in lines for found in re.findall(r"\d+\.\d+", line)]
    assert len(numbers) > 40
    unknown = [
        one
        for one in numbers
        if not any(f"{cell:.{len(one.split('.')[1])}f}" == one for cell in cells)
    ]
    assert unknown == []


# Correlated noise and the linear probe ----------------------------------------------------------


@pytest.mark.slow
def test_correlated_noise_is_rehearsed_beside_independent_noise(small):
    rows, _ = small("correlated_noise")
    noise = {row["noise"]: float(row["noise_multiplier"]) for row in rows}
    assert set(noise) == {"correlated", "independent"}
    # Sampling by groups is dearer: what is gained is in sums of steps (P25).
    assert noise["correlated"] > noise["independent"]


@pytest.mark.slow
def test_the_quick_training_has_the_noise_of_the_plan(experiment):
    """Its multiplier, and rows of noise that C turns into independent ones."""
    settings, training = experiment("correlated_settings"), experiment("correlated_training")
    torch, np = importlib.import_module("torch"), importlib.import_module("numpy")
    hubbub = importlib.import_module("hubbub")
    setting = settings.Setting(bands=4)
    study = settings.study_of(
        setting, epsilon=4.0, colluders=2, run=1, weights="w.npz", sha256="0" * 64
    )
    planned = hubbub.plan(study, dimension=913_152)
    total = training.total(setting, 4.0, 2)
    assert total == pytest.approx(planned.total_noise_multiplier, rel=1e-3)
    torch.manual_seed(1)
    noise = training.Noise(setting, 20_000, 3.0)
    rows = np.stack([noise.row(step).numpy() for step in range(1, 9)]).astype(float)
    column = planned.mechanism.noise.column
    whitened = np.stack(
        [sum(column[b] * rows[t - b] for b in range(min(4, t + 1))) for t in range(8)]
    )
    # The spread of a variance of 20,000 numbers is 1 %, of a covariance 0.7 %: six times that.
    assert np.allclose(np.cov(whitened) / 9, np.eye(8), atol=0.06)


def test_the_quick_training_clips_and_adds_as_torch_does(experiment):
    torch, training = importlib.import_module("torch"), experiment("correlated_training")
    torch.manual_seed(2)
    head, clip = training.Head("12, 8"), 0.5
    rows, targets = torch.rand(3, 1600), torch.tensor([1, 7, 7])
    found, wanted = torch.empty_like(head.flat), torch.zeros_like(head.flat)
    head.clipped_sum(rows, targets, clip, found)
    for row, target in zip(rows, targets, strict=True):
        flat = head.flat.clone().requires_grad_()
        value = row
        *hidden, last = head.views(flat)
        for layer in hidden:
            value = (layer @ value).relu()
        torch.nn.functional.cross_entropy((last @ value)[None], target[None]).backward()
        wanted += flat.grad * min(1.0, clip / float(flat.grad.norm()))
    assert torch.allclose(found, wanted, atol=1e-6)


@pytest.mark.slow
def test_the_linear_probe_is_rehearsed_and_compared_with_no_noise(small):
    rows, out = small("linear_probe")
    assert [(row["scored"], row["by"]) for row in rows] == [
        ("test", "rehearsal"),
        ("test", "non-private"),
    ]
    assert all(0 <= float(row["accuracy"]) <= 1 for row in rows)
    assert (out / "linear_probe_summary.csv").exists()


# Head to head with FLamby ----------------------------------------------------------------------


def test_flamby_hearts_have_its_sizes_and_folds_leave_its_test_records_out(experiment):
    hearts = experiment("datasets").flamby_heart
    sizes = [(len(hearts(one)), len(hearts(f"test-{one}"))) for one in HEART_SILOS]
    assert sizes == [(199, 104), (172, 89), (30, 16), (85, 45)]
    assert len(hearts("test")) == 254
    known = {row.tobytes() for one in HEART_SILOS for row in hearts(one).inputs}
    folds = [hearts("test", fold=fold).inputs for fold in range(3)]
    assert sum(map(len, folds)) == 486
    assert {row.tobytes() for rows in folds for row in rows} == known
    with pytest.raises(StudyError, match="expected fold to be -1, 0, 1 or 2"):
        hearts("test", fold=3)


@pytest.mark.slow
def test_flamby_small_trains_on_hearts_and_scores_every_centre(small):
    rows, _ = small("flamby")
    assert {(row["data"], row["method"], row["scored_silos"]) for row in rows} == {
        ("heart", "hubbub", "4")
    }
    assert all(0 <= float(row["mean_of_silos"]) <= 1 for row in rows)


def test_flamby_without_its_files_says_where_they_belong(experiment, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path))
    sets = importlib.import_module("experiments.datasets.flamby_sets")
    sets._brca.cache_clear()
    assert not experiment("flamby").available("brca")
    assert "tcga_brca.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "epsilon", "column", "least"),
    [
        ("heart", "0.1", "mean_of_silos", 0.75),
        ("heart", "1", "mean_of_silos", 0.79),
        ("brca", "0.5", "pooled", 0.74),
        ("brca", "1", "pooled", 0.76),
    ],
)
def test_committed_runs_are_ahead_of_flambys_with_privacy_and_without(data, epsilon, column, least):
    found = [
        float(row[column])
        for row in committed("flamby")
        if (row["data"], row["method"], row["epsilon"]) == (data, "hubbub", epsilon)
    ]
    assert len(found) >= 5
    assert mean(found) >= least


@pytest.mark.slow
def test_the_experiment_on_audits_has_a_row_for_each_kind_of_study(experiment, tmp_path):
    kinds = ["Poisson", "one list"]
    experiment("audit_power").main(["--small", "--out", str(tmp_path), "--kind", *kinds])
    rows = rows_of(tmp_path / "audit_power.csv")
    assert sorted(row["kind"] for row in rows) == sorted(kinds)
    for row in rows:
        assert (row["epsilon"], row["runs"], row["canaries"]) == ("4", "2", "40")
        assert float(row["share"]) == pytest.approx(float(row["shown"]) / 4, abs=0.01)
        assert float(row["processor_seconds"]) > 0


def test_audits_show_most_of_what_is_promised_but_where_lists_are_fresh(experiment):
    rows = committed("audit_power")
    module = experiment("audit_power")
    assert {(row["kind"], float(row["epsilon"])) for row in rows} == set(
        itertools.product(module.KINDS, module.EPSILONS)
    )
    # One in twenty may say too much by chance, and one of these does.
    assert [row["contradicted"] for row in rows].count("True") <= 1
    for row in rows:
        assert row["kind"] == "fresh lists" or float(row["share"]) >= 0.6


def test_what_a_plan_says_yes_to_was_answered():
    """98 of 100 releases; and intervals of regressions held then, weighted by cohorts."""
    rows = [row for row in committed("planned_answers") if int(row["yes"])]
    yes = sum(int(row["yes"]) for row in rows)
    assert yes > 100
    assert sum(int(row["yes"]) * float(row["answered_of_yes"]) for row in rows) >= 0.98 * yes
    # One of its seven cohorts has a class of next to nobody, of which a plan promises nothing.
    apart = "logistic on numbers"
    assert all(float(row["answered_of_yes"]) >= 0.98 for row in rows if row["setting"] != apart)
    held = [(int(row["yes"]), float(row["coverage"])) for row in rows if row["coverage"] != "nan"]
    assert sum(n * share for n, share in held) >= 0.93 * sum(n for n, _ in held)


def test_a_thousand_releases_of_each_setting_were_answered_and_intervals_held():
    """A coverage of .95 has a standard deviation of .007, a size of .05 too."""
    rows = committed("many_releases")
    assert len(rows) == 12
    for row in rows:
        assert (row["releases"], row["plan"], float(row["answered"])) == ("1000", "yes", 1)
        assert 0.94 <= float(row["coverage_lowest"]) <= float(row["coverage"]) <= 0.97
    sizes = [float(row["rejected"]) for row in rows if "alike" in row["setting"]]
    assert len(sizes) == 2
    assert max(sizes) <= 0.07


def test_intervals_of_a_validation_hold_as_often_as_they_say():
    """Of 200 releases; .95 of 200 has a standard deviation of .015, and here are hundreds."""
    rows = committed("validation_coverage")
    told = [row for row in rows if row["told"] == "nan" or float(row["told"]) >= 0.5]
    held = [float(row["coverage"]) for row in told if row["coverage"] != "nan"]
    assert len(held) > 300
    assert 0.945 <= sum(held) / len(held) <= 0.99  # of rounding more is allowed for than there is
    assert min(held) >= 0.9
    nothing = [row for row in told if row["law"] == "knows nothing" and row["better"] != "nan"]
    assert max(float(row["better"]) for row in nothing) <= 0.06
