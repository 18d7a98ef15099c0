"""`hubbub tune` chooses by loss on what is public, opens no private file, and writes a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import StudyError
from hubbub.core.planning.study_queries import plan
from hubbub.core.study import sources
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column, column_features
from hubbub.desk.cli.main import main
from hubbub.learning.study.usual_training import usual_for
from hubbub.learning.tuning import tuner
from hubbub.learning.tuning.linear_rehearsals import Settings
from hubbub.learning.tuning.made_up_records import made_up_records
from hubbub.learning.tuning.tuned_text import tuned_text
from hubbub.learning.tuning.tuner import tune

TEXT = """
[study]
name = "wards"
[parties]
names = ["north", "south", "west", "east"]
colluders = 1
[data]
files = "{name}.csv"
target = "died"
positive = ["1"]
negative = ["0"]
records = 1500
[data.columns]
age = { low = 20, high = 90 }
sex = { categories = ["f", "m"] }
ward = { categories = ["a", "b", "c"], default = "a", indicator = true }
[model]
kind = "logistic"
[training]              # chosen in a hurry
steps = 60              # of the pilot
sample_rate = 0.2
clip_norm = 80.0
optimizer = { name = "adam", lr = 3.0 }
evaluate = { every = 30, epsilon = 0.1 }
[privacy]
epsilon = 1.0
delta = 1e-5
"""
NUMBER = 'target = { kind = "numeric", column = "cost", low = 1, high = 900, scale = "log" }'
COUNT = 'target = { kind = "count", column = "visits", high = 40 }'
TIME = 'target = { kind = "time-to-event", time = "days", event = "died", grid = [9, 20, 50] }'
CLASS = 'target = "died"\npositive = ["1"]\nnegative = ["0"]'


def study_of(target: str = CLASS, **changes: str) -> Study:
    text = TEXT.replace(CLASS, target)
    for before, after in changes.items():
        text = text.replace(before, after)
    return Study.parse(text)


def test_a_made_up_reference_is_what_most_records_have() -> None:
    flag = 'icu = { categories = ["no", "yes"], reference = "no" }\n[model]'
    inputs, _ = made_up_records(study_of(**{"[model]": flag}), 400, np.random.default_rng(0))
    assert set(np.unique(inputs[:, -1])) == {0.0, 1.0}
    assert inputs[:, -1].mean() < 0.3


@pytest.mark.parametrize("target", [CLASS, NUMBER, COUNT, TIME])
def test_made_up_records_are_within_the_studys_bounds(target: str) -> None:
    study = study_of(target)
    inputs, targets = made_up_records(study, 400, np.random.default_rng(0))
    assert inputs.shape == (400, sum(one.width for one in study.data.columns))
    assert np.abs(inputs).max() <= 1
    assert len(targets) == 400
    outcome = study.data.outcome
    if outcome is not None and outcome.kind != "time-to-event":
        assert outcome.low <= targets.min() <= targets.max() <= outcome.high
    assert len(np.unique(targets)) > 1


def test_a_made_up_column_is_encoded_as_a_real_one() -> None:
    """A column of three categories with an indicator: one of three, and whether it was missing."""
    column = Column(name="ward", categories=("a", "b", "c"), default="a", indicator=True)
    real = column_features(column, ["a", "b", "c", ""], "here")
    inputs, _ = made_up_records(study_of(), 300, np.random.default_rng(0))
    assert {*map(tuple, real[:, :3].tolist())} == {*map(tuple, inputs[:, 2:5].tolist())}
    assert {*np.unique(inputs[:, 5])} == {0.0, 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("target", [CLASS, NUMBER, COUNT, TIME])
def test_what_is_chosen_beats_settings_that_are_off_by_far(target: str) -> None:
    found = tune(study_of(target), draws=2)
    own = next(one for one in found.candidates if one.origin == "study")
    assert found.chosen.mean > own.mean + 0.1
    assert len(found.candidates) == 76
    assert tune(study_of(target), draws=2).chosen == found.chosen


@pytest.mark.slow
def test_the_rule_stays_unless_another_is_told_apart() -> None:
    found = tune(study_of(), draws=2)
    rule = next(one for one in found.candidates if one.origin == "rule")
    assert rule.settings.clip_norm == usual_for(study_of()).clip_norm
    best = found.candidates[0]
    gain = best.mean - rule.mean
    assert found.chosen is (best if gain > max(tuner._WORTH, best.doubt(rule)) else rule)


def test_noise_and_divisor_are_those_of_the_plan_for_as_many_records_as_are_drawn() -> None:
    study = study_of()
    law = tuner._law(study, 150)
    made = plan(tuner.with_settings(study, Settings(clip_norm=1.0, steps=150, lr=0.1)))
    assert law.noise_multiplier == pytest.approx(made.total_noise_multiplier)
    assert law.divisor == pytest.approx(0.2 * 1500 * 0.8)
    drawn = tuner._drawn(study, None, np.random.default_rng(0))
    assert (drawn.share, len(drawn.inputs)) == (1.0, 1200)
    many = study_of(**{"records = 1500": "records = 100000"})
    assert tuner._drawn(many, None, np.random.default_rng(0)).share == 0.25


def test_only_training_changes_and_comments_stay() -> None:
    study = study_of()
    after = tuner.with_settings(study, Settings(clip_norm=2.5, steps=150, lr=0.04))
    text = tuned_text(study, after)
    assert Study.parse(text).id == after.id
    assert "# chosen in a hurry" in text
    assert "every = 75" in text
    assert [line for line in text.splitlines() if line not in TEXT] == [
        "steps = 150",
        "clip_norm = 2.5",
        'optimizer = { name = "adam", lr = 0.04, schedule = "linear" }',
        "evaluate = { every = 75, epsilon = 0.1 }",
    ]
    inline = TEXT.replace('optimizer = { name = "adam", lr = 3.0 }\n', "").replace(
        "[privacy]", '[training.optimizer]\nname = "adam"\nlr = 3.0\n[privacy]'
    )
    other = Study.parse(inline)
    changed = tuner.with_settings(other, Settings(clip_norm=2.5, steps=150, lr=0.04))
    assert Study.parse(tuned_text(other, changed)).id == changed.id


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('kind = "logistic"', 'kind = "mlp"\nhidden = [4]', "mlp"),
        ("records = 1500", "", "data.records"),
        ("sample_rate = 0.2", "sample_rate = 0.2\nprojection = 4", "projected"),
    ],
)
def test_what_cannot_be_rehearsed_so_is_refused_by_name(before: str, after: str, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        tune(study_of(**{before: after}), draws=2)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(TEXT)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["tune", "study.toml", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def rows(count: int, seed: int = 0) -> str:
    random = np.random.default_rng(seed)
    lines = ["age,sex,ward,died"]
    for _ in range(count):
        age = random.integers(20, 90)
        lines.append(f"{age},{'fm'[random.integers(2)]},{'abc'[random.integers(3)]},{age // 60}")
    return "\n".join(lines) + "\n"


def test_no_silos_file_is_opened(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object, **__: object) -> None:
        raise AssertionError("records were read")

    monkeypatch.setattr(sources, "records", opened)
    found = told(capsys, "--made-up", "--draws", "2")
    tuned = Study.load(here / "study-tuned.toml")
    assert found["records"] == "made-up"
    assert tuned.training is not None
    assert tuned.training.clip_norm == found["chosen"]["clip_norm"]
    assert main(["tune", "study.toml"]) == 2
    assert "--replace" in capsys.readouterr().err


@pytest.mark.slow
def test_a_public_file_and_a_synthetic_table_are_chosen_by(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "open.csv").write_text(rows(400))
    found = told(capsys, "--public", "open.csv", "--draws", "2", "--out", "a.toml")
    assert found["records"] == "open.csv"
    assert found["chosen"]["explained"] > 0.3
    (here / "run").mkdir()
    assert main(["tune", "study.toml", "--table", "run"]) == 2
    assert "synthetic.csv" in capsys.readouterr().err
    (here / "run" / "synthetic.csv").write_text(
        "# made up, told with noise\n" + rows(400) + ",f,a,1\n50,f,a,\n"
    )
    again = told(capsys, "--table", "run", "--draws", "2", "--out", "b.toml")
    assert again["chosen"]["clip_norm"] == found["chosen"]["clip_norm"]


def test_a_table_that_does_not_fit_is_called_by_its_own_name(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "made.csv").write_text("age,sex,died\n50,f,1\n" * 200)
    assert main(["tune", "study.toml", "--table", "made.csv"]) == 2
    said = capsys.readouterr().err
    assert "made.csv" in said
    assert " table.csv" not in said


def test_a_silos_own_file_is_not_public(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "north.csv").write_text(rows(400))
    assert main(["tune", "study.toml", "--public", "north.csv"]) == 2
    assert "a silo's" in capsys.readouterr().err
    assert not (here / "study-tuned.toml").exists()


@pytest.mark.parametrize("spelt", ["part", "link", "hard link", "folder", "above"])
def test_nor_is_a_part_of_it_however_it_is_called(
    here: Path, capsys: pytest.CaptureFixture[str], spelt: str
) -> None:
    """A silo's records may be a folder of parts, and a file have several names."""
    (here / "north").mkdir()
    part = here / "north" / "2024.csv"
    part.write_text(rows(400))
    study = (here / "study.toml").read_text()
    (here / "study.toml").write_text(study.replace("{name}.csv", "{name}/"))
    named = {"part": part, "folder": part.parent, "above": here}.get(spelt, here / "open.csv")
    if spelt == "link":
        named.symlink_to(part)
    elif spelt == "hard link":
        named.hardlink_to(part)
    assert main(["tune", "study.toml", "--public", str(named)]) == 2
    assert "a silo's" in capsys.readouterr().err


def test_few_public_records_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "open.csv").write_text(rows(50))
    assert main(["tune", "study.toml", "--public", "open.csv"]) == 2
    assert "at least 100" in capsys.readouterr().err


def test_people_see_the_candidates_and_what_comes_next(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "study.toml", "--draws", "2"]) == 0
    out = capsys.readouterr().out
    for shown in ("chosen", "the study's", "no silo's file was opened", "hubbub run study-tuned"):
        assert shown in out
