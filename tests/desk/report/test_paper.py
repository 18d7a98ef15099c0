"""What a paper prints of a run's statistics, in every format."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from estimation.made_up import AGE, DIED, MARKER, SEX, STAGE, TIME, patients
from hubbub.core.disk import write_text
from hubbub.core.errors import StudyError, UserError
from hubbub.core.tabular.cells import is_like_formula
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.desk.cli.main import main
from hubbub.desk.report.answers import _cell, estimate_words, figure_of, p_words, printed, table_of
from hubbub.desk.report.markup import join
from hubbub.desk.report.paper.formats import FIGURES, FORMATS, figure_file, written
from hubbub.desk.report.paper.manuscript import effects_table, manuscript_of
from hubbub.desk.report.run_result import answers_in_notebook
from hubbub.desk.report.sheet import Sheet
from hubbub.estimation.incidence import Incidence
from hubbub.estimation.kinds import statistic_from, statistics_from
from hubbub.estimation.queries.sums_query import tables_of
from hubbub.estimation.stacking import stack
from hubbub.estimation.statistic import OneSum

COLUMNS = {one.name: one for one in (AGE, TIME, SEX, STAGE, DIED, MARKER)}
ASKED: dict[str, dict[str, Any]] = {
    "baseline": {"kind": "table", "columns": ["age", "stage"], "by": "sex"},
    "ages": {"kind": "quantiles", "column": "age"},
    "died": {"kind": "crosstab", "rows": "sex", "columns": "died"},
    "os": {
        "kind": "survival",
        "time": "time",
        "event": "died",
        "by": "sex",
        "test": "log-rank",
        "bins": 24,
    },
    "hr": {
        "kind": "cox",
        "time": "time",
        "event": "died",
        "covariates": {"sex": "categories"},
    },
    "none": {"kind": "histogram", "column": "marker", "bins": 4},
}


def told(sigma: float = 1.0) -> dict[str, Any]:
    """What `statistics.json` would hold."""
    stacked = stack({name: statistic_from(name, one, COLUMNS) for name, one in ASKED.items()})
    noise = sigma * np.random.default_rng(1).standard_normal(stacked.size)
    answers = stacked.answers([stacked.sum(patients()) + noise], sigma)
    statistics = {name: one.to_dict() for name, one in answers.items()}
    statistics["none"] |= {"refusal": "too few records for the noise", "rows": []}
    return {
        "study": "five & six_seven",
        "epsilon": 2.0,
        "delta": 1e-5,
        "relation": "add-remove",
        "adversary": "aggregator + 1 silos",
        "unit": "record",
        "statistics": statistics,
    }


@pytest.fixture(scope="module")
def paper() -> Sheet:
    return manuscript_of(told(1e-6))


def test_table_1_is_as_journals_print_it(paper: Sheet) -> None:
    table = next(one for one in paper.tables if one.name == "baseline")
    assert table.head == ("", "Overall (n = 1,500)", "f (n = 750)", "m (n = 750)", "p", "SMD")
    cells = {row[0]: row for row in table.rows}
    age = patients()["age"]
    assert cells["age, mean (SD)"][1] == f"{age.mean():.1f} ({age.std():.1f})"
    assert cells["age, median [IQR]"][1].startswith("5")
    first = patients()["stage"] == 0
    assert cells["  I"][1] == f"{first.sum():,} ({100 * first.mean():.1f})"
    assert cells["stage, n (%)"][4:] != ("", "")
    assert cells["  I"][4:] == ("", "")


def test_a_mean_without_a_spread_stands_alone() -> None:
    whole = told(1e-6)
    rows = whole["statistics"]["baseline"]["rows"]
    rows[:] = [row for row in rows if (row["quantity"], row["group"]) != ("sd", "")]
    table = next(one for one in manuscript_of(whole).tables if one.name == "baseline")
    cells = {row[0]: row for row in table.rows}
    assert cells["age, mean (SD)"][1] == f"{patients()['age'].mean():.1f} (–)"


def test_a_number_just_below_a_thousand_is_no_power_of_ten() -> None:
    row = {"quantity": "restricted mean", "value": 999.7, "low": 900.0, "high": 1099.0}
    assert _cell(row) == "1,000 (900 to 1,099)"


def test_what_was_refused_has_no_table_and_the_flow_says_who_is_in(paper: Sheet) -> None:
    names = [one.name for one in paper.tables]
    assert names[0] == "flow"
    assert "none" not in names
    assert {"died", "died-compared", "os", "os-over-time"} <= {*names}
    assert [row[1] for row in paper.tables[0].rows] == ["1,500", "1,500", "1,500"]


def scored(name: str, value: float) -> dict[str, Any]:
    return {"value": value, "low": value - 0.05, "high": value + 0.05, "null": 0.5}


VALIDATION: dict[str, Any] = {
    "records": "held-back",
    "flatters": None,
    "telling": "auc",
    "refusal": "",
    "unit": "record",
    "all": {
        "by": "",
        "group": "",
        "count": 300.0,
        "count_error": 5.0,
        "scores": {
            "auc": {**scored("auc", 0.8), "is_better": True},
            "brier": {**scored("brier", 0.17), "is_better": None},
        },
        "calibration": {
            "name": "the model",
            "x": [0.1, 0.4],
            "y": [0.15, 0.5],
            "low": [0.1, 0.4],
            "high": [0.2, 0.6],
        },
        "decisions": [],
    },
    "groups": [
        {
            "by": "sex",
            "group": "f",
            "count": 150.0,
            "count_error": 5.0,
            "scores": {"auc": {**scored("auc", 0.75), "is_better": True}},
        },
        {"by": "centre", "group": "north", "count": 9.0, "count_error": 5.0, "scores": {}},
    ],
}


def test_a_model_has_its_scores_by_group_its_figures_and_a_sentence() -> None:
    plan = {
        "silos": 3,
        "stated_adversary": "aggregator + 1 silo",
        "epsilon": [
            {"adversary": "another", "epsilon": 9.0},
            {"adversary": "aggregator + 1 silo", "epsilon": 3.5},
        ],
    }
    paper = manuscript_of(told(), validation=VALIDATION, plan=plan)
    tables = {one.name: one for one in paper.tables}
    assert tables["validation"].rows[0][:2] == ("AUC", "0.800 (0.750–0.850)")
    assert tables["validation-groups"].rows[0][:2] == ("sex: f", "150")
    assert tables["validation-groups"].rows[1][3] == "too few for this noise"
    assert "calibration" in [one.name for one in paper.figures]
    assert "held back" in paper.sentences[0]
    assert "epsilon 3.50," in paper.sentences[0]
    for epsilon, said in ((3.49001, "3.50"), (None, "over 50: no guarantee")):
        plan["epsilon"][1]["epsilon"] = epsilon
        assert f"epsilon {said}," in manuscript_of(told(), plan=plan).sentences[0]
    for kind in ("html", "latex", "csv"):
        assert written(paper, kind)


def test_the_flow_is_drawn_and_tells_who_is_left_out_only_where_noise_cannot_be_why() -> None:
    exact = told(1e-6)
    exact["statistics"]["died"]["rows"] = [
        {**row, "value": row["value"] - 50, "standard_error": 1.0}
        if row["quantity"] == "records"
        else row
        for row in exact["statistics"]["died"]["rows"]
    ]
    for noisy, fewer in ((False, True), (True, False)):
        if noisy:
            for row in exact["statistics"]["died"]["rows"]:
                row["standard_error"] = 200.0
        paper = manuscript_of(exact, validation=VALIDATION)
        svg = figure_file(paper.figures[0], "svg").decode()
        assert paper.figures[0].name == "flow"
        assert "1,500 (± 0) records" in svg
        assert "f 750; m 750" in svg
        assert "1,200 fewer:" in svg  # of 1,500, who are validated on
        assert ("200 fewer:" in svg.replace("1,200 fewer:", "")) == fewer
        row = {line[0]: line for line in paper.tables[0].rows}["sex by died (died)"]
        assert (row[3] != "") == fewer


def test_the_methods_say_the_promise_and_what_was_done(paper: Sheet) -> None:
    for said in (
        "Kaplan-Meier",
        "epsilon 2.00, delta 1e-05",
        "one record added or removed",
        "noise",
    ):
        assert said in paper.sentences[0] or said.replace("1e-05", "1e-5") in paper.sentences[0]
    assert "Holm" not in paper.sentences[0]


def test_latex_escapes_what_it_would_take_for_its_own(paper: Sheet) -> None:
    text = written(paper, "latex")["tables.tex"].decode()
    assert r"n (\%)" in text
    assert text.count(r"\begin{tabular}") == len(paper.tables)
    assert r"\quad I &" in text
    assert r"\includegraphics[width=\linewidth]{os.pdf}" in text


def test_a_page_has_all_tables_and_figures_and_escapes_names(paper: Sheet) -> None:
    text = written(paper, "html")["tables.html"].decode()
    assert "five &amp; six_seven" in text
    assert text.count("<table") == len(paper.tables)
    assert text.count("<svg") == len(paper.figures)


def test_survival_figures_have_the_p_value_and_numbers_at_risk(paper: Sheet) -> None:
    (drawn,) = (one for one in paper.figures if one.name == "os")
    svg = figure_file(drawn, "svg").decode()
    assert "log-rank p &lt; 0.001" in svg
    assert ">1,500<" in svg
    assert "at risk, with noise" in svg
    assert drawn.height > 270


@pytest.mark.parametrize("width", [0.3, 0.02, 0.004, 0.0005, 2e-5])
def test_no_interval_is_printed_as_if_it_had_no_width(width: float) -> None:
    """As a ratio per unit of a column would be by three digits: 1.02 (1.02 to 1.02)."""
    ends = {"low": 1.0203 - width / 2, "high": 1.0203 + width / 2}
    row = {"quantity": "odds ratio", "value": 1.0203, **ends}
    for words in (_cell(row), estimate_words(row), estimate_words(row, 20)):
        value, low, high = re.findall(r"[\d.]+", words)
        assert float(low) < float(value) < float(high)
        assert float(high) - float(low) == pytest.approx(width, rel=0.6)


@pytest.mark.slow
def test_forests_tell_estimates_to_two_digits_of_their_intervals_width() -> None:
    for ends, wanted in (
        ((0.8, 0.692, 0.925), "0.80 (0.69–0.93)"),
        ((1.00312, 1.0011, 1.0051), "1.003 (1.001–1.005)"),  # or it would leave the picture
        ((310.0, 240.0, 380.0), "310 (240–380)"),
        ((3.131, 2.512, 3.908), "3.13 (2.51–3.91)"),
    ):
        answer = told()["statistics"]["hr"]
        answer["rows"] = answer["rows"][:1]
        answer["rows"][0] |= dict(zip(("value", "low", "high"), ends, strict=True))
        drawn = figure_of(answer)
        assert drawn is not None
        assert f">{wanted}<" in drawn.chart.text
        assert 'class="limit"' in drawn.chart.text  # of no difference


def test_p_values_are_as_papers_print_them() -> None:
    for value, wanted in ((4e-7, "< 0.001"), (0.00099, "< 0.001"), (0.0014, "= 0.001")):
        assert p_words(value, equal="= ") == wanted
    for value, wanted in ((0.0482, "0.048"), (0.1, "0.10"), (0.995, "> 0.99"), (None, "")):
        assert p_words(value) == wanted


def test_ends_below_zero_have_a_word_between_them_and_a_minus() -> None:
    below = {"value": -0.31, "low": -0.52, "high": -0.1}
    assert estimate_words(below) == "−0.31 (−0.52 to −0.10)"
    assert printed("-9.4 % (-12.0 to -6.8)") == "−9.4 % (−12.0 to −6.8)"
    assert printed("60 to <75, a-1 (1,100 to 1,300.5)") == "60 to <75, a-1 (1,100–1,300.5)"


def effect(level: str, value: float, column: str = "ward", group: str = "") -> dict[str, Any]:
    """A row of a regression."""
    told_row = {"quantity": "odds ratio", "column": column, "level": level, "group": group}
    ends = {"value": value, "low": value / 1.2, "high": value * 1.2}
    return told_row | ends | {"standard_error": 0.1, "p_value": value / 10, "p_adjusted": None}


def regression(*rows: dict[str, Any], kind: str = "logistic") -> dict[str, Any]:
    made = {"kind": kind, "title": "a regression", "confidence": 0.95, "rows": [*rows]}
    return made | {"curves": [], "tests": [], "notes": ["a note"], "refusal": ""}


def test_effects_stand_below_their_column_after_the_reference() -> None:
    rows = (effect("per unit", 1.1, "age"), effect("b against a", 1.5), effect("c against a", 0.5))
    table = effects_table(regression(*rows))
    assert table.head == ("", "odds ratio (95 % interval)", "p")
    assert table.rows == (
        ("age, per unit", "1.10 (0.92–1.32)", "0.11"),
        ("ward", "", ""),
        ("  a", "reference", ""),
        ("  b", "1.50 (1.25–1.80)", "0.15"),
        ("  c", "0.50 (0.42–0.60)", "0.050"),
    )
    answer = {"statistics": {"the model": regression(*rows)}}
    paper = manuscript_of(told() | {"statistics": {}}, coefficients=answer)
    (printed,) = paper.tables
    assert (printed.name, printed.rows, printed.notes) == ("the-model", table.rows, ("a note",))
    assert "odds ratios are from logistic" in paper.sentences[0].lower()


@pytest.mark.slow
def test_the_methods_name_every_regression_and_that_of_logarithms() -> None:
    for kind, said in (
        ("poisson", "rate ratios are from Poisson regressions"),
        ("multinomial", "multinomial regressions"),
        ("linear", "differences of means are from linear regressions."),
    ):
        whole = told() | {"statistics": {"own": regression(effect("per unit", 1.1), kind=kind)}}
        assert said.lower() in manuscript_of(whole).sentences[0].lower()
    logarithms = effect("per unit", 1.1) | {"quantity": "ratio of geometric means"}
    whole = told() | {"statistics": {"own": regression(logarithms, kind="linear")}}
    assert "linear regressions of logarithms" in manuscript_of(whole).sentences[0]


def test_effects_on_each_class_and_in_each_subgroup_have_their_own_p_values() -> None:
    """On the page and in the paper: the last one's had stood for all."""
    several = regression(
        *(effect("per unit", value, "age", one) for value, one in ((1.1, "II"), (2.0, "III"))),
        *(effect("b against a", value, "ward", one) for value, one in ((1.3, "II"), (3.0, "III"))),
        kind="multinomial",
    )
    assert [row[0] for row in effects_table(several).rows] == [
        *("II", "age, per unit", "ward", "  a", "  b"),
        *("III", "age, per unit", "ward", "  a", "  b"),
    ]
    subgroups = regression(effect("b against a", 1.5), effect("b against a", 3.0, group="sex: F"))
    assert effects_table(subgroups).rows[-1][::2] == ("sex: F; ward: b against a", "0.30")
    shown = table_of(subgroups)
    assert shown is not None
    assert [(row[0], row[-1]) for row in shown.rows] == [
        ("ward: b against a, odds ratio", "0.15"),
        ("sex: F; ward: b against a, odds ratio", "0.30"),
    ]


