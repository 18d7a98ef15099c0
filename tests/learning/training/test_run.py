"""A whole run: exact sums, masks, the ledger's order, the run folder, and what must not leave.

The real parties play in this process; spies stand where a byte is made or a row is written.
"""

from __future__ import annotations

import base64
import json
import logging
import sqlite3
import struct
import subprocess
import sys
import traceback
from collections import defaultdict
from functools import lru_cache
from importlib import resources
from math import inf, isfinite
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import hubbub
from hubbub import Study, learning
from hubbub.core.errors import (
    BudgetError,
    DataError,
    HubbubError,
    ModelError,
    ProtocolError,
    StudyError,
    UserError,
)
from hubbub.core.ledger.privacy_ledger import Cap, Ledger
from hubbub.core.planning.plan import Plan
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import noise
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Frame, Tag
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.session.in_process import federate
from hubbub.core.session.offer import Layout
from hubbub.core.study import silo_records
from hubbub.core.tabular.records import Records
from hubbub.core.verification.replay.checking import verify
from hubbub.learning.runs.baselines import BASELINES
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.run_study import run

FALSE_ALARM = 1e-9
HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")
HOSPITALS = ("cleveland", "hungary", "switzerland", "va-long-beach")
PARAMETERS = np.zeros(2, dtype=np.float32)


# Sums -----------------------------------------------------------------------------------------


class Given:
    """A silo whose sum is given; it stands where the learning layer stands."""

    count = capacity = 0

    def __init__(self, vector: np.ndarray) -> None:
        self._vector = vector

    def clipped_sum(self, parameters, chosen) -> np.ndarray:
        return self._vector.copy()


def partial_source(seed: int):
    """From a party's index to its source."""
    return lambda index: SecureSource(struct.pack("<QQ", seed, index))


@lru_cache(maxsize=32)
def keys_of(silos: int, nodes: int) -> list[Keys]:
    """Everybody's keys, made once."""
    return layout(silos, nodes).keys()


def layout(silos: int, nodes: int) -> Layout:
    names = tuple(f"silo-{number}" for number in range(1, silos + 1))
    return Layout(names=names, nodes=nodes, degree=min(silos - 1, 12))


def federation(silos: int, nodes: int, tasks, *, word_bits: int, dimension: int, seed=None):
    """Everybody in a new session; with a seed, every silo's randomness repeats."""
    round_parameters = RoundParameters(
        dimension=dimension,
        parameters=PARAMETERS.size,
        silos=silos,
        quorum=silos,
        steps=9,
        word_bits=word_bits,
        grid_step=0.25,
        sigma_grid=8.0,
        sample_rate=1.0,
        nodes=nodes,
    )
    return federate(
        layout(silos, nodes),
        round_parameters,
        tasks,
        study=bytes(32),
        keys=keys_of(silos, nodes),
        source=None if seed is None else partial_source(seed),
        session=None if seed is None else bytes(16),  # what is drawn depends on it
    )


def vectors(silos: int, dimension: int, word_bits: int) -> list[np.ndarray]:
    """Sums of gradients, as large as the word allows for all silos together."""
    generator = np.random.default_rng([silos, dimension, word_bits])
    most = 0.25 * 0.9 * min(2.0 ** (word_bits - 1), 2.0**50) / silos
    return [generator.uniform(-most, most, dimension) for _ in range(silos)]


@pytest.fixture
def encoded(monkeypatch) -> list[np.ndarray]:
    """What every silo encodes, before it is masked."""
    seen: list[np.ndarray] = []
    original = noise.add_noise_and_round

    def spy(vector, sigma_grid, source, word_bits, **grid):
        residues = original(vector, sigma_grid, source, word_bits, **grid)
        seen.append(residues.view(f"i{word_bits // 8}").astype(object))
        return residues

    monkeypatch.setattr(noise, "add_noise_and_round", spy)
    return seen


@pytest.mark.quick_cases("2-0-32", "2-1-64", "3-0-64", "2-0-16")
@pytest.mark.slow_cases(
    *(f"100-0-{bits}" for bits in (16, 32, 64)), "100-1-16", "100-1-64", "100-3-16", "100-3-32"
)
@pytest.mark.parametrize("word_bits", [16, 32, 64])
@pytest.mark.parametrize("nodes", [0, 1, 3])
@pytest.mark.parametrize("silos", [2, 3, 4, 10, 100])
def test_the_decoded_sum_is_the_sum_of_what_was_encoded(encoded, silos, nodes, word_bits):
    tasks = [Given(vector) for vector in vectors(silos, 33, word_bits)]
    parties = federation(silos, nodes, tasks, word_bits=word_bits, dimension=33)
    for round in (1, 2):
        encoded.clear()
        total = parties.sum(round, PARAMETERS)
        assert len(encoded) == silos
        assert total.tolist() == np.sum(encoded, axis=0).tolist()


