"""The forecast: bytes to the byte, seconds and memory by arithmetic, and refusals in a sentence."""

from __future__ import annotations

import argparse
import json
import zlib
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hubbub import Study
from hubbub.cli import main, rates, training_commands
from hubbub.cli.forecasting import asked, forecast_of, formats_of
from hubbub.errors import StudyError, UserError
from hubbub.network import endpoint
from hubbub.network.event_log import EventLog
from hubbub.network.timeouts import Timeouts
from hubbub.planning import exposure, plan
from hubbub.planning.forecast import Forecast, Lines, forecast
from hubbub.planning.loads import AGGREGATOR, NODE, RELAY, SILO, Rates
from hubbub.planning.traffic_forecast import users_of
from hubbub.session.layout import Layout
from hubbub.study.tabular import Records
from hubbub.training import prepared_study
from network.consortium import Consortium, table

BASE, LEARNING = 100 << 20, 300 << 20
RATES = Rates(
    mask=2e-10,
    noise=1e-8,
    hash=5e-10,
    copy=1e-10,
    add=1e-10,
    sign=3e-5,
    verify=1e-4,
    message=1e-4,
    charge=3e-4,
    charge_wait=1e-3,
    sync=5e-3,
    gradient=0.02,
    update=0.05,
    update_wait=0.01,
    base=BASE,
    learning_base=LEARNING,
)
FAR = Lines(mbit=100.0, aggregator_mbit=1000.0, latency=0.02, engine=0.025)
PATIENT = Timeouts(deadline=600.0, opening=600.0, waiting=600.0, ask_again=600.0)
INPUTS = 12


def records(party: str) -> Records:
    """Made-up records, for studies that name this function."""
    drawn = np.random.default_rng(zlib.crc32(party.encode()))
    inputs = drawn.normal(size=(40, INPUTS)).astype(np.float32)
    return Records(inputs=inputs, targets=drawn.integers(2, size=40))


def study(silos: int = 6, nodes: int = 0, *, hidden: int = 500, **changes: dict) -> Study:
    made = {
        "study": {"name": "forecast"},
        "parties": {"silos": silos, "compute_nodes": nodes, "colluders": 1},
        "data": {"source": "python:none:none", "records": 10 * silos},
        "model": {"kind": "mlp", "inputs": [INPUTS], "hidden": [hidden]},
        "training": {"steps": 3, "sample_rate": 0.2},
        "privacy": {"epsilon": 4.0, "delta": 1e-4},
    }
    for key, values in changes.items():
        made[key] |= values
    return Study.from_table(made)


plan_once = lru_cache(plan)


@lru_cache
def planned(silos: int, nodes: int = 0, degree: int | None = None):
    """A plan; that of more silos costs minutes of accounting and is the same but for its size."""
    made = plan(study(min(silos, 6), nodes))
    if silos > 6:
        made = replace(made, study=study(silos, nodes), degree=degree or silos - 1)
    return made


def expected(silos: int = 6, nodes: int = 0, *, degree=None, cores=None, **changes) -> Forecast:
    made = planned(silos, nodes, degree)
    options = {"rates": RATES, "lines": FAR if cores is None else None} | changes
    return forecast(made, formats=formats_of(made), cores=cores, **options)


# Bytes -----------------------------------------------------------------------------------------

NETWORKED = {
    "pairwise": {},
    "sums projected": {"training": {"projection": 5}},
    "two nodes, in bfloat16": {
        "parties": {"compute_nodes": 2},
        "training": {"download": "bfloat16"},
    },
    "two of three nodes": {
        "parties": {"compute_nodes": 3, "nodes_per_silo": 2, "colluders": 0},
    },
    "full shares": {"parties": {"compute_nodes": 2, "shares": "full"}},
}
LISTED = {
    "per-step": [1, 1, 1, 1, 1],
    "per-epoch": [1, 0, 1, 0, 1],
    "static": [1, 0, 0, 0, 0],
}