@pytest.mark.slow
def test_whatever_columns_are_called_no_format_takes_it_for_its_own() -> None:
    """A name with a tag, LaTeX's characters, and a class that could be an argument of a line."""
    name, level = "<b>a_b & 5%#", "[0,1)*"
    text = json.dumps(told(1e-6)["statistics"])
    for old, new in (("sex", name), ('"I"', json.dumps(level))):
        text = text.replace(old, new)
    paper = manuscript_of(told() | {"statistics": json.loads(text)})
    page = written(paper, "html")["tables.html"].decode()
    assert "<b>" not in page
    assert "&lt;b&gt;a_b &amp; 5%#" in page
    latex = written(paper, "latex")["tables.tex"].decode()
    assert r"$<$b$>$a\_b \& 5\%\#" in latex
    assert r"\quad {[}0,1){*} &" in latex
    assert not any(line.startswith(("[", "*")) for line in latex.splitlines())
    assert all("<b>" not in figure_file(one, "svg").decode() for one in paper.figures)
    docx = pytest.importorskip("docx")
    found = docx.Document(io.BytesIO(written(paper, "docx")["tables.docx"]))
    assert any(level in cell.text for cell in found.tables[1].columns[0].cells)


@pytest.mark.slow
def test_figures_are_files_of_each_kind(paper: Sheet) -> None:
    pytest.importorskip("matplotlib")
    begins = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}
    for kind in FIGURES:
        for drawn in paper.figures:
            file = figure_file(drawn, kind)
            assert file.startswith(begins[kind])
            assert file == figure_file(drawn, kind)