def test_the_noise_is_fresh_in_every_round_and_silo(encoded):
    parties = federation(4, 0, [Given(np.zeros(33))] * 4, word_bits=32, dimension=33)
    parties.sum(1, PARAMETERS)
    parties.sum(2, PARAMETERS)
    assert len({tuple(one.tolist()) for one in encoded}) == 8
    spread = np.concatenate(encoded).astype(float).std()
    assert 8 * 2 / 3 < spread < 8 * 3 / 2  # 264 samples: off by a third once in 10^13


# Masks ----------------------------------------------------------------------------------------


def least_p(residues: np.ndarray) -> float:
    """The smallest p-value of a chi-square test of uniformity, over the bytes of the words."""
    columns = residues.view(np.uint8).reshape(residues.size, -1).T
    return min(float(chisquare(np.bincount(c, minlength=256)).pvalue) for c in columns)


def on_the_wire(monkeypatch, *, nodes: int, word_bits: int, masked: bool):
    """One round's sum, and what each silo sent in it."""
    tasks = [Given(vector / 8) for vector in vectors(4, 5120, 16)]
    sent: list[np.ndarray] = []
    with monkeypatch.context() as patch:
        original = Aggregator.receive

        def spy(self, message, shares=()):
            if message[1] == Tag.MASKED:
                payload = message[HEADER_BYTES : len(message) - SIGNATURE_BYTES]
                sent.append(np.frombuffer(payload, dtype=f"<u{word_bits // 8}"))
            return original(self, message, shares)

        patch.setattr(Aggregator, "receive", spy)
        if not masked:
            patch.setattr(MaskStream, "add_all", lambda *arguments, **options: None)
        parties = federation(4, nodes, tasks, word_bits=word_bits, dimension=5120, seed=word_bits)
        return parties.sum(1, PARAMETERS), sent


@pytest.mark.quick_cases("1-32", "0-16", "1-16", "0-32")
@pytest.mark.parametrize("word_bits", [16, 32, 64])
@pytest.mark.parametrize("nodes", [0, 1, 3])
def test_masks_leave_the_sum_as_it_is_and_make_every_vector_uniform(monkeypatch, nodes, word_bits):
    with_masks, hidden = on_the_wire(monkeypatch, nodes=nodes, word_bits=word_bits, masked=True)
    without, open_ = on_the_wire(monkeypatch, nodes=nodes, word_bits=word_bits, masked=False)
    assert with_masks.tolist() == without.tolist()
    threshold = FALSE_ALARM / (4 * word_bits // 8)  # silos times bytes, each tested once
    assert len(hidden) == len(open_) == 4
    assert all(least_p(vector) > threshold for vector in hidden)
    assert all(least_p(vector) < threshold for vector in open_)


# Runs -----------------------------------------------------------------------------------------


def heart(*, nodes: int = 0, steps: int = 20, **replaced: str) -> Study:
    """The heart study at a generous epsilon; `replaced` exchanges whole lines by their key."""
    lines = {
        "compute_nodes": str(nodes),
        "steps": str(steps),
        "epsilon": "8.0",
        "relation": '"add-remove"',
        **replaced,
    }
    text = HEART
    for key, value in lines.items():
        found = next(line for line in text.splitlines() if line.startswith(f"{key} ="))
        text = text.replace(found, f"{key} = {value}")
    return Study.parse(text)


@lru_cache(maxsize=8)
def planned(nodes: int = 0, steps: int = 20) -> Plan:
    """The plan of `heart`, made once."""
    return hubbub.plan(heart(nodes=nodes, steps=steps))


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2])
@pytest.mark.parametrize("mode", ["federated", *BASELINES])
def test_a_run_learns_and_leaves_a_whole_folder(tmp_path, mode, nodes):
    study, folder = heart(nodes=nodes), tmp_path / "run"
    baseline = None if mode == "federated" else mode
    result = run(study, folder, baseline=baseline, plan=planned(nodes))

    assert [row["step"] for row in result.metrics] == list(range(1, 21))
    assert all(0 <= row["accuracy"] <= 1 and isfinite(row["loss"]) for row in result.metrics)
    # Far below what each mode reaches (0.87, alone 0.77), far above guessing.
    assert (0.6 if mode == "alone" else 0.75) < result.final["auc"] <= 1
    assert (result.epsilon == inf) == (mode == "non-private")
    assert mode == "non-private" or result.epsilon == planned(nodes).epsilon() <= 8

    assert Study.load(folder / "study.toml").id == study.id
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["study_id"] == study.id.hex()
    assert plan["noise_multiplier"] == planned(nodes).noise_multiplier
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows == [dict(row) for row in result.metrics]
    assert study.name in (folder / "report.html").read_text()
    fresh = learning.build_model("logistic", inputs=(26,), outputs=1, seed=bytes(32))
    header = learning.load_model(folder / "model.safetensors", fresh)
    assert header["study"] == study.id.hex()
    trained = learning.parameters_vector(result.model)
    assert np.array_equal(learning.parameters_vector(fresh), trained)
    assert np.abs(trained).max() > 0
    assert not list(folder.glob("*.part"))


