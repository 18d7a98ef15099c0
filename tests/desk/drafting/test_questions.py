"""`hubbub init` asks what files cannot say: whose a row is, and what is to be learned."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path

import pytest

from drafting.cohorts import SILOS, lay
from hubbub import Study
from hubbub.desk.cli.main import main
from hubbub.desk.drafting.column_meaning import (
    candidates,
    counts_something,
    telling,
    time_event_pairs,
)
from hubbub.desk.drafting.survey import repeated_keys, surveyed

FILES = [f"{name}.csv" for name in SILOS]
ROWS = 120


@pytest.fixture
def init(capsys, tmp_path, monkeypatch):
    """Runs init on files of the current folder: exit code, and its object."""
    monkeypatch.chdir(tmp_path)

    def run(*options: str) -> tuple[int, dict]:
        capsys.readouterr()
        code = main(["init", *options, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def drafted(column: str) -> Study:
    study = Study.load("study.toml")
    assert column in (study.data.target, study.data.patient)
    return study


@pytest.mark.slow
def test_repeated_keys_are_asked_for_and_nothing_is_written_until_they_are_answered(init):
    lay("visits", Path(), ROWS)
    code, found = init(*FILES)
    assert (code, found["ready"], found["out"]) == (1, False, None)
    assert not Path("study.toml").exists()
    (question,) = found["questions"]
    assert question["columns"] == ["patient_id"]
    assert question["choices"][-1]["options"] == ["--records-are-units"]
    assert main(shlex.split(found["next"])[1:]) == 0
    study = drafted("patient_id")
    assert study.data.patient == "patient_id"
    assert study.data.most_per_patient >= 5
    assert study.data.records < len(FILES) * ROWS


@pytest.mark.slow
def test_rows_that_people_say_are_units_leave_the_key_out_of_the_features(init):
    lay("visits", Path(), ROWS)
    code, found = init(*FILES, "--records-are-units")
    assert code == 0
    assert "identifies a person" in found["left_out"]["patient_id"]
    assert drafted("readmitted").data.patient == ""


@pytest.mark.slow
def test_a_time_and_its_event_are_asked_for_and_become_one_target(init):
    lay("survival", Path(), ROWS)
    code, found = init(*FILES)
    assert code == 1
    assert found["questions"][0]["columns"] == ["futime", "status"]
    assert main(shlex.split(found["next"])[1:]) == 0
    study = drafted("futime")
    assert study.data.outcome.kind == "time-to-event"
    assert study.data.outcome.event == "status"
    assert not {"futime", "status"} & {one.name for one in study.data.columns}


def test_files_that_a_run_cannot_read_are_tidied_with_the_first_answers(init, tmp_path, capsys):
    rows = ["days;status"] + [f"{day};{'dead' if day % 3 else 'alive'}" for day in range(1, 60)]
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    assert main(["init", str(tmp_path / "a.csv"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["questions"]
    assert told["next"].endswith("--tidy tidy")
    (tmp_path / "a.csv").write_text("\n".join(rows).replace(";", ",") + "\n")
    assert main(["init", str(tmp_path / "a.csv"), "--json"]) == 1
    assert "--tidy" not in json.loads(capsys.readouterr().out)["next"]


@pytest.mark.slow
def test_the_time_is_found_where_only_the_event_is_named(init):
    lay("survival", Path(), ROWS)
    assert init(*FILES, "--event", "status")[0] == 0
    assert drafted("futime").data.outcome.event == "status"


@pytest.mark.slow
def test_who_learns_the_status_alone_has_no_follow_up_time_among_the_features(init):
    lay("survival", Path(), ROWS)
    code, found = init(*FILES, "--target", "status")
    assert code == 0
    assert "--time" in found["left_out"]["futime"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--time", "futime"], "--event"),
        (["--time", "futime", "--event", "status", "--target", "age"], "--target age"),
        (["--test-share", "2"], "--test-share"),
        (["--patient", "sex", "--records-are-units"], "not allowed with"),
    ],
)
def test_answers_that_contradict_each_other_are_refused(init, capsys, options, word):
    lay("survival", Path(), ROWS)
    assert main(["init", *FILES, *options]) == 2
    err = capsys.readouterr().err
    assert word in err
    assert err.count("\n") == 1


def test_an_event_of_many_values_is_refused_in_words_of_its_own(init, capsys):
    lay("survival", Path(), ROWS)
    assert main(["init", *FILES, "--time", "futime", "--event", "age"]) == 2
    err = capsys.readouterr().err
    assert "expected the event's column 'age' to say yes or no" in err
    assert "with --event" in err
    assert "--target" not in err


def test_an_event_without_any_column_of_times_is_refused(init, capsys):
    lay("rare", Path(), ROWS)
    assert main(["init", *FILES, "--event", "died_30d"]) == 2
    assert "name it with --time" in capsys.readouterr().err


@pytest.mark.slow
def test_a_count_is_a_count_and_what_is_filled_only_where_it_happened_tells_it(init):
    lay("counts", Path(), ROWS)
    code, found = init(*FILES)
    assert (code, found["kind"], found["target"]) == (0, "count", "exacerbations")
    assert found["left_out"]["first_reason"].endswith("it reveals the target")


@pytest.mark.slow
def test_columns_that_are_filled_only_for_the_dead_are_named_as_telling_who_died(init):
    lay("rare", Path(), 500)
    code, found = init(*FILES)
    assert (code, found["target"]) == (0, "died_30d")
    for name in ("date_of_death", "cause_of_death", "autopsy"):
        assert "only where 'died_30d' is 1, so it reveals the target" in found["left_out"][name]


@pytest.mark.slow
def test_several_likely_targets_are_asked_for(init):
    lay("rare", Path(), ROWS)
    for path in FILES:
        head, *rows = Path(path).read_text().splitlines()
        text = [f"{head},readmitted", *(f"{row},{k % 2}" for k, row in enumerate(rows))]
        Path(path).write_text("\n".join(text) + "\n")
    code, found = init(*FILES)
    assert code == 1
    assert found["questions"][0]["columns"][:2] == ["died_30d", "readmitted"]
    code, found = init(*FILES, "--target", "readmitted")
    assert (code, found["guessed"]) == (0, False)


@pytest.mark.slow
def test_a_share_for_the_test_is_held_back_and_told_with_noise(init):
    lay("counts", Path(), ROWS)
    assert init(*FILES, "--test-share", ".3")[0] == 0
    study = Study.load("study.toml")
    assert study.validation.holdout == 0.3
    assert study.validation.records == "auto"


@pytest.mark.parametrize(
    ("name", "cells", "count"),
    [
        ("visits", ["0", "1", "2", "7"], True),
        ("stage", ["0", "1", "2", "3", "4"], False),
        ("x", [str(k % 15 // 4) if k % 3 else str(k % 15) for k in range(60)], True),
        ("visits", ["0", "1.5", "2"], False),
        ("visits", ["0", "-1", "2"], False),
        ("age", [str(20 + k) for k in range(60)], False),
        ("visits", ["0", "1"], False),
    ],
)
def test_what_counts(name, cells, count):
    assert counts_something(name, cells) is count


@pytest.mark.parametrize(
    ("names", "pair"),
    [
        (("futime", "fustat"), ("futime", "fustat")),
        (("OS_MONTHS", "OS_STATUS"), ("OS_MONTHS", "OS_STATUS")),
        (("d.time", "death"), ("d.time", "death")),
        (("time", "DEATH_EVENT"), ("time", "DEATH_EVENT")),
        (("survival_days", "vital_status"), ("survival_days", "vital_status")),
        (("days_to_relapse", "relapse"), ("days_to_relapse", "relapse")),
        (("time", "smoking_status"), None),
        (("months_since_diagnosis", "status"), None),
        (("age", "died"), None),
        (("waiting_time", "died"), None),
    ],
)
def test_names_of_times_and_of_what_ends_them(names, pair):
    time, event = names
    columns = {time: [str(k) for k in range(40)], event: ["0", "1"] * 20}
    found = time_event_pairs(columns)
    assert [(one.time, one.event) for one in found] == ([pair] if pair else [])


@pytest.mark.slow
def test_a_column_called_censored_says_who_had_no_event(init):
    lay("survival", Path(), ROWS)
    for path in FILES:
        text = Path(path).read_text()
        Path(path).write_text(text.replace("status", "censored"))
    assert init(*FILES, "--event", "censored")[0] == 0
    assert drafted("futime").data.outcome.positive == ("0",)


def lone(tmp_path: Path, rows: list[list[object]]):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    return surveyed([path])


def keys_of(survey) -> list[str]:
    return [one.name for one in repeated_keys(survey.full, survey.common)]


@pytest.mark.parametrize(
    ("name", "draws", "found"),
    [
        ("patient_id", 100, True),
        ("ID", 100, True),
        ("who", 100, True),  # codes, within which sex never differs
        ("ward_nr", 5, False),
        ("age", 60, False),
    ],
)
def test_what_comes_back_as_persons_do(tmp_path, name, draws, found):
    draw = random.Random(name)
    sexes = [draw.choice("FM") for _ in range(draws)]
    rows: list[list[object]] = [[name, "sex", "x"]]
    for k in range(300):
        who = k % draws
        sex = draw.choice("FM") if name == "age" else sexes[who]
        rows.append([20 + who if name == "age" else f"{4711 + 13 * who}", sex, k])
    assert keys_of(lone(tmp_path, rows)) == ([name] if found else [])


def test_rows_that_stand_twice_in_a_file_are_no_second_visit(tmp_path):
    rows: list[list[object]] = [["patient_id", "x"], *([f"P{k}", k] for k in range(50))]
    assert keys_of(lone(tmp_path, rows + rows[1:])) == []


def test_candidates_of_one_tier_are_equally_likely():
    half = ["yes", "no"] * 20
    columns = {"smoker": half, "died": half, "relapse": half, "sex": ["F", "M"] * 20}
    assert candidates(columns) == [["died", "relapse"], ["smoker"]]


def test_a_column_tells_only_if_it_is_filled_or_fixed_by_one_answer():
    happened = [k % 4 == 0 for k in range(80)]
    sides = ("'y' is 1", "'y' is 0")
    only = ["x" if one else "" for one in happened]
    other = ["" if one else "x" for one in happened]
    both = ["x" if k % 3 else "" for k in range(80)]
    assert telling(only, happened, sides) == (
        "it has a value only where 'y' is 1, so it reveals the target"
    )
    assert "'y' is 0" in telling(other, happened, sides)
    assert telling(both, happened, sides) == ""
    assert "each of its values" in telling(
        ["d" if one else "a" for one in happened], happened, sides
    )
    assert telling(only, [None] * 80, sides) == ""


@pytest.mark.slow
def test_a_follow_up_time_beside_events_of_other_names_is_asked_about(init):
    lay("survival", Path(), ROWS)
    for path in FILES:
        text = Path(path).read_text().replace("futime,status", "Follow-up (Monate),Ende")
        Path(path).write_text(text)
    code, asked = init(*FILES)
    assert (code, Path("study.toml").exists()) == (1, False)
    first = asked["questions"][0]["choices"][0]["options"]
    assert first == ["--time", "Follow-up (Monate)", "--event", "Ende"]
    assert init(*FILES, "--target", "Ende")[1]["left_out"]["Follow-up (Monate)"]


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (("female", "outwork"), "outwork"),
        (("married", "Schübe"), "Schübe"),
        (("married", "outwork", "docvis"), "docvis"),
    ],
)
def test_who_somebody_is_is_named_last_of_what_may_be_learned(names, first):
    cells = {True: ["0", "0", "1", "7", "3", "2", "4", "1", "0", "5"] * 4, False: ["0", "1"] * 20}
    columns = {name: cells[name in ("Schübe", "docvis")] for name in names}
    assert candidates(columns)[0][0] == first