@pytest.mark.parametrize("changes", NETWORKED.values(), ids=NETWORKED)
def test_bytes_of_set_up_and_steps_are_those_that_the_journal_counts(
    tmp_path, changes, monkeypatch
):
    monkeypatch.setattr(exposure, "_curve", lambda one: [one.parties.colluders])
    for module in (
        endpoint,
        prepared_study,
    ):  # everybody would come to the same plan, in much more time
        monkeypatch.setattr(module, "plan_study", plan_once)
    made = table(("a", "b", "c", "d"))
    made["data"] = {"source": "python:test_forecast:records", "records": 200}
    made["model"] = {"kind": "mlp", "inputs": [INPUTS], "hidden": [3]}
    for key, values in changes.items():
        made[key] |= values
    parties = Consortium.gather(tmp_path, made)
    event_log, counted = EventLog(party="aggregator"), []

    def look(_step, _row):
        state = json.loads(json.dumps(event_log._state))
        counted.append((state["bytes_sent"], state["bytes_received"]))

    parties.serve(event_log=event_log, progress=look, timeouts=PATIENT)
    sized = plan_once(parties.study)
    found = forecast(sized, formats=formats_of(sized), rates=RATES).load(AGGREGATOR)
    steps = {tuple(b - a for a, b in zip(*pair, strict=True)) for pair in pairwise(counted)}
    assert steps == {(found.step.sent, found.step.received)}
    setup = (found.setup.sent, found.setup.received)
    assert counted[0] == tuple(sum(two) for two in zip(setup, *steps, strict=True))


@pytest.mark.parametrize(("tokens", "due"), LISTED.items(), ids=LISTED)
def test_bytes_of_lists_are_those_that_the_journal_counts(tmp_path, tokens, due, monkeypatch):
    """Silos of other sizes, so that a list is not the same at any two of them."""
    monkeypatch.setattr(exposure, "_curve", lambda one: [one.parties.colluders])
    for module in (endpoint, prepared_study):
        monkeypatch.setattr(module, "plan_study", plan_once)
    counts = {"a": 7, "b": 5, "c": 9}
    made = table(tuple(counts), 2)
    made["data"] = {
        "source": "python:test_forecast:some_records",
        "records": sum(counts.values()),
        "counts": list(counts.values()),
    }
    made["model"] = {"kind": "mlp", "inputs": [INPUTS], "hidden": [3]}
    made["training"] = {"steps": 5, "sampling": "without-replacement", "batch": 12}
    made["training"] |= {"tokens": tokens}
    made["privacy"] |= {"relation": "substitute", "epsilon": 20.0}
    parties = Consortium.gather(tmp_path, made)
    event_log, counted = EventLog(party="aggregator"), [(0, 0)]

    def look(_step, _row):
        state = json.loads(json.dumps(event_log._state))
        counted.append((state["bytes_sent"], state["bytes_received"]))

    parties.serve(event_log=event_log, progress=look, timeouts=PATIENT)
    sized = plan_once(parties.study)
    found = forecast(sized, formats=formats_of(sized), rates=RATES)
    assert found.lists == sum(due)
    load, whole = found.load(AGGREGATOR), []
    for number, lists in enumerate(due):
        flow = load.step + load.listed.times(lists)
        flow = flow + load.setup if number == 0 else flow
        whole.append((flow.sent, flow.received))
    assert whole == [tuple(b - a for a, b in zip(*two, strict=True)) for two in pairwise(counted)]


def some_records(party: str) -> Records:
    """So many of them as the study with joint batches states."""
    whole, count = records(party), {"a": 7, "b": 5, "c": 9}.get(party, 40)
    return Records(inputs=whole.inputs[:count], targets=whole.targets[:count])


def test_what_the_relay_carries_is_what_all_parties_send():
    found = expected(6, 2)
    for part in ("setup", "step"):
        sent = sum(load.count * getattr(load, part).sent for load in found.loads[:-1])
        relay = getattr(found.load(RELAY), part)
        assert relay.received == relay.sent == sent  # both nodes serve all, and are alike


@pytest.mark.parametrize(("silos", "nodes", "each"), [(7, 3, 2), (6, 3, 1), (2, 5, 3), (9, 4, 4)])
def test_the_users_of_each_node_are_those_of_the_protocol(silos, nodes, each):
    names = tuple(f"silo-{number}" for number in range(silos))
    layout = Layout(names=names, nodes=nodes, nodes_per_silo=each)
    indices = range(silos + 1, silos + nodes + 1)
    assert users_of(silos, nodes, each) == [len(layout.neighbours(k, b"")) for k in indices]


def test_a_silo_s_bytes_of_a_step_do_not_grow_with_the_nodes():
    assert expected(6, 2).load(SILO).step == expected(6, 3).load(SILO).step


# Seconds ---------------------------------------------------------------------------------------


def test_the_parts_of_a_step_are_counts_times_rates():
    made, silo = planned(6), expected().load(SILO)
    vector = made.numbers * made.word_bits // 8
    assert silo.work["masks"] == pytest.approx(5 * vector * RATES.mask)
    assert silo.work["noise"] == pytest.approx(made.numbers * RATES.noise)
    assert silo.work["hashing"] == pytest.approx((4 * made.dimension + vector) * RATES.hash)
    assert silo.work["gradients"] == RATES.gradient
    assert expected(6, 2).load(NODE).work["totals"] == pytest.approx(6 * vector * RATES.mask)