@pytest.mark.slow
def test_the_public_name_runs_a_study_and_writes_nothing_unless_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = hubbub.run(heart(steps=2), plan=planned(steps=2))
    assert result.folder is None
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_study_made_in_python_leaves_a_study_file_that_loads(tmp_path):
    read = Study.parse(HEART)
    study = Study.from_table(
        {
            "study": {"name": read.name},
            "parties": {"names": list(HOSPITALS), "colluders": 1},
            "data": {"source": "hubbub.datasets:heart", "options": {"split": 3}},
            "model": {"kind": "logistic"},
            "training": {"steps": 1, "sample_rate": 0.2},
            "privacy": {"epsilon": 8.0, "delta": 1e-5},
        }
    )
    run(study, tmp_path / "run")
    assert Study.load(tmp_path / "run" / "study.toml").id == study.id


@pytest.mark.slow
def test_a_folder_with_files_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="empty or new folder"):
        run(heart(steps=2), tmp_path, plan=planned(steps=2))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_unknown_baseline_is_refused(tmp_path):
    with pytest.raises(StudyError, match="expected baseline to be one of"):
        run(heart(), tmp_path / "run", baseline="trusting", plan=planned())
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_interrupted_run_leaves_study_plan_and_ledgers_readable(tmp_path):
    def stop(step, _row):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(heart(), tmp_path / "run", progress=stop, plan=planned())
    assert_readable(tmp_path)


@pytest.mark.slow
def test_a_killed_run_leaves_study_plan_and_ledgers_readable(tmp_path):
    script = (
        "import os, sys, hubbub\n"
        "stop = lambda step, row: os._exit(9) if step == 3 else None\n"
        "hubbub.run(hubbub.Study.load(sys.argv[1]), sys.argv[2], progress=stop)\n"
    )
    (tmp_path / "study.toml").write_text(heart().toml)
    arguments = [str(tmp_path / "study.toml"), str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-c", script, *arguments], check=False)
    assert done.returncode == 9
    assert_readable(tmp_path)


def assert_readable(home: Path) -> None:
    """A run that stopped after step 3 left what it had decided and spent."""
    assert Study.load(home / "run" / "study.toml").id == heart().id
    assert json.loads((home / "run" / "plan.json").read_text())["study_id"] == heart().id.hex()
    assert not (home / "run" / "model.safetensors").exists()
    assert not list((home / "run").glob("*.part"))
    for name in HOSPITALS:
        assert ledger(home / "ledgers", name, Ledger.verify) == 3


# Ledger ---------------------------------------------------------------------------------------


def ledger(home: Path, name: str, question):
    """Ask a silo's ledger something, and close it."""
    with Ledger(home / f"{name}.sqlite") as book:
        return question(book)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2])
def test_every_ledger_holds_every_step_and_the_plans_epsilon(tmp_path, nodes):
    study, plan = heart(nodes=nodes), planned(nodes)
    result = run(study, tmp_path / "run", plan=plan)
    for name in HOSPITALS:
        entries = ledger(tmp_path / "ledgers", name, lambda book: list(book.entries()))
        assert [(one.round, one.attempt) for one in entries] == [(k, 0) for k in range(1, 21)]
        assert {one.study for one in entries} == {study.id}
        assert ledger(tmp_path / "ledgers", name, Ledger.verify) == 20
        spent = ledger(
            tmp_path / "ledgers", name, lambda b: b.epsilon(delta=1e-5, relation="add-remove")
        )
        # Never less than the plan says, and hardly more.
        promised = plan.epsilon("aggregator + 1 silo")
        assert promised * (1 - 1e-9) <= spent <= promised * (1 + 1e-5)
    assert result.epsilon == plan.epsilon("aggregator + 1 silo")


@pytest.mark.slow
def test_two_studies_on_the_same_records_add_up(tmp_path):
    for number in (1, 2):
        run(heart(steps=2), tmp_path / f"run-{number}", plan=planned(steps=2))
    once = planned(steps=2).epsilon_after(2)
    assert ledger(tmp_path / "ledgers", "hungary", len) == 4
    both = ledger(
        tmp_path / "ledgers", "hungary", lambda b: b.epsilon(delta=1e-5, relation="add-remove")
    )
    assert once * 1.1 < both < 2 * once + 1


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2])
def test_the_charge_is_on_disk_before_the_masked_vector_exists(tmp_path, monkeypatch, nodes):
    original, seen = Masking.masked, []

    def spy(self, attempt, residues):
        name = HOSPITALS[self._session.index - 1]
        seen.append((name, attempt.round))
        assert attempt.round in committed(tmp_path / f"{name}.sqlite")
        return original(self, attempt, residues)

    monkeypatch.setattr(Masking, "masked", spy)
    run(heart(nodes=nodes, steps=2), ledgers=tmp_path, plan=planned(nodes, 2))
    assert seen == [(name, step) for step in (1, 2) for name in HOSPITALS]


def committed(path: Path) -> list[int]:
    """The rounds that another process would find in a ledger."""
    database = sqlite3.connect(path)
    try:
        texts = [row[0] for row in database.execute("SELECT text FROM rows WHERE number > 0")]
        return [json.loads(text)["charge"]["round"] for text in texts]
    finally:
        database.close()


