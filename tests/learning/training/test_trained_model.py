"""A trained model at work: the same encoding as in training, whoever asks and however."""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save

import hubbub
from hubbub import learning
from hubbub.core.errors import DataError, HubbubError, IntegrityError, UserError
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.desk.cli.main import main
from hubbub.learning.runs.trained_model import TrainedModel
from hubbub.learning.study.training import model_header

ROWS = 60
STUDY = """
study.name = "own files"
parties = {{names = ["north", "south", "east"], colluders = 1}}
model = {{kind = "{kind}", outputs = {outputs}{more}}}
training = {{steps = 4, sampling = "full-batch", clip_norm = 1.0}}
privacy = {{epsilon = 8.0, delta = 1e-5}}
[data]
files = "{folder}/{{name}}.csv"
test = "{folder}/test.csv"
target = "state"
{target}
{standardise}
[data.columns]
age = {{low = 20, high = 90, default = 50}}
sex = {{categories = ["f", "m"]}}
"""


def write_tables(folder: Path, states: tuple[str, ...]) -> None:
    rng = np.random.default_rng(1)
    for name in ("north", "south", "east", "test"):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("id", "age", "sex", "state"))
            for row in range(ROWS):
                age = int(rng.integers(20, 90))
                rows.writerow((row, age, "fm"[row % 2], states[row % len(states)]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run on files, with its folder."""
    folder = tmp_path_factory.mktemp("binary")
    write_tables(folder, ("well", "ill", "worse"))
    text = STUDY.format(
        folder=folder,
        kind="logistic",
        outputs=1,
        more="",
        target='positive = ["ill", "worse"]\nnegative = ["well"]',
        standardise="standardise = {epsilon = 4.0, bound = 2.0}",
    )
    return hubbub.run(Study.parse(text), folder / "run"), folder


@pytest.mark.slow
def test_a_loaded_model_scores_as_the_run_did_on_its_test_set(finished):
    result, folder = finished
    loaded = hubbub.load(folder / "run")
    assert loaded.standardisation is not None
    test = silo_records.records(result.plan.study, "test")
    scores = loaded.predict(folder / "test.csv")
    assert scores.shape == (ROWS,)
    np.testing.assert_array_equal(scores, result.predict(test.inputs))
    accuracy = float(((scores > 0.5) == (test.targets > 0.5)).mean())
    assert accuracy == pytest.approx(result.final["accuracy"])
    assert loaded.classes == ("well", "ill or worse")


def test_a_table_in_memory_scores_as_its_file_does_and_needs_no_target(finished):
    _, folder = finished
    loaded = hubbub.load(folder / "run")
    with (folder / "test.csv").open() as file:
        rows = list(csv.DictReader(file))
    frame = {"sex": [row["sex"] for row in rows], "age": [float(row["age"]) for row in rows]}
    np.testing.assert_array_equal(loaded.predict(frame), loaded.predict(folder / "test.csv"))
    tensor = torch.from_numpy(loaded.features(frame))
    np.testing.assert_array_equal(loaded.predict(tensor), loaded.predict(frame))


def test_a_missing_number_counts_as_the_default(finished):
    loaded = hubbub.load(finished[1] / "run")
    given, missing = (loaded.predict({"age": [age], "sex": ["f"]}) for age in (50, float("nan")))
    np.testing.assert_array_equal(given, missing)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"age": [1]}, "a column 'sex' in the table"),
        ({"age": ["old"], "sex": ["f"]}, "a number in the table, column 'age'"),
        ({"age": [1, 2], "sex": ["f"]}, "columns of one length"),
        (3, "a data frame or a mapping"),
        (np.zeros((2, 7)), r"records of shape \(2,\)"),
        (np.full((2, 2), np.nan), "finite numbers"),
        (np.zeros((0,)), "finite numbers|records of shape|inputs of shape"),
    ],
)
def test_what_does_not_fit_the_study_is_refused(finished, table, words):
    with pytest.raises(DataError, match=words):
        hubbub.load(finished[1] / "run").predict(table)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("rows", "state the shape"),
        ("null", "state the shape"),
        ("[[2]]", "state the shape"),
        ("[1e400]", "state the shape"),
        ("[0]", "positive sizes"),
        ("[1000000000000]", "names and shapes"),
        ("[100000, 1000000]", "names and shapes"),
        (f"[{10**30}]", "names and shapes"),
    ],
)
def test_a_model_that_states_another_shape_is_refused_before_it_is_built(
    finished, tmp_path, inputs, words
):
    """A file of a few bytes costs no gigabytes, whoever made it."""
    shutil.copytree(finished[1] / "run", tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    with safe_open(path, framework="np") as file:
        stated = file.metadata() | {"inputs": inputs}
    path.write_bytes(save(load_file(path), metadata=stated))
    with pytest.raises(HubbubError, match=words):
        hubbub.load(tmp_path / "run")


def test_a_file_of_another_run_is_refused(finished, tmp_path):
    """Its numbers would fit, and each prediction would be another."""
    shutil.copytree(finished[1] / "run", tmp_path / "run")
    (tmp_path / "run" / "standardisation.json").unlink()
    with pytest.raises(IntegrityError, match=r"standardisation\.json, which .* found none"):
        hubbub.load(tmp_path / "run")
    study = tmp_path / "run" / "study.toml"
    study.write_text(study.read_text().replace("low = 20", "low = 30"))
    with pytest.raises(IntegrityError, match="the study beside it, found that of another"):
        hubbub.load(tmp_path / "run")


def test_no_features_are_standardised_that_the_study_does_not_ask_for(tmp_path):
    """What predictions go through would be anybody's."""
    study = Study.parse(
        STUDY.format(
            folder=tmp_path,
            kind="logistic",
            outputs=1,
            more="",
            target='positive = ["ill"]\nnegative = ["well"]',
            standardise="",
        )
    )
    (tmp_path / "study.toml").write_text(study.as_toml())
    module = learning.model_of(study, (2,))
    learning.save_model(tmp_path / "model.safetensors", module, model_header(study, (2,)))
    assert hubbub.load(tmp_path).standardisation is None
    (tmp_path / "standardisation.json").write_text('{"shift": [1.0, 1.0], "scale": [1.0, 1.0]}')
    with pytest.raises(IntegrityError, match=r"expected no .*standardisation\.json, as the study"):
        hubbub.load(tmp_path)


def test_no_record_gives_no_score(finished):
    assert hubbub.load(finished[1] / "run").predict(np.zeros((0, 2))).shape == (0,)


@pytest.mark.slow
def test_several_classes_have_a_score_each(tmp_path):
    write_tables(tmp_path, ("well", "ill", "worse"))
    text = STUDY.format(
        folder=tmp_path,
        kind="mlp",
        outputs=3,
        more=", hidden = [4]",
        target='classes = ["well", "ill", "worse"]',
        standardise="",
    )
    result = hubbub.run(Study.parse(text), tmp_path / "run")
    scores = result.predict(tmp_path / "test.csv")
    assert scores.shape == (ROWS, 3)
    np.testing.assert_allclose(scores.sum(1), 1, rtol=1e-5)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "test.csv"), "--out",
                 str(tmp_path / "scores.csv")]) == 0  # fmt: skip
    with (tmp_path / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["row", "score of well", "score of ill", "score of worse", "predicted"]
    best = [result.trained.classes[k] for k in scores.argmax(1)]
    assert [row["predicted"] for row in rows] == best


def test_predict_prints_a_table_or_one_object(finished, capsys):
    _, folder = finished
    arguments = ["predict", str(folder / "run"), str(folder / "test.csv")]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "row,score,predicted"
    assert len(lines) == 1 + ROWS
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"] == ROWS
    assert [f"{score}" for score in said["columns"]["score"]] == [
        line.split(",")[1] for line in lines[1:]
    ]


def test_scores_are_not_written_over_their_own_table(finished, capsys):
    _, folder = finished
    before = (folder / "test.csv").read_bytes()
    table = str(folder / "test.csv")
    assert main(["predict", str(folder / "run"), table, "--out", f"{folder}/./test.csv"]) == 2
    assert "different files for the scores" in capsys.readouterr().err
    assert (folder / "test.csv").read_bytes() == before


def test_a_model_without_its_study_is_said_to_lack_the_study(finished, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(
        (finished[1] / "run" / "model.safetensors").read_bytes()
    )
    with pytest.raises(UserError, match=r"found no study\.toml in it"):
        hubbub.load(tmp_path)


def test_a_run_that_is_not_finished_has_no_model(tmp_path):
    with pytest.raises(UserError, match="expected a finished run"):
        hubbub.load(tmp_path)


@pytest.mark.slow
def test_the_built_in_columns_read_the_hospitals_own_file(tmp_path):
    from importlib import resources

    study = Study.parse((resources.files("hubbub.learning.datasets") / "heart.toml").read_text())
    result = hubbub.run(
        Study.parse(study.as_toml().replace("steps = 60", "steps = 2")), tmp_path / "run"
    )
    with resources.as_file(resources.files("hubbub.learning.datasets") / "heart.csv") as path:
        assert result.predict(path).shape == (920,)


def test_export_says_what_its_scores_are_of(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(TrainedModel, "to_onnx", lambda *_: None)
    file = tmp_path / "model.onnx"
    assert main(["export", str(finished[1] / "run"), "--onnx", str(file)]) == 0
    assert "give the scores of ill or worse\n" in capsys.readouterr().out  # the second class


@pytest.mark.filterwarnings("ignore")  # the exporter's own, where it is installed
def test_export_needs_its_packages_or_writes_what_predict_says(finished, tmp_path, capsys):
    _, folder = finished
    file = tmp_path / "model.onnx"
    code = main(["export", str(folder / "run"), "--onnx", str(file)])
    if importlib.util.find_spec("onnx") is None:
        assert code == 2
        assert "pip install onnx onnxscript" in capsys.readouterr().err
        return
    import onnx.reference  # not a dependency

    assert code == 0
    features = hubbub.load(folder / "run").features(folder / "test.csv")
    scores = onnx.reference.ReferenceEvaluator(str(file)).run(None, {"features": features})[0]
    np.testing.assert_allclose(scores, hubbub.load(folder / "run").predict(features), atol=1e-6)
