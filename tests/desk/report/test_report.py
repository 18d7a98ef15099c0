"""The report: what stands on the page is what was measured, and nothing on it can do harm."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files
from math import isclose, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub.core.number_format import at_most
from hubbub.core.planning.plan_rows import explained
from hubbub.desk.cli.main import main
from hubbub.desk.report.arrangements import (
    UNCHARGED_BASELINES,
    Arrangement,
    ArrangementTable,
    ReportedRun,
    interval,
)
from hubbub.desk.report.charts import bounds, linear
from hubbub.desk.report.markup import tag
from hubbub.desk.report.page import render
from hubbub.desk.report.promise import broken, exposure_rows, number_rows
from hubbub.desk.report.validation_sheet import decision_chart

HOSTILE = "</title><script>alert(1)</script>\" onload='x' & <img src=http://evil.example/x>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
STATED = "aggregator + 1 silo"


def arrangement(name: str, mean: float, reach: float | None = None) -> Arrangement:
    return Arrangement(
        name=name,
        mean=mean,
        low=None if reach is None else mean - reach,
        high=None if reach is None else mean + reach,
        epsilon=None if name == "non-private" else 0.49998,
        adversary={"federated": STATED, "alone": "those who see a silo's model"}.get(name),
    )


def compared(*found: Arrangement, metric: str = "auc") -> ArrangementTable:
    return ArrangementTable(metric=metric, arrangements=found, how="Made up for a test.")


COMPARISON = compared(
    arrangement("federated", 0.86, 0.01),
    arrangement("alone", 0.75, 0.04),
    arrangement("non-private", 0.9),
)


def exposure(adversary: str, silos: int, epsilon: float | None) -> dict[str, Any]:
    return {
        "adversary": adversary,
        "colluding_silos": silos,
        "known_shares": silos + 1,
        "noise_multiplier": 11.09 / (silos + 1),
        "epsilon": epsilon,
        "torn": 0.0,
    }


def a_plan(**changes: Any) -> dict[str, Any]:
    return {
        "study": "four hospitals",
        "study_id": "d8" * 32,
        "silos": 5,
        "compute_nodes": 0,
        "steps": 60,
        "noise_multiplier": 11.0866,
        "total_noise_multiplier": 15.6789,
        "share_sigma": 7.8394,
        "share_sigma_grid": 8.0,
        "grid_step": 0.9799,
        "word_bits": 16,
        "sum_limit": 31921,
        "dimension": 27,
        "upload_bytes_per_step": 192,
        "degree": 3,
        "quorum": 5,
        "delta": 1e-5,
        "certificate": {"epsilon": 2.5e-10, "delta": 1e-8, "delta_factor": 1.0000000001257},
        "attack_power_at_1_percent": 0.0144544,
        "epsilon": [
            exposure("outsider (published results)", 0, 0.34065),
            exposure("aggregator", 0, 0.34065),
            exposure("one silo", 0, 0.39932),
            exposure("aggregator + 1 silo", 1, 0.49998),
            exposure("aggregator + 2 silos", 2, 0.73673),
            exposure("aggregator + 3 silos", 3, 4.5678),
            exposure("aggregator + 4 silos", 4, None),
        ],
        "asked": [],
        "stated_adversary": "aggregator + 1 silo",
        "unit": "record",
        "patient": None,
        "warnings": ["data.records is not stated"],
        **changes,
    }


def some_metrics(count: int = 6) -> list[dict[str, float]]:
    return [
        {
            "step": 10 * k,
            "epsilon": 0.2 * k**0.5,
            "loss": 0.7 - 0.03 * k,
            "accuracy": 0.6 + 0.02 * k,
            "auc": 0.55 + 0.05 * k,
        }
        for k in range(1, count + 1)
    ]


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def all(self, name: str) -> list[Element]:
        return [one for one in self.walk() if one.name == name]

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def number(self, attribute: str) -> float:
        return float(self.attributes[attribute] or "")


class Reader(HTMLParser):
    """Builds the tree and fails on an element that is closed wrongly or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("root", {})]

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        one = Element(name, dict(attributes))
        assert len(one.attributes) == len(attributes), f"repeated attribute in {name}"
        self.open[-1].children.append(one)
        if name != "meta":
            self.open.append(one)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop().name == name

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(page: str) -> Element:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert [one.name for one in reader.open] == ["root"]
    return reader.open[0]


def rendered(**changes: Any) -> str:
    given: dict[str, Any] = {
        "plan": a_plan(),
        "metrics": some_metrics(),
        "baseline": None,
        "comparison": COMPARISON,
    } | changes
    plan, metrics = given.pop("plan"), given.pop("metrics")
    return render(plan, metrics, **given)


def chart(page: str, start: str) -> Element:
    return next(
        one
        for one in read(page).all("svg")
        if (one.attributes["aria-label"] or "").startswith(start)
    )