@pytest.mark.slow
def test_a_word_document_has_all_tables(paper: Sheet) -> None:
    docx = pytest.importorskip("docx")
    file = written(paper, "docx")["tables.docx"]
    found = docx.Document(io.BytesIO(file))
    assert len(found.tables) == len(paper.tables)
    for table, wanted in zip(found.tables, paper.tables, strict=True):
        assert tuple(cell.text for cell in table.rows[0].cells) == wanted.head
        assert "tblHeader" in table.rows[0]._tr.xml  # which Word repeats on each page
        assert "tblHeader" not in table.rows[1]._tr.xml
    first = {row.cells[0].text: row.cells[0].paragraphs[0] for row in found.tables[1].rows}
    assert first["I"].paragraph_format.left_indent
    assert not first["stage, n (%)"].paragraph_format.left_indent
    assert zipfile.ZipFile(io.BytesIO(file)).testzip() is None


def test_the_command_writes_files_beside_the_run(tmp_path: Path) -> None:
    write_text(tmp_path / "statistics.json", json.dumps(told()))
    code = main(["table", str(tmp_path), "--format", "csv,html", "--figures", "svg", "--json"])
    assert code == 0
    found = {one.name for one in (tmp_path / "paper").iterdir()}
    assert {"baseline.csv", "methods.txt", "tables.html", "os.svg", "hr.svg"} <= found