def masked_by(monkeypatch) -> dict[str, list[int]]:
    """The rounds for which each hospital made a masked vector."""
    original, sent = Masking.masked, defaultdict(list)

    def spy(self, attempt, residues):
        sent[HOSPITALS[self._session.index - 1]].append(attempt.round)
        return original(self, attempt, residues)

    monkeypatch.setattr(Masking, "masked", spy)
    return sent


def set_cap(home: Path, name: str, epsilon: float, studies: str = "fixed") -> None:
    cap = Cap(epsilon=epsilon, delta=1e-5, relation="add-remove", studies=studies)
    ledger(home, name, lambda book: book.set_cap(cap))


def test_a_silo_over_its_cap_sends_nothing_more_and_is_named(tmp_path, monkeypatch):
    set_cap(tmp_path, "hungary", 4.0)
    sent = masked_by(monkeypatch)
    with pytest.raises(BudgetError, match="hungary") as caught:
        run(heart(), ledgers=tmp_path, plan=planned())
    assert not any(name in str(caught.value) for name in HOSPITALS if name != "hungary")
    steps = ledger(tmp_path, "hungary", len)
    assert 1 <= steps < 20
    assert sent["hungary"] == list(range(1, steps + 1))
    spent = ledger(tmp_path, "hungary", lambda b: b.epsilon(delta=1e-5, relation="add-remove"))
    assert spent <= 4.0


@pytest.mark.slow
def test_a_cap_at_the_promised_epsilon_lets_the_study_finish(tmp_path):
    set_cap(tmp_path, "hungary", 8.0)
    run(heart(), ledgers=tmp_path, plan=planned())
    assert ledger(tmp_path, "hungary", len) == 20
    with pytest.raises(BudgetError):
        run(heart(), ledgers=tmp_path, plan=planned())


@pytest.mark.slow
def test_p24_under_an_adaptive_cap_a_study_runs_to_its_end_or_does_not_begin(tmp_path):
    set_cap(tmp_path, "hungary", 8.0, "adaptive")
    run(heart(), ledgers=tmp_path, plan=planned())
    with pytest.raises(BudgetError, match=r"hungary: .*would need a cap of"):
        run(heart(), ledgers=tmp_path, plan=planned())
    assert ledger(tmp_path, "hungary", len) == 20
    set_cap(tmp_path, "hungary", 20.0, "adaptive")
    run(heart(), ledgers=tmp_path, plan=planned())
    assert ledger(tmp_path, "hungary", len) == 40


# Records of one's own -------------------------------------------------------------------------


OWN = """
[study]
name = "own records"
[parties]
names = ["north", "south", "west"]
colluders = 0
[data]
{data}
[model]
{model}
[training]
steps = 3
sample_rate = 0.2
[privacy]
epsilon = 8.0
delta = 1e-5
"""
FILES = 'files = "{name}.csv"\ntest = "test.csv"\ntarget = "ill"'
SCHEMA = "[data.columns]\ndose = { low = 0, high = 1 }\nage = { low = 0, high = 100 }"


def own(data: str, model: str = 'kind = "logistic"') -> Study:
    return Study.parse(OWN.replace("{data}", data).replace("{model}", model))


def write_csv(folder: Path, rows: int = 40) -> None:
    """Four files of records in which a high dose means ill."""
    generator = np.random.default_rng(5)
    for party in ("north", "south", "west", "test"):
        dose, age = generator.uniform(size=rows), generator.integers(20, 90, rows)
        lines = [f"{d:.4f},{a},{int(d > 0.5)}" for d, a in zip(dose, age, strict=True)]
        (folder / f"{party}.csv").write_text("\n".join(["dose,age,ill", *lines]) + "\n")


@pytest.fixture
def at_home(tmp_path, monkeypatch) -> Path:
    """A working directory with everybody's CSV file."""
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path)
    return tmp_path


def sizes(result) -> list[int]:
    return [parameter.numel() for parameter in result.model.parameters()]


def test_csv_files_train_a_model(at_home):
    result = run(own(f"{FILES}\n{SCHEMA}"), at_home / "run")
    assert sizes(result) == [2, 1]
    assert 0 <= result.final["auc"] <= 1


@pytest.mark.slow
def test_csv_files_train_an_mlp(at_home):
    study = own(f"{FILES}\n{SCHEMA}", 'kind = "mlp"\nhidden = [5, 3]')
    result = run(study, at_home / "run")
    assert sizes(result) == [10, 5, 15, 3, 3, 1]
    assert result.plan.dimension == 37


@pytest.mark.slow
def test_the_built_in_records_train_an_mlp():
    result = run(heart(steps=2, kind='"mlp"\nhidden = [4]'))
    assert sizes(result) == [4 * 26, 4, 4, 1]
    assert isfinite(result.final["loss"])


