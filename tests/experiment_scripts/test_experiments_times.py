"""The small variants of the experiments on running time. No time is asserted, only what follows."""

from __future__ import annotations

import importlib
import json
from collections.abc import Collection
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from hubbub.core.protocol.agreement import masks

pytest.importorskip("experiments", reason="they are not part of this copy of hubbub")
pytest.importorskip("benchmarks", reason="they are not part of this copy of hubbub")

from experiments.results import RESULTS, rows_of

torch = pytest.importorskip("torch", reason="training needs the extra learn")
pytest.importorskip("matplotlib", reason="figures need the extra experiments")

ROOT = Path(__file__).parents[2]

PNG = b"\x89PNG\r\n\x1a\n"
NAMES = ("thin_clients", "fat_clients", "scaling")


def number(row, column):
    return float(row[column])


@pytest.fixture(scope="module")
def module():
    """A module of experiments/ or benchmarks/, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield importlib.import_module


@pytest.fixture(scope="module")
def small(module, tmp_path_factory):
    """Rows and folder of a small variant; each runs once."""
    done = {}

    def played(name):
        if name not in done:
            out = tmp_path_factory.mktemp(name)
            module(f"experiments.{name}").main(["--small", "--out", str(out)])
            done[name] = out
        return rows_of(done[name] / f"{name}.csv"), done[name]

    return played


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_writes_table_summary_figure_and_how_it_was_made(small, module, name):
    rows, out = small(name)
    assert tuple(rows[0]) == module(f"experiments.{name}").COLUMNS
    assert all(number(row, "load") >= 0 for row in rows)
    assert (out / f"{name}_summary.csv").exists()
    assert (out / f"{name}.png").read_bytes().startswith(PNG)
    (said,) = (json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines())
    assert said["command"].startswith(f"python -m experiments.{name} --small")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_finished_run_is_not_made_again_and_a_lost_one_is(small, module, monkeypatch, name):
    rows, out = small(name)
    path = out / f"{name}.csv"
    whole = path.read_bytes()
    made = []

    experiment = module(f"experiments.{name}")

    def again(*_):
        made.append(name)
        return {key: value for key, value in rows[-1].items() if key not in experiment.KEY}

    monkeypatch.setattr(experiment, "measured", again)
    experiment.main(["--small", "--out", str(out)])
    assert made == []
    path.write_bytes(whole[: whole.rstrip(b"\n").rindex(b"\n") + 1])
    experiment.main(["--small", "--out", str(out)])
    assert made == [name]
    assert path.read_bytes() == whole


@pytest.mark.slow
def test_thin_folds_are_the_masked_step_over_the_clear_one(small):
    rows, _ = small("thin_clients")
    for row in rows:
        for fold, above, below in (
            ("fold_wall_1", "wall_1", "clear_wall"),
            ("fold_wall_2", "wall_2", "clear_wall"),
            ("fold_cpu", "cpu", "clear_cpu"),
            ("fold_path", "path", "clear_path"),
        ):
            expected = number(row, above) / number(row, below)
            assert number(row, fold) == pytest.approx(expected, rel=1e-4)
        parts = number(row, "silo") + number(row, "aggregator") + number(row, "node")
        assert number(row, "path") == pytest.approx(parts, rel=1e-4)
        clear = number(row, "clear_silo") + number(row, "clear_aggregator")
        assert number(row, "clear_path") == pytest.approx(clear, rel=1e-4)
        assert min(number(row, part) for part in ("silo", "aggregator", "node")) > 0


@pytest.mark.slow
def test_what_is_multiplied_of_the_papers_ways_is_written_beside_it(small):
    for row in small("thin_clients")[0]:
        silos, silo = int(row["silos"]), number(row, "paper_silo")
        part = number(row, "coordinates") / number(row, "paper_coordinates_timed")
        assert row["paper_silos_timed"] == "1"
        assert number(row, "paper_multiplied_by") == pytest.approx(silos * part)
        cpu, path = number(row, "clear_cpu"), number(row, "clear_path")
        assert number(row, "fold_paper_cpu") == pytest.approx(1 + silos * silo / cpu, rel=1e-4)
        assert number(row, "fold_paper_path") == pytest.approx(1 + silo / path, rel=1e-4)
    for row in small("fat_clients")[0]:
        part = number(row, "coordinates") / number(row, "blake2_coordinates_timed")
        degree, silos = int(row["degree"]), int(row["silos"])
        assert number(row, "blake2_multiplied_by") == pytest.approx(degree * part)
        silo, cpu = number(row, "blake2_masking_ms") / 1e3, number(row, "clear_cpu")
        assert number(row, "fold_blake2_cpu") == pytest.approx(1 + silos * silo / cpu, rel=1e-4)


def test_a_part_is_multiplied_up_to_the_whole(module, monkeypatch):
    """Half of the numbers are timed: the columns say so and count them twice."""
    thin = module("experiments.thin_clients")
    monkeypatch.setattr(thin.paper, "SAMPLE", 500)
    monkeypatch.setattr(thin, "processor_seconds", lambda _: 3.0)
    found = thin.paper_columns(nodes=4, silos=10, coordinates=1000, clear_cpu=2.0, clear_path=1.0)
    assert found["paper_coordinates_timed"] == 500
    assert found["paper_multiplied_by"] == 20
    assert (found["paper_silo"], found["fold_paper_cpu"], found["fold_paper_path"]) == (6, 31, 7)


@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_the_papers_messages_add_up_to_the_vector_and_differ_each_time(module, nodes):
    thin = module("experiments.thin_clients")
    vector = np.arange(64, dtype=np.uint32) * np.uint32(2**26)
    first, second = (thin.messages_of(vector, nodes) for _ in range(2))
    assert len(first) == nodes
    assert np.array_equal(np.sum(first, axis=0, dtype=np.uint32), vector)
    assert not any(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.slow
def test_fat_silos_are_on_the_graph_that_the_row_names(small):
    rows, _ = small("fat_clients")
    found = [(row["silos"], row["graph"], row["degree"], row["most_colluders"]) for row in rows]
    assert found == [
        ("2", "complete", "1", "0"),
        ("6", "complete", "5", "4"),
        ("6", "2", "2", "0"),
        ("8", "complete", "7", "6"),
        ("8", "2", "2", "0"),
    ]


@pytest.mark.slow
def test_most_colluders_is_how_many_can_be_deleted_without_taking_the_graph_apart(module):
    fat = module("experiments.fat_clients")
    for silos, degree in ((12, 4), (14, 8)):
        most = fat.Point(silos=silos, regular=degree).most_colluders
        assert all(is_whole(silos, degree, gone) for gone in combinations(range(silos), most + 1))
        around = masks.neighbours_of(0, silos, degree, b"seed")
        assert len(around) == most + 2
        assert not is_whole(silos, degree, around)


def is_whole(silos: int, degree: int, gone: Collection[int]) -> bool:
    """Whether the silos that are left on a mask graph are one component."""
    left = set(range(silos)) - set(gone)
    edge = {min(left)}
    while edge:
        left -= edge
        near = (masks.neighbours_of(one, silos, degree, b"seed") for one in edge)
        edge = set().union(*near) & left
    return not left


@pytest.mark.slow
@pytest.mark.parametrize(("silos", "nodes", "degree"), [(4, 2, None), (5, 0, 4), (7, 0, 2)])
def test_clear_and_masked_steps_have_the_same_sum(module, monkeypatch, silos, nodes, degree):
    """Without noise, with all records and in their order, which leaves nothing to chance."""
    monkeypatch.setattr(
        "hubbub.core.protocol.round.batches.injected", lambda _source, chosen, _rows: chosen
    )
    times = module("experiments.step_times")
    case = times.Case(
        silos=silos, nodes=nodes, degree=degree, hidden=(8,), records=10 * silos, rate=0.2
    )
    ready, _ = times.prepared(replace(case, degree=None))
    exact = {"sigma_grid": 0.0, "grid_step": 1e-6, "word_bits": 32, "sample_rate": 1.0}
    sure = replace(ready, round_parameters=replace(ready.round_parameters, **exact))
    sums: list[np.ndarray] = []
    # The model moves by what the optimizer is given, so every later sum depends on the one before.
    monkeypatch.setattr(
        times.learning.Optimizer,
        "step",
        lambda self, parameters, gradient: sums.append(gradient) or parameters - gradient,
    )
    parties = times.set_up(case, sure)
    sessions = [parties.peers.parties[index].agreed for index in parties.roster.silos]
    assert {len(session.secrets) for session in sessions} == {degree or nodes}
    kinds = [times.clear_kind(sure)]
    kinds += [
        times.masked_kind(sure, parties, n, place, (1, 2, 0)) for place, n in enumerate((1, 2, 0))
    ]
    for step in (1, 2):
        clear, *_, apart = (kind.go(step) for kind in kinds)
        assert clear.node == 0 < clear.silo
        assert (apart.node > 0) == (nodes > 0)
    assert np.abs(sums[0]).max() > 0
    assert all(np.array_equal(sums[0], other) for other in sums[1:4])
    assert all(np.array_equal(sums[4], other) for other in sums[5:])
    assert not np.array_equal(sums[0], sums[4])


def test_a_watched_party_answers_as_it_is_and_forgets_its_time_when_asked(module, monkeypatch):
    times = module("experiments.step_times")
    clock = iter([1.0, 3.0, 10.0, 10.5])
    monkeypatch.setattr(times.time, "thread_time", lambda: next(clock))
    watched = times.Watched([3, 1])
    assert watched.count(1) == 1
    assert watched.index(1) == 1
    assert (watched.taken(), watched.taken()) == (2.5, 0)
    with pytest.raises(AttributeError):
        watched.no_such_thing  # noqa: B018  # the access is the test


@pytest.mark.slow
def test_parties_that_are_apart_hash_what_they_receive(module, monkeypatch):
    """In one process the sender's hash is taken over; on a path that would be too little."""
    times = module("experiments.step_times")
    case = times.Case(silos=3, nodes=2, hidden=(100,), records=30, rate=0.2)
    ready, _ = times.prepared(case)
    parties = times.set_up(case, ready)
    hashed = []
    real = times.wire.hashlib.sha256

    def counted(data=b"", **more):
        hashed.append(len(data))
        return real(data, **more)

    monkeypatch.setattr(times.wire.hashlib, "sha256", counted)
    counts = []
    for place, threads in enumerate((1, times.APART)):
        hashed.clear()
        times.masked_kind(ready, parties, threads, place, (1, times.APART)).go(1)
        counts.append(sum(size > 60_000 for size in hashed))
    sent = 3 + 2  # the masked vectors, the nodes' totals; the model's hash begins with a short part
    assert counts[1] == sent + 3 + 3 + 2  # each silo the model, the aggregator the rest
    assert counts[0] < counts[1]