def test_an_unknown_format_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_text(tmp_path / "statistics.json", "{}")
    assert main(["table", str(tmp_path), "--format", "pdf"]) == 2
    assert f"expected some of {', '.join(FORMATS)}" in capsys.readouterr().err
    assert main(["table", str(tmp_path / "nothing")]) == 2


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, paper: Sheet) -> None:
    import builtins

    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] in ("docx", "matplotlib"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match="python-docx"):
        written(paper, "docx")
    with pytest.raises(UserError, match="matplotlib"):
        figure_file(paper.figures[0], "pdf")


@pytest.mark.slow
def test_a_notebook_shows_the_figures_and_frames_hold_the_rows() -> None:
    answers = told()["statistics"]
    page = join(answers_in_notebook(answers)).text
    drawn = [one.name for one in manuscript_of(told()).figures if one.name != "flow"]
    assert page.count('<img src="data:image/svg+xml;base64,') == len(drawn)
    pandas = pytest.importorskip("pandas")
    asked = statistic_from("q", ASKED["os"], COLUMNS)
    assert isinstance(asked, OneSum)
    found = asked.answer(asked.encode(patients()).sum(axis=0), 1.0)
    assert list(found.to_frame("tests")["name"]) == [one.name for one in found.tests]
    points = found.to_frame("curves")
    assert len(points) == sum(len(curve.x) for curve in found.curves)
    assert {"name", "x", "y", "low", "high", "at_risk"} <= {*points.columns}
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["value"]) == [row.value for row in found.rows]