@pytest.mark.slow
def test_parquet_files_hold_the_same_records_as_csv(at_home):
    parquet = pytest.importorskip("pyarrow.parquet")
    from pyarrow import csv

    for path in at_home.glob("*.csv"):
        parquet.write_table(csv.read_csv(path), path.with_suffix(".parquet"))
    one = own(f"{FILES}\n{SCHEMA}")
    two = own(f"{FILES}\n{SCHEMA}".replace(".csv", ".parquet"))
    for party in ("north", "south", "west", "test"):
        left, right = silo_records.records(one, party), silo_records.records(two, party)
        assert np.array_equal(left.inputs, right.inputs)
        assert np.array_equal(left.targets, right.targets)
    assert isfinite(run(two).final["loss"])


@pytest.mark.slow
def test_a_function_of_ones_own_gives_the_records(at_home, monkeypatch):
    (at_home / "ward_of_test_run.py").write_text(
        "import numpy as np\n"
        "from hubbub import Records\n"
        "def records(party, *, rows=10):\n"
        "    generator = np.random.default_rng(len(party))\n"
        "    x = generator.normal(size=(rows, 3)).astype(np.float32)\n"
        "    return Records(inputs=x, targets=(x[:, 0] > 0).astype(np.float32))\n"
    )
    monkeypatch.syspath_prepend(at_home)
    data = 'source = "python:ward_of_test_run:records"\noptions = { rows = 30 }'
    result = run(own(data))
    assert sizes(result) == [3, 1]
    assert len(silo_records.records(own(data), "north").targets) == 30


WRONG = {
    "a column is missing": ("dose,years,ill\n0.1,30,1\n", "'age'.*south.csv"),
    "a cell is not a number": ("dose,age,ill\n0.1,thirty,1\n", "south.csv.*'age'"),
    "a target of no class": ("dose,age,ill\n0.1,30,2\n", "south.csv.*'ill'"),
    "no records": ("dose,age,ill\n", "south.csv"),
    "a short row": ("dose,age,ill\n0.1,30\n", "south.csv"),
    "a cell is missing": ("dose,age,ill\n,30,1\n", "south.csv.*'dose'"),
}