def test_lines_cost_what_their_width_and_length_say():
    found, near = expected(), expected(lines=Lines())
    down, up = found.load(SILO).step.received, found.load(SILO).step.sent
    assert found.seconds["model down"] == pytest.approx(8e-6 * down / 100)  # 6 x 100 < 1000 Mbit
    assert found.seconds["vector up"] == pytest.approx(8e-6 * up / 100)
    narrow = expected(lines=replace(FAR, aggregator_mbit=100.0))
    assert narrow.seconds["model down"] == pytest.approx(6 * 8e-6 * down / 100)
    assert found.seconds["latency"] == pytest.approx(2 * 0.02)
    assert expected(6, 2).seconds["engine"] == pytest.approx(2 * 0.025)  # nodes: a second phase
    assert not any(near.seconds[name] for name in ("model down", "latency", "engine"))


def test_on_one_core_a_step_takes_everybody_s_work():
    one = expected(20, cores=1)
    disk = one.seconds["disk"]
    assert one.step_seconds - disk == pytest.approx(one.processor_seconds)
    assert one.processor_seconds > 20 * RATES.gradient


def test_more_cores_are_never_slower_and_never_better_than_their_number():
    seconds = [expected(20, cores=cores).step_seconds for cores in (1, 2, 4, 20, 100)]
    assert all(fewer > more for fewer, more in pairwise(seconds[:4]))
    assert seconds[1] > seconds[0] / 2
    assert seconds[3] == seconds[4]  # there is nothing for more cores to do


def test_answers_leave_at_multiples_of_the_pace():
    assert "pace" in expected(lines=replace(FAR, pace=0.02)).seconds
    silo = expected().load(SILO)
    paced = expected(lines=replace(FAR, pace=0.02)).seconds["pace"]
    turns = (silo.processor + silo.waits + paced) / 0.02
    assert 0 <= paced < 0.02
    assert turns == pytest.approx(round(turns))


# All of it -------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [0, 2])
@pytest.mark.parametrize("cores", [None, 1, 4])
def test_more_silos_never_take_less(nodes, cores):
    found = [expected(silos, nodes, degree=5, cores=cores) for silos in (6, 8, 60, 600, 6000)]
    for fewer, more in pairwise(found):
        assert more.step_seconds >= fewer.step_seconds
        assert more.processor_seconds > fewer.processor_seconds
        for kind in (AGGREGATOR, RELAY):
            assert more.load(kind).step.received > fewer.load(kind).step.received
            assert more.load(kind).setup.sent > fewer.load(kind).setup.sent
        assert more.load(SILO).step.received >= fewer.load(SILO).step.received
        assert more.load(RELAY).memory > fewer.load(RELAY).memory
        if cores:
            assert more.memory > fewer.memory


def test_a_silo_s_memory_and_the_aggregator_s_do_not_grow_with_the_silos():
    few, many = expected(60, degree=5), expected(6000, degree=5)
    for kind in (SILO, AGGREGATOR):
        assert many.load(kind).memory - few.load(kind).memory <= 4 * 6000 // 8  # bitmaps


def test_memory_counts_the_vectors():
    short, long = (plan(study(hidden=width)) for width in (100, 200))
    a, b = (forecast(one, formats=formats_of(one), rates=RATES) for one in (short, long))
    for kind in (SILO, AGGREGATOR):
        grown = b.load(kind).vectors / a.load(kind).vectors
        assert grown == pytest.approx(long.dimension / short.dimension, rel=1e-3)


def test_silos_of_one_process_wait_with_their_models_and_share_what_they_work_with():
    few, some, many = (expected(count, degree=5, cores=1) for count in (6, 12, 6000))
    model = planned(6).dimension * 4
    assert some.memory - few.memory >= 6 * few.load(SILO).vectors
    for_one_more = (many.memory - some.memory) / (6000 - 12)
    assert 4 * model <= for_one_more < few.load(SILO).vectors


@pytest.mark.parametrize("nodes", [0, 3])
def test_a_hundred_thousand_silos_are_forecast(nodes):
    made = planned(100_000, nodes, 60)
    formats = formats_of(made)
    found = forecast(made, formats=formats, rates=RATES, lines=FAR)
    assert found.load(AGGREGATOR).step.sent > 100_000 * 4 * made.dimension
    assert found.load(SILO).count == 100_000


