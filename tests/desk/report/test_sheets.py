"""Sheets: what is said once is said alike in every form, as text, and long tables are folded."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest
from tests.desk.report.test_paper import VALIDATION, told
from tests.learning.run.finished import a_study, finished

from hubbub.desk.cli import terminal
from hubbub.desk.cli.terminal import show
from hubbub.desk.report import answers, validation_sheet
from hubbub.desk.report.markup import join, policy
from hubbub.desk.report.paper.formats import written
from hubbub.desk.report.run_result import in_notebook, in_text, sheets_of
from hubbub.desk.report.sheet import Sheet, Table, full, html_of, lines_of, picture

TAG = "<script>alert(1)</script>"


def page(sheet: Sheet) -> str:
    return join(html_of(sheet)).text


def test_what_is_said_of_a_run_is_said_in_text_and_in_a_notebook(tmp_path: Path) -> None:
    result, _ = finished(a_study(steps=2), tmp_path / "run")
    run, *others = sheets_of(result)
    assert not others
    text, notebook = in_text(result), unescape(in_notebook(result))
    for words in (run.title, *run.sentences):
        assert words in text.splitlines()
        assert words in notebook


@pytest.mark.parametrize(
    "sheet",
    [
        validation_sheet.sheet_of(VALIDATION),
        *(answers.sheet_of(name, answer) for name, answer in told()["statistics"].items()),
    ],
    ids=lambda sheet: sheet.name or "validation",
)
def test_a_sheet_has_the_same_sentences_and_cells_in_every_form(
    sheet: Sheet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal._out, "width", 300)
    show(sheet)
    forms = [capsys.readouterr().out, "\n".join(lines_of(sheet)), unescape(page(sheet))]
    for form in forms:
        for words in sheet.sentences:
            assert words in form or full(words) in form
    numbers = [cell.split(" (")[0] for table in sheet.tables for row in table.rows for cell in row]
    assert all(cell in form for form in forms[:2] for cell in numbers)
    shown = [table for table in sheet.tables if not table.is_drawn]
    paper = written(Sheet(title="", tables=tuple(shown)), "html")["tables.html"].decode()
    assert paper.count("<td") == page(Sheet(title="", tables=tuple(shown))).count("<td")
    assert unescape(policy()) in unescape(paper)


def test_nothing_in_a_sheet_is_markup() -> None:
    table = Table(("", TAG), ((TAG, TAG),), TAG, notes=(TAG,))
    sheet = Sheet(title=TAG, sentences=(TAG,), tables=(table,), notes=(TAG,))
    for text in (page(sheet), written(sheet, "html")["tables.html"].decode()):
        assert "<script" not in text
        assert text.count("&lt;script&gt;") >= 5


def test_what_a_figure_shows_and_what_is_long_is_not_in_the_way() -> None:
    row = ("a", "1")
    short, long = Table(("", "n"), (row,), "short"), Table(("", "n"), (row,) * 41, "long")
    drawn = Table(("", "n"), (row,), "drawn", is_drawn=True)
    text = page(Sheet(title="", tables=(short, long, drawn)))
    assert text.count("<details>") == 1
    assert "<summary>long" in text
    assert "drawn" not in text
    assert "drawn" not in "".join(lines_of(Sheet(title="", tables=(short,))))


def test_a_notebook_gets_pictures_that_load_nothing() -> None:
    sheet = validation_sheet.sheet_of(VALIDATION)
    text = join(html_of(sheet, picture)).text
    assert text.count('src="data:image/svg+xml;base64,') == len(sheet.figures) == 1


def test_only_what_is_told_apart_is_called_better_or_worse() -> None:
    """The page had said “no better” of what the table beside it could not tell."""
    scores = {"auc": {"value": 0.6, "low": 0.4, "high": 0.8, "null": 0.5, "is_better": None}}
    everybody = VALIDATION["all"] | {"scores": scores, "calibration": None}
    sheet = validation_sheet.sheet_of(VALIDATION | {"all": everybody, "groups": []})
    assert "cannot be told from guessing (0.500)" in sheet.sentences[0]
    assert sheet.tables[0].rows == (("AUC", "0.600 (0.400 to 0.800)", "0.500", "cannot tell"),)


def test_a_difference_of_shares_is_in_percentage_points() -> None:
    row = {
        "quantity": "risk difference",
        "column": "arm",
        "level": "b against a",
        "group": "",
        "value": -0.014,
        "low": -0.03,
        "high": 0.002,
        "p_value": None,
    }
    answer = {"kind": "crosstab", "rows": [row], "tests": [], "curves": []}
    ((_, cell),) = answers.tables_of(answer)["compared"].rows
    assert cell == "-1.4 percentage points (-3.0 to 0.2)"


def test_a_long_name_of_a_row_leaves_the_other_columns_legible(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "_out", terminal.console(width=80))
    rows = [("aggregator + 1 silo, about a patient with up to 5 records", "weaker", "1", "2")]
    terminal.table("who", ("adversary", "guarantee", "noise", "epsilon"), rows, is_named=True)
    said = capsys.readouterr().out
    assert all(word in said for word in ("guarantee", "weaker", "noise", "epsilon"))
