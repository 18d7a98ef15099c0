"""A source and renderers that hubbub has never heard of, and packages that do not fit it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.house.outside.square_root import column
from tests.house.packages import found_in, install

import hubbub
from hubbub import Study
from hubbub.core.errors import StudyError, UserError
from hubbub.core.registered import packages, registered
from hubbub.core.runs.renderers import render
from hubbub.core.study.study_file import json_schema
from hubbub.core.verification.replay.checking import verify
from hubbub.desk.cli.main import main
from hubbub.learning.runs.run_study import run

SILOS = ("north", "south", "east")
STUDY = """
[study]
name = "from lines"
transcript = "full"

[parties]
names = ["north", "south", "east"]
colluders = 1

[data]
source = "lines"
lines = "{name}.jsonl"
patient = "who"
most_per_patient = 1
records = 60

[data.columns.age]
low = 20
high = 100

[statistics.ages]
kind = "histogram"
column = "age"
bins = 2

[privacy]
epsilon = 8.0
delta = 1e-5
"""
SOURCE = "[hubbub.sources]\nlines = jsonlines:JsonLines\n"
QUERY = 'query = "SELECT who, age FROM visits"\n'


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the study and the silos' files, from which hubbub is started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    for silo in SILOS:
        rows = [{"who": f"{silo} {k}", "age": 30 if k < 15 else 90} for k in range(20)]
        (tmp_path / f"{silo}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


@pytest.fixture
def with_lines(outside: Path) -> Iterator[Path]:
    """The same with the package that reads lines."""
    install(outside, "jsonlines", SOURCE, "jsonlines")
    with found_in(outside):
        yield outside


@pytest.mark.slow
def test_records_of_a_source_from_outside_are_run_verified_and_reported(with_lines: Path) -> None:
    study = Study.load("study.toml")
    assert Study.parse(study.changed(name="another").as_toml()).data == study.data
    assert "lines" in json_schema()["properties"]["data"]["properties"]
    result = run(study, with_lines / "run")
    rows = [row for row in result.statistics["ages"].rows if row.quantity == "records"]
    for row, count in zip(rows, (45, 15, 0), strict=True):
        assert abs(row.value - count) < 6 * row.standard_error < 10
    assert all(one.holds for one in verify(with_lines / "run"))
    assert "from lines" in (with_lines / "run" / "report.html").read_text()


def test_keys_of_a_source_are_refused_beside_another(with_lines: Path) -> None:
    for text in (
        STUDY.replace('source = "lines"\n', 'files = "{name}.csv"\n'),
        STUDY.replace('source = "lines"', f'source = "sql"\n{QUERY}tables = {{ visits = "who" }}'),
    ):
        with pytest.raises(StudyError, match=r"data\.lines to be absent"):
            Study.parse(text)
    with pytest.raises(StudyError, match=r"data\.query to be absent"):
        Study.parse(STUDY.replace("[data]\n", f"[data]\n{QUERY}"))


def test_two_sources_may_have_a_key_of_one_name(outside: Path) -> None:
    package = (Path(__file__).parent / "outside" / "jsonlines.py").read_text()
    (outside / "queries.py").write_text(package.replace("lines", "query"))
    install(outside, "queries", "[hubbub.sources]\nqueries = queries:JsonLines\n")
    text = STUDY.replace('"lines"', '"queries"').replace("lines =", "query =")
    with found_in(outside):
        assert Study.parse(text).data.request.query == "{name}.jsonl"
        both = text.replace("[data]\n", '[data]\ntables = { visits = "who" }\n')
        with pytest.raises(StudyError, match=r"data\.tables to be absent"):
            Study.parse(both)


@pytest.mark.slow
def test_renderers_from_outside_stand_for_those_that_are_not_there(with_lines: Path) -> None:
    bare = with_lines / "bare"
    own = {group: entry_points(group=f"hubbub.{group}") for group in ("asks", "transports")}
    bare.mkdir()
    install(
        bare,
        "hubbub",  # shadows what is installed: as it is, but without pages
        "".join(
            f"[hubbub.{group}]\n" + "".join(f"{one.name} = {one.value}\n" for one in named)
            for group, named in own.items()
        ),
    )
    missing = pytest.raises(UserError, match=r"registers folder under hubbub\.renderers")
    with found_in(bare), missing:
        render("folder", with_lines)
    install(
        bare,
        "plain",
        "[hubbub.renderers]\ntext = plain_text:in_text\nfolder = plain_text:write_report\n",
        "plain_text",
    )
    with found_in(bare):
        result = run(Study.load("study.toml"), with_lines / "run")
        assert repr(result) == "from lines at epsilon 8"
        assert (with_lines / "run" / "report.txt").read_text() == "a run\n"
        assert not (with_lines / "run" / "report.html").exists()
        assert all(one.holds for one in verify(with_lines / "run"))


@pytest.mark.parametrize("group", ["sources", "asks", "transports", "renderers", "platforms"])
def test_a_name_that_is_taken_is_said_with_both_packages(outside: Path, group: str) -> None:
    taken = next(iter(entry_points(group=f"hubbub.{group}"))).name
    install(outside, "other", f"[hubbub.{group}]\n{taken} = jsonlines:JsonLines\n", "jsonlines")
    with found_in(outside), pytest.raises(UserError) as refused:
        registered(f"hubbub.{group}")
    assert f"one package to register {taken} under hubbub.{group}" in str(refused.value)
    assert "other (jsonlines:JsonLines)" in str(refused.value)


def test_a_package_that_cannot_be_used_is_named_in_a_sentence(
    outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (outside / "broken.py").write_text("import no_such_module\n")
    install(outside, "broken", "[hubbub.sources]\nbroken = broken:Source\n")
    with found_in(outside):
        assert main(["plan", "study.toml"]) == 2
    said = capsys.readouterr().err
    assert "expected broken (broken:Source) to give broken to hubbub.sources" in said
    assert "No module named 'no_such_module'; bring the package up to date or uninstall" in said


def test_packages_that_register_something_are_known_with_their_versions(outside: Path) -> None:
    install(outside, "roots", "[hubbub.options]\nroot = square_root:column\n", "square_root")
    install(outside, "unrelated", "[console_scripts]\nroot = square_root:column\n")
    assert packages() == {}
    with found_in(outside):
        assert packages() == {"roots": "1.0"}


def test_two_asks_of_one_table_are_refused(outside: Path) -> None:
    install(outside, "quarters", "[hubbub.asks]\nq = quarters:QuartersAsk\n", "quarters")
    package = (outside / "quarters.py").read_text()
    (outside / "thirds.py").write_text(package)
    install(outside, "thirds", "[hubbub.asks]\nt = thirds:QuartersAsk\n")
    with found_in(outside), pytest.raises(UserError, match=r"\[quarters\] .*quarters and thirds"):
        Study.parse(STUDY)


def test_an_installation_that_knows_no_table_says_so_of_any_study(outside: Path) -> None:
    install(outside, "hubbub", "")  # shadows what is installed
    with found_in(outside), pytest.raises(StudyError, match=r"registers hubbub\.asks, found none"):
        Study.load("study.toml")


def test_an_ask_from_outside_that_would_change_every_studys_id_is_refused(outside: Path) -> None:
    package = (Path(__file__).parent / "outside" / "quarters.py").read_text()
    pinned = package.replace(
        "class QuartersAsk(Ask):", "class QuartersAsk(Ask):\n    is_pinned = True"
    )
    (outside / "pinned.py").write_text(pinned)
    install(outside, "pinned", "[hubbub.asks]\nquarters = pinned:QuartersAsk\n")
    with found_in(outside), pytest.raises(UserError, match="pinned not to pin quarters"):
        Study.parse(STUDY)


def test_a_source_whose_key_every_study_has_is_refused(outside: Path) -> None:
    package = (Path(__file__).parent / "outside" / "jsonlines.py").read_text()
    (outside / "taking.py").write_text(package.replace("lines", "records"))
    install(outside, "taking", "[hubbub.sources]\nlines = taking:JsonLines\n")
    refused = pytest.raises(UserError, match=r"taking to have other keys of \[data\] .* 'records'")
    with found_in(outside), refused:
        Study.parse(STUDY.replace('source = "lines"\nlines =', "files ="))


def trained(noise: str) -> Study:
    """A study whose noise a package correlates, over four steps."""
    return Study(
        name="option from outside",
        parties={"silos": 3, "colluders": 1},
        data={"source": "hubbub.datasets:heart", "records": 740},
        model={"kind": "logistic", "inputs": [26]},
        training={
            "steps": 6,
            "sample_rate": 0.2,
            "noise": noise,
            "bands": 4,
            "optimizer": {"name": "sgd", "lr": 0.5},
        },
        privacy={"epsilon": 8.0, "delta": 1e-5},
        transcript="full",
    )


def test_noise_that_a_package_correlates_is_charged_run_and_verified(outside: Path) -> None:
    points = "[hubbub.options]\nroot = square_root:column\nlong = square_root:too_long\n"
    install(outside, "roots", points, "square_root")
    with found_in(outside):
        study, own = trained("root"), trained("correlated")
        plan = hubbub.plan(study)
        assert plan.mechanism.noise.coefficients == column(4, 0.0, "constant", 6)
        assert plan.mechanism.noise.coefficients != hubbub.plan(own).mechanism.noise.coefficients
        # Of any matrix of this norm the account is one, but for what rounding adds (P25).
        assert 7.99 < plan.epsilon() <= 8
        assert abs(plan.epsilon() - hubbub.plan(own).epsilon()) < 1e-6
        assert Study.parse(study.as_toml()).id == study.id != own.id
        run(study, outside / "run")
        assert all(finding.holds for finding in verify(outside / "run"))
        with pytest.raises(StudyError, match=r'noise = "long" to give 4 whole numbers, .* of norm'):
            hubbub.plan(trained("long"))
    with pytest.raises(StudyError, match=r"training\.noise to be one of .*correlated"):
        trained("root")