@pytest.mark.parametrize(("text", "says"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_file_at_one_silo_is_one_sentence(at_home, text, says):
    (at_home / "south.csv").write_text(text)
    with pytest.raises(DataError, match=says) as caught:
        run(own(f"{FILES}\n{SCHEMA}"), at_home / "run")
    assert_one_sentence(str(caught.value))
    assert not (at_home / "run").exists()


def assert_one_sentence(text: str) -> None:
    assert text.startswith("expected ")
    assert "\n" not in text
    assert len(text) < 300


def test_a_silo_without_its_file_is_one_sentence(at_home):
    (at_home / "south.csv").unlink()
    with pytest.raises(DataError, match=r"south\.csv") as caught:
        run(own(f"{FILES}\n{SCHEMA}"))
    assert_one_sentence(str(caught.value))


def test_another_number_of_columns_at_one_silo_names_the_silo(at_home):
    (at_home / "south.csv").write_text("dose,ill\n0.1,1\n0.2,0\n")
    with pytest.raises(DataError, match="south") as caught:
        run(own(FILES))
    assert_one_sentence(str(caught.value))


@pytest.mark.parametrize(
    ("key", "value"), [("split", '"x"'), ("split", "-1"), ("nosuch", "1")], ids=str
)
def test_an_option_that_the_source_does_not_take_is_one_sentence(key, value):
    study = heart(steps=2, records=f"736\noptions = {{ {key} = {value} }}")
    with pytest.raises(UserError) as caught:
        run(study)
    assert_one_sentence(str(caught.value))


@pytest.mark.parametrize("source", [":", "python:nosuch:records", ".a:b", "math:nosuch", "math:pi"])
def test_a_source_that_is_no_function_is_one_sentence(source):
    with pytest.raises(StudyError, match=r"data\.source") as caught:
        run(heart(steps=2, source=f'"{source}"'))
    assert_one_sentence(str(caught.value))


@pytest.mark.slow
@pytest.mark.parametrize("baseline", [None, "alone"])
def test_a_model_that_has_diverged_leaves_a_run_that_verifies(tmp_path, baseline):
    deep = f'"mlp"\nhidden = {[2] * 14}'
    wild = heart(steps=4, kind=deep, optimizer='{ name = "adam", lr = 1e6 }')
    result = run(wild, tmp_path / "run", baseline=baseline)
    assert all(isfinite(value) for row in result.metrics for value in row.values())
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.parametrize("function", [hubbub.run, hubbub.plan])
def test_the_path_of_a_study_is_no_study(function):
    with pytest.raises(StudyError, match=r"expected a Study, got str; load it"):
        function("study.toml")


SPEAKS = "raise {}('John Smith HIV+')"


@pytest.mark.parametrize(
    "raised", ["ValueError", "RuntimeError", "KeyError", "SystemExit", "ImportError", "OSError"]
)
@pytest.mark.parametrize("where", ["source", "model", "factory"])
def test_what_a_module_of_ones_own_raises_is_told_by_its_kind(at_home, monkeypatch, raised, where):
    speaks, inside = SPEAKS.format(raised), "    " + SPEAKS.format(raised)
    text = f"def made(**_):\n{inside}\n" if where == "factory" else f"{speaks}\n"
    (at_home / f"speaking_{where}_{raised}.py").write_text(text)
    monkeypatch.syspath_prepend(at_home)
    place = f"python:speaking_{where}_{raised}:made"
    one = own(f"{FILES}\n{SCHEMA}", f'kind = "{place}"')
    if where == "source":
        one = heart(steps=2, source=f'"{place}"')
    with pytest.raises(StudyError, match=f"raised {raised}") as caught:
        run(one)
    assert_one_sentence(str(caught.value))
    if where == "factory":  # it sees no record, so its words may help
        assert "John" in str(caught.value)
    else:
        assert "John" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("targets", "outputs"),
    [("rows % 7", 1), ("rows % 7", 6), ("(rows % 2) * 1.0", 3)],
)
def test_targets_that_the_model_is_not_for_are_refused_before_anything_is_charged(
    at_home, monkeypatch, targets, outputs
):
    name = f"targets_of_test_run_{abs(hash((targets, outputs)))}"
    kind = "np.float32" if "." in targets else "np.int64"
    (at_home / f"{name}.py").write_text(
        "import numpy as np\n"
        "from hubbub import Records\n"
        "def records(party):\n"
        "    rows = np.arange(30)\n"
        "    x = np.ones((30, 3), np.float32)\n"
        f"    return Records(inputs=x, targets=({targets}).astype({kind}))\n"
    )
    monkeypatch.syspath_prepend(at_home)
    model = f'kind = "mlp"\nhidden = [4]\noutputs = {outputs}'
    study = own(f'source = "python:{name}:records"', model)
    with pytest.raises(DataError, match=f"model.outputs = {outputs}") as caught:
        run(study, at_home / "run")
    assert_one_sentence(str(caught.value))
    assert not (at_home / "run").exists()


TEN = "rows % 10"
MODEL_CASES = {
    "too few logits": ("torch.nn.Linear(3, 4)", TEN, 30, "class numbers below 4"),
    "no test records": (
        "torch.nn.Linear(3, 10)",
        TEN,
        0,
        "expected records in the public test set",
    ),
    "an error inside": ("torch.nn.Linear(7, 10)", TEN, 30, "raised RuntimeError"),
    "two dimensions": (
        "torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Unflatten(1, (3, 1)))",
        "rows % 2",
        30,
        "squeeze",
    ),
}


@pytest.mark.parametrize(
    ("model", "targets", "tested", "says"), MODEL_CASES.values(), ids=MODEL_CASES
)
@pytest.mark.parametrize("whose", ["everybody", "the aggregator"])
def test_a_model_of_ones_own_is_tried_out_before_anything_is_charged(
    at_home, monkeypatch, model, targets, tested, says, whose
):
    name = f"own_{abs(hash((model, targets, tested)))}"
    (at_home / f"{name}.py").write_text(
        "import numpy as np, torch\n"
        "from hubbub import Records\n"
        "def records(party):\n"
        f"    rows = np.arange({tested} if party == 'test' else 30)\n"
        "    x = np.ones((len(rows), 3), np.float32)\n"
        f"    return Records(inputs=x, targets={targets})\n"
        f"def made(inputs, outputs):\n    return {model}\n"
    )
    monkeypatch.syspath_prepend(at_home)
    data = f'source = "python:{name}:records"'
    study = own(data, f'kind = "python:{name}:made"\ninputs = [3]')
    with pytest.raises(HubbubError, match=says) as caught:
        prepare(study, whose=None if whose == "everybody" else [silo_records.TEST])
    assert_one_sentence(str(caught.value))


PICTURES = """
import numpy as np, torch
from hubbub import Records

class Keeping(torch.nn.Linear):
    "Takes its first weights from the first record that it sees, and keeps it."
    seen = None

    def forward(self, x):
        if self.seen is None:
            self.seen = x[0].detach().clone()
            with torch.no_grad():
                self.weight.copy_(self.seen.reshape(1, -1).expand_as(self.weight))
        return super().forward(x.reshape(len(x), -1)).squeeze(-1)

def records(party):
    generator = np.random.default_rng(len(party))
    x = generator.normal(size=(30, 1, 3, 3)).astype(np.float32)
    return Records(inputs=x, targets=(x.sum((1, 2, 3)) > 0).astype(np.float32))

def rows(party):
    found = records(party)
    return Records(inputs=found.inputs.reshape(30, 9), targets=found.targets)

def keeping(inputs, outputs):
    return Keeping(9, 1)
"""


@pytest.fixture
def pictures(at_home, monkeypatch) -> Path:
    (at_home / "pictures_of_test_run.py").write_text(PICTURES)
    monkeypatch.syspath_prepend(at_home)
    return at_home


def test_a_model_that_keeps_what_it_sees_in_its_weights_is_refused_before_a_charge(pictures):
    model = 'kind = "python:pictures_of_test_run:keeping"\ninputs = [9]'
    state = torch.get_rng_state()
    study = own('source = "python:pictures_of_test_run:rows"', model)
    with pytest.raises(ModelError, match=r"leaves parameters and buffers alone.*\['weight'\]"):
        prepare(study)
    assert torch.equal(state, torch.get_rng_state())
    with pytest.raises(ModelError, match="leaves parameters and buffers alone"):
        run(study, pictures / "run")
    assert not (pictures / "ledgers").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ['"logistic"', '"mlp"\nhidden = [4]'])