def test_what_was_not_measured_is_left_out_and_said():
    found = expected(rates=replace(RATES, gradient=None))
    assert not found.complete
    assert found.load(SILO).work["gradients"] == 0
    assert expected().complete


# Measuring, and the command --------------------------------------------------------------------


def quick(monkeypatch) -> None:
    monkeypatch.setattr(rates, "_TRIES", 1)


def test_rates_are_measured_for_all_that_a_step_does(monkeypatch):
    quick(monkeypatch)
    found = rates.measured(plan(study()), shared=True)
    for name in ("mask", "noise", "hash", "sign", "verify", "message", "charge"):
        assert 0 < getattr(found, name) < 1, name
    assert found.gradient
    assert found.update
    assert 10 << 20 < found.base <= found.learning_base
    assert found.record == 4 * INPUTS + 8


def test_without_torch_the_rest_is_measured(monkeypatch):
    quick(monkeypatch)
    monkeypatch.setattr(rates, "_has_torch", lambda: False)
    found = rates.measured(plan(study()))
    assert (found.gradient, found.update) == (None, None)
    assert found.noise > 0


def test_an_unknown_number_of_records_leaves_gradients_out(monkeypatch):
    quick(monkeypatch)
    found = rates.measured(plan(study(data={"records": 0})))
    assert found.gradient is None
    assert found.update


def test_python_gives_what_the_command_gives(monkeypatch):
    quick(monkeypatch)
    found, far = forecast_of(study()), forecast_of(plan(study()), mbit=1.0)
    assert found.loads[0].step == far.loads[0].step
    assert far.seconds["model down"] > 50 * found.seconds["model down"]
    assert forecast_of(study(), cores=1).memory > 6 * found.load(SILO).vectors


def command(capsys, file: Path, *options: str) -> tuple[int, str, str]:
    code = main(["plan", str(file), *options])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def file(tmp_path, monkeypatch):
    quick(monkeypatch)
    monkeypatch.setattr(training_commands, "plan", plan_once)
    path = tmp_path / "study.toml"
    path.write_text(study(nodes=2).as_toml())
    return path


def test_the_command_s_json_holds_the_plan_and_the_forecast(capsys, file):
    code, out, err = command(capsys, file, "--forecast", "--cores", "1", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    found = said["forecast"]
    assert said["noise_multiplier"] > 0
    assert [one["kind"] for one in found["parties"]] == [SILO, NODE, AGGREGATOR, RELAY]
    assert found["seconds_per_step"] == pytest.approx(sum(found["seconds"].values()))
    assert found["complete"] is True
    assert set(found["parties"][0]) == {
        *("kind", "count", "setup_bytes", "step_bytes", "processor_seconds", "disk_seconds"),
        *("list_bytes", "memory_bytes"),
    }
    assert "forecast" not in json.loads(command(capsys, file, "--json")[1])


def test_the_command_shows_every_kind_of_party(capsys, file):
    code, out, _ = command(capsys, file, "--forecast")
    assert code == 0
    assert "seconds" in out.split("A step takes")[1]
    for part in ("gradients", "noise", "masks", "hashing", "model down", "vector up", "engine"):
        assert part in out


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--mbit", "100"), "--forecast"),
        (("--cores", "2"), "--forecast"),
        (("--forecast", "--mbit", "0"), "above 0"),
        (("--forecast", "--mbit", "nan"), "above 0"),
        (("--forecast", "--latency-ms", "-1"), "at least 0"),
        (("--forecast", "--engine-ms", "inf"), "at least 0"),
        (("--forecast", "--cores", "0"), "at least 1"),
        (("--forecast", "--cores", "many"), "invalid"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(capsys, file, options, word):
    code, out, err = command(capsys, file, *options)
    assert (code, out) == (2, "")
    assert word in err
    assert err.count("\n") == 1


def test_a_study_that_cannot_run_apart_is_refused_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(rates, "_spent", None)
    joint = study(training={"sampling": "without-replacement"}, privacy={"relation": "substitute"})
    with pytest.raises(StudyError, match=r"data\.counts .* how many records each silo has"):
        forecast_of(joint)
    with pytest.raises(StudyError, match="size is known"):
        forecast(replace(planned(6), dimension=None), formats=formats_of(planned(6)), rates=RATES)


def test_nothing_is_asked_without_the_option():
    options = dict.fromkeys(("mbit", "aggregator_mbit", "latency_ms", "engine_ms", "cores"))
    assert asked(argparse.Namespace(forecast=False, **options), planned(6)) is None
    with pytest.raises(UserError, match="expected --forecast with --cores"):
        asked(argparse.Namespace(forecast=False, **(options | {"cores": 0})), planned(6))