def of_class(element: Element, *classes: str) -> list[Element]:
    return [one for one in element.walk() if one.attributes.get("class") in classes]


def picture_of(page: str) -> Element:
    """Who sees what, with which a page opens."""
    (drawn,) = of_class(read(page).all("header")[0], "picture")
    return drawn


def axis(drawn: Element, side: str) -> list[tuple[float, float]]:
    """(place, labelled value) of every tick, as a reader of the chart sees them."""
    place = "x1" if side == "tick-across" else "y1"
    groups = [one for one in drawn.all("g") if one.attributes.get("class") == side]
    return [
        (one.all("line")[0].number(place), float(one.all("text")[0].text.replace(",", "")))
        for one in groups
    ]


def points(drawn: Element, name: str) -> list[tuple[float, float]]:
    """The data of a line, read off the chart with nothing but its ticks."""
    group = next(one for one in drawn.all("g") if one.attributes.get("data-name") == name)
    pairs = (
        pair.split(",") for pair in (group.all("polyline")[0].attributes["points"] or "").split()
    )
    across, up = axis(drawn, "tick-across"), axis(drawn, "tick-up")
    return [(between(across, float(x)), between(up, float(y))) for x, y in pairs]


def between(ticks: list[tuple[float, float]], place: float) -> float:
    (first, low), (last, high) = ticks[0], ticks[-1]
    return low + (place - first) / (last - first) * (high - low)


def same(found: list[tuple[float, float]], expected: list[tuple[float, float]]) -> bool:
    return len(found) == len(expected) and all(
        isclose(a, b, abs_tol=1e-3 * max(1.0, abs(b)))
        for pair in zip(found, expected, strict=True)
        for a, b in zip(*pair, strict=True)
    )


MODES = (None, "trusted", "local-dp", "alone", "non-private")