@pytest.mark.slow
def test_torchs_threads_are_as_before(module):
    times = module("experiments.step_times")
    before = torch.get_num_threads()
    seen = []
    case = times.Case(silos=2, hidden=(2,), records=8, rate=0.5)
    times.compared(case, 1, (1,), lambda _: seen.append(torch.get_num_threads()))
    assert set(seen) == {1}
    assert torch.get_num_threads() == before


@pytest.mark.slow
def test_scaling_says_what_each_process_took_at_its_most(small):
    rows, _ = small("scaling")
    assert [row["silos"] for row in rows] == ["10", "40"]
    for row in rows:
        assert 0 < number(row, "start_mib") <= number(row, "peak_mib")
        more = number(row, "peak_mib") - number(row, "start_mib")
        each = 1024 * more / int(row["silos"])
        assert number(row, "kib_per_silo") == pytest.approx(each, abs=0.2)


def test_a_summary_has_medians_that_one_slow_run_does_not_move(module, tmp_path):
    results, medians = module("experiments.results"), module("experiments.medians")
    table = results.Table(path=tmp_path / "t.csv", key=("k", "run"), columns=("k", "run", "y"))
    for k, ys in (("a", (1.0, 2.0, 90.0)), ("b", (5.0, 7.0))):
        for run, y in enumerate(ys):
            table.append({"k": k, "run": run, "y": y})
    medians.summarise_medians(table, ("k",), ("y",))
    first, second = rows_of(tmp_path / "t_summary.csv")
    assert (first["y_median"], first["y_least"], first["y_largest"]) == ("2", "1", "90")
    assert second["y_median"] == "6"
    assert medians.runs_of(table.rows(), ("k",)).endswith("of 2 to 3 runs")
    assert medians.runs_of(table.rows(), ("k", "run")) == "one run each"
    (mark,) = medians.medians([(3, 1.0), (3, 2.0), (3, 90.0)])
    assert (mark.x, mark.mean, mark.least, mark.largest, mark.runs) == (3, 2, 1, 90, 3)


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_summary_is_that_of_the_committed_runs(name):
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"{path} is not there: run python -m experiments.{name}")
    rows = rows_of(path)
    for line in rows_of(RESULTS / f"{name}_summary.csv"):
        for column in (one for one in line if one.endswith("_median")):
            of = column.removesuffix("_median")
            mine = [
                number(row, of)
                for row in rows
                if all(row[key] == line[key] for key in ("silos", "nodes", "graph") if key in row)
            ]
            assert number(line, column) == pytest.approx(median(mine), rel=1e-5)