def test_curves_of_one_group_share_their_numbers_at_risk() -> None:
    """Two kinds of event in two groups: two lines of numbers, called by the groups."""
    cause = Column(name="cause", categories=("none", "relapse", "death"))
    kinds = np.where(patients()["died"] == 1, 1.0 + patients()["sex"], 0.0)
    asked = Incidence(
        time=TIME, event=cause, edges=tuple(map(float, range(25))), by=Levels(column=SEX)
    )
    sums = asked.encode(patients() | {"cause": kinds}).sum(axis=0)
    drawn = figure_of(asked.answer(sums, 1.0).to_dict())
    assert drawn is not None
    for label in ("f", "m"):
        assert drawn.chart.text.count(f">{label}<") == 1
    assert drawn.chart.text.count('class="risk"') == 2 * 7


HOSTILE = {
    "root": "/srv/x",
    "above": "../../x",
    "here": ".",
    "nothing": "",
    "LaTeX": r"}\input{/etc/passwd}\end{document}",
    "paragraph": "a\n\n\\write18{x}",
    "script": '"><script>alert(1)</script><img src=x onerror=y>',
    "formula": '=HYPERLINK("http://x")',
    "hidden formula": "\ufeff\u200b@SUM(1+1)",
    "control": "a\x00b\x1b[31m\x85\ufffe",
    "signs": "%$&#_^~{}[]*<>|`'",
    "turned": "\u202egnp.exe",
    "long": "x" * 500,
    "option": "-rf",
}
TAGS = {"html", "head", "meta", "title", "style", "body", "main", "h1", "p", "table", "caption"} | {
    *("thead", "tbody", "tr", "th", "td", "figure", "figcaption", "svg", "line", "text", "path"),
    *("polyline", "polygon", "rect", "circle", "g", "desc", "tspan", "title", "div", "span"),
}