@pytest.mark.quick_cases("alone-no-trusted", "alone-no-alone", "alone-no-None", "alone-no-local-dp")
@pytest.mark.parametrize("baseline", MODES)
@pytest.mark.parametrize("metrics", [[], some_metrics(1), some_metrics()], ids=["no", "one", "six"])
@pytest.mark.parametrize("comparison", [None, COMPARISON], ids=["alone", "compared"])
def test_every_page_is_well_formed_and_loads_and_runs_nothing(
    baseline: str | None, metrics: list[dict[str, float]], comparison: ArrangementTable | None
) -> None:
    page = rendered(baseline=baseline, metrics=metrics, comparison=comparison)
    tree = read(page)
    assert not re.search(r"https?:|src=|href=|url\(|@import|\bon\w+=", page)
    forbidden = {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    assert not forbidden & {one.name for one in tree.walk()}


def test_a_reader_who_closes_elements_wrongly_is_noticed() -> None:
    with pytest.raises(AssertionError):
        read("<p><b></p></b>")
    with pytest.raises(AssertionError):
        read("<p>")


def test_hostile_text_appears_as_text() -> None:
    plan = a_plan(study=HOSTILE, warnings=[HOSTILE])
    tree = read(rendered(plan=plan))
    assert tree.all("h1")[0].text == HOSTILE
    assert tree.all("li")[0].text == HOSTILE
    assert tree.all("title")[0].text == f"{HOSTILE} – hubbub report"
    assert not tree.all("script")
    assert not tree.all("img")


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
@example(HOSTILE)
@example("&amp; &lt;")
def test_text_and_attributes_survive_escaping(text: str) -> None:
    element = read(tag("p", text, title=text).text).all("p")[0]
    assert element.text == text
    assert element.attributes["title"] == text


def test_every_epsilon_of_the_plan_stands_in_the_row_of_its_adversary() -> None:
    plan = a_plan()
    rows = {
        one.all("th")[0].text: one.all("td")[0].text
        for one in read(rendered(plan=plan)).all("tr")
        if one.all("td")
    }
    for row in plan["epsilon"]:
        assert rows[row["adversary"]] == at_most(row["epsilon"])
    assert rows["aggregator + 4 silos"] == "over 50: no guarantee"


@given(st.floats(1e-12, 50))
def test_written_bounds_never_promise_more_than_was_certified(bound: float) -> None:
    assert bound <= float(at_most(bound)) <= bound * 1.0101


def test_the_learning_curve_shows_every_score_and_ends_where_the_tile_does() -> None:
    """It had ended in a mean of the last evaluations, which no other number of the page was."""
    page = rendered(metrics=some_metrics(9))
    drawn = chart(page, "Line chart: AUC")
    for name, key in (("AUC", "auc"), ("accuracy", "accuracy")):
        assert same(points(drawn, name), [(r["step"], r[key]) for r in some_metrics(9)])
    last = f"{some_metrics(9)[-1]['auc']:.3f}"
    assert f"at the end AUC {last}" in (drawn.attributes["aria-label"] or "")
    assert last in [one.text for one in of_class(read(page).all("header")[0], "figure")]


def test_all_scores_stand_on_one_axis_and_so_do_all_epsilons() -> None:
    page = rendered()
    curve = {value for _, value in axis(chart(page, "Line chart: AUC"), "tick-up")}
    joined = {value for _, value in axis(chart(page, "Intervals of AUC"), "tick-across")}
    assert curve == joined == {0.5, 0.6, 0.7, 0.8, 0.9, 1.0}
    small = a_plan()
    small["epsilon"] = small["epsilon"][:5]
    page = rendered(plan=small)
    so_far = axis(chart(page, "Line chart: epsilon"), "tick-up")
    assert so_far == axis(chart(page, "Line chart of epsilon by"), "tick-up")
    assert max(value for _, value in so_far) > 0.73


def test_the_cost_so_far_is_drawn_over_steps() -> None:
    drawn = chart(rendered(), "Line chart: epsilon")
    assert same(
        points(drawn, "epsilon so far"), [(r["step"], r["epsilon"]) for r in some_metrics()]
    )


def test_the_degradation_chart_shows_the_worst_adversary_for_each_number_of_silos() -> None:
    drawn = chart(rendered(), "Line chart of epsilon by")
    assert same(points(drawn, "epsilon"), [(0, 0.39932), (1, 0.49998), (2, 0.73673), (3, 4.5678)])
    limit = next(one for one in drawn.all("line") if one.attributes["class"] == "limit")
    assert isclose(between(axis(drawn, "tick-across"), limit.number("x1")), 1, abs_tol=0.01)
    assert "T = 1" in drawn.text


def test_a_bound_past_fifty_is_marked_as_no_promise_and_has_no_point() -> None:
    drawn = chart(rendered(), "Line chart of epsilon by")
    crosses = [one for one in drawn.all("path") if one.attributes["class"] == "cross"]
    assert [one.text for one in crosses] == ["4: over 50: no guarantee"]


def test_a_page_speaks_of_the_unit_that_epsilon_protects() -> None:
    patient = {"is_unit": True, "who": "a patient with up to 3 records", "epsilon": 0.5}
    plan = a_plan(unit="patient", patient={**patient, "in_two_silos": 1.0})
    header = read(rendered(plan=plan)).all("header")[0].text
    assert "can learn about one patient" in header
    assert not any("about a patient" in row[0] for row in exposure_rows(plan))  # as all rows are
    assert "one record" not in header
    assert "can learn about one record" in read(rendered()).all("header")[0].text


def test_a_row_about_patients_says_where_nothing_bounds_what_is_learned_of_them() -> None:
    patient = {"is_unit": False, "who": "a patient", "epsilon": None, "in_two_silos": None}
    rows = [exposure_rows(a_plan(patient=patient | more)) for more in ({}, {"epsilon": 2.0})]
    assert [one[-1][3].partition(":")[0] for one in rows] == ["none", "weaker"]


def test_the_numbers_of_statistics_are_not_called_a_models() -> None:
    rows = {name: words for name, _, words in number_rows(a_plan(trains=False))}
    assert "parameters" not in rows
    assert not any("model" in words or "gradient" in words for words in rows.values())
    assert any("model" in words for _, _, words in number_rows(a_plan()))


def test_intervals_stand_where_their_numbers_are() -> None:
    drawn = chart(rendered(), "Intervals of AUC")
    ticks = axis(drawn, "tick-across")
    found = [between(ticks, one.number("cx")) for one in drawn.all("circle")]
    assert all(isclose(a, b, abs_tol=1e-3) for a, b in zip(found, [0.86, 0.75, 0.9], strict=True))
    whiskers = of_class(drawn, "whisker first", "whisker other")
    ends = [(one.number("x1"), one.number("x2")) for one in whiskers]
    reached = [(between(ticks, x1), between(ticks, x2)) for x1, x2 in ends if x1 != x2]
    assert same(reached, [(0.85, 0.87), (0.71, 0.79)])


def test_every_arrangement_has_its_epsilon_and_against_whom_it_holds() -> None:
    tables = [
        one for one in read(rendered()).all("table") if "several" in one.all("caption")[0].text
    ]
    cells = {
        row.all("th")[0].text: [cell.text for cell in row.all("td")]
        for row in tables[0].all("tr")
        if row.all("td")
    }
    assert cells == {
        "together (hubbub)": [
            *("0.860", "0.850 to 0.870", "0.500", "the aggregator together with 1 silo")
        ],
        "each silo alone": ["0.750", "0.710 to 0.790", "0.500", "those who see a silo's model"],
        "no privacy": ["0.900", "–", "none", "nobody: no guarantee"],
    }


@pytest.mark.parametrize(
    ("together", "alone", "reach", "start"),
    [
        (0.86, 0.75, 0.04, "Yes"),
        (0.86, 0.85, 0.04, "No clear"),
        (0.7, 0.8, 0.04, "No: "),
        (0.86, 0.75, None, "Not known"),
    ],
)
def test_the_verdict_follows_the_comparison(
    together: float, alone: float, reach: float | None, start: str
) -> None:
    given = compared(arrangement("federated", together, reach), arrangement("alone", alone, reach))
    verdicts = [
        one
        for one in read(rendered(comparison=given)).all("p")
        if one.attributes.get("class") == "verdict"
    ]
    assert len(verdicts) == 1
    assert verdicts[0].text.startswith(start)


def test_a_table_of_arrangements_goes_to_json_and_back() -> None:
    assert ArrangementTable.from_dict(json.loads(json.dumps(COMPARISON.to_dict()))) == COMPARISON


@pytest.mark.parametrize(
    "wrong",
    [
        {"mean": nan},
        {"mean": 0.9, "low": 0.95, "high": 0.99},
        {"mean": 0.9, "low": 0.8},
        {"mean": 0.9, "name": 7},
        {"mean": "0.9"},
        {"mean": 0.9, "epsilon": nan},
    ],
)
def test_an_arrangement_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Arrangement(**{"name": "alone", **wrong})


def test_an_interval_is_students() -> None:
    low, high = interval([0.8, 0.9])
    assert low is not None
    assert high is not None
    assert isclose(high - 0.85, 12.706 * 0.05, rel_tol=1e-3)
    assert isclose(0.85 - low, 12.706 * 0.05, rel_tol=1e-3)
    assert interval([0.8]) == (None, None)


def test_without_auc_the_accuracy_takes_its_place() -> None:
    rows = [{k: v for k, v in row.items() if k != "auc"} for row in some_metrics()]
    given = compared(arrangement("federated", 0.8), metric="accuracy")
    page = rendered(metrics=rows, comparison=given)
    assert "AUC" not in read(page).text
    drawn = chart(page, "Line chart: accuracy")
    assert same(points(drawn, "accuracy"), [(r["step"], r["accuracy"]) for r in rows])
    assert len(chart(page, "Intervals of accuracy").all("circle")) == 1


def a_run(folder: str, baseline: str | None, auc: float, **changes: Any) -> ReportedRun:
    rows = [{**row, "auc": auc + 0.001 * row["step"] - 0.06} for row in some_metrics()]
    return ReportedRun(folder=folder, plan=a_plan(**changes), metrics=rows, baseline=baseline)


def test_runs_stand_side_by_side_with_what_each_epsilon_holds_against() -> None:
    runs = [a_run("mine", None, 0.86), a_run("theirs", "trusted", 0.88)]
    page = rendered(comparison=None, beside=runs)
    rows = rows_of(page)
    assert rows["mine"][:3] == ["together (hubbub)", "60", "0.860"]
    assert rows["mine"][-2:] == ["0.490", "the aggregator together with 1 silo"]
    assert rows["theirs"][-1] == "those who see only models"
    first, second = (
        axis(one, "tick-up")
        for one in read(page).all("svg")
        if "over the steps" in (one.attributes["aria-label"] or "")
        and ("mine" in (one.attributes["aria-label"] or "") or "theirs" in str(one.attributes))
    )
    assert first == second
    assert "belong to different studies" not in page


def test_runs_of_one_study_answer_whether_joining_is_worth_it() -> None:
    runs = [
        *(a_run(f"mine-{k}", None, 0.86 + 0.001 * k) for k in range(3)),
        *(a_run(f"alone-{k}", "alone", 0.70 + 0.001 * k) for k in range(3)),
        a_run("other", "alone", 0.2, study_id="00" * 32),
    ]
    page = rendered(comparison=None, beside=runs)
    verdicts = [one.text for one in read(page).all("p") if one.attributes.get("class") == "verdict"]
    assert len(verdicts) == 1
    assert verdicts[0].startswith("Yes: AUC 0.861 (0.859 to 0.863) together, 0.701 (")
    assert UNCHARGED_BASELINES in read(page).text
    assert "belong to different studies" in read(page).text


def test_the_command_shows_runs_beside_the_one_that_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, baseline in (("mine", None), ("theirs", "alone"), ("open", "non-private")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "plan.json").write_text(json.dumps(a_plan()))
        (folder / "run.json").write_text(json.dumps({"baseline": baseline}))
        rows = a_run(name, baseline, 0.8).metrics
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mine, *others = (str(tmp_path / name) for name in ("mine", "theirs", "open"))
    assert main(["report", mine, "--with", *others]) == 0
    page = (tmp_path / "mine" / "report.html").read_text(encoding="utf-8")
    assert {"mine", "theirs", "open"} <= rows_of(page).keys()
    assert rows_of(page)["open"][-2:] == ["none", "nobody: no guarantee"]
    assert not (tmp_path / "theirs" / "report.html").exists()
    assert main(["report", mine, "--with", str(tmp_path)]) == 2
    assert "no plan.json" in capsys.readouterr().err
    (tmp_path / "open" / "run.json").unlink()  # it would be shown as private
    assert main(["report", *others[-1:]]) == 2
    assert "open/run.json" in capsys.readouterr().err


PARTIES = [
    (None, ["4 silos", "Relay", "2 compute nodes", "Aggregator", "Outsider", "Aggregator + 1"]),
    ("trusted", ["4 silos", "Aggregator", "Outsider"]),
    ("local-dp", ["4 silos", "Aggregator", "Outsider"]),
    ("alone", ["4 silos", "Outsider"]),
    ("non-private", ["4 silos", "Aggregator", "Outsider"]),
]


@pytest.mark.parametrize(("baseline", "parties"), PARTIES)
def test_the_page_opens_with_a_picture_of_who_sees_what(
    baseline: str | None, parties: list[str]
) -> None:
    plan = a_plan(compute_nodes=2, silos=4)
    plan["epsilon"].insert(2, exposure("aggregator and all compute nodes but one", 0, 0.34065))
    drawn = picture_of(rendered(plan=plan, baseline=baseline))
    names = [one.text for one in of_class(drawn, "name")]
    assert len(names) == len(parties)
    assert all(name.startswith(start) for name, start in zip(names, parties, strict=True))
    bounds_ = [one.text for one in of_class(drawn, "bound", "none")]
    expected = {
        None: ["0.400", "0.341", "0.341", "0.341", "0.341", "0.500"],
        "trusted": ["0.500", "no guarantee", "0.500"],
        "local-dp": ["0.500"] * 3,
        "alone": ["0.500"] * 2,
        "non-private": ["no guarantee"] * 3,
    }[baseline]
    assert [one.removeprefix("ε ≤ ") for one in bounds_] == expected


def test_the_page_says_whom_a_sparse_mask_graph_bears_and_when() -> None:
    plan = a_plan(mask_graph={"colluders_at_any_time": 2, "colluders_before_it_is_drawn": 3})
    plan["epsilon"][-2]["torn"] = 1e-13
    page = read(rendered(plan=plan)).text
    assert "withstands any 2 colluders, whenever they are corrupted, and 3 that were" in page
    assert page.count("more collude than promised, corrupted before the mask graph was drawn") == 1
    assert "mask graph" not in read(rendered()).text


def test_a_row_is_called_weaker_only_where_its_epsilon_is_larger() -> None:
    plan = a_plan()
    plan["epsilon"][4] = exposure("aggregator + 2 silos", 2, 0.49998)
    page = read(rendered(plan=plan)).text
    assert page.count("no weaker, though more collude than promised") == 1
    assert "no weaker" not in read(rendered()).text


def test_of_many_silos_a_few_are_drawn() -> None:
    drawn = picture_of(rendered(plan=a_plan(silos=400)))
    assert len(of_class(drawn, "drum")) == 6
    assert "400 silos" in drawn.text
    assert "…" in drawn.text


def test_every_adversary_of_a_plan_is_said_in_plain_words() -> None:
    page = read(rendered()).text
    assert "the aggregator and 1 silo that secretly share all they know" in page
    assert all(explained(row["adversary"]) for row in a_plan()["epsilon"])
    assert "hardware" in explained("aggregator + 1 silo, no enclave holding")
    assert "with no silo colluding" in explained("aggregator + 0 silos")


def test_a_study_without_test_records_says_so_and_still_shows_its_cost() -> None:
    bare = [{"step": row["step"], "epsilon": row["epsilon"]} for row in some_metrics()]
    tree = read(rendered(metrics=bare, comparison=None))
    assert "no public test records" in tree.text
    assert "AUC" not in tree.text
    assert "accuracy" not in tree.text
    labels = [one.attributes["aria-label"] or "" for one in tree.all("svg")]
    assert any(label.startswith("Line chart: epsilon") for label in labels)


def test_rows_without_scores_and_scores_that_are_no_numbers_are_left_out() -> None:
    rows = some_metrics()
    rows[2]["auc"] = nan
    drawn = chart(rendered(metrics=rows), "Line chart: AUC")
    assert len(points(drawn, "AUC")) == 5


def test_no_epsilon_is_claimed_for_the_baseline_without_noise() -> None:
    text = read(rendered(baseline="non-private", comparison=None)).text
    assert "guarantees nothing" in text
    assert "0.500" not in text
    assert "0.500" in read(rendered(baseline="trusted")).text


@pytest.mark.parametrize("baseline", ["trusted", "local-dp", "alone", "non-private"])
def test_a_baseline_never_claims_the_promise_of_the_federation(baseline: str) -> None:
    assert "aggregator + 1 silo" in read(rendered()).text
    assert "aggregator + 1 silo" not in read(rendered(baseline=baseline)).text
    alone = read(rendered(baseline=baseline, comparison=None)).text
    assert "aggregator together with" not in alone


def test_the_table_of_the_federation_is_not_shown_for_a_baseline() -> None:
    assert "aggregator + 2 silos" in rendered()
    assert "aggregator + 2 silos" not in rendered(baseline="trusted")


def test_what_silos_held_back_is_scored_where_there_are_no_test_records() -> None:
    rows = [
        {"step": row["step"], "epsilon": row["epsilon"], "held_back_accuracy": 1.07 - 0.05 * k}
        for k, row in enumerate(some_metrics())
    ]
    rows[1].pop("held_back_accuracy")
    page = rendered(metrics=rows, comparison=None)
    drawn = chart(page, "Line chart: held-back accuracy")
    assert same(
        points(drawn, "held-back accuracy"),
        [(row["step"], row["held_back_accuracy"]) for row in rows if len(row) > 2],
    )
    text = read(page).text
    assert "public test records" not in text
    assert "kept out of the training" in text


def test_every_chart_and_table_has_words_for_those_who_cannot_see_it() -> None:
    tree = read(rendered())
    assert all(one.attributes.get("aria-label") for one in tree.all("svg"))
    assert all(one.all("caption")[0].text for one in tree.all("table"))
    headings = [one.name for one in tree.walk() if re.fullmatch(r"h[1-6]", one.name)]
    assert headings[0] == "h1"
    assert set(headings[1:]) == {"h2"}


def test_a_model_of_unknown_size_is_said_to_be_so() -> None:
    plan = a_plan(upload_bytes_per_step=None, dimension=None)
    assert "not known before the model is" in read(rendered(plan=plan)).text


PARTS = [
    {
        "silo": "ghent",
        "attempts": 61,
        "ledger": {"head": "ab" * 32, "rows": 75},
        "data_set": {"epsilon": 0.61234, "delta": 1e-5, "relation": "add-remove"},
    },
    {"silo": HOSTILE, "attempts": 3, "ledger": {"head": "cd" * 32, "rows": 4}, "data_set": None},
]
CHECKED = [
    ("the plan follows", "re-derived"),
    ("ghent has spoken", "signed"),
    ("that nobody lied", "not verifiable"),
]


def rows_of(page: str) -> dict[str, list[str]]:
    return {
        one.all("th")[0].text: [cell.text for cell in one.all("td")]
        for one in read(page).all("tr")
        if one.all("td")
    }


def test_the_ledgers_are_shown_as_their_silos_signed_them() -> None:
    page = rendered(parts=PARTS)
    rows = rows_of(page)
    assert rows["ghent"] == ["61", "75", "0.613 at δ = 1e-5", "abababababababab…"]
    assert rows[HOSTILE][:3] == ["3", "4", "–"]
    assert "hubbub ledger show" in read(rendered()).text
    assert "What the ledgers say" not in read(rendered(baseline="trusted")).text


def test_of_many_silos_the_first_are_shown_and_the_rest_counted() -> None:
    many = [{**PARTS[0], "silo": f"silo-{k}"} for k in range(40)]
    page = rendered(parts=many)
    assert "silo-24" in rows_of(page)
    assert "silo-25" not in rows_of(page)
    assert "15 more silos" in read(page).text


@pytest.mark.slow
def test_bytes_and_seconds_are_those_of_the_attempts_made() -> None:
    rows = rows_of(rendered(attempts=10, seconds=5.0))
    assert rows["time"] == ["500 ms", "5 s"]
    assert rows["each silo sends"] == ["192 bytes", "1.92 kB"]
    assert rows["each silo receives"] == ["247 bytes", "2.47 kB"]
    assert rows["all silos together send"] == ["960 bytes", "9.6 kB"]
    assert "time" not in rows_of(rendered())
    assert rows_of(rendered())["each silo sends"][1] == "11.5 kB"
    assert rows_of(rendered(metrics=[], seconds=1.0))["time"] == ["–", "1 s"]


def test_findings_are_counted_and_what_is_on_trust_is_listed() -> None:
    page = rendered(checked=CHECKED)
    rows = rows_of(page)
    assert [rows[one][0] for one in ("re-derived", "signed", "not verifiable")] == ["1", "1", "1"]
    assert "That nobody lied." in [one.text for one in read(page).all("li")]
    assert "no claim was found to be wrong" in read(page).all("header")[0].text


def test_what_does_not_hold_stands_on_the_first_screen_and_in_full_below() -> None:
    page = rendered(checked=[*CHECKED, ("the sums add up", "wrong: round 7 does not")])
    assert "1 claim does not hold" in read(page).all("header")[0].text
    assert "the sums add up: wrong: round 7 does not" in [one.text for one in read(page).all("li")]


@pytest.mark.parametrize(
    ("charge", "words"), [(1, "after 1 charge the"), (7, "after 7 charges the")]
)
def test_what_nothing_bounds_any_more_comes_first(charge: int, words: str) -> None:
    spent = {"epsilon": None, "charge": charge, "silo": "north"}
    (alarm,) = broken(a_plan(), spent)
    assert words in alarm
    assert not broken(a_plan(), spent | {"epsilon": 0.49998})


def test_what_all_studies_spent_is_told_where_it_is_more_than_this_ones() -> None:
    (stated,) = (
        row["epsilon"]
        for row in a_plan()["epsilon"]
        if row["adversary"] == a_plan()["stated_adversary"]
    )
    spent = {"epsilon": 1.002 * stated, "charge": 2, "silo": "north"}
    (alarm,) = broken(a_plan(), spent)
    assert "for this study alone: after 2 charges" in alarm
    assert not broken(a_plan(), spent | {"epsilon": 1.0005 * stated})


@pytest.mark.parametrize(
    ("epsilon", "word", "factor", "scale"),
    [
        (0.02, "hardly", "at most 1.03,", "strong guarantee"),
        (0.9, "hardly", "at most 2.46,", "strong guarantee"),
        (2.0, "sometimes", "at most 7.39,", "fair guarantee"),
        (20.0, "perhaps", "", "weak guarantee"),
        (None, "nothing is guaranteed", "", "no guarantee"),
    ],
)
def test_the_first_screen_says_in_plain_words_how_strong_the_promise_is(
    epsilon: float | None, word: str, factor: str, scale: str
) -> None:
    rows = [
        exposure("aggregator", 0, 0.01),
        exposure("aggregator + 1 silo", 1, epsilon),
    ]
    page = rendered(plan=a_plan(epsilon=rows))
    header = read(page).all("header")[0]
    assert word in header.text
    assert factor in header.text
    assert any(one.text.startswith(scale) for one in of_class(header, "remark"))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium to look with")
def test_a_real_browser_shows_the_page_without_a_word_on_the_console(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(rendered(parts=PARTS, checked=CHECKED, seconds=3.0), encoding="utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text("<script>nothing.here()</script>", encoding="utf-8")
    assert "CONSOLE" not in shown(page)
    assert "What the ledgers say" in shown(page)
    assert "CONSOLE" in shown(broken)


def palettes() -> dict[str, dict[str, str]]:
    """The style's colours by scheme: those for light, and the changes to them."""
    style = (files("hubbub.desk.report") / "style.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    light, dark, paper = (dict(re.findall(r"--([\w-]+): (#\w{6})", one)) for one in blocks)
    return {"light": light, "dark": light | dark, "print": light | paper}


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2.2."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear_ = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear_, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_every_colour_of_text_stands_out_from_every_ground(scheme: str) -> None:
    found = palettes()[scheme]
    grounds, texts = ("paper", "card", "mark", "warn-card"), ("ink", "soft", "one", "two", "warn")
    assert isclose(contrast("#ffffff", "#000000"), 21)
    assert contrast("#777777", "#ffffff") < 4.5
    low = {
        (text, ground): contrast(found[text], found[ground]) for text in texts for ground in grounds
    }
    assert {pair: value for pair, value in low.items() if value < 4.5} == {}


LOOK = """
<body style="margin:0"><pre></pre><iframe style="border:0;height:900px;width:WIDTHpx"></iframe>
<script>
const frame = document.querySelector("iframe");
const found = [];
const close = 0.6;
frame.onload = () => {
  const page = frame.contentDocument, wide = page.documentElement.clientWidth;
  if (page.documentElement.scrollWidth > wide) found.push("page");
  for (const one of page.body.querySelectorAll("*")) {
    const box = one.getBoundingClientRect();
    const name = one.tagName + " " + one.textContent.slice(0, 30);
    if (box.right > wide + close || box.left < -close) found.push("outside: " + name);
    if (!one.ownerSVGElement && one.scrollWidth > one.clientWidth + 1 && one.clientWidth)
      found.push("wider than its place: " + name);
    if (one.tagName == "TD" && !one.textContent && getComputedStyle(one).display == "grid")
      found.push("a label of nothing: " + one.dataset.label);
  }
  for (const svg of page.querySelectorAll("svg")) {
    const box = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")];
    const boxes = texts.map((one) => one.getBoundingClientRect());
    boxes.forEach((one, k) => {
      const name = texts[k].textContent;
      if (one.left < box.left - close || one.right > box.right + close) found.push("cut: " + name);
      boxes.slice(0, k).forEach((other, j) => {
        const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        const both = name + " / " + texts[j].textContent;
        if (across > 1 && down > 4) found.push("over each other: " + both);
      });
    });
  }
  document.querySelector("pre").textContent = "FOUND" + JSON.stringify(found) + "END";
};
frame.srcdoc = PAGE;
</script>
"""


def misplaced(page: str, folder: Path, width: int, *, dark: bool = False) -> list[str]:
    """What a browser of this width shows outside the window, cut off, or over other text."""
    inner = json.dumps(page).replace("</", "<\\/")
    outer = folder / f"looked-at-{width}.html"
    outer.write_text(LOOK.replace("WIDTH", str(width)).replace("PAGE", inner), encoding="utf-8")
    said = re.search(r"FOUND(.*)END</pre>", shown(outer, dark=dark), re.DOTALL)
    assert said
    return list(json.loads(unescape(said[1])))


def a_wide_answer() -> dict[str, Any]:
    """A table 1 of five groups, with tests in the first row of each column."""
    blank = {"level": "", "p_value": None, "p_adjusted": None}
    rows = [
        {"quantity": kind, "column": "age", "group": group, "value": 3596.0, **blank}
        | {"low": 3564.0, "high": 3628.0}
        for kind in ("mean", "sd")
        for group in ("", "I", "II", "III", "IV", "V")
    ]
    tests = [{"column": "age", "p_value": 0.071, "p_adjusted": None, "smd": 0.055}]
    told = {"kind": "table", "title": "Description of age by stage", "confidence": 0.95}
    return told | {"rows": rows, "tests": tests, "curves": [], "notes": [], "refusal": ""}


LONG = "a-hospital-of-a-very-long-name-without-any-place-to-break-it-in-two"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium to look with")
@pytest.mark.parametrize(
    ("width", "dark"), [pytest.param(1280, False, marks=pytest.mark.slow), (390, True)]
)
def test_nothing_is_wider_than_the_window_or_cut_or_over_other_text(
    tmp_path: Path, width: int, dark: bool
) -> None:
    runs = [a_run("mine", None, 0.86), a_run(LONG, "trusted", 0.88)]
    page = rendered(
        plan=a_plan(study=LONG, compute_nodes=12, silos=400),
        parts=[{**PARTS[0], "silo": LONG}, *PARTS],
        checked=[*CHECKED, (f"that {LONG} has spoken", "wrong")],
        seconds=3.0,
        beside=runs,
        statistics={"baseline": a_wide_answer()},
    ).replace("<details>", "<details open>")
    assert misplaced(page, tmp_path, width, dark=dark) == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium to look with")
def test_what_is_too_wide_or_cut_is_noticed(tmp_path: Path) -> None:
    long = "<p style='white-space:nowrap'>" + "a long line " * 40 + "</p>"
    drawn = "<svg viewBox='0 0 99 99' width='99'><text x='80' y='9'>cut off</text></svg>"
    twice = "<svg viewBox='0 0 99 99'><text y='9'>one</text><text y='9'>two</text></svg>"
    found = misplaced(f"<body>{long}{drawn}{twice}</body>", tmp_path, 390)
    for start in ("page", "wider than its place", "cut: cut off", "over each other: two / one"):
        assert any(one.startswith(start) for one in found), found


def shown(page: Path, *, dark: bool = False) -> str:
    """What a browser makes of a page, and what it says on its console."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *("--enable-logging=stderr", "--log-level=0", "--virtual-time-budget=1000"),
            f"--blink-settings=preferredColorScheme={int(not dark)}",
            f"--user-data-dir={page.parent / 'profile'}",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout + "\n".join(console)


def test_a_decision_curve_names_no_line_that_is_outside_the_picture() -> None:
    places = {"x": [0.1, 0.2, 0.3], "low": [0.2, 0.2, 0.2], "high": [0.3, 0.3, 0.3]}
    model = {"name": "the model", "y": [0.25, 0.25, 0.25], **places}
    for benefit, is_seen in ((0.1, True), (-5.0, False)):
        drawn = decision_chart([model, {"name": "everybody", "y": [benefit] * 3, **places}])
        assert drawn is not None
        assert (">everybody<" in drawn[0].text) is is_seen
        assert ("outside the picture" in drawn[1]) is not is_seen


@pytest.mark.slow
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_a_linear_scale_holds_its_values_between_its_ticks(values: list[float]) -> None:
    scale = linear(values, 300, 20)
    slack = 1e-6 * (scale.high - scale.low)
    assert scale.low - slack <= min(values) <= max(values) <= scale.high + slack
    assert 2 <= len(scale.ticks) <= 8
    assert scale.place(scale.low) == 300
    assert scale.place(scale.high) == 20


def test_bounds_far_apart_are_drawn_on_a_logarithmic_scale() -> None:
    scale = bounds([0.5, 45.0], 0, 300)
    assert scale.log
    assert scale.ticks == (0.1, 1, 10, 100)
    assert isclose(scale.place(1), 100)
    assert not bounds([0.5, 5.0], 0, 300).log