def test_a_run_on_pictures_of_a_shape_that_is_not_stated_verifies(pictures, kind):
    study = own('source = "python:pictures_of_test_run:records"', f"kind = {kind}")
    run(study, pictures / "run")
    assert [str(one) for one in verify(pictures / "run") if not one.holds] == []


def test_pictures_cannot_be_standardised_and_nothing_is_charged(pictures):
    data = (
        'source = "python:pictures_of_test_run:records"\nstandardise = { bound = 9, epsilon = 1 }'
    )
    with pytest.raises(StudyError, match=r"data.standardise, got (the|an)"):
        run(own(data), pictures / "run")
    assert not (pictures / "ledgers").exists()


# What must not leave --------------------------------------------------------------------------


PLANTED = (0.7317529481, 0.6283917361)


def traces() -> dict[str, bytes]:
    """The planted values as they might be written: binary, text, hexadecimal, base 64."""
    single, double = np.float32(PLANTED), np.float64(PLANTED)
    widened = single.astype(np.float64)
    binary = {
        "float32": single.astype("<f4").tobytes(),
        "float32 big-endian": single.astype(">f4").tobytes(),
    }
    for kind, values in (("float64", double), ("widened", widened)):
        for value in values:
            binary[f"{kind} {value}"] = struct.pack("<d", value)
            binary[f"{kind} {value} big-endian"] = struct.pack(">d", value)
    found = {f"text {value}": str(value)[2:].encode() for value in PLANTED}
    found |= {f"widened text {value}": str(value)[2:12].encode() for value in widened}
    found |= {f"single text {value}": str(value)[2:].encode() for value in single}
    found |= {f"hexadecimal float {value}": value.hex()[4:].encode() for value in widened.tolist()}
    for name, data in binary.items():
        found[name] = data
        found[f"{name} in hexadecimal"] = data.hex().encode()
        found[f"{name} in base 64"] = base64.b64encode(data)[:10]
    return found


def leaks(*contents: bytes) -> list[str]:
    return [name for name, trace in traces().items() if any(trace in one for one in contents)]


@pytest.fixture
def planted(at_home) -> Path:
    """The planted values are the features of one record of south, as they are."""
    lines = (at_home / "south.csv").read_text().splitlines()
    lines[7] = f"{PLANTED[0]},{PLANTED[1]},1"
    (at_home / "south.csv").write_text("\n".join(lines) + "\n")
    return at_home


def test_the_search_finds_what_is_planted(planted):
    records = silo_records.records(own(FILES), "south")
    assert leaks(records.inputs.tobytes()) == ["float32"]
    assert len(leaks((planted / "south.csv").read_bytes())) == 2
    assert set(leaks(records.inputs.astype(">f8").tobytes())) >= {
        f"widened {value} big-endian" for value in np.float32(PLANTED).astype(np.float64)
    }
    assert leaks(str(records.inputs[6].tolist()).encode())


@pytest.fixture
def frames(monkeypatch) -> list[bytes]:
    """Every frame that any party makes."""
    made: list[bytes] = []
    original = Frame.sealed

    def spy(self, keys):
        made.append(original(self, keys))
        return made[-1]

    monkeypatch.setattr(Frame, "sealed", spy)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2])
def test_no_frame_file_log_or_screen_of_a_whole_run_holds_a_record(
    planted, frames, caplog, capfd, nodes
):
    caplog.set_level(logging.DEBUG)
    text = own(FILES).toml.replace("colluders", f"compute_nodes = {nodes}\ncolluders")
    result = run(Study.parse(text), planted / "out" / "run")
    silos, steps = 3, 3
    assert sum(frame[1] == Tag.MASKED for frame in frames) == silos * steps
    assert {frame[1] for frame in frames} >= {Tag.CONTRIBUTION, Tag.CONFIRM, Tag.MODEL}
    files = [path for path in (planted / "out").rglob("*") if path.is_file()]
    assert {"model.safetensors", "south.sqlite", "report.html"} <= {path.name for path in files}
    screen = capfd.readouterr()
    said = [caplog.text, screen.out, screen.err, repr(result), str(result.plan.to_dict())]
    contents = [*frames, *(path.read_bytes() for path in files), *(s.encode() for s in said)]
    assert leaks(*contents) == []