def called(text: str) -> dict[str, Any]:
    """What `statistics.json` would hold of questions, columns and classes that are called so."""
    words = re.compile(r"\b(sex|stage|marker|died|III|f)\b")

    def renamed(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {key: renamed(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [renamed(one, key) for one in value]
        kept = not isinstance(value, str) or key in ("kind", "quantity", "relation", "adversary")
        return value if kept else words.sub(lambda word: text + word[0], value)

    known = told(1e-6)
    statistics = {
        text + (str(number) if number else ""): renamed(one)
        for number, one in enumerate(known["statistics"].values())
    }
    return known | {"study": text, "statistics": statistics}


class Tags(HTMLParser):
    """The names of a page's elements, and of their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.quick_cases("hidden formula", "control")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_whatever_things_are_called_it_is_text_in_each_format(text: str) -> None:
    paper = manuscript_of(called(text))
    assert len({one.name for one in paper.tables}) == len(paper.tables)
    for name, file in (*written(paper, "csv").items(), *written(paper, "html").items()):
        assert Path(name).name == name
        if name.endswith(".csv"):
            rows = list(csv.reader(io.StringIO(file.decode(), newline="")))
            assert not any(is_like_formula(cell) for row in rows for cell in row)
    page = Tags()
    page.feed(written(paper, "html")["tables.html"].decode())
    assert page.names <= TAGS
    assert not {name for name in page.attributes if name.startswith("on")}
    for drawn in paper.figures:
        ET.fromstring(figure_file(drawn, "svg").decode())  # noqa: S314 (made here)


@pytest.mark.quick_cases("script", "hidden formula", "control", "signs")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_whatever_things_are_called_latex_has_its_own_commands_alone(text: str) -> None:
    paper = manuscript_of(called(text))
    document = written(paper, "latex")["tables.tex"].decode()
    bare = re.sub(r"\\[\\&%$#_{}]", "", document)
    known = (
        r"\\(begin|end|caption|centering|small|toprule|midrule|bottomrule|par|footnotesize|quad)"
    )
    signs = r"|\\(textbackslash|textasciitilde|textasciicircum|pm|times|includegraphics|linewidth)"
    assert not re.search(r"\\", re.sub(f"({known}{signs})(?![a-zA-Z])", "", bare.split("\n", 1)[1]))
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"\\caption\{[^}]*\n", bare)


@pytest.mark.slow
@pytest.mark.parametrize("text", [HOSTILE["control"], HOSTILE["script"]], ids=["control", "script"])
def test_whatever_things_are_called_a_word_document_opens(text: str) -> None:
    docx = pytest.importorskip("docx", reason="needs the extra paper")
    pytest.importorskip("matplotlib", reason="needs the extra paper")
    document = docx.Document(
        io.BytesIO(written(manuscript_of(called(text)), "docx")["tables.docx"])
    )
    assert len(document.tables) == len(manuscript_of(called(text)).tables)


@pytest.mark.quick_cases("formula", "long", "here")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_files_of_a_paper_stay_in_their_folder(text: str, tmp_path: Path) -> None:
    run = tmp_path / "deep" / "er" / "run"
    run.mkdir(parents=True)
    write_text(run / "statistics.json", json.dumps(called(text)))
    assert main(["table", str(run), "--format", "html,latex,csv", "--figures", "svg"]) == 0
    there = {path for path in tmp_path.rglob("*") if path.is_file()} - {run / "statistics.json"}
    assert {path.parent for path in there} == {run / "paper"}


def test_files_of_things_called_alike_are_kept_apart_by_every_disk() -> None:
    """Also by such as tell no large letters from small ones, and have devices of some names."""
    known = told(1e-6)
    answers = [json.dumps(known["statistics"]["died"])] * 6
    names = ("Arm", "arm", "ARM-2", "con", "NUL.x", "falcon")
    known["statistics"] = dict(zip(names, map(json.loads, answers), strict=True))
    tables = tables_of(known["statistics"])
    for files in ([*written(manuscript_of(known), "csv")], [*tables]):
        stems = [Path(one.casefold()).name.split(".")[0] for one in files]
        assert len({one.casefold() for one in files}) == len(files)
        assert not {"con", "nul"} & {*stems}
        assert "falcon" in stems


def test_a_link_in_a_run_carries_no_file_elsewhere(tmp_path: Path, capsys: Any) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir(), other.mkdir()
    write_text(run / "statistics.json", json.dumps(told()))
    (run / "paper").symlink_to(other)
    assert main(["table", str(run)]) == 2
    assert "outside" in capsys.readouterr().err
    assert not list(other.iterdir())


@pytest.mark.parametrize("name", ["/srv/x", "../x", "a\\b", ".x", "", "a\nb", "\u202ex", "x" * 101])
def test_a_study_does_not_call_a_statistic_what_is_no_plain_text(name: str) -> None:
    table = {name: {"kind": "quantiles", "column": "age"}}
    with pytest.raises(StudyError, match="name of a statistic"):
        statistics_from(table, COLUMNS, alone=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_answers_that_were_altered_end_in_a_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each part of an answer gone, or something else."""
    known = told(1e-6)
    for key in known["statistics"][name]:
        others = {k: v for k, v in known["statistics"][name].items() if k != key}
        for answer in (others, *({**others, key: value} for value in (None, "x", 1e308, [None]))):
            altered = known | {"statistics": known["statistics"] | {name: answer}}
            write_text(tmp_path / "statistics.json", json.dumps(altered))
            code = main(["table", str(tmp_path), "--format", "html,latex", "--figures", "svg"])
            said = capsys.readouterr().err
            assert code in (0, 1)
            assert (said.count("\n") == 1 and "expected" in said) == bool(code)


NO_ANSWERS = ("", "[]", "null", "{}", '{"study": "\\ud800"}', "\0", "[" * 10**5)


@pytest.mark.quick_cases(
    "statistics.json-0", "statistics.json-3", "validation.json-4", "statistics.json-1"
)
@pytest.mark.parametrize("text", NO_ANSWERS, ids=range(len(NO_ANSWERS)))
@pytest.mark.parametrize("name", ["statistics.json", "validation.json", "plan.json"])
def test_what_is_no_file_of_a_run_ends_in_a_sentence(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(tmp_path / "statistics.json", json.dumps(told()))
    write_text(tmp_path / name, text)
    assert main(["table", str(tmp_path)]) in (0, 1, 2)
    assert capsys.readouterr().err.count("\n") <= 1