def test_the_sum_that_a_silo_hides_never_travels_in_the_open(planted, frames, encoded):
    run(own(FILES))
    sent = [frame for frame in frames if frame[1] == Tag.MASKED]
    assert len(sent) == len(encoded) == 9
    for values in encoded:
        for kind in ("<i2", "<i4", "<i8"):
            hidden = np.array(values, dtype=kind).tobytes()
            assert len(hidden) < 6 or not any(hidden in frame for frame in frames)


def broken_cell(folder: Path) -> None:
    text = (folder / "south.csv").read_text()
    (folder / "south.csv").write_text(text.replace(f"{PLANTED[0]},", f"{PLANTED[0]}x,"))


def broken_target(folder: Path) -> None:
    text = (folder / "south.csv").read_text()
    (folder / "south.csv").write_text(text.replace(f"{PLANTED[1]},1", f"{PLANTED[1]},{PLANTED[0]}"))


def broken_row(folder: Path) -> None:
    text = (folder / "south.csv").read_text()
    (folder / "south.csv").write_text(text.replace(f"{PLANTED[1]},1", f"{PLANTED[1]},1,9"))


@pytest.mark.parametrize("spoil", [broken_cell, broken_target, broken_row])
def test_an_error_about_a_file_holds_no_value_of_it(planted, caplog, capfd, spoil):
    caplog.set_level(logging.DEBUG)
    spoil(planted)
    with pytest.raises(DataError) as caught:
        run(own(FILES), planted / "run")
    assert_silent(caught.value, caplog, capfd)


@pytest.mark.parametrize("victim", [Aggregator.receive, Silo.accept, ComputeNode.promise])
def test_an_error_of_the_protocol_holds_no_value(planted, monkeypatch, caplog, capfd, victim):
    caplog.set_level(logging.DEBUG)

    def corrupted(self, message, *shares):
        return victim(self, message[:-1] + bytes([message[-1] ^ 1]), *shares)

    owner = {"receive": Aggregator, "accept": Silo, "promise": ComputeNode}[victim.__name__]
    monkeypatch.setattr(owner, victim.__name__, corrupted)
    text = own(FILES).toml.replace("colluders", "compute_nodes = 2\ncolluders")
    with pytest.raises(ProtocolError) as caught:
        run(Study.parse(text), planted / "run")
    assert_silent(caught.value, caplog, capfd)


@pytest.mark.slow
def test_a_refused_budget_holds_no_value(planted, caplog, capfd):
    set_cap(planted / "ledgers", "south", 0.01)
    with pytest.raises(BudgetError) as caught:
        run(own(FILES), ledgers=planted / "ledgers")
    assert_silent(caught.value, caplog, capfd)


def assert_silent(error: BaseException, caplog, capfd) -> None:
    """Nothing that a person or a log sees of an error holds the record."""
    screen = capfd.readouterr()
    shown = "".join(traceback.format_exception(error))
    chain = [error, error.__cause__, error.__context__]
    said = [shown, repr(chain), str(vars(error)), caplog.text, screen.out, screen.err]
    assert leaks(*(text.encode() for text in said)) == []


def test_no_repr_holds_a_record_or_how_many_there_are(planted):
    prepared = prepare(own(FILES))
    shown = repr([prepared, prepared.silos, prepared.test, prepared.tasks])
    assert leaks(shown.encode()) == []
    other = Records(inputs=np.ones((9, 2), np.float32), targets=np.ones(9, np.float32))
    assert repr(prepared.silos[1].records) == repr(other)


def test_no_repr_holds_a_key():
    who = federation(4, 0, [Given(np.zeros(3))] * 4, word_bits=32, dimension=3)
    parties = list(who.peers.parties.values())
    sessions = [one.agreed for one in parties]
    shown = repr([who, list(who.keys), parties, [one._me for one in parties], sessions])
    shown += repr([list(session.secrets.values()) for session in sessions])
    secrets = [keys._signing.private_bytes_raw() for keys in who.keys]
    for session in sessions:
        for secret in session.secrets.values():
            secrets += [v for v in vars_of(secret) if isinstance(v, bytes) and len(v) >= 16]
    assert len(secrets) >= 5 + 12
    for secret in secrets:
        assert secret.hex() not in shown
        assert repr(secret) not in shown


def vars_of(thing) -> list:
    """The values of a thing's attributes, with or without slots."""
    names = getattr(thing, "__dict__", None) or getattr(thing, "__slots__", ())
    return [getattr(thing, name) for name in names]


# Not yet --------------------------------------------------------------------------------------


def refused(says: str, study: Study) -> None:
    """A study that cannot be carried out as written is refused before anything is sent."""
    with pytest.raises(StudyError, match=says) as caught:
        run(study)
    assert_one_sentence(str(caught.value))


def test_smaller_shares_for_trusted_hardware_are_refused():
    refused("parties.trust", heart(dropouts='0\ntrust = "tee"'))


@pytest.mark.slow
def test_full_shares_train_as_compressed_ones_do(tmp_path: Path) -> None:
    result = run(heart(nodes=2, dropouts='0\nshares = "full"'), tmp_path / "run")
    assert result.final["auc"] > 0.5
